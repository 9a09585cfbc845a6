// A min-heap of slots which can leave from the middle. Keys lie in the heap itself and four
// children share a cache line, so that an operation among a thousand pods touches about ten lines.
// Ties break by id. Not thread safe.
#ifndef BATON_POLICY_INDEXED_HEAP_H_
#define BATON_POLICY_INDEXED_HEAP_H_

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace baton::policy {

class IndexedHeap {
 public:
  using Slot = uint32_t;

  bool empty() const { return entries_.empty(); }
  bool contains(Slot slot) const { return slot < position_.size() && position_[slot] != kAbsent; }
  Slot top() const { return entries_.front().slot; }
  int64_t top_key() const { return entries_.front().key; }
  // `slot` must be in the heap.
  int64_t key(Slot slot) const { return entries_[position_[slot]].key; }

  // `slot` must not be in the heap.
  void Insert(Slot slot, int64_t key, uint64_t id) {
    if (slot >= position_.size()) position_.resize(slot + 1, kAbsent);
    BATON_CHECK(position_[slot] == kAbsent);
    BATON_CHECK(id <= UINT32_MAX);
    entries_.emplace_back();
    Rise({key, static_cast<uint32_t>(id), slot}, static_cast<uint32_t>(entries_.size() - 1));
  }

  // Nothing happens when `slot` is not in the heap.
  void Erase(Slot slot) {
    if (contains(slot)) Take(slot);
  }
  // `slot` must be in the heap.
  void SetKey(Slot slot, int64_t key) {
    Entry entry = entries_[position_[slot]];
    entry.key = key;
    Rise(entry, Sink(position_[slot]));
  }

  void Clear() {
    for (const Entry& e : entries_) position_[e.slot] = kAbsent;
    entries_.clear();
  }

 private:
  struct Entry {
    int64_t key;
    uint32_t id;
    Slot slot;
  };
  static constexpr uint32_t kAbsent = ~0u;
  static constexpr uint32_t kChildren = 4;

  // Not in line with Erase(), which mostly finds nothing to do.
  [[gnu::noinline]] void Take(Slot slot) {
    const uint32_t at = position_[slot];
    position_[slot] = kAbsent;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at < entries_.size()) Rise(last, Sink(at));
  }
  static bool Less(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.id < b.id;
  }
  // Closes the gap at `at` with its least child, the one there with its own, and so on; returns the
  // leaf that is free then. The last entry, which is to fill it, mostly belongs near the leaves: so
  // no level compares with it.
  uint32_t Sink(uint32_t at) {
    Entry* const entries = entries_.data();
    uint32_t* const position = position_.data();
    const auto size = static_cast<uint32_t>(entries_.size());
    for (uint32_t first = kChildren * at + 1; first < size; first = kChildren * at + 1) {
      uint32_t least = first;
      const uint32_t end = first + kChildren < size ? first + kChildren : size;
      for (uint32_t child = first + 1; child < end; ++child) {
        if (Less(entries[child], entries[least])) least = child;
      }
      entries[at] = entries[least];
      position[entries[at].slot] = at;
      at = least;
    }
    return at;
  }
  // Puts `entry` into the gap at `at`, or above it.
  void Rise(const Entry entry, uint32_t at) {
    Entry* const entries = entries_.data();
    uint32_t* const position = position_.data();
    while (at > 0) {
      const uint32_t parent = (at - 1) / kChildren;
      if (!Less(entry, entries[parent])) break;
      entries[at] = entries[parent];
      position[entries[at].slot] = at;
      at = parent;
    }
    entries[at] = entry;
    position[entry.slot] = at;
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> position_;  // by slot
};

}  // namespace baton::policy

#endif  // BATON_POLICY_INDEXED_HEAP_H_
