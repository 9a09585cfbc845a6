// baton-frontend: the node's relay in the central deployment. It gives its node's hooks the same
// socket as batond does, passes their frames on to batond over ZeroMQ and batond's back, and
// vouches for what only the node can know: who a client is, how long it held, whether it still
// lives.
//
// It decides nothing, but it does not believe everything either (scheduler/relay_guard.h). A grant
// that is dropped costs nobody anything.
//
// Three things that look alike from afar are told apart: a *pod's death* (its pidfd; ClientDown), a
// *relay's death* (a new instance says Hello; its clients are disconnected, not dead) and a *lost
// link* (silence; the same instance comes back and everything is said again).
//
// Not thread safe: lives in one event loop.
#ifndef BATON_NODE_FRONTEND_H_
#define BATON_NODE_FRONTEND_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "config/options.h"
#include "devmgr/machine/nvml.h"
#include "net/keys.h"
#include "net/zmq_socket.h"
#include "node/control_socket.h"
#include "node/signals.h"
#include "node/tenant_endpoint.h"
#include "scheduler/relay_guard.h"
#include "wire/batch.h"
#include "wire/codec.h"
#include "wire/messages.h"

namespace baton::node {

class Frontend : private TenantSink {
 public:
  explicit Frontend(config::Options options);
  ~Frontend() override;

  // Takes the locks of the node's GPUs. kExists: another daemon has one, and this one has none.
  // Start() does so too, where it was not done.
  Result<void> TakeLocks();
  // Listens, begins to connect. An error is one line for the operator.
  Result<void> Start();
  // Serves until SIGTERM or SIGINT. An error when batond refused this node.
  Result<void> Run();
  void Stop();

 private:
  // One client on one GPU.
  struct Lane {
    std::string attach;  // its Attach frame and its last State, to be said again
    std::string state;
    scheduler::Measured measured;  // as that was passed on with,
    Instant said_at{};             // and when it came in
    // Of a client that has ended: its last token on the GPU, and what was measured of it.
    std::string ended;
    Duration held{0};
    std::string uuid;
  };
  struct Client {
    std::string hello;
    std::string ticket;  // stands for the pod
    uint64_t pid = 0;
    uint64_t start_time = 0;
    uint64_t uid = 0;
    std::string kubernetes_pod;
    bool words = false;
    bool connected = false;
    bool welcomed = false;
    bool served = false;  // was ever welcomed
    std::vector<Lane> lanes;
  };

  // TenantSink
  void OnHello(uint64_t client, const Peer& peer, const wire::Hello& hello,
               std::string_view frame) override;
  void OnAttach(uint64_t client, const wire::Attach& attach, std::string_view frame) override;
  void OnState(uint64_t client, const wire::State& state, const scheduler::Measured& measured,
               std::string_view frame) override;
  void OnMemory(uint64_t client, const wire::Memory& memory, std::string_view frame) override;
  void OnBegan(uint64_t client, const wire::Token& token) override;
  void OnEnded(uint64_t client, uint8_t gpu, uint64_t epoch, Duration held) override;
  void OnDown(uint64_t client, wire::DownReason reason) override;
  void OnTenantNote(uint64_t client, const std::string& text) override;
  void OnBound(const std::string& text) override;

  void FindGpus();
  // Where that is needed: at first, when zmq.server_public_key_file has a key or another one, and a
  // while after batond has refused this node.
  Result<void> Connect();
  // `together`: with others in one message.
  void FromBatond(std::string_view bytes, bool together = false);
  void OnToClient(const wire::ToClient& message);
  // Passes the token, which came as `bytes`, on to the client, where it may.
  void Pass(uint64_t number, Client& client, wire::Token token, std::string_view bytes);
  void OnNodeWelcome(const wire::NodeWelcome& welcome);
  void OnNodeCheck(const wire::NodeCheck& check);
  void OnMonitor(const std::vector<std::string_view>& parts);
  void AskControl(const std::string& line, ControlSocket::Respond respond);
  void SayNodeHello();
  void SayEverything();
  // That it is there, what it has attached to, and what it said last.
  void SayUp(uint64_t number, const Client& client);
  // `age`: so long ago the frame came in. `ended`: as in wire::ClientFrame.
  void PassOn(uint64_t number, std::string_view frame, const scheduler::Measured& measured = {},
              Duration age = Duration(0), bool ended = false);
  void TellAway(uint64_t number);
  void LinkLost();
  void Beat();
  // Once this turn of the loop is over, in one message with all that is said by then, where batond
  // understands that. What cannot be sent is dropped.
  template <class Message>
  void Say(const Message& message);

  boost::asio::io_context io_{1};
  Signals signals_{io_, {SIGTERM, SIGINT}};  // before whatever starts threads
  const config::Options options_;
  const std::string node_;
  const uint64_t instance_;
  std::unique_ptr<devmgr::Nvml> nvml_;
  std::vector<devmgr::GpuInfo> gpus_;
  std::vector<UniqueFd> gpu_locks_;
  bool locked_ = false;  // TakeLocks() has succeeded
  std::optional<TenantEndpoint> tenants_;
  std::optional<ControlSocket> control_;
  net::ZmqContext context_;
  std::optional<net::ZmqSocket> dealer_;
  std::optional<net::ZmqSocket> monitor_;
  Instant refused_at_ = kNever;  // its key, by batond, since the socket was made
  int connects_ = 0;             // sockets made, for the monitor's name
  std::string server_key_;       // batond's, of the socket as it is
  std::string trouble_;          // as last said
  boost::asio::steady_timer beat_;

  std::unordered_map<uint64_t, Client> clients_;
  // Those that have ended while the link was cut: what is known of them is said when it is back.
  // The newest of them.
  std::deque<std::pair<uint64_t, Client>> ended_;
  std::map<std::string, scheduler::RelayGuard> guards_;  // of each GPU of this node
  // Processes that batond asked about, to be told when they end.
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> watched_;
  std::map<uint64_t, ControlSocket::Respond> asked_;
  uint64_t last_asked_ = 0;
  bool up_ = false;  // batond has welcomed this node and is heard of
  bool ever_up_ = false;
  std::string refused_;  // why batond did not take this node; empty while it has not said so
  bool said_lost_ = false;
  Instant failed_since_ = kNever;  // handshakes, before there was one
  uint64_t batond_ = 0;            // its instance
  bool batches_ = false;           // it understands them
  wire::FrameBatch<wire::FramesUp> batch_;
  Instant heard_{};
  Instant said_hello_{};
};

}  // namespace baton::node

#endif  // BATON_NODE_FRONTEND_H_
