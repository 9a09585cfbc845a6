#include "capacity/scenario_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>

#include "base/parse.h"
#include "base/toml.h"
#include "devmgr/placement/csv.h"
#include "devmgr/placement/replay.h"

namespace baton::capacity {
namespace {

constexpr int64_t kNodesMax = 10'000;
constexpr double kHoursMax = 1e9;
constexpr double kSecondsMax = 3650.0 * 24 * 3600;
constexpr uint32_t kModelMemory_mib = 32'768;  // of a GPU of which nobody says: as a trace

Duration SecondsOf(double seconds) { return Duration(std::llround(seconds * 1e9)); }
double InSeconds(Duration d) { return static_cast<double>(Nanos(d)) / 1e9; }
uint32_t Milli(policy::Share share) { return (share + policy::Share(500)) / policy::kShareMin; }

// As a cell of a table without quotes.
std::string Cell(std::string text) {
  for (char& c : text) {
    if (c == ',' || static_cast<unsigned char>(c) < 0x20) c = '_';
  }
  return text;
}
std::string Joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : "|") + word;
  return Cell(all);
}
std::vector<std::string> SplitAt(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    if (end != 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}
std::optional<double> NumberIn(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::string UseText(const std::vector<Phase>& course) {
  std::string text;
  for (const Phase& phase : course) {
    text += fmt::format("{}{:.6g}*{:.10g}", text.empty() ? "" : " ", 100 * phase.alone,
                        InSeconds(phase.length));
  }
  return text;
}

// "40" for all of `length`, or "100*3600 5*600". Nothing: it is neither.
std::optional<std::vector<Phase>> ParseUse(std::string_view text, Duration length) {
  std::vector<Phase> course;
  for (const std::string& part : SplitAt(text.empty() ? "100" : text, ' ')) {
    const size_t star = part.find('*');
    const auto percent = NumberIn(std::string_view(part).substr(0, star));
    const auto seconds = star == std::string::npos
                             ? std::optional(InSeconds(length))
                             : NumberIn(std::string_view(part).substr(star + 1));
    if (!percent || !seconds || *percent < 0 || *percent > 100 || *seconds < 0 ||
        *seconds > kSecondsMax) {
      return std::nullopt;
    }
    course.push_back({SecondsOf(*seconds), *percent / 100});
  }
  return course;
}

enum Column : size_t {
  kName,
  kCreated,
  kScheduled,
  kDeleted,
  kTeam,
  kPriority,
  kLimit,
  kSharePriority,
  kGpuMemory,
  kMode,
  kGang,
  kUse,
  kEnds,
  kOn,
  kAdvised,
  kHad
};
const std::vector<std::string_view> kColumns{"name",           "creation_time",
                                             "scheduled_time", "deletion_time",
                                             "team",           "priority",
                                             "limit_milli",    "share_priority",
                                             "gpu_memory",     "mode",
                                             "gang",           "use",
                                             "ends",           "on",
                                             "advised_milli",  "had_hours"};

// A row of pods, beyond what a trace says of it.
class PodRow {
 public:
  PodRow(devmgr::Csv& csv, PodPlan& plan) : csv_(csv), plan_(plan) {}

  Result<void> Read() {
    ReadTimes();
    ReadShare();
    ReadMemory();
    devmgr::PodRequest& request = plan_.request;
    request.team = csv_.Text(kTeam);
    request.gang = csv_.Text(kGang);
    request.priority = static_cast<int32_t>(Number(kPriority, 0, -1e9, 1e9));
    request.mode = Word(kMode, {"time-slice", "exclusive"});
    plan_.on = SplitAt(csv_.Text(kOn), '|');
    if (!csv_.Text(kHad).empty()) plan_.had_hours = Number(kHad, 0, 0, kHoursMax);
    if (!error_.empty()) {
      return Fail(ErrorCode::kInvalid, fmt::format("line {}: {}", csv_.line(), error_));
    }
    return {};
  }

 private:
  void ReadTimes() {
    const double created = Number(kCreated, 0, -kSecondsMax, kSecondsMax);
    const double scheduled = Number(kScheduled, created, created, kSecondsMax);
    const bool goes = !csv_.Text(kDeleted).empty();
    const double deleted = Number(kDeleted, scheduled, scheduled, kSecondsMax);
    plan_.came = SecondsOf(created);
    const std::string ends = Word(kEnds, {goes ? "work" : "never", "work", "time", "never"});
    plan_.ends = ends == "never" ? Ends::kNever : ends == "time" ? Ends::kTime : Ends::kWork;
    const auto course = ParseUse(csv_.Text(kUse), SecondsOf(deleted - scheduled));
    if (!course) {
      return Complain(
          fmt::format("use: '{}' is not a percentage such as 40, nor percentages with "
                      "seconds such as 100*3600 5*600",
                      csv_.Text(kUse)));
    }
    plan_.course = *course;
    if (!goes && plan_.ends != Ends::kNever && csv_.Text(kUse).find('*') == std::string::npos) {
      Complain("ends: a pod without deletion_time needs seconds in its use, or ends by never");
    }
  }

  void ReadShare() {
    devmgr::PodRequest& request = plan_.request;
    const std::string priority = Word(kSharePriority, {"normal", "high", "idle"});
    policy::ShareSpec& spec = plan_.share;
    spec.priority = priority == "high"   ? policy::Priority::kHigh
                    : priority == "idle" ? policy::Priority::kIdle
                                         : policy::Priority::kNormal;
    if (request.containers.empty()) return Complain("num_gpu: the pod asks for no GPU");
    policy::Share& share = request.containers[0].vgpus[0].share;
    request.idle = spec.priority == policy::Priority::kIdle;
    if (request.idle) share = policy::Share(0);
    spec.request = share;
    spec.limit = policy::kShareMin * static_cast<uint32_t>(Number(kLimit, 1000, 1, 1000));
    spec.limit = std::max(spec.limit, spec.request);
    const auto valid = policy::Validated(spec);
    if (!valid) return Complain(valid.error().message);
    spec = *valid;
    if (!csv_.Text(kAdvised).empty()) {
      plan_.advised = policy::kShareMin * static_cast<uint32_t>(Number(kAdvised, 1, 1, 1000));
    }
  }

  void ReadMemory() {
    const std::string_view text = csv_.Text(kGpuMemory);
    if (text.empty() || plan_.request.containers.empty()) return;
    devmgr::VgpuRequest& vgpu = plan_.request.containers[0].vgpus[0];
    vgpu.memory_mib = 0;
    vgpu.memory_part = policy::Share(0);
    if (text.ends_with('%')) {
      const auto part = policy::ParsePercent(text);
      if (!part) return Complain("gpu_memory: " + part.error().message);
      vgpu.memory_part = *part;
      return;
    }
    const auto bytes = ParseBytes(text);
    if (!bytes) return Complain("gpu_memory: " + bytes.error().message);
    vgpu.memory_mib = static_cast<uint32_t>(
        std::min<uint64_t>((*bytes + (1u << 20) - 1) >> 20, std::numeric_limits<uint32_t>::max()));
  }

  double Number(Column column, double otherwise, double least, double most) {
    const std::string_view text = csv_.Text(column);
    if (text.empty()) return otherwise;
    const auto value = NumberIn(text);
    if (value && *value >= least && *value <= most) return *value;
    Complain(fmt::format("{}: '{}' is not a number from {:.10g} to {:.10g}", kColumns[column], text,
                         least, most));
    return otherwise;
  }
  // The first one where nothing is said.
  std::string Word(Column column, std::initializer_list<std::string_view> words) {
    const std::string_view text = csv_.Text(column);
    if (text.empty()) return std::string(*words.begin());
    if (std::find(words.begin(), words.end(), text) == words.end()) {
      std::string all;
      for (const std::string_view word : words) {
        if (all.find(word) == std::string::npos)
          all += (all.empty() ? "" : ", ") + std::string(word);
      }
      Complain(fmt::format("{}: '{}' is none of {}", kColumns[column], text, all));
    }
    return std::string(text);
  }
  void Complain(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  devmgr::Csv& csv_;
  PodPlan& plan_;
  std::string error_;
};

class ClusterReader {
 public:
  using Read = std::function<Result<std::string>(const std::string&)>;
  ClusterReader(const toml::table& root, std::string file, const Read& read)
      : root_(root), file_(std::move(file)), read_(read) {}

  Result<Scenario> ReadAll() {
    Known(root_, "the file",
          {"length", "pods", "teams", "nodes", "overcommit", "uncontended_use", "node", "guarantee",
           "used", "placement"});
    const std::string length = Text(root_, "length");
    if (!length.empty()) {
      const auto time = ParseDuration(length);
      if (time && *time > Duration(0)) s_.length = *time;
      if (!time || *time <= Duration(0)) Complain(root_, "length must be a time such as \"30d\"");
    }
    s_.overcommit = Number(root_, "overcommit", 1, 1, 100);
    s_.uncontended_use = policy::ShareOf(Number(root_, "uncontended_use", 0, 0, 1));
    ReadPlacement();
    Rows("node", [this](const toml::table& row) { ReadNode(row); });
    Rows("guarantee", [this](const toml::table& row) {
      Known(row, "[[guarantee]]", {"team", "gpus"});
      s_.guarantees.emplace_back(Team(row), Number(row, "gpus", 0, 0, 1e6));
    });
    Rows("used", [this](const toml::table& row) {
      Known(row, "[[used]]", {"team", "hours", "uncounted_hours"});
      s_.uses.push_back({Team(row), "", Number(row, "hours", 0, 0, kHoursMax),
                         Number(row, "uncounted_hours", 0, 0, kHoursMax)});
    });
    if (!error_.empty()) return Fail(ErrorCode::kInvalid, error_);
    if (auto read = ReadOthers(); !read) return tl::unexpected(read.error());
    if (s_.length == Duration(0)) SetLength();
    return std::move(s_);
  }

 private:
  Result<void> ReadOthers() {
    const auto with_name = [](const std::string& file, const Error& error) {
      return Fail(error.code, file + ": " + error.message);
    };
    if (const std::string file = Text(root_, "teams"); !file.empty()) {
      const auto text = read_(file);
      if (!text) return tl::unexpected(text.error());
      auto teams = teams::ParseTeams(*text, file);
      if (!teams) return tl::unexpected(teams.error());
      s_.teams = std::move(*teams);
    }
    if (const std::string file = Text(root_, "nodes"); !file.empty()) {
      const auto text = read_(file);
      if (!text) return tl::unexpected(text.error());
      auto nodes = devmgr::ReadTraceNodes(*text);
      if (!nodes) return with_name(file, nodes.error());
      for (devmgr::Node& node : *nodes) s_.nodes.push_back(std::move(node));
    }
    const std::string file = Text(root_, "pods");
    if (file.empty()) {
      return Fail(ErrorCode::kInvalid, file_ + ": pods = \"FILE.csv\" must name the pods");
    }
    const auto text = read_(file);
    if (!text) return tl::unexpected(text.error());
    auto pods = ReadPods(*text);
    if (!pods) return with_name(file, pods.error());
    s_.pods = std::move(*pods);
    if (s_.nodes.empty()) {
      return Fail(ErrorCode::kInvalid, file_ + ": the cluster needs a [[node]]");
    }
    return {};
  }

  // Until the last pod would be through.
  void SetLength() {
    for (const PodPlan& pod : s_.pods) {
      Duration end = pod.came;
      for (const Phase& phase : pod.course) end += phase.length;
      s_.length = std::max(s_.length, end);
    }
  }

  void ReadPlacement() {
    const toml::node* node = root_.get("placement");
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) return Complain(*node, "write [placement]");
    Known(*table, "[placement]", {"nodes", "cards"});
    for (const auto& [key, rule] :
         {std::pair{"nodes", &s_.placement.nodes}, std::pair{"cards", &s_.placement.cards}}) {
      const std::string text = Text(*table, key);
      if (text.empty()) continue;
      const auto parsed = devmgr::ParseRule(text);
      if (!parsed) return Complain(*table, fmt::format("{}: {}", key, parsed.error().message));
      *rule = *parsed;
    }
  }

  void ReadNode(const toml::table& row) {
    Known(row, "[[node]]", {"name", "count", "gpus", "model", "memory"});
    const std::string name = Text(row, "name");
    if (name.empty()) return Complain(row, "a [[node]] needs a name");
    const auto count = static_cast<int64_t>(Number(row, "count", 1, 1, kNodesMax));
    if (static_cast<int64_t>(s_.nodes.size()) + count > kNodesMax) {
      return Complain(row, fmt::format("there are more than {} nodes", kNodesMax));
    }
    uint32_t mib = kModelMemory_mib;
    if (const std::string memory = Text(row, "memory"); !memory.empty()) {
      const auto bytes = ParseBytes(memory);
      if (!bytes || *bytes < 1u << 20 || *bytes >= uint64_t{1} << 51) {
        return Complain(row, "memory must be as \"141GiB\", of each GPU");
      }
      mib = static_cast<uint32_t>(*bytes >> 20);
    }
    std::vector<std::string> uuids;
    const toml::node* gpus = row.get("gpus");
    if (const toml::array* list = gpus != nullptr ? gpus->as_array() : nullptr) {
      for (const toml::node& one : *list) uuids.push_back(one.value_or<std::string>(""));
      if (count > 1) return Complain(row, "a [[node]] with a count needs a number of gpus");
    }
    const auto number =
        uuids.empty()
            ? static_cast<size_t>(Number(row, "gpus", 1, 0, devmgr::VgpuRequest::kCardsMax))
            : uuids.size();
    for (int64_t n = 1; n <= count; ++n) {
      devmgr::Node node;
      node.name = count > 1 ? fmt::format("{}-{}", name, n) : name;
      for (size_t g = 0; g < number; ++g) {
        devmgr::Card card;
        card.uuid = uuids.empty() ? fmt::format("{}/{}", node.name, g) : uuids[g];
        card.model = Text(row, "model");
        card.memory_mib = mib;
        node.cards.push_back(std::move(card));
      }
      s_.nodes.push_back(std::move(node));
    }
  }

  std::string Team(const toml::table& row) {
    std::string team = Text(row, "team");
    if (team.empty()) Complain(row, "it needs a team");
    return team;
  }

  void Rows(const char* key, const std::function<void(const toml::table&)>& read) {
    const toml::node* node = root_.get(key);
    if (node == nullptr) return;
    const toml::array* rows = node->as_array();
    if (rows == nullptr) return Complain(*node, fmt::format("write [[{}]], one for each", key));
    for (const toml::node& row : *rows) {
      const toml::table* table = row.as_table();
      if (table == nullptr) return Complain(row, fmt::format("write [[{}]], one for each", key));
      read(*table);
    }
  }
  std::string Text(const toml::table& table, const char* key) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return "";
    const auto text = node->value_exact<std::string>();
    if (!text) Complain(*node, fmt::format("{} must be text in quotes", key));
    return text.value_or("");
  }
  double Number(const toml::table& table, const char* key, double otherwise, double least,
                double most) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return otherwise;
    const auto number = node->is_number() ? node->value<double>() : std::nullopt;
    if (number && *number >= least && *number <= most) return *number;
    Complain(*node, fmt::format("{} must be a number from {:.10g} to {:.10g}", key, least, most));
    return otherwise;
  }
  void Known(const toml::table& table, const char* what,
             std::initializer_list<std::string_view> keys) {
    for (auto&& [key, node] : table) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      std::string all;
      for (const std::string_view known : keys)
        all += (all.empty() ? "" : ", ") + std::string(known);
      Complain(node, fmt::format("{} has no key {}; it has {}", what, key.str(), all));
    }
  }
  // Keeps the first complaint.
  void Complain(const toml::node& node, const std::string& what) {
    if (error_.empty()) {
      error_ = fmt::format("{}:{}: {}", file_, node.source().begin.line, what);
    }
  }

  const toml::table& root_;
  const std::string file_;
  const Read& read_;
  Scenario s_;
  std::string error_;
};

std::string ClusterText(const Scenario& s) {
  std::string text = fmt::format(
      "length = \"{:.10g}s\"\npods = \"{}\"\nteams = \"{}\"\novercommit = {}\nuncontended_use = "
      "{}\n\n[placement]\nnodes = \"{}\"\ncards = \"{}\"\n",
      InSeconds(s.length), kPodsFile, kTeamsFile, s.overcommit, policy::Ratio(s.uncontended_use),
      devmgr::RuleName(s.placement.nodes), devmgr::RuleName(s.placement.cards));
  for (const devmgr::Node& node : s.nodes) {
    std::string uuids;
    for (const devmgr::Card& card : node.cards) {
      uuids += (uuids.empty() ? "" : ", ") + TomlText(card.uuid);
    }
    text += fmt::format("\n[[node]]\nname = {}\n", TomlText(node.name));
    if (node.cards.empty()) {
      text += "gpus = 0\n";
      continue;
    }
    text += fmt::format("gpus = [{}]\n", uuids);
    text += fmt::format("model = {}\nmemory = \"{}MiB\"\n", TomlText(node.cards[0].model),
                        node.cards[0].memory_mib);
  }
  for (const auto& [team, gpus] : s.guarantees) {
    text += fmt::format("\n[[guarantee]]\nteam = {}\ngpus = {}\n", TomlText(team), gpus);
  }
  for (const teams::Use& use : s.uses) {
    text += fmt::format("\n[[used]]\nteam = {}\nhours = {:.9g}\nuncounted_hours = {:.9g}\n",
                        TomlText(use.team), use.decayed, use.uncounted);
  }
  return text;
}

std::string PodsText(const Scenario& s) {
  std::string text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec";
  for (size_t c = kCreated; c < kColumns.size(); ++c) {
    if (c != kScheduled) text += "," + std::string(kColumns[c]);
  }
  text += "\n";
  for (const PodPlan& pod : s.pods) {
    const devmgr::PodRequest& request = pod.request;
    devmgr::VgpuRequest vgpu;
    if (!request.containers.empty() && !request.containers[0].vgpus.empty()) {
      vgpu = request.containers[0].vgpus[0];
    }
    double length = 0;
    for (const Phase& phase : pod.course) length += InSeconds(phase.length);
    const double created = InSeconds(pod.came);
    const std::string deleted =
        pod.ends == Ends::kNever ? "" : fmt::format("{:.10g}", std::max(0.0, created) + length);
    const std::string memory =
        vgpu.memory_part > policy::Share(0)
            ? policy::PercentText(vgpu.memory_part) + "%"
            : fmt::format("{}{}", vgpu.memory_mib, vgpu.memory_mib > 0 ? "MiB" : "");
    text += fmt::format("{},{},{},{},{},{},{:.10g},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                        Cell(request.name), request.cpu_milli, request.memory_mib, vgpu.count,
                        std::max(1u, Milli(vgpu.share)), Joined(request.models), created, deleted,
                        Cell(request.team), request.priority, Milli(pod.share.limit),
                        pod.share.priority == policy::Priority::kHigh   ? "high"
                        : pod.share.priority == policy::Priority::kIdle ? "idle"
                                                                        : "",
                        memory, request.mode, Cell(request.gang), UseText(pod.course),
                        pod.ends == Ends::kNever  ? "never"
                        : pod.ends == Ends::kTime ? "time"
                                                  : "work",
                        Joined(pod.on), pod.advised ? fmt::format("{}", Milli(*pod.advised)) : "",
                        pod.had_hours ? fmt::format("{:.9g}", *pod.had_hours) : "");
  }
  return text;
}

}  // namespace

Result<std::vector<PodPlan>> ReadPods(std::string_view text) {
  auto requests = devmgr::ReadTracePods(text);
  if (!requests) return tl::unexpected(requests.error());
  auto csv = devmgr::Csv::Open(text, kColumns, 1);
  if (!csv) return tl::unexpected(csv.error());
  std::vector<PodPlan> pods;
  pods.reserve(requests->size());
  while (csv->Row()) {
    PodPlan& pod = pods.emplace_back();
    pod.request = std::move((*requests)[pods.size() - 1]);
    if (auto read = PodRow(*csv, pod).Read(); !read) return tl::unexpected(read.error());
  }
  if (!csv->error().empty()) return Fail(ErrorCode::kInvalid, csv->error());
  return pods;
}

ScenarioFiles WriteScenario(const Scenario& scenario) {
  return {ClusterText(scenario), teams::PrintTeams(scenario.teams), PodsText(scenario)};
}

Result<Scenario> ReadScenario(std::string_view cluster, const std::string& name,
                              const std::function<Result<std::string>(const std::string&)>& read) {
  const auto parsed = ParseToml(cluster, name);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  return ClusterReader(*parsed, name, read).ReadAll();
}

}  // namespace baton::capacity
