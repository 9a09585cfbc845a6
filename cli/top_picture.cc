#include "cli/top_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "cli/text_table.h"

namespace baton::cli {
namespace {

using nlohmann::json;
using Style = TopLine::Style;

constexpr size_t kBarWidth = 10;
constexpr size_t kFilterMax = 64;

struct SortKey {
  char key;
  SortBy by;
  const char* name;
};
constexpr SortKey kSortKeys[] = {
    {'t', SortBy::kActivity, "activity"}, {'g', SortBy::kGpu, "GPU"},
    {'p', SortBy::kPod, "pod"},           {'r', SortBy::kRequest, "request"},
    {'a', SortBy::kAchieved, "achieved"}, {'w', SortBy::kWaiting, "waiting"},
    {'m', SortBy::kMemory, "memory"},
};

// No line is longer than a usual terminal has columns.
constexpr const char* kHelp[] = {
    "t g p r a w m        sort by activity, GPU, pod, request, achieved, waiting,",
    "                     memory",
    "up down, j k         scroll by a line",
    "PgUp PgDn, Space b   scroll by a page",
    "Home End             to the first, to the last",
    "/                    show pods with this in name, team, GPU or phase; Enter",
    "                     ends it",
    "Esc                  show all pods again",
    "?                    this help, and back",
    "q                    leave",
    "",
    "BUSY is the part of the time in which a GPU executed, HANDOFFS that in which it",
    "stood still because its token moved from pod to pod.",
    "REQUEST and LIMIT are percentages of the GPU's time; 1s, 10s and 60s what the",
    "pod had of it over that long, and WAIT% how much of the last second it waited.",
    "^: high priority, ~: idle.",
    "IN TIME is the part of a pod's waits that were no longer than its latency.",
};

// Whether it is there, in any case of ASCII.
bool Has(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::string Bar(double part, bool blocks) {
  const auto full = static_cast<size_t>(std::lround(std::clamp(part, 0.0, 1.0) * kBarWidth));
  std::string bar;
  for (size_t i = 0; i < kBarWidth; ++i) {
    bar += i < full ? (blocks ? "\u2588" : "#") : (blocks ? "\u2591" : ".");
  }
  return bar;
}

// What pods held of each GPU in the last second, and what memory they and others have there.
struct OfGpu {
  double held = 0;  // percent
  uint64_t memory = 0;
};
std::map<std::string, OfGpu> SumsOf(const json& status) {
  const json none = json::array();
  std::map<std::string, OfGpu> sums;
  for (const json& pod : status.value("pods", none)) {
    for (const json& gpu : pod.value("gpus", none)) {
      OfGpu& sum = sums[gpu.value("uuid", "")];
      sum.held += gpu.value("achieved_1s", 0.0);
      sum.memory += gpu.value("memory_used", uint64_t{0});
    }
  }
  for (const json& gpu : status.value("gpus", none)) {
    for (const json& process : gpu.value("unmanaged", none)) {
      sums[gpu.value("uuid", "")].memory += process.value("memory", uint64_t{0});
    }
  }
  return sums;
}

std::vector<TopLine> GpuLines(const json& status, const GpuParts& parts, size_t width,
                              bool blocks) {
  const json none = json::array();
  const auto sums = SumsOf(status);
  TextTable table{{{"GPU", true},
                   {"MODEL", true},
                   {"HELD", true},
                   {""},
                   {"BUSY"},
                   {"HANDOFFS"},
                   {"MEMORY"},
                   {"WAITING"},
                   {"", true}},
                  {}};
  std::vector<Style> styles{Style::kFaint};
  size_t index = 0;  // as --gpu takes it
  for (const json& gpu : status.value("gpus", none)) {
    const std::string uuid = gpu.value("uuid", "");
    const auto found = sums.find(uuid);
    const OfGpu of = found == sums.end() ? OfGpu{} : found->second;
    const uint64_t memory = gpu.value("memory", uint64_t{0});
    const auto percent = [](double part) { return part < 0 ? "-" : Fixed(part * 100) + "%"; };
    std::string trouble;
    const auto say = [&](bool is, const char* text) {
      if (is) trouble += (trouble.empty() ? "" : ", ") + std::string(text);
    };
    say(!gpu.value("present", true), "not reported");
    say(gpu.value("health", "healthy") != "healthy", "failed");
    say(gpu.value("hung", false), "does not drain");
    say(gpu.value("link", "up") == "cut", "link cut");
    say(!gpu.value("unmanaged", none).empty(), "used without the token");
    const bool wrong = !trouble.empty();
    say(gpu.value("cordoned", false), "cordoned");
    table.rows.push_back({std::to_string(index++), ToPrintable(gpu.value("name", uuid)),
                          Bar(of.held / 100, blocks), Fixed(of.held) + "%",
                          percent(parts.Busy(uuid)), percent(parts.Handoffs(uuid)),
                          memory == 0 ? Bytes(of.memory) : Bytes(of.memory) + "/" + Bytes(memory),
                          std::to_string(gpu.value("queue", none).size()), trouble});
    styles.push_back(wrong ? Style::kWrong : Style::kPlain);
  }
  // From the least to the most important.
  table.FitTo(width, {"HANDOFFS", "MODEL", "MEMORY", "BUSY"});
  std::vector<TopLine> lines;
  for (std::string& line : table.Lines(width)) {
    lines.push_back({std::move(line), styles[lines.size()]});
  }
  return lines;
}

Style StyleOf(const PodRow& row) {
  if (row.phase == "holding" || row.phase == "draining") return Style::kHolding;
  if (row.phase == "waiting") return Style::kWaiting;
  return row.phase == "idle" ? Style::kFaint : Style::kPlain;
}

bool Matches(const PodRow& row, const std::string& filter) {
  return filter.empty() || Has(row.pod, filter) || Has(row.team, filter) || Has(row.gpu, filter) ||
         Has(row.phase, filter);
}

std::string Title(const TopView& view, size_t shown, size_t all) {
  const auto* by = std::find_if(std::begin(kSortKeys), std::end(kSortKeys),
                                [&](const SortKey& key) { return key.by == view.sort; });
  std::string title = "baton top  ";
  if (view.filtering) return title + "show pods with: " + ToPrintable(view.filter) + "_";
  title += shown == all ? fmt::format("{} rows", all) : fmt::format("{} of {} rows", shown, all);
  if (!view.filter.empty()) title += " with '" + ToPrintable(view.filter) + "'";
  return title + fmt::format(" by {}   ? help  q quit", by->name);
}

}  // namespace

bool TopView::OnKey(std::string_view key) {
  const char c = key.size() == 1 ? key[0] : '\0';
  if (c == 3) return false;
  if (filtering) {
    if (c == '\r' || c == '\n') {
      filtering = false;
    } else if (c == '\033') {
      filtering = false;
      filter.clear();
    } else if (c == 127 || c == 8) {
      while (!filter.empty() && (filter.back() & 0xc0) == 0x80) filter.pop_back();
      if (!filter.empty()) filter.pop_back();
    } else if (key[0] != '\033' && static_cast<unsigned char>(key[0]) >= ' ' &&
               filter.size() + key.size() <= kFilterMax) {
      filter += key;
    }
    first = 0;
    return true;
  }
  const auto back = [this](size_t by) { first -= std::min(first, by); };
  if (c == 'q') return false;
  if (c == '?' || (help && c == '\033')) {
    help = !help;
  } else if (c == '\033') {
    filter.clear();
    first = 0;
  } else if (c == '/') {
    filtering = true;
    filter.clear();
    first = 0;
  } else if (c == 'k' || key == "\033[A" || key == "\033OA") {
    back(1);
  } else if (c == 'j' || key == "\033[B" || key == "\033OB") {
    ++first;
  } else if (c == 'b' || key == "\033[5~") {
    back(page);
  } else if (c == ' ' || key == "\033[6~") {
    first += page;
  } else if (key == "\033[H" || key == "\033[1~" || key == "\033OH") {
    first = 0;
  } else if (key == "\033[F" || key == "\033[4~" || key == "\033OF") {
    first = SIZE_MAX / 2;  // the picture sets it right
  } else {
    for (const SortKey& by : kSortKeys) {
      if (c != by.key) continue;
      sort = by.by;
      first = 0;
    }
  }
  return true;
}

void GpuParts::Hear(const json& status, Instant now) {
  std::map<std::string, Sums> sums;
  const json none = json::array();
  for (const json& pod : status.value("pods", none)) {
    for (const json& gpu : pod.value("gpus", none)) {
      sums[gpu.value("uuid", "")].busy_ns += gpu.value("busy_ns", uint64_t{0});
    }
  }
  for (const json& gpu : status.value("gpus", none)) {
    sums[gpu.value("uuid", "")].handoff_total_ns = gpu.value("handoff_total_ns", uint64_t{0});
  }
  const auto span = static_cast<double>(Nanos(now - heard_));
  parts_.clear();
  for (const auto& [uuid, sum] : sums) {
    const auto before = sums_.find(uuid);
    if (before == sums_.end() || span <= 0) continue;
    // Less than before: a pod left, or the daemon started anew.
    const auto part = [&](uint64_t now_ns, uint64_t before_ns) {
      return now_ns < before_ns ? -1
                                : std::min(1.0, static_cast<double>(now_ns - before_ns) / span);
    };
    parts_[uuid] = {part(sum.busy_ns, before->second.busy_ns),
                    part(sum.handoff_total_ns, before->second.handoff_total_ns)};
  }
  sums_ = std::move(sums);
  heard_ = now;
}

double GpuParts::Busy(const std::string& uuid) const {
  const auto found = parts_.find(uuid);
  return found == parts_.end() ? -1 : found->second.busy;
}

double GpuParts::Handoffs(const std::string& uuid) const {
  const auto found = parts_.find(uuid);
  return found == parts_.end() ? -1 : found->second.handoffs;
}

std::vector<TopLine> TopPicture(const json& status, const GpuParts& parts, TopView& view,
                                size_t width, size_t height, bool blocks) {
  std::vector<PodRow> rows = RowsFrom(status);
  const size_t all = rows.size();
  std::erase_if(rows, [&](const PodRow& row) { return !Matches(row, view.filter); });
  Sort(rows, view.sort);
  std::vector<TopLine> lines{{Cut(Title(view, rows.size(), all), width), Style::kPlain}};
  if (view.help) {
    for (const char* line : kHelp) lines.push_back({Cut(line, width)});
  } else {
    if (const std::string note = UnmanagedNote(status); !note.empty()) {
      lines.push_back({Cut(note, width), Style::kWrong});
    }
    // Pods have half of the screen at least.
    std::vector<TopLine> gpus = GpuLines(status, parts, width, blocks);
    const size_t most = std::max<size_t>(2, height / 2);
    if (gpus.size() > most) {
      const size_t left = gpus.size() - (most - 1);
      gpus.resize(most - 1);
      gpus.push_back({Cut(fmt::format("... {} more GPUs", left), width), Style::kFaint});
    }
    lines.insert(lines.end(), gpus.begin(), gpus.end());
    lines.emplace_back();
    const size_t heading = lines.size();
    view.page = height > heading + 1 ? height - heading - 1 : 1;
    view.first = std::min(view.first, rows.size() - std::min(rows.size(), view.page));
    for (std::string& line : Table(rows, width)) lines.push_back({std::move(line)});
    lines[heading].style = Style::kHeading;
    for (size_t i = 0; i < rows.size(); ++i) lines[heading + 1 + i].style = StyleOf(rows[i]);
    const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(heading + 1);
    lines.erase(begin, begin + static_cast<std::ptrdiff_t>(view.first));
  }
  if (lines.size() > height) lines.resize(height);
  return lines;
}

std::string Painted(const TopLine& line, bool colours) {
  const char* begin = "";
  switch (line.style) {
    case Style::kPlain:
      return line.text;
    case Style::kHeading:
      begin = "\033[7m";
      break;
    case Style::kHolding:
      begin = colours ? "\033[32m" : "\033[1m";
      break;
    case Style::kWaiting:
      if (!colours) return line.text;
      begin = "\033[33m";
      break;
    case Style::kWrong:
      begin = colours ? "\033[31m" : "\033[1m";
      break;
    case Style::kFaint:
      begin = "\033[2m";
      break;
  }
  return begin + line.text + "\033[0m";
}

}  // namespace baton::cli
