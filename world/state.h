// What a world is made of while it runs: its pods, processes and GPUs, its clock, and what is to
// happen next. The classes beside it are the jobs that are done on it, lowest first: Gpus and Links
// know nobody, Laws look at all, Daemon decides, Clients launch, Processes come and go, Faults hit.
#ifndef BATON_WORLD_STATE_H_
#define BATON_WORLD_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "hook/client_machine.h"
#include "scheduler/token_scheduler.h"
#include "world/engine.h"
#include "world/histogram.h"
#include "world/plan.h"

namespace baton::world {

// What can happen, and to whom: the subject of an event.
enum class What : uint8_t {
  kArrive,      // a pod
  kLeave,       // a pod
  kBegin,       // a process
  kConnect,     // a process
  kAttached,    // a process; serial: its connection
  kBurst,       // a process; serial: its thread
  kOpened,      // a process whose gate has opened; serial: its thread
  kFinished,    // a process that watches for the end of its work
  kWake,        // a process' machine
  kToDaemon,    // a frame
  kToClient,    // a frame
  kTick,        // a GPU's scheduler, or Daemon::kGangs
  kGone,        // a process: the daemon learns that it is
  kKill,        // a process
  kContinue,    // a process
  kDaemonBack,  // nobody
  kLinkBack,    // nobody; serial: whether the daemon knows of the cut
  kFault,       // a fault, by its number
  kLiveness,    // nobody
  kShares,      // a GPU
  kSeries,      // nobody
  kAct,         // a hostile process; serial: its connection
  kToRelay,     // a frame
  kFromRelay,   // a frame
  kTurn,        // a process, whose turn to launch it is
  kWord,        // a process that waits for another one's word, which may have come
  kRelayBack,   // nobody
};

struct Event {
  Instant at;
  uint64_t order;  // a sequence number, and What in the low byte
  uint32_t subject;
  uint32_t serial;
  What what() const { return static_cast<What>(order & 0xff); }
  bool operator<(const Event& other) const {  // for a queue whose top is the next one
    return at != other.at ? at > other.at : order > other.order;
  }
};

// A launching thread.
struct Thread {
  Duration left{-1};  // GPU time it still wants to launch in this burst; below 0: it pauses
  Instant burst_at{};
  bool parked = false;
  bool throttled = false;  // parked for its backlog
  Instant asked = kNever;  // since when it waits for the token
  uint64_t launches = 0;
  uint32_t collectives = 0;
};

// What a process says in its memory, for others to read: what of its tokens has drained, and which
// one it began last, when.
struct Word {
  uint64_t epoch = 0;
  uint64_t rev = 0;
  uint64_t began_epoch = 0;
  Instant began_at{};
  Instant drained_at{};

  bool Says(uint64_t e, uint64_t r) const { return epoch > e || (epoch == e && rev >= r); }
};

// One process on one GPU: its launching threads, its hook, its connection.
struct Process {
  Process(uint32_t index, size_t pod, uint32_t gpu, uint32_t ordinal, Random work, Random link)
      : index(index), pod(pod), gpu(gpu), ordinal(ordinal), work(work), link(link) {}

  bool Parked() const {
    return std::any_of(threads.begin(), threads.end(), [](const Thread& t) { return t.parked; });
  }
  uint64_t Launches() const {
    uint64_t all = 0;
    for (const Thread& t : threads) all += t.launches;
    return all;
  }
  // Since when the first of those that are parked waits for the token.
  Instant Asked() const {
    Instant first = kNever;
    for (const Thread& t : threads) first = t.parked ? std::min(first, t.asked) : first;
    return first;
  }

  const uint32_t index;
  const size_t pod;
  const uint32_t gpu;
  const uint32_t ordinal;  // among the pod's on this GPU; one that is started again keeps it
  uint32_t stream = 0;     // of its first thread (Gpus::StreamOf)
  Random work;             // the same for those of a gang, unless they are uneven
  Random link;
  hook::ClientMachine machine;
  bool alive = true;
  bool stopped = false;
  bool connected = false;
  uint32_t connection = 0;  // counts connections; frames of an older one are lost
  std::vector<Thread> threads;
  bool open = false;
  bool watching = false;
  bool noticing = false;  // an event that tells of finished work is on its way
  bool hang = false;      // its next kernel never ends
  Duration busy{0};
  Word word;
  bool reading = false;          // an event kWord is on its way
  Instant wake = kNever;         // when the machine wants to be stepped next,
  Instant wake_queued = kNever;  // and the event that sees to it
  // When the frame before arrives, by where it is going: to relay, daemon, relay and process
  // (WorldState::in_order).
  std::array<Instant, 4> arrives{};
  // What the daemon knows of it.
  uint64_t settled_ns = 0;          // of its State: held_ns when it last held nothing
  uint64_t said_ns = 0;             // of its last State: held_ns
  bool restored = false;            // held when the daemon ended, and has not been heard since
  std::vector<hook::Event> missed;  // while it is stopped
};

// A pod's account on one GPU.
struct Account {
  bool here = false;
  Duration used{0};  // GPU time, by the GPU's own record
  // As the daemon's book keeps them, over its restarts.
  Duration held{0};
  Duration hold_base{0};  // `held` before its last token
  Instant limit_full_at{};
  Duration unseen{0};  // used by processes that died before the daemon was back: never charged
  uint64_t grants = 0;
  Histogram waits;
  std::vector<Duration> series;
};

struct PodState {
  policy::ShareSpec spec;
  bool arrived = false;
  bool present = false;
  bool resized = false;
  std::vector<Account> accounts;  // by GPU
  std::vector<Process*> living;   // its processes
  size_t gang = 0;
};

// The pods whose processes wait for each other, on their GPUs: those of one PodPlan::gang, or a
// single one.
struct Gang {
  struct Place {
    size_t pod = 0;
    uint32_t gpu = 0;
  };
  GangId id;                  // the number of its first pod
  bool together = false;      // the daemon knows of it: it is granted all its GPUs or none
  std::vector<Place> places;  // by GPU
  uint32_t started = 0;       // processes, over time
};

// The daemon's part of one GPU, and what of it outlives a daemon.
struct Site {
  std::unique_ptr<scheduler::TokenScheduler> scheduler;
  Instant tick_queued = kNever;
  uint64_t stored_epoch = 0;
  Instant granted_at{};  // when the first of `stored` was sent its token
  std::vector<scheduler::StoreHolder> stored;
  std::vector<scheduler::StoreNext> next;  // of the token that was sent ahead
  Duration held{0};                        // charged to all pods
  bool heard = true;                       // the daemon knows of the GPU
};

struct WorldState {
  WorldState(const Plan& plan, const RunOptions& options);

  // Something is to happen at `at`, or now where that is over. What happens at the same instant
  // does so in the order in which it was said here.
  void At(Instant at, What what, size_t subject = 0, uint32_t serial = 0) {
    events.push({std::max(at, now), (++sequence_ << 8) | static_cast<uint64_t>(what),
                 static_cast<uint32_t>(subject), serial});
  }
  void After(Duration delay, What what, size_t subject = 0, uint32_t serial = 0) {
    At(now + delay, what, subject, serial);
  }

  // A check failed. The first one ends the world.
  void Violation(const char* check, const std::string& saw);
  // Makes a decision part of Verdict::trace_hash.
  void Trace(uint64_t a, uint64_t b);

  std::string Name(size_t pod) const { return "pod " + std::to_string(plan.pods[pod].id); }
  PodId IdOf(size_t pod) const { return PodId{plan.pods[pod].id}; }
  size_t IndexOf(PodId pod) const { return index_of_[pod.value]; }
  Gang& GangOf(size_t pod) { return gangs[pods[pod].gang]; }
  const Gang& GangOf(size_t pod) const { return gangs[pods[pod].gang]; }
  bool IsGang(size_t pod) const { return GangOf(pod).together; }
  static ClientId ClientOf(const Process& p) { return ClientId{p.index + 1}; }
  Process& ProcessOf(ClientId client) { return *processes[client.value - 1]; }
  const PodPlan& PlanOf(const Process& p) const { return plan.pods[p.pod]; }
  Account& AccountOf(const Process& p) { return pods[p.pod].accounts[p.gpu]; }

  const Plan& plan;
  RunOptions options;
  // Frames that nothing happens to stay in order, as on a socket. Elsewhere any may be late: nobody
  // may depend on it, but where somebody lies on purpose the accounts do.
  bool in_order = false;
  Instant now{};
  std::priority_queue<Event> events;
  Verdict verdict;
  std::vector<PodState> pods;  // as in the plan
  std::vector<Gang> gangs;
  std::vector<Site> sites;                          // by GPU
  std::vector<std::unique_ptr<Process>> processes;  // all that ever were
  int restarts = 0;                                 // of the daemon
  int relays = 0;                                   // that have ended
  bool faults = false;                              // some come

 private:
  void FormGangs();

  std::vector<size_t> index_of_;  // a pod's id → its index
  uint64_t sequence_ = 0;
};

// "1.500000 s".
std::string FormatSeconds(Duration d);

}  // namespace baton::world

#endif  // BATON_WORLD_STATE_H_
