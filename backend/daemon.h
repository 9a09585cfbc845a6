// batond: puts the arbiter between its sockets, keeps its state on disk, and answers signals.
// Not thread safe: Start() and Run() belong to one thread.
#ifndef BATON_BACKEND_DAEMON_H_
#define BATON_BACKEND_DAEMON_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/arbiter.h"
#include "backend/books.h"
#include "backend/control.h"
#include "backend/devices.h"
#include "backend/energy.h"
#include "backend/leases.h"
#include "backend/node_endpoint.h"
#include "backend/pods.h"
#include "backend/pods_file.h"
#include "backend/upstream.h"
#include "backend/usage_book.h"
#include "backend/vgpus.h"
#include "backend/web.h"
#include "base/file.h"
#include "config/options.h"
#include "devmgr/machine/nvml.h"
#include "net/node_list.h"
#include "node/control_socket.h"
#include "node/event_log.h"
#include "node/signals.h"
#include "node/tenant_endpoint.h"

namespace baton::backend {

class Daemon : private node::TenantSink, private ClientLink {
 public:
  // `config_path`: read again on SIGHUP; empty: there is none.
  Daemon(config::Options options, std::string config_path);
  ~Daemon() override;

  // Takes the locks of the state and of this machine's GPUs. kExists: another daemon has one of
  // them, and this one has none. Start() does so too, where it was not done.
  Result<void> TakeLocks();
  // Reads the state, listens. An error is one line for the operator.
  Result<void> Start();
  // Serves until SIGTERM or SIGINT, then stores the state and removes the sockets.
  void Run();

  // As a signal would.
  void Reload();
  void Stop();

 private:
  // TenantSink
  void OnHello(uint64_t client, const node::Peer& peer, const wire::Hello& hello,
               std::string_view frame) override;
  void OnAttach(uint64_t client, const wire::Attach& attach, std::string_view frame) override;
  void OnState(uint64_t client, const wire::State& state, const scheduler::Measured& measured,
               std::string_view frame) override;
  void OnMemory(uint64_t client, const wire::Memory& memory, std::string_view frame) override;
  void OnEnded(uint64_t client, uint8_t gpu, uint64_t epoch, Duration held) override;
  void OnDown(uint64_t client, wire::DownReason reason) override;
  void OnTenantNote(uint64_t client, const std::string& text) override;
  void OnBound(const std::string& text) override;
  // ClientLink, for clients of this machine
  void Send(uint64_t number, std::string_view frame) override;
  void SendAhead(uint64_t number, const wire::Token& token) override;
  void Refuse(uint64_t number, wire::ErrorKind kind, std::string_view text) override;
  void KillProcess(uint64_t number) override;

  Result<void> ReadState();
  void StartKernelCaps();
  Result<void> AddLocalGpus();
  Result<void> StartDevices();
  void SetCards(std::vector<devmgr::Card> cards);
  void ReconcileDevices();
  void OnLook(devmgr::Node node, const std::vector<std::string>& news,
              const SeenProcesses& processes);
  void AdoptMissing();
  // Of what is ours on the disk and was taken away while this daemon runs; empty: nothing.
  std::string FoldersTrouble() const;
  // Each second: takes in what has changed in zmq.nodes_file; and now and then FoldersTrouble().
  void Look();
  Result<void> ListenToUsers(const std::string& control_dir);
  DaemonStatus Status() const;
  ClientId Find(uint64_t number) const;

  boost::asio::io_context io_{1};
  node::Signals signals_{io_, {SIGTERM, SIGINT, SIGHUP}};  // before whatever starts threads
  config::Options options_;
  const std::string config_path_;
  const std::string started_;
  node::EventLog log_;
  std::shared_ptr<devmgr::Nvml> nvml_;
  Pods pods_;
  std::optional<PodsFile> file_;
  std::optional<Vgpus> vgpus_;
  UsageBook usage_;
  UniqueFd state_lock_;
  std::vector<std::string> troubles_;          // with what it left behind
  std::map<std::string, UniqueFd> gpu_locks_;  // by uuid
  bool locked_ = false;                        // TakeLocks() has succeeded
  std::optional<Arbiter> arbiter_;
  std::optional<Devices> devices_;
  std::optional<Energy> energy_;
  std::optional<Books> books_;
  std::optional<Leases> leases_;
  std::optional<Control> control_;
  std::optional<node::ControlSocket> control_socket_;
  std::optional<node::ControlSocket> users_socket_;
  std::optional<node::TenantEndpoint> tenants_;
  std::optional<NodeEndpoint> nodes_;
  std::optional<Upstream> upstream_;
  std::optional<Web> web_;
  std::set<std::string> seen_;   // GPUs that NVML has told of
  std::string web_trouble_;      // why it is not served
  std::string folders_trouble_;  // as last said
  std::string nodes_trouble_;    // with the file of nodes, as last said
  net::NodeList node_list_;
  uint64_t looks_ = 0;
  boost::asio::steady_timer look_{io_};
  std::unordered_map<uint64_t, ClientId> clients_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_DAEMON_H_
