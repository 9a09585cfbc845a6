// The connections between processes and the daemon, and what becomes of the frames on them: in the
// protocol's bytes on the way to the daemon, late, lost or repeated where the plan says so.
#ifndef BATON_WORLD_LINKS_H_
#define BATON_WORLD_LINKS_H_

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "scheduler/token_scheduler.h"
#include "wire/codec.h"
#include "world/state.h"

namespace baton::world {

class Links {
 public:
  explicit Links(WorldState& world) : world_(world) {}

  // What is sent without a connection, or while the link is cut, is lost.
  void ToDaemon(Process& p, const wire::State& state);
  void ToClient(Process& p, const wire::Token& token);

  // The frame of an event kToDaemon or kToClient has come to its end. Its process; null where it
  // does not count any more, for it is of an older connection. Law "codec": a State reads back.
  Process* Take(uint32_t frame, wire::State& state, scheduler::Measured& measured);
  Process* Take(uint32_t frame, wire::Token& token);

  // The frame of an event kToRelay: looked at, and passed on with what was measured; and that of an
  // event kToClient, where there is a relay, which passes it on. Nothing where it does not count
  // any more.
  Process* At(uint32_t frame, wire::State& state);
  void Forward(uint32_t frame, const scheduler::Measured& measured);
  Process* At(uint32_t frame, wire::Token& token);
  void Deliver(uint32_t frame, const wire::Token& token);
  // The node itself passes a Token on.
  void FromNode(Process& p, const wire::Token& token);
  void Drop(uint32_t frame) { free_.push_back(frame); }

  bool cut() const { return cut_; }
  void SetCut(bool cut) { cut_ = cut; }
  // Until then, of so many frames one is lost, one late and one repeated; and they may overtake
  // each other.
  void SpoilUntil(Instant end, uint32_t one_in) {
    bad_until_ = std::max(bad_until_, end);
    one_in_ = one_in;
  }

 private:
  struct Frame {
    uint32_t process = 0;
    uint32_t connection = 0;
    uint32_t size = 0;
    wire::Token token;             // to a client
    scheduler::Measured measured;  // by the relay
    char bytes[512];               // to the daemon
  };
  uint32_t NewFrame(const Process& p);
  void Send(Process& p, What what, uint32_t slot);
  // In `delay`, and not before the frame before it.
  void InOrder(Process& p, Duration delay, What what, uint32_t slot);
  Process* Take(uint32_t slot);
  Process* Of(uint32_t slot);

  WorldState& world_;
  std::vector<Frame> frames_;
  std::vector<uint32_t> free_;
  bool cut_ = false;
  Instant bad_until_{};
  uint32_t one_in_ = 0;
};

}  // namespace baton::world

#endif  // BATON_WORLD_LINKS_H_
