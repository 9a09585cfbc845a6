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

inline constexpr std::array<const char*, 8> kCounterNames = {
    "held_ns",       "busy_ns",  "waited_ns", "unmanaged_ns",
    "memory_mib_ms", "launches", "grants",    "revocations"};
using Numbers = std::array<int64_t, kCounterNames.size()>;
inline constexpr size_t kHeld = 0;

inline Numbers NumbersOf(const Counters& c) {
  return {c.held_ns,       c.busy_ns,  c.waited_ns, c.unmanaged_ns,
          c.memory_mib_ms, c.launches, c.grants,    c.revocations};
}

// "held_ns, busy_ns ...", each as `of` writes it.
inline std::string CounterList(const std::function<std::string(std::string)>& of) {
  std::string list;
  for (const char* name : kCounterNames) list += (list.empty() ? "" : ", ") + of(name);
  return list;
}
inline std::string CounterList() {
  return CounterList([](std::string name) { return name; });
}

}  // namespace baton::ledger

#endif  // BATON_LEDGER_COLUMNS_H_
