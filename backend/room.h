// Room on GPUs for the memory of pods with swap: who moves memory to the host so that another's can
// come in.
//
// A pod whose memory does not fit says how much it lacks. Others with swap make that much room: who
// is idle first, and nobody who holds the token, was given room a moment ago, or would have less
// than its request. Who was given room keeps it for as long as the moving is worth ([memory]
// swap_fraction). That is its turn, in which it may lack room again and comes first, as a program
// does that still allocates. Who cannot be given room yet stands aside, so that it does not hold a
// token that it cannot use; who waits longest comes first.
//
// A pod may ask for what was moved from it, and for what it got new, once. One that says again that
// it lacks room waits a second, behind those who have asked meanwhile. So who lies about it gains
// little, and others lose little: no more than to a pod that does lack room.
//
// A pod without work for [memory] idle_release is released: all of its memory moves out, its
// request too. Its work ends that, and it is given room as others are.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_ROOM_H_
#define BATON_BACKEND_ROOM_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/tokens.h"
#include "config/options.h"
#include "node/event_log.h"
#include "wire/messages.h"

namespace baton::backend {

// A pod that may make room.
struct RoomPod {
  PodId pod;
  uint64_t spare = 0;  // bytes that it can do without, beyond what it was asked for already
  bool holds = false;  // the token
  bool stays = false;  // it was given room, and keeps it for now
  bool idle = false;   // it has no work, and is moved first
};
enum class RoomVerdict : uint8_t {
  kMade,   // `victims` make it
  kSoon,   // not before the holder's token is back, or not by these pods at all
  kLater,  // not before those that stay have stayed
};
struct RoomDecision {
  RoomVerdict verdict = RoomVerdict::kSoon;
  // Bytes that each is to move; together exactly `need`.
  std::vector<std::pair<PodId, uint64_t>> victims;
};
// Pure. Ties are broken by the larger spare, then by id.
RoomDecision DecideRoom(std::vector<RoomPod> pods, uint64_t need);

class Room {
 public:
  Room(const config::Options& options, const Pods& pods, Tokens& tokens, node::EventLog& log);

  // Lane::memory and `movable` have just become what a client asked for. `grown`: by so much is
  // what can be moved.
  void OnMemory(Lane& lane, uint64_t grown);
  // The client's state; the token scheduler knows it already.
  void OnState(Lane& lane, const wire::State& state);
  // Releases who has had no work for long. To be called now and then.
  void ReleaseIdle(Gpu& gpu);
  // Whether the GPU has `bytes` more for memory that cannot be moved; if not, others make room.
  bool Fits(const Gpu& gpu, PodId pod, uint64_t bytes);
  // Whether the node's pinned memory stays within its budget when the pod has `memory` bytes on the
  // GPU, of which `movable` can be moved. Pure.
  bool WithinBudget(const Gpus& gpus, const Gpu& gpu, const Pod& pod, uint64_t memory,
                    uint64_t movable) const;
  uint64_t budget() const { return budget_; }

 private:
  void Serve(Gpu& gpu);
  std::vector<RoomPod> Others(const Gpu& gpu, PodId pod, Instant now) const;
  void Ask(const Gpu& gpu, const std::vector<std::pair<PodId, uint64_t>>& victims);
  void HoldBack(Gpu& gpu, PodId pod, bool held_back);
  void EndServing(PodSwap& swap, uint64_t movable, Instant now) const;
  void EndRelease(Gpu& gpu, const Pod& pod);
  uint64_t PinnedMost(const Pod& pod, uint64_t memory, uint64_t movable) const;

  const config::Options& options_;
  const Pods& pods_;
  Tokens& tokens_;
  node::EventLog& log_;
  const uint64_t budget_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ROOM_H_
