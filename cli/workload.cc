#include "cli/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/parse.h"
#include "base/toml.h"
#include "config/options.h"

namespace baton::cli {
namespace {

using std::chrono::microseconds;

constexpr int64_t kCountMax = 100;
constexpr int64_t kLongEveryMax = 1'000'000;
constexpr size_t kNameMax = 128;

class Reader {
 public:
  Reader(const toml::table& root, std::string file) : root_(root), file_(std::move(file)) {}

  Result<Workload> Read() {
    ReadPods();
    for (auto&& [key, node] : root_) {
      if (key != "pod" && key != "scheduler" && key != "hook") {
        Complain(node.source(), fmt::format("unknown section [{}]; there are [[pod]], [scheduler] "
                                            "and [hook]",
                                            key.str()));
      }
    }
    if (!error_.empty()) return Fail(ErrorCode::kInvalid, error_);
    auto options = config::ParseOptions(BatondsPart(), file_);
    if (!options) return tl::unexpected(options.error());
    workload_.scheduler = options->scheduler;
    workload_.idle = options->hook.idle;
    if (auto fits = CheckRequests(options->overcommit); !fits) {
      return tl::unexpected(fits.error());
    }
    return std::move(workload_);
  }

 private:
  // [scheduler] and [hook] with every key on the line where it stands, for the reader of batond's
  // configuration: one meaning, and errors that name this file's lines.
  std::string BatondsPart() const {
    std::map<uint32_t, std::string> lines;
    for (const char* section : {"scheduler", "hook"}) {
      const toml::node* node = root_.get(section);
      if (node == nullptr) continue;
      const toml::table* table = node->as_table();
      if (table == nullptr) {
        lines[node->source().begin.line] = fmt::format("{} = 0", section);
        continue;
      }
      for (auto&& [key, value] : *table) {
        std::ostringstream text;
        text << toml::default_formatter(toml::table{{key.str(), value}});
        uint32_t line = value.source().begin.line;
        while (lines.contains(line)) ++line;
        lines[line] = fmt::format("{}.{}", section, text.str());
      }
    }
    std::string all;
    uint32_t at = 1;
    for (const auto& [line, text] : lines) {
      for (; at < line; ++at) all += '\n';
      all += text;
    }
    return all;
  }

  void ReadPods() {
    const toml::node* node = root_.get("pod");
    const toml::array* rows = node != nullptr ? node->as_array() : nullptr;
    if (rows == nullptr) {
      return Complain(node != nullptr ? node->source() : root_.source(),
                      "a workload needs a [[pod]] for each pod");
    }
    for (const toml::node& row : *rows) {
      table_ = row.as_table();
      if (table_ == nullptr) return Complain(row.source(), "write [[pod]], one for each");
      keys_.clear();
      ReadPod();
      if (!error_.empty()) return;
    }
  }

  void ReadPod() {
    world::PodPlan pod;
    int64_t count = 1;
    int64_t processes = 1;
    int64_t long_every = 0;
    policy::Share request;
    policy::Share limit;
    std::string priority = "normal";
    Duration latency{0};
    Duration period{0};
    Duration stop{0};
    Text("name", pod.name);
    Number("count", count, 1, kCountMax);
    Number("processes", processes, 1, 64);
    Share("request", request);
    Share("limit", limit);
    Text("priority", priority);
    Time("latency", latency, policy::kLatencyMin);
    Time("kernel", pod.kernel, microseconds(1));
    Time("long_kernel", pod.long_kernel, microseconds(1));
    Number("long_every", long_every, 2, kLongEveryMax);
    Time("burst", pod.burst, microseconds(1));
    Time("pause", pod.pause, microseconds(1));
    Time("period", period, microseconds(1));
    Percentage("jitter", pod.jitter, 90);
    Time("start", pod.arrives, Duration(0));
    Time("stop", stop, microseconds(1));
    for (auto&& [key, value] : *table_) {
      if (keys_.contains(std::string(key.str()))) continue;
      std::string all;
      for (const std::string& known : keys_) all += (all.empty() ? "" : ", ") + known;
      Complain(value.source(), fmt::format("[[pod]] has no key {}; it has {}", key.str(), all));
    }
    if (!error_.empty()) return;

    const toml::source_region& here = table_->source();
    if (pod.name.empty() || pod.name.size() > kNameMax) {
      return Complain(here, "a [[pod]] needs a name of at most 128 characters");
    }
    auto level = spec::ParsePriority(priority);
    if (!level) return Complain(table_->get("priority")->source(), level.error().message);
    auto spec = spec::ShareFrom(request, limit, *level);
    if (spec) {
      spec->latency = latency;
      spec = policy::Validated(*spec);
    }
    if (!spec) return Complain(here, spec.error().message);
    pod.spec = *spec;
    pod.processes = static_cast<uint32_t>(processes);
    if ((long_every != 0) != (pod.long_kernel > Duration(0))) {
      return Complain(here,
                      "write both long_kernel (the length of the long ones) and long_every (of so "
                      "many kernels one is long), or neither");
    }
    pod.long_every = static_cast<uint32_t>(long_every);
    if (pod.burst > Duration(0) && pod.long_kernel > pod.burst) {
      return Complain(here, "long_kernel is longer than burst, of which it is a part; raise burst");
    }
    if (pod.burst == Duration(0)) {
      if (pod.pause + period > Duration(0)) {
        return Complain(here, "a pause or period needs a burst: the GPU time between two pauses");
      }
    } else if ((pod.pause > Duration(0)) == (period > Duration(0))) {
      return Complain(here,
                      "a burst needs either pause (from its end to the next one) or period (from "
                      "beginning to beginning)");
    }
    if (period > Duration(0)) {
      pod.periodic = true;
      pod.pause = period;
    }
    if (stop > Duration(0)) {
      if (stop <= pod.arrives) return Complain(here, "stop must come after start");
      pod.leaves = stop;
    }
    for (int64_t n = 1; n <= count; ++n) {
      world::PodPlan each = pod;
      if (count > 1) each.name += "-" + std::to_string(n);
      if (!names_.insert(each.name).second) {
        return Complain(here, "this pod is listed twice: " + each.name);
      }
      each.id = static_cast<uint32_t>(names_.size());
      if (each.id > world::kPodsMax) return Complain(here, "more than 512 pods");
      workload_.plan.pods.push_back(each);
    }
  }

  // Those who are there at the same time must fit, as batond would see to it.
  Result<void> CheckRequests(policy::Share overcommit) const {
    for (const world::PodPlan& pod : workload_.plan.pods) {
      policy::ShareSum sum;
      for (const world::PodPlan& other : workload_.plan.pods) {
        if (other.arrives <= pod.arrives && pod.arrives < other.leaves) sum += other.spec.request;
      }
      if (sum <= overcommit) continue;
      return Fail(ErrorCode::kExhausted,
                  fmt::format("{}: when {} starts, the requests add up to {:.4g} %, more than the "
                              "{:.4g} % that batond admits; lower them, or raise overcommit in "
                              "[scheduler]",
                              file_, pod.name, policy::Percent(sum), policy::Percent(overcommit)));
    }
    return {};
  }

  const toml::node* Get(const char* key) {
    keys_.insert(key);
    return table_->get(key);
  }
  void Text(const char* key, std::string& value) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const auto text = node->value_exact<std::string>();
    if (!text) return Complain(node->source(), fmt::format("{} must be text in quotes", key));
    value = *text;
  }
  void Number(const char* key, int64_t& value, int64_t min, int64_t max) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const auto number = node->value_exact<int64_t>();
    if (!number || *number < min || *number > max) {
      return Complain(node->source(),
                      fmt::format("{} must be a whole number from {} to {}", key, min, max));
    }
    value = *number;
  }
  void Percentage(const char* key, uint32_t& value, int64_t max) {
    int64_t number = value;
    Number(key, number, 0, max);
    value = static_cast<uint32_t>(number);
  }
  // A percentage, as a number or as text with or without "%".
  void Share(const char* key, policy::Share& value) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const auto share =
        policy::ParsePercent(node->is_number() ? fmt::format("{}", *node->value<double>())
                                               : node->value_exact<std::string>().value_or(""));
    if (!share) {
      return Complain(node->source(), std::string(key) + ": " + share.error().message);
    }
    value = *share;
  }
  void Time(const char* key, Duration& value, Duration min) {
    const toml::node* node = Get(key);
    if (node == nullptr) return;
    const auto time = ParseDuration(node->value_exact<std::string>().value_or(""));
    if (!time || *time < min) {
      return Complain(node->source(),
                      fmt::format("{} must be a duration of at least {}, such as \"20ms\"", key,
                                  FormatDuration(min)));
    }
    if (*time > world::kPlanTimeMax) {
      using std::chrono::hours;
      const auto most = std::chrono::duration_cast<hours>(world::kPlanTimeMax).count();
      return Complain(node->source(), fmt::format("{} must be at most {}h", key, most));
    }
    value = *time;
  }
  // Keeps the first complaint.
  void Complain(const toml::source_region& where, const std::string& what) {
    if (error_.empty()) error_ = fmt::format("{}:{}: {}", file_, where.begin.line, what);
  }

  const toml::table& root_;
  const std::string file_;
  Workload workload_;
  std::string error_;
  const toml::table* table_ = nullptr;  // the present [[pod]]
  std::set<std::string> keys_;          // that it may have
  std::set<std::string> names_;
};

}  // namespace

Result<Workload> ParseWorkload(const std::string& text, const std::string& name) {
  const auto parsed = ParseToml(text, name);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  return Reader(*parsed, name).Read();
}

}  // namespace baton::cli
