// The table of pods that `baton top` and `baton status` show, made from a `status` answer.
#ifndef BATON_CLI_POD_TABLE_H_
#define BATON_CLI_POD_TABLE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::cli {

// One pod on one GPU. Shares are percentages of that GPU.
struct PodRow {
  std::string gpu;  // "node:GPU-1f2e3d4c", shortened to what tells it apart
  std::string pod;
  std::string team;
  std::string priority;
  double request = 0;
  double limit = 0;
  double achieved_1s = 0;
  double achieved_10s = 0;
  double achieved_60s = 0;
  double waited_percent = 0;  // part of the last second in which it waited for the token
  uint64_t memory_used = 0;   // bytes
  uint64_t memory_cap = 0;    // bytes; 0: none
  uint64_t latency_ns = 0;    // 0: none
  uint64_t latency_waits = 0;
  uint64_t latency_late = 0;
  std::string phase;  // idle, waiting, holding, draining
};

// Activity: what it had of the last second, and how much of it it waited.
enum class SortBy { kActivity, kGpu, kPod, kRequest, kAchieved, kWaiting, kMemory };

// "activity", "gpu", "pod", "request", "achieved", "waiting" or "memory".
Result<SortBy> ParseSortBy(std::string_view name);

// The rows of a `status` answer. Fields that an older daemon does not send keep their default.
std::vector<PodRow> RowsFrom(const nlohmann::json& status);
// The lines above the table: the daemon, what is wrong, and each GPU.
std::vector<std::string> Summary(const nlohmann::json& status);
// That processes run without the token, in one line; empty: none does.
std::string UnmanagedNote(const nlohmann::json& status);
// Names and GPUs ascending, amounts descending; ties by GPU and pod.
void Sort(std::vector<PodRow>& rows, SortBy by);
// A heading and one line per row, each cut to `width` columns (0: as long as it gets). Where that
// is too little, what matters least is left out.
std::vector<std::string> Table(const std::vector<PodRow>& rows, size_t width);

}  // namespace baton::cli

#endif  // BATON_CLI_POD_TABLE_H_
