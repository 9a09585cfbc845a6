// The unix socket to which hooks attach: batond and baton-frontend have the same one.
//
// It knows processes and frames, not pods: who connected (by the kernel's word, not the peer's),
// whether frames are well formed, and when a process is really gone. It bounds everything that a
// tenant can do: clients in all and per user, frame size, frame rate, unread answers. Whoever
// breaks a rule gets one Error and is closed; nobody else notices.
//
// Who is refused costs nothing: a process is watched only from Serve() on. Whoever was never served
// is forgotten when its connection ends, and connections that say no Hello make room for newer
// ones.
//
// A client keeps its number over reconnects of the same incarnation. A closed socket only says
// *disconnected*; *exited* is said when the pidfd proves it and, where NVML lists processes, when
// NVML no longer lists it on any GPU it attached to (at most `drain_timeout` later).
//
// It also measures held time where it is shortest: from the passing on of a Token with a new epoch
// to the arrival (as the kernel has stamped it) of the State that says it has drained. Whoever
// closes its socket meanwhile has held until it comes back and says so.
//
// Words (wire/word.h): a Token that was sent ahead is passed on with the word that it waits for.
// When the holder says that it has drained the next one begins, and is told so if it has not seen
// the word by then. A process that died with a word that it did not send is heard all the same.
//
// Not thread safe: lives in one event loop. Callbacks run in that loop, never from within a call of
// Send() and the like.
#ifndef BATON_NODE_TENANT_ENDPOINT_H_
#define BATON_NODE_TENANT_ENDPOINT_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"
#include "devmgr/machine/nvml.h"
#include "node/absence.h"
#include "node/admission.h"
#include "node/holds.h"
#include "node/process.h"
#include "node/rate.h"
#include "node/word_page.h"
#include "scheduler/hold_meter.h"
#include "wire/messages.h"

namespace baton::node {

// Who takes the clients' frames. `frame` is the message as it came, valid during the call.
class TenantSink {
 public:
  virtual ~TenantSink() = default;
  // A client said Hello, for the first time or again after a disconnect (same number).
  virtual void OnHello(uint64_t client, const Peer& peer, const wire::Hello& hello,
                       std::string_view frame) = 0;
  virtual void OnAttach(uint64_t client, const wire::Attach& attach, std::string_view frame) = 0;
  // `measured`: of the token of state.epoch once that has drained, as measured here.
  virtual void OnState(uint64_t client, const wire::State& state,
                       const scheduler::Measured& measured, std::string_view frame) = 0;
  // A Token that was sent ahead to the client begins: the one before it has drained, as OnState()
  // has just told.
  virtual void OnBegan(uint64_t, const wire::Token&) {}
  virtual void OnMemory(uint64_t client, const wire::Memory& memory, std::string_view frame) = 0;
  // The client has ended: how long it held the token of `epoch`, its last on the GPU, as measured
  // here, if it had drained. OnDown() follows.
  virtual void OnEnded(uint64_t client, uint8_t gpu, uint64_t epoch, Duration held) = 0;
  // kDisconnected may be followed by OnHello or by kExited; nothing follows kExited, nor the
  // kDisconnected of a client that was never served.
  virtual void OnDown(uint64_t client, wire::DownReason reason) = 0;
  // Something for the operator's eyes about this client.
  virtual void OnTenantNote(uint64_t client, const std::string& text) = 0;
  // Processes are refused because a bound is reached. Said at most once a minute for each bound.
  virtual void OnBound(const std::string& text) = 0;
};

class TenantEndpoint {
 public:
  static constexpr const char* kPodsFolder = "pods";

  TenantEndpoint(boost::asio::io_context& io, TenantSink& sink, devmgr::Nvml& nvml,
                 const TenantLimits& limits);
  ~TenantEndpoint();

  // Listens on `path` (mode 0666). A dead daemon's socket is replaced; kExists when a live one
  // listens there, which `lock_path` tells: pods must not see that file, for root in a container
  // could hold it and keep the next daemon from starting.
  // The folder kPodsFolder beside `path` holds this socket alone, under the same name. Containers
  // mount the folder: the next daemon's socket is another file.
  Result<void> Listen(const std::string& path, const std::string& lock_path);
  // Stops listening, closes every connection without a word and removes the socket's file.
  void Stop();

  // Sends a frame, at once or from a bounded queue. Nothing happens when the client is away.
  // A Token passed through here is noticed for the held time.
  void Send(uint64_t client, std::string_view frame);
  // A Token is kept from the client, which is noticed too.
  void Keep(uint64_t client, const wire::Token& token);
  // A Token that was sent ahead, as it may go to the client: with SendAhead(), or with Send() where
  // the token that it waits for has drained by now, and its `after_client` is 0. Nothing where it
  // is kept from the client: the hold before it is not measured here, or its client has no word.
  std::optional<wire::Token> Ready(uint64_t client, const wire::Token& token);
  void SendAhead(uint64_t client, const wire::Token& token);
  // The client that said Hello has business here: its process is watched until it ends.
  void Serve(uint64_t client);
  // Sends Error and closes. The process stays watched if it was ever served.
  void Refuse(uint64_t client, wire::ErrorKind kind, std::string_view text);
  // SIGKILL for the client's process.
  void KillProcess(uint64_t client);

  // Watches a process that is known from before this endpoint existed, as a disconnected client
  // that used `gpus`. Returns its number; kNotFound when it is gone (and NVML no longer lists it,
  // or cannot say). incarnation 0: whichever it will say.
  Result<uint64_t> Adopt(pid_t pid, uint64_t start_time, uint64_t incarnation,
                         const std::vector<std::string>& gpus);

  // Which bounds are reached, and how many were refused of late; empty: none.
  std::string Trouble() const { return admission_.Trouble(MonotonicNow()); }

 private:
  using Words = std::shared_ptr<const WordPage>;
  using Lane = Holds::Lane;
  static constexpr size_t kLanesMax = wire::kGpusMax;
  struct Client;

  static Holds::Party PartyOf(Client& client, Lane* lane);
  // Passes on what the client said then, or has in its words.
  void Say(Client& client, Lane& lane, Instant said, const wire::State& state,
           std::string_view frame);
  void Accept();
  void AcceptLater(Duration pause);
  // False: too many connect, for now.
  bool Admit(UniqueFd socket);
  void AwaitRead(const std::shared_ptr<Client>& client);
  // Reads one frame. False when nothing more is to be read (empty, end-of-file or refused).
  bool ReadOne(const std::shared_ptr<Client>& client);
  // `file`: came with the frame; what is of use is taken.
  void Handle(const std::shared_ptr<Client>& client, std::string_view frame, UniqueFd& file);
  void SayHello(const std::shared_ptr<Client>& client, const wire::Hello& hello,
                std::string_view frame, Words words);
  void RefuseClient(const std::shared_ptr<Client>& client, wire::ErrorKind kind,
                    std::string_view text);
  // `words`: go with the frame.
  void Queue(const std::shared_ptr<Client>& client, std::string_view frame, const Words& words);
  void Flush(const std::shared_ptr<Client>& client);
  void Disconnect(const std::shared_ptr<Client>& client);
  void DisconnectSoon(const std::shared_ptr<Client>& client);
  // False when there is no descriptor left to watch the process with. `again`: of a process that
  // may hold a GPU; it is tried again until there is one.
  void AwaitExit(const std::shared_ptr<Client>& client);
  void Reap(const std::shared_ptr<Client>& client);
  void Exited(const std::shared_ptr<Client>& client);
  void Forget(const std::shared_ptr<Client>& client);
  std::shared_ptr<Client> Find(uint64_t number) const;

  boost::asio::io_context& io_;
  TenantSink& sink_;
  devmgr::Nvml& nvml_;
  const TenantLimits limits_;
  std::string path_;
  std::string path_for_pods_;
  UniqueFd path_lock_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer accept_pause_;
  Absence absence_;
  std::unordered_map<uint64_t, std::shared_ptr<Client>> clients_;
  Holds holds_;
  Admission admission_;
  Rates rates_;        // of frames, by the pods' tickets
  Throttle throttle_;  // those whose pods have none left
  // By process: at most a handful of clients have the same one.
  std::multimap<std::pair<pid_t, uint64_t>, uint64_t> by_process_;
  uint64_t last_number_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false after destruction
  boost::asio::thread_pool worker_{1};  // asks NVML, which may take its time
};

}  // namespace baton::node

#endif  // BATON_NODE_TENANT_ENDPOINT_H_
