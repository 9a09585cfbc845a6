// The wall clock's times, and how people write them in UTC. Pure. Thread safe.
#ifndef BATON_LEDGER_WALL_TIME_H_
#define BATON_LEDGER_WALL_TIME_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::ledger {

// The wall clock, UTC. Nowhere else than in the ledger and what reads it does one appear.
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

// A date and a time of day as they are written.
struct WrittenTime {
  std::chrono::local_seconds local;
  bool utc = false;  // with a final Z
};

// "2026-11-21", "2026-11-21T14:30", "2026-11-21T14:30:05", each with or without a final Z, from
// 1970 on. `zone`, for the error's sentence, is where a time without Z is meant.
Result<WrittenTime> ParseWrittenTime(std::string_view text, std::string_view zone = "UTC");

// "2026-11-21T14:30:05"
std::string FormatWrittenTime(std::chrono::local_seconds local);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_WALL_TIME_H_
