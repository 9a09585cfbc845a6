// Processes of hostile pods. Each may send any valid frame at any time: attach again, claim to
// hold, close its socket, say that it drained when it was just granted or never, lie in every
// number, say by its word that it has drained when it was just granted, or take that back, name
// tokens of the past and of a far future, go silent, come back, die. None launches anything: what
// runs on a GPU without a token is the hook's matter.
#ifndef BATON_WORLD_ADVERSARY_H_
#define BATON_WORLD_ADVERSARY_H_

#include <cstdint>
#include <vector>

#include "wire/messages.h"
#include "world/clients.h"
#include "world/daemon.h"
#include "world/links.h"
#include "world/node.h"
#include "world/state.h"

namespace baton::world {

class Adversary {
 public:
  Adversary(WorldState& world, Links& links, Node& node, Daemon& daemon, Clients& clients)
      : world_(world), links_(links), node_(node), daemon_(daemon), clients_(clients) {}

  // The process has been attached, or is sent a token.
  void Attached(Process& p);
  void Heard(Process& p, const wire::Token& token);
  // Event kAct: the next thing that it does.
  void Act(Process& p);

 private:
  enum class Habit : uint8_t {
    kThief,    // closes its socket at each grant, comes back and says that it held nothing
    kClaimer,  // says that it holds what it was not granted, for as long as it is believed
    kSilent,   // is granted, and does not say that it drained for long, or for ever
    kWord,     // says that it drains, by its word that it has, and to the daemon nothing for long
    kAnything,
  };
  static constexpr int kHabits = 5;
  struct Mind {
    bool known = false;
    Habit habit = Habit::kAnything;
    bool insists = false;  // a claimer: claims again whenever it has given back
    uint64_t seq = 0;
    uint64_t epoch = 0;  // of the newest token, and the last word about it
    uint64_t rev = 0;
    bool claims = false;
    bool said_word = false;
    Instant acts_at{};  // what it planned before does not happen
  };

  Mind& MindOf(Process& p);
  void Soon(const Process& p, int64_t at_least_us, int64_t at_most_us);
  void ActAfter(Process& p, Duration time);
  // A word about exactly the newest token.
  void Say(Process& p, wire::Phase phase, uint64_t held_ns = 0, uint64_t drained_ns = 0);
  void ClaimNext(Process& p);
  void SayAnything(Process& p);
  void AttachAgain(Process& p);
  void HangUp(Process& p);

  WorldState& world_;
  Links& links_;
  Node& node_;
  Daemon& daemon_;
  Clients& clients_;
  std::vector<Mind> minds_;  // by process
};

}  // namespace baton::world

#endif  // BATON_WORLD_ADVERSARY_H_
