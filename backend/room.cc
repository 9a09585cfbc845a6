#include "backend/room.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "backend/client_table.h"
#include "backend/memory_room.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

// A pod without work for so long may be moved, though it was given room a moment ago.
constexpr Duration kIdle = std::chrono::milliseconds(100);

// A pod that has used up what it may ask for, and lacks room still, may ask again after this.
constexpr Duration kAskAgain = std::chrono::seconds(1);

// What moving so much takes at most; more is not counted, for a pod could take its time.
Duration LongestFor(uint64_t bytes) { return Duration(static_cast<int64_t>(bytes)); }  // 1 GB/s

// It has its turn: it was given room, and is not moved.
bool HasTurn(const PodSwap& swap, Instant now) {
  return now < swap.turn_until || (swap.served && now < swap.served_at + LongestFor(swap.moving));
}

// In its turn a pause is short that is shorter than moving its memory again would take: a program
// may prepare its next batch in it.
bool Idles(const PodSwap& swap, Instant now) {
  const Duration enough = now < swap.turn_until ? std::max(kIdle, swap.turn_moved) : kIdle;
  return swap.idle_since != kNever && now - swap.idle_since >= enough;
}

uint64_t BudgetOf(const config::SwapOptions& options) {
  if (options.budget_mib != 0) return uint64_t{options.budget_mib} << 20;
  const auto pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
}

// What the lane was asked to move and has not moved yet.
uint64_t Pending(const Lane& lane) { return Minus(lane.movable_in, lane.keep); }

// Over a pod's processes on a GPU.
struct Sums {
  uint64_t movable = 0;
  uint64_t in = 0;
  uint64_t wanted = 0;
  uint64_t pending = 0;
  bool idle = true;
};
std::map<PodId, Sums> SumsOf(const Gpu& gpu) {
  std::map<PodId, Sums> all;
  for (const auto& [id, lane] : gpu.lanes) {
    Sums& its = all[lane->client->pod];
    its.movable += lane->movable;
    its.in += lane->movable_in;
    its.wanted += lane->memory_wanted;
    its.pending += Pending(*lane);
    its.idle = its.idle && lane->phase == wire::Phase::kIdle;
  }
  return all;
}

}  // namespace

RoomDecision DecideRoom(std::vector<RoomPod> pods, uint64_t need) {
  uint64_t now = 0, soon = 0, later = 0;
  for (const RoomPod& pod : pods) {
    const bool stays = pod.stays && !pod.idle;
    (stays ? later : pod.holds ? soon : now) += pod.spare;
  }
  if (now < need) {
    const bool waits = now + soon < need && now + soon + later >= need;
    return {waits ? RoomVerdict::kLater : RoomVerdict::kSoon, {}};
  }
  std::sort(pods.begin(), pods.end(), [](const RoomPod& a, const RoomPod& b) {
    if (a.idle != b.idle) return a.idle;
    return a.spare != b.spare ? a.spare > b.spare : a.pod < b.pod;
  });
  RoomDecision decision{RoomVerdict::kMade, {}};
  for (const RoomPod& pod : pods) {
    if (pod.holds || (pod.stays && !pod.idle) || pod.spare == 0 || need == 0) continue;
    const uint64_t bytes = std::min(need, pod.spare);
    decision.victims.emplace_back(pod.pod, bytes);
    need -= bytes;
  }
  return decision;
}

Room::Room(const config::Options& options, const Pods& pods, Tokens& tokens, node::EventLog& log)
    : options_(options), pods_(pods), tokens_(tokens), log_(log), budget_(BudgetOf(options.swap)) {}

// Of the pod's memory, what is in pinned memory of the host at most.
uint64_t Room::PinnedMost(const Pod& pod, uint64_t memory, uint64_t movable) const {
  const bool all = options_.swap.idle_release > Duration(0);
  return std::min(movable, all ? memory : Minus(memory, pod.memory_request));
}

// Its memory is in, or it has no work: its turn lasts for as long as that is worth. Moves in one
// turn add up, to what moving all of its memory out and in takes at most.
void Room::EndServing(PodSwap& swap, uint64_t movable, Instant now) const {
  const Duration took = std::min(now - swap.served_at, LongestFor(swap.moving));
  const Duration most = std::max(LongestFor(2 * movable), swap.turn_moved);
  const Duration moved = std::min(swap.turn_moved + took, most);
  const Duration more(policy::TimeToServe(Nanos(moved - swap.turn_moved), options_.swap.fraction));
  swap.turn_moved = moved;
  swap.turn_until = std::max(swap.turn_until, now) + more;
  swap.served = false;
}

void Room::OnMemory(Lane& lane, uint64_t grown) {
  PodSwap& swap = lane.on->swap;
  swap.owed += grown;
  if (grown > 0) {
    // It may have taken what others have just moved for somebody.
    for (auto& [id, on] : lane.gpu->pods) {
      if (on.swap.served && id != lane.client->pod) on.swap.owed += grown;
    }
    swap.active_at = MonotonicNow();
    const Pod* pod = pods_.Find(lane.client->pod);
    if (swap.released && pod != nullptr) EndRelease(*lane.gpu, *pod);
  }
  lane.movable_in = std::min(lane.movable_in, lane.movable);
}

void Room::OnState(Lane& lane, const wire::State& state) {
  if (!lane.swaps) return;
  const Pod* pod = pods_.Find(lane.client->pod);
  if (pod == nullptr) return;
  Gpu& gpu = *lane.gpu;
  PodSwap& swap = lane.on->swap;
  const Instant now = MonotonicNow();
  const uint64_t before = lane.movable_in, wanted = lane.memory_wanted;
  lane.movable_in = std::min(state.movable_in, lane.movable);
  lane.memory_wanted = std::min(state.memory_wanted, lane.movable - lane.movable_in);
  // What it was asked to move, it will need again.
  if (lane.keep != UINT64_MAX) {
    const uint64_t moved = Minus(before, lane.movable_in);
    swap.owed += moved;
    for (auto& [id, on] : gpu.pods) {
      if (!on.swap.served || moved == 0) continue;
      on.swap.made += moved;
      on.swap.made_at = now;
    }
  }
  if (lane.movable_in != before || lane.memory_wanted != wanted) swap.made = 0;
  if (lane.movable_in <= lane.keep) lane.keep = UINT64_MAX;
  const Sums its = SumsOf(gpu)[pod->id];
  if (!its.idle) {
    swap.idle_since = kNever;
    swap.active_at = now;
    if (swap.released) EndRelease(gpu, *pod);
  } else if (swap.idle_since == kNever) {
    swap.idle_since = now;
  }
  swap.owed = its.in == its.movable ? 0 : std::min(swap.owed, its.movable);
  Serve(gpu);
}

// Those with swap on the GPU but `but`.
std::vector<RoomPod> Room::Others(const Gpu& gpu, PodId but, Instant now) const {
  const auto holder = gpu.scheduler.holder();
  std::map<PodId, Sums> sums = SumsOf(gpu);
  std::vector<RoomPod> others;
  for (const auto& [id, on] : gpu.pods) {
    const Pod* pod = pods_.Find(id);
    if (id == but || pod == nullptr || !pod->swap) continue;
    const Sums& its = sums[id];
    const uint64_t here = Minus(on.memory, its.movable) + its.in;
    const uint64_t spare = std::min(its.in, Minus(here, FloorOf(*pod, on.memory)));
    others.push_back({.pod = id,
                      .spare = Minus(spare, its.pending),
                      .holds = holder == id,
                      // Who lacks some of its memory has nothing of the rest.
                      .stays = HasTurn(on.swap, now) && its.in == its.movable,
                      .idle = Idles(on.swap, now)});
  }
  return others;
}

// Those who were asked before and have not moved all of it are asked again.
void Room::Ask(const Gpu& gpu, const std::vector<std::pair<PodId, uint64_t>>& victims) {
  std::vector<Lane*> lanes;
  for (const auto& [client, lane] : gpu.lanes) lanes.push_back(lane);
  std::sort(lanes.begin(), lanes.end(),
            [](const Lane* a, const Lane* b) { return a->client->id < b->client->id; });
  for (auto [pod, bytes] : victims) {
    for (Lane* lane : lanes) {
      if (lane->client->pod != pod) continue;
      const uint64_t from = std::min(lane->movable_in, lane->keep);
      const uint64_t moves = std::min(from, bytes);
      if (moves == 0) continue;
      bytes -= moves;
      // Its turn is over; without all of its memory it could do nothing in it.
      lane->on->swap.turn_until = Instant{};
      lane->on->swap.served = false;
      // What is rounded up to whole parts is its own to ask for as well.
      if (lane->keep == UINT64_MAX) lane->on->swap.owed += kSwapPart;
      lane->keep = from - moves;
    }
  }
  for (const Lane* lane : lanes) {
    if (lane->keep == UINT64_MAX || !lane->attached) continue;
    wire::MakeRoom ask;
    ask.gpu = lane->index;
    ask.keep = lane->keep;
    SendTo(*lane->client, ask);
  }
}

void Room::HoldBack(Gpu& gpu, PodId pod, bool held_back) {
  PodSwap& swap = gpu.pods[pod].swap;
  if (swap.held_back == held_back) return;
  swap.held_back = held_back;
  if (Enforces(options_)) tokens_.Step(gpu, scheduler::PodHeldBack{pod, held_back});
}

// The pod that lacks room for the longest time is given it, if that can be; one whose turn it is
// before the others, for a program that still allocates could do little in a turn without. The
// others that lack room stand aside, and so does, while room is made, who would take it back.
void Room::Serve(Gpu& gpu) {
  const Instant now = MonotonicNow();
  std::map<PodId, Sums> sums = SumsOf(gpu);
  PodId first;
  Instant since = kNever;
  bool in_turn = false;
  for (auto& [id, on] : gpu.pods) {
    PodSwap& swap = on.swap;
    const Sums& its = sums[id];
    if (swap.served && (its.in == its.movable || Idles(swap, now))) {
      EndServing(swap, its.movable, now);
    }
    if (its.wanted == 0 && !swap.served) {
      swap.wants_since = kNever;
    } else if (swap.wants_since == kNever) {
      swap.wants_since = now;
    }
    // One that lacks some in its turn comes before those that wait, from the moment it got it new.
    const bool its_turn = HasTurn(swap, now) && its.in < its.movable;
    if (swap.wants_since == kNever && !its_turn) continue;
    const Instant wants = std::min(swap.wants_since, now);
    if (its_turn != in_turn ? in_turn : wants >= since) continue;
    first = id;
    since = wants;
    in_turn = its_turn;
  }
  const bool served = since != kNever && gpu.pods[first].swap.served;
  for (auto& [id, on] : gpu.pods) {
    if (since != kNever && id == first) continue;
    const Sums& its = sums[id];
    HoldBack(gpu, id, its.wanted > 0 || (served && (its.in < its.movable || its.pending > 0)));
  }
  if (since == kNever) return;
  PodSwap& swap = gpu.pods[first].swap;
  uint64_t under_way = 0;
  for (const auto& [id, its] : sums) under_way += id == first ? 0 : its.pending;
  if (now - swap.made_at >= kAskAgain) swap.made = 0;
  // What was moved out for it, it may not have found yet.
  const uint64_t lacks = Minus(sums[first].wanted, under_way + swap.made);
  if (lacks > 0 && swap.owed == 0 && now - since >= kAskAgain) {
    // It had its room, and lacks some again. Others have asked meanwhile.
    swap.owed = std::min(lacks, sums[first].movable);
    swap.wants_since = now;
  }
  const uint64_t need = std::min(lacks, swap.owed);
  if (need == 0) {
    HoldBack(gpu, first, false);
    // Said again: the frame may be lost, or came to one who had the token.
    if (under_way > 0) Ask(gpu, {});
    return;
  }
  const RoomDecision decision = DecideRoom(Others(gpu, first, now), need);
  HoldBack(gpu, first, decision.verdict == RoomVerdict::kLater);
  // Only who holds the token has its memory brought in.
  if (decision.verdict != RoomVerdict::kMade || gpu.scheduler.holder() != first) return;
  swap.owed -= need;
  if (!swap.served) {
    if (!in_turn) swap.turn_moved = Duration(0);
    swap.served = true;
    swap.served_at = now;
    swap.made = 0;
    swap.moving = sums[first].movable - sums[first].in;
  }
  swap.moving += need;
  Ask(gpu, decision.victims);
}

void Room::ReleaseIdle(Gpu& gpu) {
  const Duration after = options_.swap.idle_release;
  if (after == Duration(0) || !Enforces(options_) || gpu.frozen) return;
  const Instant now = MonotonicNow();
  const std::map<PodId, Sums> sums = SumsOf(gpu);
  for (const auto& [id, its] : sums) {
    const Pod* pod = pods_.Find(id);
    PodSwap& swap = gpu.pods[id].swap;
    if (swap.active_at == Instant{}) swap.active_at = now;
    if (pod == nullptr || !pod->swap || !its.idle || its.in == 0) continue;
    if (now - swap.active_at < after) continue;
    if (!std::exchange(swap.released, true)) {
      log_.Add(
          node::EventLog::Level::kInfo, "pod",
          fmt::format("pod {} has had no work for {}: its {} on {} move to the host until it "
                      "has some",
                      pod->name, FormatDuration(after), FormatBytes(its.movable), gpu.info.uuid));
    }
    for (const auto& [client, lane] : gpu.lanes) {
      if (lane->client->pod == id && lane->movable_in > 0) lane->keep = 0;
    }
    Ask(gpu, {});
  }
}

// Its processes need not move what they have not moved yet.
void Room::EndRelease(Gpu& gpu, const Pod& pod) {
  PodSwap& swap = gpu.pods[pod.id].swap;
  swap.released = false;
  log_.Add(node::EventLog::Level::kInfo, "pod",
           fmt::format("pod {} works again: its memory comes back to {}", pod.name, gpu.info.uuid));
  for (const auto& [client, lane] : gpu.lanes) {
    if (lane->client->pod != pod.id || lane->keep == UINT64_MAX) continue;
    swap.owed += lane->movable_in;  // some of it may be on its way out
    lane->keep = UINT64_MAX;
    wire::MakeRoom ask;
    ask.gpu = lane->index;
    ask.keep = lane->keep;
    if (lane->attached) SendTo(*lane->client, ask);
  }
}

bool Room::Fits(const Gpu& gpu, PodId pod, uint64_t bytes) {
  if (gpu.info.memory_bytes == 0) return true;
  bool any = false;
  uint64_t used = gpu.overhead + bytes, under_way = 0;
  for (const UnmanagedProcess& process : gpu.unmanaged) used += process.memory_bytes;
  for (const auto& [id, lane] : gpu.lanes) {
    used += Minus(lane->memory, lane->movable) + lane->movable_in;
    any = any || lane->movable_in > 0;
    under_way += Pending(*lane);
  }
  if (!any || used <= gpu.info.memory_bytes) return true;
  const uint64_t need = Minus(used - gpu.info.memory_bytes, under_way);
  if (need == 0) return false;
  auto others = Others(gpu, pod, MonotonicNow());
  uint64_t spare = 0;
  for (RoomPod& other : others) {
    other.stays = false;  // who cannot move waits for nobody
    spare += other.spare;
  }
  if (spare < need) return true;  // the driver may know better
  Ask(gpu, DecideRoom(std::move(others), need).victims);
  return false;
}

bool Room::WithinBudget(const Gpus& gpus, const Gpu& gpu, const Pod& pod, uint64_t memory,
                        uint64_t movable) const {
  uint64_t pinned = PinnedMost(pod, memory, movable);
  for (const Gpu* other : gpus.all()) {
    if (other->node != gpu.node) continue;
    for (const auto& [id, on] : other->pods) {
      const Pod* its = pods_.Find(id);
      if (its == nullptr || !its->swap || (other == &gpu && id == pod.id)) continue;
      pinned += PinnedMost(*its, on.memory, MovableOf(*other, id));
    }
  }
  return pinned <= budget_;
}

}  // namespace baton::backend
