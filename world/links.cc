#include "world/links.h"

#include <algorithm>

namespace baton::world {

using std::chrono::microseconds;
using std::chrono::milliseconds;

void Links::ToDaemon(Process& p, const wire::State& state) {
  if (!p.connected || (cut_ && !world_.plan.relay)) return;
  const uint32_t slot = NewFrame(p);
  Frame& frame = frames_[slot];
  frame.size = static_cast<uint32_t>(wire::Encode(state, frame.bytes, sizeof frame.bytes));
  if (!world_.plan.relay) return Send(p, What::kToDaemon, slot);
  InOrder(p, microseconds(p.link.Between(8, 60)), What::kToRelay, slot);
}

void Links::ToClient(Process& p, const wire::Token& token) {
  if (!p.connected || cut_) return;
  const uint32_t slot = NewFrame(p);
  frames_[slot].token = token;
  Send(p, What::kToClient, slot);
}

Process* Links::Take(uint32_t slot, wire::State& state, scheduler::Measured& measured) {
  Process* p = At(slot, state);
  measured = frames_[slot].measured;
  Drop(slot);
  return p;
}

Process* Links::At(uint32_t slot, wire::State& state) {
  Process* p = Of(slot);
  if (p == nullptr) return nullptr;
  wire::Frame parsed;
  if (parsed.Parse(frames_[slot].bytes, frames_[slot].size) != wire::DecodeStatus::kOk ||
      !parsed.Read(state)) {
    world_.Violation("codec", "a State does not read back");
    return nullptr;
  }
  return p;
}

Process* Links::Take(uint32_t slot, wire::Token& token) {
  token = frames_[slot].token;
  return Take(slot);
}

Process* Links::Take(uint32_t slot) {
  Drop(slot);
  return Of(slot);
}

Process* Links::Of(uint32_t slot) {
  Process& p = *world_.processes[frames_[slot].process];
  return p.connected && p.connection == frames_[slot].connection ? &p : nullptr;
}

void Links::Forward(uint32_t slot, const scheduler::Measured& measured) {
  if (cut_) return Drop(slot);
  frames_[slot].measured = measured;
  Send(*world_.processes[frames_[slot].process], What::kToDaemon, slot);
}

Process* Links::At(uint32_t slot, wire::Token& token) {
  token = frames_[slot].token;
  return Of(slot);
}

void Links::Deliver(uint32_t slot, const wire::Token& token) {
  frames_[slot].token = token;
  Process& p = *world_.processes[frames_[slot].process];
  InOrder(p, microseconds(p.link.Between(8, 60)), What::kFromRelay, slot);
}

void Links::FromNode(Process& p, const wire::Token& token) {
  if (!p.connected) return;
  const uint32_t slot = NewFrame(p);
  Deliver(slot, token);
}

uint32_t Links::NewFrame(const Process& p) {
  if (free_.empty()) {
    frames_.emplace_back();
    free_.push_back(static_cast<uint32_t>(frames_.size() - 1));
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  frames_[slot].process = p.index;
  frames_[slot].connection = p.connection;
  frames_[slot].measured = {};
  return slot;
}

// The frame arrives after a while; while frames are bad perhaps never, or twice.
void Links::Send(Process& p, What what, uint32_t slot) {
  Duration delay = microseconds(p.link.Between(8, 120));
  if (world_.now < bad_until_) {
    switch (p.link.Between(0, one_in_ - 1)) {
      case 0:
        free_.push_back(slot);
        return;
      case 1: {
        const uint32_t twin = NewFrame(p);
        frames_[twin] = frames_[slot];
        world_.After(microseconds(p.link.Between(10, 5'000)), what, twin);
        break;
      }
      case 2:
        delay = milliseconds(p.link.Between(1, 300));
        break;
      default:
        break;
    }
  }
  if (world_.in_order && world_.now >= bad_until_) return InOrder(p, delay, what, slot);
  world_.After(delay, what, slot);
}

void Links::InOrder(Process& p, Duration delay, What what, uint32_t slot) {
  const size_t way = what == What::kToRelay    ? 0
                     : what == What::kToDaemon ? 1
                     : what == What::kToClient ? 2
                                               : 3;
  p.arrives[way] = std::max(p.arrives[way], world_.now + delay);
  world_.At(p.arrives[way], what, slot);
}

}  // namespace baton::world
