// The GPUs that a daemon shares: what is known of each, of the pods on it, and of the clients that
// are attached to it. Tokens keeps what is said of holders and timers, Accounts what was used.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_GPUS_H_
#define BATON_BACKEND_GPUS_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <sys/types.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/holder_file.h"
#include "backend/pods.h"
#include "backend/series.h"
#include "backend/usage_book.h"
#include "config/options.h"
#include "devmgr/inventory.h"
#include "net/metrics.h"
#include "scheduler/token_scheduler.h"
#include "wire/messages.h"

namespace baton::backend {

// Whether launches wait for tokens; else the daemon only counts.
inline bool Enforces(const config::Options& options) {
  return options.server.mode == config::Mode::kEnforce;
}

// The way to clients: the unix socket, a node's relay, or ZeroMQ. Clients have numbers there.
class ClientLink {
 public:
  virtual ~ClientLink() = default;
  virtual void Send(uint64_t number, std::string_view frame) = 0;
  // A Token that was sent ahead (wire::Token::after_client: a number of this link).
  virtual void SendAhead(uint64_t number, const wire::Token& token) = 0;
  // Sends Error and closes the connection.
  virtual void Refuse(uint64_t number, wire::ErrorKind kind, std::string_view text) = 0;
  virtual void KillProcess(uint64_t number) = 0;
};

struct Gpu;
struct Client;
struct PodOnGpu;

// A client on one GPU.
struct Lane {
  Client* client = nullptr;
  Gpu* gpu = nullptr;
  uint8_t index = 0;      // the client's own for this GPU
  bool attached = false;  // on the present connection
  uint64_t seq = 0;
  uint64_t said_held_ns = 0;  // of its last State
  wire::Phase phase = wire::Phase::kIdle;
  uint64_t memory = 0;  // bytes charged
  uint64_t memory_request = 0;
  bool memory_said = false;
  bool swaps = false;          // its pod has swap (backend/room.h). In bytes:
  uint64_t movable = 0;        // of `memory`, what can be moved to the host
  uint64_t movable_in = 0;     // of that, what is on the GPU, as it says
  uint64_t memory_wanted = 0;  // what it has no room for, as it says
  uint64_t keep = UINT64_MAX;  // it was asked to keep no more of it on the GPU, and has not yet
  bool host_full = false;      // its last request for memory found no host memory to move to
  // Of a client that has ended: how long it held its last token, as its node measured.
  struct {
    uint64_t epoch = 0;
    Duration held{0};
  } ended;
  UsageEntry* last = nullptr;   // what the client last reported, as far as it is booked
  Usage before;                 // the same when this daemon first saw it,
  Instant since{};              // and when that was
  UsageEntry* total = nullptr;  // its pod's account on this GPU
  PodOnGpu* on = nullptr;
};
struct Client {
  ClientId id;
  PodId pod;
  std::string node;  // "" is this machine
  uint64_t pid = 0;
  uint64_t start_time = 0;
  uint64_t uid = 0;
  uint64_t incarnation = 0;
  std::string command;
  std::string group;  // of its container (node::ContainerGroupIn()); empty: none, or not told
  ClientLink* link = nullptr;  // null: restored, and nobody has found the process yet
  uint64_t number = 0;
  bool connected = false;
  bool words = false;  // wire::Hello::words
  std::vector<std::unique_ptr<Lane>> lanes;
  std::array<Lane*, wire::kGpusMax> by_index{};
};
// What Room knows of a pod with swap on a GPU.
struct PodSwap {
  uint64_t owed = 0;             // bytes that it was moved, or got new: so much may it ask for
  Instant turn_until{};          // it was given room, and that is worth keeping until then
  Duration turn_moved{0};        // what moving took in its turn, so far
  Instant served_at{};           // where it is `served`,
  uint64_t moving = 0;           // and the bytes that move out and in for it;
  uint64_t made = 0;             // moved out for it since it last said what it lacks,
  Instant made_at{};             // the last of it
  Instant wants_since = kNever;  // room
  Instant idle_since{};          // kNever: it has work
  Instant active_at{};    // it last had work, or got memory; {}: not since the daemon started
  bool released = false;  // all of its memory is to move out: it has had no work for so long
  bool served = false;    // room is being made for it
  bool held_back = false;
};
// When a pod's program last got an out-of-memory error on a GPU (backend/out_of_memory.h).
struct MemoryRefusal {
  Instant at{};    // of the last one
  Instant said{};  // as an event
  uint64_t times = 0;
  std::string text;  // OutOfMemoryText(); empty: never
};
// What NVML told of a pod's use of a GPU, or of its MIG instance (backend/pod_use.h).
struct PodUse {
  Instant at{};                   // when, last; {}: never
  double sm = 0, memory = 0;      // 0 to 1: of SMs and memory, between the last two readings
  double sm_s = 0, memory_s = 0;  // all of it since the daemon started, in seconds
};
// A pod on a GPU, beside its account and what the scheduler knows.
struct PodOnGpu {
  Series series;
  policy::ShareSpec told;  // what its scheduler goes by
  uint64_t clients = 0;
  uint64_t memory = 0;       // bytes that they are charged
  uint64_t memory_peak = 0;  // since the last snapshot
  Instant memory_at{};       // until here it is in the account
  net::Histogram waits;      // for a token, and how long one was held, since the daemon started
  net::Histogram holds;
  PodSwap swap;
  MemoryRefusal refusal;
  double joules = 0;  // since the daemon started (backend/energy.h)
  PodUse use;
  std::set<PodId> latency_causes;  // WarnOfLatencies() has told of these
};
// A process on a GPU that launches without a token (backend/unmanaged.h).
struct UnmanagedProcess {
  pid_t pid = 0;
  uint64_t start_time = 0;  // 0: it cannot be seen from here, and nothing more is known of it
  uid_t uid = 0;
  std::string user;
  std::string command;
  std::string container;
  std::string pod;  // name of the pod that it is of; empty: of none
  uint64_t memory_bytes = 0;
};
// What a pod has of a GPU without tokens: all of one of another vendor, an instance by MIG, a part
// by MPS. It counts as held, used or not.
struct Allocation {
  policy::Share part;
  Instant since{};       // what was before is in its account
  uint64_t charged = 0;  // nanoseconds of what was since
};
struct Gpu {
  Gpu(boost::asio::io_context& io, const scheduler::SchedulerOptions& options, uint64_t last_epoch,
      uint64_t first_epoch)
      : least_handoff(options.context_switch),
        scheduler(options, last_epoch, first_epoch),
        timer(io) {}
  // Whether tokens are given out for it; else it is allocated to one pod at a time.
  bool by_token() const { return info.by_token(); }

  devmgr::GpuInfo info;
  std::string node;
  bool present = false;     // its node has reported it
  bool throw_away = false;  // virtual, for measuring; no device behind it
  bool frozen = false;      // the link to its node is cut: nothing moves
  bool hung = false;        // its holder does not drain
  uint64_t key = 0;         // HashOf(uuid), in the usage book
  uint64_t overruns = 0;
  uint64_t grants = 0;
  uint64_t sent_ahead = 0;      // tokens
  PodId holder;                 // of the token
  Instant granted_at{};         // or charged until, where that is later
  Hold hold;                    // the present one, where there is a holder
  policy::Share idle_part;      // nobody holds or waits, or works without a token, but on what is
                                // allocated
  Instant idle_since = kNever;  // it is so much; kNever: none is idle
  Duration idle{0};             // before that
  Duration idle_told{0};        // of it, in a snapshot
  struct {
    Instant at{};          // until then it is tallied (Accounts::TallyIdle)
    uint64_t busy_ns = 0;  // of busy_ns then
    Duration late{0};      // of that, what is still to be taken from the time after
  } observed;              // where no tokens are given out
  Duration held{0};        // since the daemon started, by all pods
  uint64_t busy_ns = 0;    // the same, as hooks measured it
  Series series;           // of these two
  Series handoffs;         // of TokenScheduler::handoff_total()
  struct {
    bool known = false;
    Instant at{};       // its counter was read last, by this daemon
    double joules = 0;  // since the daemon started
    double idle = 0;    // of them, while nobody held
  } energy;
  Timeline timeline;
  const Duration least_handoff;  // what its scheduler is told that one takes at least
  scheduler::TokenScheduler scheduler;
  HolderFile file;
  HolderFile next_file;  // of the token that was sent ahead: newer than `file`, or void
  bool clear_file = false;
  bool weigh = false;         // the teams here have changed; it is in to_weigh_
  bool holder_stored = true;  // at the last attempt
  boost::asio::steady_timer timer;
  Instant armed = kNever;
  Instant ticked{};                           // when the timer last had something to do
  std::unordered_map<uint64_t, Lane*> lanes;  // by client id
  std::map<PodId, PodOnGpu> pods;
  PodId latency_looked;  // WarnOfLatencies() has looked at this one
  std::map<PodId, Allocation> allocations;
  std::vector<UnmanagedProcess> unmanaged;
  // Bytes that the processes of pods have beyond what they are charged: contexts, code. As last
  // seen; 0 where NVML does not tell.
  uint64_t overhead = 0;
};

class Gpus {
 public:
  // Null when it is not known.
  Gpu* Find(const std::string& uuid) const;
  Gpu& Add(std::unique_ptr<Gpu> gpu);
  const std::map<std::string, std::unique_ptr<Gpu>>& by_uuid() const { return gpus_; }
  // In the order they were reported.
  const std::vector<Gpu*>& all() const { return order_; }
  // The GPUs of a node ("*": all), in the same order, without those that are there for measuring.
  std::vector<Gpu*> OfNode(const std::string& node) const;
  // Uuids of `wanted`, which are uuids or indexes within `node`, at least one, and all on one node.
  Result<std::vector<std::string>> Resolve(const std::vector<std::string>& wanted,
                                           const std::string& node) const;
  // Whether one of the pod's GPUs is on the node ("*": any).
  bool PodIsOn(const Pod& pod, const std::string& node) const;

 private:
  std::map<std::string, std::unique_ptr<Gpu>> gpus_;
  std::vector<Gpu*> order_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_GPUS_H_
