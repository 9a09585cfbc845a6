#include "cli/pod_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/text_table.h"

namespace baton::cli {
namespace {

// "GPU-1f2e3d4c" tells GPUs apart and leaves room for the rest.
std::string ShortGpu(const std::string& node, const std::string& uuid) {
  return (node.empty() ? "" : node + ":") + uuid.substr(0, 12);
}

// "process 4711 (python) of user bob in container 0123456789ab, with 3.1 GiB,"; as batond's events
// have it.
std::string UnmanagedText(const nlohmann::json& process) {
  const std::string command = process.value("command", ""), user = process.value("user", "");
  std::string text = fmt::format("process {}", process.value("pid", int64_t{0}));
  if (!command.empty()) {
    text += fmt::format(" ({}) of user {}", command,
                        user.empty() ? std::to_string(process.value("uid", int64_t{0})) : user);
  }
  if (const std::string id = process.value("container", ""); !id.empty()) {
    text += " in container " + id.substr(0, 12);
  }
  if (const std::string pod = process.value("pod", ""); !pod.empty()) text += " of pod " + pod;
  if (const auto bytes = process.value("memory", uint64_t{0}); bytes != 0) {
    text += ", with " + FormatBytes(bytes) + ",";
  }
  return text;
}

// By GPU: what pods and processes without the token have of it.
std::map<std::string, uint64_t> MemoryUsed(const nlohmann::json& status) {
  const nlohmann::json none = nlohmann::json::array();
  std::map<std::string, uint64_t> used;
  for (const nlohmann::json& pod : status.value("pods", none)) {
    for (const nlohmann::json& gpu : pod.value("gpus", none)) {
      used[gpu.value("uuid", "")] += gpu.value("memory_used", uint64_t{0});
    }
  }
  for (const nlohmann::json& gpu : status.value("gpus", none)) {
    for (const nlohmann::json& process : gpu.value("unmanaged", none)) {
      used[gpu.value("uuid", "")] += process.value("memory", uint64_t{0});
    }
  }
  return used;
}

}  // namespace

std::string UnmanagedNote(const nlohmann::json& status) {
  size_t count = 0;
  for (const nlohmann::json& gpu : status.value("gpus", nlohmann::json::array())) {
    count += gpu.value("unmanaged", nlohmann::json::array()).size();
  }
  if (count == 0) return "";
  return fmt::format("! {} process{} without the token; 'baton status' names {}", count,
                     count == 1 ? " runs" : "es run", count == 1 ? "it" : "them");
}

Result<SortBy> ParseSortBy(std::string_view name) {
  static constexpr std::pair<std::string_view, SortBy> kNames[] = {
      {"activity", SortBy::kActivity}, {"gpu", SortBy::kGpu},
      {"pod", SortBy::kPod},           {"request", SortBy::kRequest},
      {"achieved", SortBy::kAchieved}, {"waiting", SortBy::kWaiting},
      {"memory", SortBy::kMemory},
  };
  for (const auto& [known, by] : kNames) {
    if (known == name) return by;
  }
  return Fail(ErrorCode::kInvalid,
              "'" + std::string(name) +
                  "' is not one of activity, gpu, pod, request, achieved, waiting, "
                  "memory");
}

std::vector<PodRow> RowsFrom(const nlohmann::json& status) {
  std::vector<PodRow> rows;
  for (const nlohmann::json& pod : status.value("pods", nlohmann::json::array())) {
    for (const nlohmann::json& gpu : pod.value("gpus", nlohmann::json::array())) {
      PodRow row;
      row.pod = pod.value("name", "");
      row.team = pod.value("team", "");
      row.priority = pod.value("priority", "normal");
      row.request = pod.value("request", 0.0);
      row.limit = pod.value("limit", 100.0);
      row.memory_cap = pod.value("memory", uint64_t{0});
      row.gpu = ShortGpu(gpu.value("node", ""), gpu.value("uuid", ""));
      row.achieved_1s = gpu.value("achieved_1s", 0.0);
      row.achieved_10s = gpu.value("achieved_10s", 0.0);
      row.achieved_60s = gpu.value("achieved_60s", 0.0);
      row.waited_percent = gpu.value("waited_1s", 0.0);
      row.memory_used = gpu.value("memory_used", uint64_t{0});
      row.latency_ns = pod.value("latency_ns", uint64_t{0});
      row.latency_waits = pod.value("latency_waits", uint64_t{0});
      row.latency_late = pod.value("latency_late", uint64_t{0});
      row.phase = gpu.value("memory_released", false) ? "swapped out" : gpu.value("phase", "");
      if (const auto missing = pod.value("gang_missing", 0); missing > 0) {
        row.phase = fmt::format("waits for {} pod{}", missing, missing == 1 ? "" : "s");
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<std::string> Summary(const nlohmann::json& status) {
  const nlohmann::json none = nlohmann::json::array();
  std::vector<std::string> lines;
  const nlohmann::json daemon = status.value("daemon", nlohmann::json::object());
  lines.push_back("batond " + daemon.value("version", "?") + ", mode " + daemon.value("mode", "?"));
  for (const nlohmann::json& sentence : daemon.value("degraded", none)) {
    lines.push_back("! " + ToPrintable(sentence.get<std::string>()));
  }
  for (const nlohmann::json& node : status.value("nodes", none)) {
    if (node.value("link", "up") == "up") continue;
    lines.push_back("! the link to node " + ToPrintable(node.value("name", "?")) +
                    " is cut: no token of its GPUs moves");
  }
  const std::map<std::string, uint64_t> used = MemoryUsed(status);
  size_t index = 0;  // by which --gpu and cordon name it: its place in the list
  for (const nlohmann::json& gpu : status.value("gpus", none)) {
    const std::string node = gpu.value("node", ""), uuid = gpu.value("uuid", "");
    std::string line = fmt::format("{}  {}{}{}", index++, node, node.empty() ? "" : ":", uuid);
    if (const std::string name = gpu.value("name", ""); !name.empty()) line += "  " + name;
    if (const auto memory = gpu.value("memory", uint64_t{0}); memory != 0) {
      const auto found = used.find(uuid);
      line += "  " + Bytes(found == used.end() ? 0 : found->second) + "/" + Bytes(memory);
    }
    // Above, a sentence says why it is not healthy; free it is not.
    const std::string health = gpu.value("health", "healthy");
    line += gpu.contains("holder")                  ? "  held by " + gpu.value("holder", "")
            : !gpu.value("unmanaged", none).empty() ? "  used without the token"
            : health != "healthy"                   ? "  " + health
            : gpu.value("mig_enabled", false)       ? "  MIG, no token"
                                                    : "  free";
    if (const size_t waiting = gpu.value("queue", none).size(); waiting > 0) {
      line += ", " + std::to_string(waiting) + " waiting";
    }
    if (gpu.value("cordoned", false)) line += ", cordoned";
    if (gpu.value("hung", false)) line += ", its holder does not drain";
    if (!gpu.value("present", true)) line += ", not reported by its node";
    lines.push_back(ToPrintable(line));
    for (const nlohmann::json& process : gpu.value("unmanaged", none)) {
      lines.push_back("  ! " + ToPrintable(UnmanagedText(process)) + " runs without the token");
    }
  }
  return lines;
}

void Sort(std::vector<PodRow>& rows, SortBy by) {
  const auto amount = [by](const PodRow& row) -> double {
    switch (by) {
      case SortBy::kRequest:
        return row.request;
      case SortBy::kActivity:
        return row.achieved_1s + row.waited_percent;
      case SortBy::kAchieved:
        return row.achieved_1s;
      case SortBy::kWaiting:
        return row.waited_percent;
      case SortBy::kMemory:
        return static_cast<double>(row.memory_used);
      default:
        return 0;
    }
  };
  std::sort(rows.begin(), rows.end(), [&](const PodRow& a, const PodRow& b) {
    if (amount(a) != amount(b)) return amount(a) > amount(b);
    if (by == SortBy::kPod) return std::tie(a.pod, a.gpu) < std::tie(b.pod, b.gpu);
    return std::tie(a.gpu, a.pod) < std::tie(b.gpu, b.pod);
  });
}

// "99.2% of 20ms": the part of its waits that were no longer.
std::string InTime(const PodRow& row) {
  if (row.latency_ns == 0) return "";
  const std::string latency = FormatDuration(DurationFromNanos(row.latency_ns));
  if (row.latency_waits == 0) return "- of " + latency;
  const auto late = static_cast<double>(std::min(row.latency_late, row.latency_waits));
  return Fixed(100 - 100 * late / static_cast<double>(row.latency_waits)) + "% of " + latency;
}

std::vector<std::string> Table(const std::vector<PodRow>& rows, size_t width) {
  constexpr int kAfterWaits = 8;
  TextTable table{{{"GPU", true},
                   {"POD", true},
                   {"REQUEST"},
                   {"LIMIT"},
                   {"1s"},
                   {"10s"},
                   {"60s"},
                   {"WAIT%"},
                   {"MEMORY"},
                   {"PHASE", true},
                   {"TEAM", true}},
                  {}};
  for (const PodRow& row : rows) {
    const std::string memory = FormatBytes(row.memory_used) +
                               (row.memory_cap == 0 ? "" : "/" + FormatBytes(row.memory_cap));
    table.rows.push_back({ToPrintable(row.gpu),
                          ToPrintable(row.pod) + (row.priority == "high"   ? " ^"
                                                  : row.priority == "idle" ? " ~"
                                                                           : ""),
                          Fixed(row.request), Fixed(row.limit), Fixed(row.achieved_1s),
                          Fixed(row.achieved_10s), Fixed(row.achieved_60s),
                          Fixed(row.waited_percent), memory, ToPrintable(row.phase),
                          ToPrintable(row.team)});
  }
  if (std::any_of(rows.begin(), rows.end(),
                  [](const PodRow& row) { return row.latency_ns != 0; })) {
    table.columns.insert(table.columns.begin() + kAfterWaits, {"IN TIME"});
    for (size_t i = 0; i < rows.size(); ++i) {
      table.rows[i].insert(table.rows[i].begin() + kAfterWaits, InTime(rows[i]));
    }
  }
  table.FitTo(width, {"TEAM", "60s", "LIMIT", "MEMORY", "10s", "GPU", "WAIT%"});
  return table.Lines(width);
}

}  // namespace baton::cli
