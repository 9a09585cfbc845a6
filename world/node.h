// The node's side of the connections: what it measures of each process, and, where it is a relay,
// which tokens it lets through and what it says again when its link is back. Without a relay it is
// a part of the daemon, and ends with it.
//
// Beside it stands the truth that the books are held against: how long each pod kept each GPU, from
// the grants that its processes were passed to the words that they had drained.
#ifndef BATON_WORLD_NODE_H_
#define BATON_WORLD_NODE_H_

#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "scheduler/handover.h"
#include "scheduler/hold_meter.h"
#include "scheduler/relay_guard.h"
#include "wire/messages.h"
#include "world/state.h"

namespace baton::world {

class Node {
 public:
  explicit Node(WorldState& world);

  void Attach(const Process& p);
  void Served(const Process& p);
  void Disconnect(const Process& p);
  // What it held at last, where it had drained; else 0.
  struct Held {
    uint64_t epoch = 0;
    Duration held{0};
  };
  Held Gone(const Process& p);
  // A State of the process has come in. What was measured of the hold that it ends; nothing where
  // it is not passed on.
  std::optional<scheduler::Measured> Said(const Process& p, const wire::State& state);
  // Whether the Token may be passed on to the process; if so, it is.
  // One that was sent ahead for a token that is back loses its `after_client`.
  bool Pass(const Process& p, wire::Token& token);
  // Tokens that were passed on ahead, whose clients are to be told that they begin.
  struct Plain {
    uint32_t process = 0;
    wire::Token token;
  };
  std::vector<Plain> TakePlain() { return std::exchange(plain_, {}); }
  // What the process said last on its present connection, and what was measured of it then.
  struct Saying {
    wire::State state;
    scheduler::Measured measured;
    Instant at{};
  };
  std::optional<Saying> Last(const Process& p) const;
  // The daemon has ended. Where this was a part of it, nothing that was measured is known.
  void LoseDaemon();
  // The relay ends, with all that it knows, and another one is there.
  void SetDown(bool down);
  bool down() const { return down_; }

  // How long the pod has kept the GPU.
  Duration Kept(size_t pod, uint32_t gpu) const;
  // For so long it had drained, and its token was still out, and opened its gate again.
  Duration Paused(size_t pod, uint32_t gpu) const { return keeping_[pod][gpu].paused; }

 private:
  struct Seen {
    scheduler::HoldMeter meter;
    std::optional<Saying> last;
    bool keeps = false;   // was passed the token of `epoch` and has not said that it drained
    bool unseen = false;  // a relay that watched it has ended, and it has not been heard since
    uint64_t epoch = 0;
    uint64_t rev = 0;
  };
  struct Keeping {
    uint32_t processes = 0;
    Instant since{};
    Instant until{};  // of those that have drained meanwhile: the last
    Duration before{0};
    Duration paused{0};
  };

  Seen& SeenOf(const Process& p);
  Instant EndOf(const Process& p, const wire::State& state,
                std::vector<scheduler::Handover::Next>& next);
  // Until when the token before these was held.
  Instant EndBefore(const std::vector<scheduler::Handover::Next>& next) const;
  void Began(const scheduler::Handover::Next& next, Instant at);
  void NotePassed(const Process& p, const wire::Token& token, Instant at);
  void SetKeeps(const Process& p, bool keeps, Instant at);
  void SeeBegun(const Process& p, const wire::State& state);
  void MakeGuards();

  WorldState& world_;
  std::vector<Seen> seen_;                      // by process
  std::vector<std::vector<Keeping>> keeping_;   // by pod and GPU
  std::vector<scheduler::PodMeter> meters_;     // by GPU
  std::vector<scheduler::Handover> handovers_;  // by GPU
  std::vector<Plain> plain_;
  std::vector<scheduler::RelayGuard> guards_;  // by GPU; none without a relay
  bool down_ = false;
};

}  // namespace baton::world

#endif  // BATON_WORLD_NODE_H_
