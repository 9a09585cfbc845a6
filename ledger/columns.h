// Counters as columns of a table: the one list of their names and order.
#ifndef BATON_LEDGER_COLUMNS_H_
#define BATON_LEDGER_COLUMNS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ledger/ledger.h"

namespace baton::ledger {

inline constexpr std::array<const char*, 10> kCounterNames = {
    "held_ns",  "busy_ns", "waited_ns",   "unmanaged_ns", "memory_mib_ms",
    "launches", "grants",  "revocations", "energy_j",     "uncontended_ns"};
// Of them, those that the first version of the schema has. The others never shrink.
inline constexpr size_t kFirstCounters = 8;
using Numbers = std::array<int64_t, kCounterNames.size()>;
inline constexpr size_t kHeld = 0;

inline Numbers NumbersOf(const Counters& c) {
  return {c.held_ns,  c.busy_ns, c.waited_ns,   c.unmanaged_ns, c.memory_mib_ms,
          c.launches, c.grants,  c.revocations, c.energy_j,     c.uncontended_ns};
}

// Of a GPU's buckets.
inline constexpr std::array<const char*, 3> kTimeNames = {"present_ns", "idle_ns", "energy_j"};

using WriteColumn = std::function<std::string(std::string)>;
// "held_ns, busy_ns ...", each as `of` writes it.
template <size_t kSize>
std::string ColumnList(const std::array<const char*, kSize>& names, const WriteColumn& of) {
  std::string list;
  for (const char* name : names) list += (list.empty() ? "" : ", ") + of(name);
  return list;
}
inline std::string SameColumn(std::string name) { return name; }
inline std::string CounterList(const WriteColumn& of = SameColumn) {
  return ColumnList(kCounterNames, of);
}
inline std::string TimeList(const WriteColumn& of = SameColumn) {
  return ColumnList(kTimeNames, of);
}

}  // namespace baton::ledger

#endif  // BATON_LEDGER_COLUMNS_H_
