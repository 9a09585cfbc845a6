#include "world/plan.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/parse.h"
#include "base/random.h"

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kPodIdMax = 1'000'000;
constexpr int64_t kLeast = policy::kShareMin.millionths();

constexpr struct {
  Fault fault;
  const char* name;
} kFaultNames[] = {{kFrames, "frames"},     {kKills, "kills"},  {kStops, "stops"},
                   {kRestarts, "restarts"}, {kCuts, "cuts"},    {kResizes, "resizes"},
                   {kHangs, "hangs"},       {kRelays, "relays"}};
// Faults that hit a process of a pod, and all that hit a pod.
constexpr uint32_t kOnProcesses = kKills | kStops | kHangs;
constexpr uint32_t kOnPods = kOnProcesses | kResizes;

std::optional<Fault> FaultNamed(std::string_view name) {
  for (const auto& f : kFaultNames) {
    if (name == f.name) return f.fault;
  }
  return std::nullopt;
}

// How a drawn pod uses the GPU.
enum class Habit {
  kSaturating,
  kBursty,
  kSleeper,
  kTiny,
  kLong,
  kLoop,     // short work, then a gap on the processor
  kTrickle,  // very little, often
  kNapper,   // pauses of about active_grace
  kFooling,  // long kernels among short ones
};
constexpr int kHabits = 9;
constexpr int kHabitsOfGangs = 5;  // the first ones

void DrawWork(PodPlan& pod, Habit habit, Random& random) {
  pod.kernel = Duration(random.Spread(10'000, 2'000'000));
  if (habit == Habit::kTiny) pod.kernel = Duration(random.Spread(5'000, 50'000));
  if (habit == Habit::kLong) pod.kernel = Duration(random.Spread(5'000'000, 200'000'000));
  const auto bursts = [&](Duration burst, Duration pause) {
    pod.burst = burst;
    pod.pause = pause;
    pod.periodic = random.OneIn(3);
  };
  const auto between = [&random](Duration least, Duration most) {
    return Duration(random.Spread(Nanos(least), Nanos(most)));
  };
  switch (habit) {
    case Habit::kBursty:
      return bursts(between(microseconds(10), seconds(2)), between(microseconds(100), seconds(1)));
    case Habit::kSleeper:
      return bursts(between(microseconds(10), seconds(2)), between(seconds(1), seconds(20)));
    case Habit::kLoop:
      return bursts(between(microseconds(200), milliseconds(20)),
                    between(microseconds(10), milliseconds(30)));
    case Habit::kTrickle:
      return bursts(between(microseconds(20), milliseconds(2)),
                    between(milliseconds(10), milliseconds(200)));
    case Habit::kNapper:
      return bursts(between(milliseconds(1), milliseconds(100)),
                    milliseconds(8) + Duration(random.Between(0, 4'000'000)));
    case Habit::kFooling:
      pod.long_every = static_cast<uint32_t>(random.Spread(2, 1'000));
      pod.long_kernel = between(milliseconds(5), milliseconds(200));
      return;
    default:
      return;
  }
}

// Pods that live for half a second each, one after the other.
void DrawVisitors(Plan& plan, Random& random, policy::Share room) {
  const uint32_t most = std::min<uint32_t>(kPodsMax - static_cast<uint32_t>(plan.pods.size()), 150);
  const Duration step = std::max<Duration>(milliseconds(600), plan.length / (most + 1));
  const auto gpu = static_cast<uint32_t>(random.Between(0, plan.gpus - 1));
  for (uint32_t n = 1; n * step < plan.length - milliseconds(600); ++n) {
    PodPlan pod;
    pod.id = static_cast<uint32_t>(plan.pods.size()) + 1;
    pod.name = "visitor-" + std::to_string(n);
    pod.gpus = {gpu};
    pod.spec.request = std::min(room, policy::Share(20'000));
    pod.spec = policy::Validated(pod.spec).value();
    pod.arrives = n * step;
    pod.leaves = pod.arrives + milliseconds(500);
    plan.pods.push_back(pod);
  }
}

void DrawPods(Plan& plan, const DrawOptions& options, Random& random) {
  const auto n = options.pods != 0 ? options.pods : static_cast<uint32_t>(random.Spread(2, 64));
  plan.gpus = random.OneIn(4) ? static_cast<uint32_t>(random.Between(2, 4)) : 1;
  // Every pod always has work and no limit: the mix for which the strictest bounds hold.
  const bool steady = options.faults == 0 && random.OneIn(3);
  std::vector<int64_t> left(plan.gpus, policy::kMillion);
  for (uint32_t i = 0; i < n; ++i) {
    PodPlan pod;
    pod.id = i + 1;
    pod.name = "pod-" + std::to_string(pod.id);
    pod.gpus.clear();
    const bool everywhere = random.OneIn(5);
    const auto home = static_cast<uint32_t>(random.Between(0, plan.gpus - 1));
    for (uint32_t g = 0; g < plan.gpus; ++g) {
      if (everywhere || g == home) pod.gpus.push_back(g);
    }
    int64_t room = policy::kMillion;
    for (const uint32_t g : pod.gpus) room = std::min(room, left[g]);
    const int64_t most = room - (n - i - 1) * int64_t{kLeast};
    const int64_t fair = std::max<int64_t>(kLeast, 2 * room * plan.gpus / (n - i));
    const int64_t request = random.Between(kLeast, std::max<int64_t>(kLeast, std::min(most, fair)));
    pod.spec.request = policy::Share(request);
    for (const uint32_t g : pod.gpus) left[g] -= request;
    switch (random.Between(0, 3)) {
      case 0:
        pod.spec.limit = pod.spec.request;
        break;
      case 1:
        pod.spec.limit = policy::Share(random.Between(request, policy::kMillion));
        break;
      default:
        break;
    }
    if (random.OneIn(8)) pod.spec.priority = policy::Priority::kHigh;
    if (random.OneIn(4)) {
      pod.spec.slack_weight = static_cast<uint32_t>(random.Spread(1, policy::kMillion));
    }
    // A gang's ranks have to meet, which takes its time with any of the first ones.
    const bool alone = pod.gpus.size() == 1;
    auto habit = static_cast<Habit>(random.Between(0, (alone ? kHabits : kHabitsOfGangs) - 1));
    if (i < 2) habit = Habit::kSaturating;
    if (steady) {
      pod.spec.limit = policy::kWhole;
      pod.spec.priority = policy::Priority::kNormal;
      pod.spec.slack_weight = 0;
      habit = Habit::kSaturating;
    }
    pod.spec = policy::Validated(pod.spec).value();
    DrawWork(pod, habit, random);
    if (pod.gpus.size() > 1 && !steady && random.OneIn(2)) {
      pod.collective = static_cast<uint32_t>(random.Spread(1, 100));
    } else if (habit == Habit::kSaturating && random.OneIn(6)) {
      pod.processes = 2;
    }
    if (options.faults & kResizes) {
      const int64_t length = Nanos(options.length);
      if (random.OneIn(10)) pod.arrives = Duration(random.Between(0, length / 2));
      if (random.OneIn(10)) {
        pod.leaves = Duration(random.Between(Nanos(pod.arrives) + length / 20, length));
      }
    }
    plan.pods.push_back(pod);
  }
  const int64_t room = *std::min_element(left.begin(), left.end());
  if (options.faults == 0 && !steady && room >= kLeast && random.OneIn(3)) {
    DrawVisitors(plan, random, policy::Share(room));
  }
}

// In one world of four. From a seed of their own: what else is drawn is as without them.
void DrawIdle(Plan& plan, uint64_t seed) {
  Random random(seed ^ 0x1d1eull);
  if (!random.OneIn(4) || plan.pods.size() + 4 > kPodsMax) return;
  for (int64_t n = random.Between(1, 3); n > 0; --n) {
    PodPlan pod;
    pod.id = static_cast<uint32_t>(plan.pods.size()) + 1;
    pod.name = "idle-" + std::to_string(n);
    pod.gpus = {static_cast<uint32_t>(random.Between(0, plan.gpus - 1))};
    pod.spec.request = policy::Share(0);
    pod.spec.priority = policy::Priority::kIdle;
    if (random.OneIn(4)) pod.spec.limit = policy::Share(random.Between(kLeast, 900'000));
    pod.spec = policy::Validated(pod.spec).value();
    DrawWork(
        pod,
        random.OneIn(2) ? Habit::kSaturating : static_cast<Habit>(random.Between(0, kHabits - 1)),
        random);
    plan.pods.push_back(pod);
  }
}

// From a seed of their own. A gang has none.
void DrawLatencies(Plan& plan, uint64_t seed) {
  Random random(seed ^ 0x1a7e9c1ull);
  for (PodPlan& pod : plan.pods) {
    const bool may =
        pod.spec.priority != policy::Priority::kIdle && pod.gpus.size() == 1 && pod.gang == 0;
    if (!may || !random.OneIn(3)) continue;
    pod.spec.latency = Duration(random.Spread(Nanos(policy::kLatencyMin), 300'000'000));
  }
}

// Pods that always have work and have 50 to 90 % between them, a gang in one world of four, and
// hostile ones with requests and limits of a few percent.
void DrawBesieged(Plan& plan, Random& random) {
  const bool gang = random.OneIn(4);
  plan.gpus = gang ? 2 : 1;
  const auto honest = static_cast<uint32_t>(random.Between(1, 3));
  const auto hostile = static_cast<uint32_t>(random.Between(1, 3));
  for (uint32_t i = 0; i < honest + hostile; ++i) {
    PodPlan pod;
    pod.id = i + 1;
    pod.hostile = i >= honest;
    pod.name = (pod.hostile ? "hostile-" : "honest-") + std::to_string(i + 1);
    const int64_t percent =
        pod.hostile ? random.Between(1, 10 / hostile) : random.Between(50, 90) / honest;
    pod.spec.request = policy::kWhole * static_cast<uint32_t>(percent) / 100;
    if (pod.hostile && random.OneIn(2)) pod.spec.limit = pod.spec.request;
    if (pod.hostile && random.OneIn(3)) pod.spec.priority = policy::Priority::kHigh;
    pod.spec = policy::Validated(pod.spec).value();
    pod.gpus = {gang && i > 0 ? static_cast<uint32_t>(random.Between(0, 1)) : 0};
    if (gang && i == 0) {
      pod.gpus = {0, 1};
      pod.collective = static_cast<uint32_t>(random.Spread(1, 100));
    }
    pod.kernel = Duration(random.Spread(50'000, 5'000'000));
    pod.processes = pod.hostile ? static_cast<uint32_t>(random.Between(1, 3)) : 1;
    plan.pods.push_back(pod);
  }
}

void DrawFaults(Plan& plan, uint32_t faults, Random& random) {
  if (faults & kFrames) {
    for (Duration at{0}; at < plan.calm_from; at += seconds(5)) {
      plan.faults.push_back({.kind = kFrames,
                             .at = at,
                             .length = std::min<Duration>(seconds(5), plan.calm_from - at),
                             .spec = {}});
    }
  }
  std::vector<Fault> kinds;
  for (const auto& f : kFaultNames) {
    if ((faults & f.fault) && f.fault != kFrames && f.fault != kRelays) kinds.push_back(f.fault);
  }
  if (kinds.empty()) return;
  std::vector<policy::Share> requests;
  for (const PodPlan& pod : plan.pods) requests.push_back(pod.spec.request);
  for (Duration at = milliseconds(500); at < plan.calm_from;
       at += Duration(random.Spread(50'000'000, 4'000'000'000))) {
    FaultPlan fault;
    fault.at = at;
    fault.kind =
        kinds[static_cast<size_t>(random.Between(0, static_cast<int64_t>(kinds.size()) - 1))];
    const auto target =
        static_cast<size_t>(random.Between(0, static_cast<int64_t>(plan.pods.size()) - 1));
    const PodPlan& pod = plan.pods[target];
    if (fault.kind & kOnPods) fault.pod = pod.id;
    const auto process = static_cast<uint32_t>(random.Between(0, 7));
    if (fault.kind & kOnProcesses) fault.process = process;
    switch (fault.kind) {
      case kStops:
        fault.length = milliseconds(random.Between(1, 5'000));
        break;
      case kRestarts:
        fault.length = milliseconds(random.Between(1, 3'000));
        break;
      case kCuts:
        fault.length = milliseconds(random.Between(1, 2'000));
        fault.noticed = random.OneIn(2);
        break;
      case kResizes: {
        int64_t room = policy::kMillion;
        for (const uint32_t g : pod.gpus) {
          int64_t others = 0;
          for (size_t i = 0; i < plan.pods.size(); ++i) {
            const auto& gpus = plan.pods[i].gpus;
            if (i != target && std::count(gpus.begin(), gpus.end(), g) != 0)
              others += requests[i].millionths();
          }
          room = std::min(room, policy::kMillion - others);
        }
        if (pod.spec.priority == policy::Priority::kIdle) {
          fault.spec = pod.spec;
          fault.spec.limit = policy::Share(random.Between(kLeast, policy::kMillion));
          break;
        }
        room = std::max<int64_t>(room, kLeast);
        fault.spec.request = policy::Share(random.Between(kLeast, room));
        fault.spec.limit = random.OneIn(3) ? fault.spec.request : policy::kWhole;
        fault.spec.priority = pod.spec.priority;
        fault.spec.latency = pod.spec.latency;
        fault.spec = policy::Validated(fault.spec).value();
        requests[target] = fault.spec.request;
        break;
      }
      default:
        break;
    }
    plan.faults.push_back(fault);
  }
}

// Drawn apart, so that what else happens is as without them.
void DrawRelayFaults(Plan& plan, uint64_t seed) {
  Random random(seed ^ 0x72656c6179u);
  const auto pause = [&random] { return Duration(random.Spread(200'000'000, 10'000'000'000)); };
  for (Duration at = pause(); at < plan.calm_from; at += pause()) {
    plan.faults.push_back({.kind = kRelays,
                           .at = at,
                           .length = Duration(random.Spread(1'000'000, 1'000'000'000)),
                           .spec = {}});
  }
}

std::string Percent(policy::Share share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g%%", policy::Percent(share));
  return text;
}

std::string Spec(const policy::ShareSpec& spec) {
  std::string text = "request " + Percent(spec.request) + ", limit " + Percent(spec.limit);
  if (spec.priority == policy::Priority::kHigh) text += ", high priority";
  if (spec.priority == policy::Priority::kIdle) text += ", idle priority";
  if (spec.latency != Duration(0)) text += ", latency " + FormatDuration(spec.latency);
  return text;
}

std::string At(Duration at) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f s", static_cast<double>(Nanos(at)) / 1e9);
  return text;
}

nlohmann::ordered_json SpecToJson(const policy::ShareSpec& spec) {
  return {{"request", spec.request.millionths()},
          {"limit", spec.limit.millionths()},
          {"slack_weight", spec.slack_weight},
          {"high", spec.priority == policy::Priority::kHigh},
          {"idle", spec.priority == policy::Priority::kIdle},
          {"latency", Nanos(spec.latency)}};
}

policy::ShareSpec SpecFrom(const nlohmann::json& json) {
  policy::ShareSpec spec;
  spec.request = policy::Share(json.at("request").get<uint32_t>());
  spec.limit = policy::Share(json.at("limit").get<uint32_t>());
  spec.slack_weight = json.at("slack_weight");
  spec.priority = json.value("idle", false)     ? policy::Priority::kIdle
                  : json.at("high").get<bool>() ? policy::Priority::kHigh
                                                : policy::Priority::kNormal;
  spec.latency = Duration(json.value("latency", int64_t{0}));
  return spec;
}

// That it fits to those of its gang.
Result<void> CheckGang(const Plan& plan, const PodPlan& pod) {
  for (const PodPlan& other : plan.pods) {
    if (&other == &pod || pod.gang == 0 || other.gang != pod.gang) continue;
    for (const uint32_t g : other.gpus) {
      if (std::count(pod.gpus.begin(), pod.gpus.end(), g) == 0) continue;
      return Fail(ErrorCode::kInvalid, "another pod of its gang is on GPU " + std::to_string(g));
    }
    if (other.collective != pod.collective || other.threads != pod.threads) {
      return Fail(ErrorCode::kInvalid, "all of a gang have the same threads and collectives");
    }
    if (other.arrives != pod.arrives || other.leaves != pod.leaves) {
      return Fail(ErrorCode::kInvalid, "all of a gang arrive and leave at the same time");
    }
  }
  return {};
}

}  // namespace

Duration PodPlan::LongestKernel() const {
  Duration longest = std::max(kernel, collective_kernel);
  if (long_every != 0) longest = std::max(longest, long_kernel);
  return longest * (100 + jitter) / 100;
}

Result<uint32_t> ParseFaults(std::string_view text) {
  if (text == "all") return kAllFaults;
  if (text == "none") return 0;
  uint32_t faults = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view name = text.substr(0, comma);
    const std::optional<Fault> fault = FaultNamed(name);
    if (!fault) {
      return Fail(ErrorCode::kInvalid, "'" + std::string(name) +
                                           "' is no kind of fault; write all, none, or some of " +
                                           FormatFaults(kAllFaults));
    }
    faults |= *fault;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return faults;
}

std::string FormatFaults(uint32_t faults) {
  std::string text;
  for (const auto& f : kFaultNames) {
    if (!(faults & f.fault)) continue;
    if (!text.empty()) text += ',';
    text += f.name;
  }
  return text.empty() ? "none" : text;
}

Plan Draw(const DrawOptions& options) {
  Random random(options.seed);
  Plan plan;
  plan.seed = options.seed;
  plan.length = options.length;
  plan.calm_from = options.length - std::min(options.calm, options.length / 2);
  plan.relay = options.relay;
  plan.late = options.seed % 3 == 0;
  if (options.hostile) {
    DrawBesieged(plan, random);
  } else {
    DrawPods(plan, options, random);
    DrawIdle(plan, options.seed);
  }
  if (options.latencies) DrawLatencies(plan, options.seed);
  DrawFaults(plan, options.faults, random);
  if (plan.relay && (options.faults & kRelays)) DrawRelayFaults(plan, options.seed);
  std::stable_sort(plan.faults.begin(), plan.faults.end(),
                   [](const FaultPlan& a, const FaultPlan& b) { return a.at < b.at; });
  return plan;
}

Result<void> CheckPlan(const Plan& plan) {
  const auto wrong = [](const std::string& what) { return Fail(ErrorCode::kInvalid, what); };
  if (plan.gpus < 1 || plan.gpus > kPlanGpusMax) return wrong("a world has 1 to 64 GPUs");
  if (plan.length < kLengthMin) return wrong("a world needs at least 1s");
  if (plan.length > kPlanTimeMax) return wrong("a world has at most 10000 h");
  if (plan.pods.empty() || plan.pods.size() > kPodsMax) return wrong("a world has 1 to 512 pods");
  std::set<uint32_t> ids;
  for (const PodPlan& pod : plan.pods) {
    const std::string who = "pod " + std::to_string(pod.id) + ": ";
    if (pod.id == 0 || pod.id > kPodIdMax || !ids.insert(pod.id).second) {
      return wrong(who + "every pod has its own number from 1 to 1000000");
    }
    for (const Duration time :
         {pod.kernel, pod.long_kernel, pod.collective_kernel, pod.burst, pod.pause, pod.arrives}) {
      if (time < Duration(0) || time > kPlanTimeMax) return wrong(who + "times are 0 to 10000 h");
    }
    if (auto valid = policy::Validated(pod.spec); !valid) return wrong(who + valid.error().message);
    if (pod.processes < 1 || pod.processes > 64) return wrong(who + "it has 1 to 64 processes");
    if (pod.gpus.empty()) return wrong(who + "it is on no GPU");
    std::set<uint32_t> gpus;
    for (const uint32_t g : pod.gpus) {
      if (g >= plan.gpus) return wrong(who + "there is no GPU " + std::to_string(g));
      if (!gpus.insert(g).second) return wrong(who + "it is twice on GPU " + std::to_string(g));
    }
    if (pod.kernel < microseconds(1) ||
        (pod.long_every != 0 && pod.long_kernel < microseconds(1))) {
      return wrong(who + "a kernel takes at least 1us");
    }
    if (pod.burst > Duration(0) && pod.pause < std::chrono::microseconds(1)) {
      return wrong(who + "between two bursts is a pause of at least 1us");
    }
    if (pod.jitter > 90) return wrong(who + "the jitter is 0 to 90 percent");
    if (pod.threads < 1 || pod.threads > kThreadsMax) return wrong(who + "it has 1 to 16 threads");
    if (pod.in_turn && pod.threads != 1) return wrong(who + "one thread launches in turn");
    if (pod.leaves <= pod.arrives) {
      return wrong(who + "it leaves after it arrives");
    }
    if (auto gang = CheckGang(plan, pod); !gang) return wrong(who + gang.error().message);
  }
  Duration last{0};
  for (const FaultPlan& fault : plan.faults) {
    if ((fault.kind & kOnPods) != 0 && !ids.contains(fault.pod)) {
      return wrong("a fault at " + At(fault.at) + " hits a pod that is not there");
    }
    if (fault.at < last) return wrong("faults are ordered by time");
    if (fault.at > kPlanTimeMax || fault.length < Duration(0) || fault.length > kPlanTimeMax) {
      return wrong("times are 0 to 10000 h");
    }
    if (fault.one_in < 3) return wrong("of three frames one may be lost, one late, one repeated");
    if (fault.kind == kResizes) {
      if (auto valid = policy::Validated(fault.spec); !valid) return wrong(valid.error().message);
    }
    last = fault.at;
  }
  return {};
}

std::string Describe(const Plan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ", " + At(plan.length) + ", " +
                     std::to_string(plan.gpus) + (plan.gpus == 1 ? " GPU" : " GPUs") +
                     (plan.relay ? ", a relay\n" : "\n");
  for (const PodPlan& pod : plan.pods) {
    text += "  pod " + std::to_string(pod.id) + ": " + Spec(pod.spec) + "; kernels of " +
            FormatDuration(pod.kernel);
    if (pod.long_every != 0) {
      text += ", each " + std::to_string(pod.long_every) + "th " + FormatDuration(pod.long_kernel);
    }
    text += pod.burst == Duration(0)
                ? ", endless"
                : ", bursts of " + FormatDuration(pod.burst) +
                      (pod.periodic ? " every " : " with pauses of ") + FormatDuration(pod.pause);
    if (pod.processes > 1) text += "; " + std::to_string(pod.processes) + " processes";
    if (plan.gpus > 1) {
      text += pod.gpus.size() == 1 ? "; GPU" : "; GPUs";
      for (const uint32_t g : pod.gpus) text += " " + std::to_string(g);
    }
    if (pod.collective != 0) {
      text += "; a collective every " + std::to_string(pod.collective) + " kernels";
    }
    if (pod.collective_kernel > Duration(0)) text += " of " + FormatDuration(pod.collective_kernel);
    if (pod.threads > 1) text += "; " + std::to_string(pod.threads) + " threads";
    if (pod.in_turn) text += "; on its GPUs in turn";
    if (pod.uneven) text += "; uneven";
    if (pod.gang != 0) text += "; of gang " + std::to_string(pod.gang);
    if (pod.hostile) text += "; hostile";
    if (pod.arrives > Duration(0)) text += "; from " + At(pod.arrives);
    if (pod.leaves < plan.length) text += "; until " + At(pod.leaves);
    text += '\n';
  }
  for (const FaultPlan& fault : plan.faults) {
    const std::string process =
        "process " + std::to_string(fault.process) + " of pod " + std::to_string(fault.pod);
    text += "  at " + At(fault.at) + ": ";
    switch (fault.kind) {
      case kFrames:
        text += "of " + std::to_string(fault.one_in) + " frames one is lost, one late and one " +
                "repeated, for " + FormatDuration(fault.length);
        break;
      case kKills:
        text += process + " is killed";
        break;
      case kStops:
        text += process + " is stopped for " + FormatDuration(fault.length);
        break;
      case kRestarts:
        text += "the daemon is away for " + FormatDuration(fault.length);
        break;
      case kCuts:
        text += "the link is cut for " + FormatDuration(fault.length) +
                (fault.noticed ? "" : ", which the daemon does not notice");
        break;
      case kRelays:
        text += "the relay is away for " + FormatDuration(fault.length);
        break;
      case kResizes:
        text += "pod " + std::to_string(fault.pod) + " gets " + Spec(fault.spec);
        break;
      default:
        text += process + " launches a kernel that never ends";
        break;
    }
    text += '\n';
  }
  return text;
}

std::string WritePlan(const Plan& plan) {
  nlohmann::ordered_json pods = nlohmann::ordered_json::array();
  for (const PodPlan& pod : plan.pods) {
    pods.push_back({{"id", pod.id},
                    {"name", pod.name},
                    {"share", SpecToJson(pod.spec)},
                    {"processes", pod.processes},
                    {"gpus", pod.gpus},
                    {"kernel_ns", Nanos(pod.kernel)},
                    {"long_every", pod.long_every},
                    {"long_kernel_ns", Nanos(pod.long_kernel)},
                    {"burst_ns", Nanos(pod.burst)},
                    {"pause_ns", Nanos(pod.pause)},
                    {"periodic", pod.periodic},
                    {"jitter", pod.jitter},
                    {"collective", pod.collective},
                    {"collective_kernel_ns", Nanos(pod.collective_kernel)},
                    {"threads", pod.threads},
                    {"in_turn", pod.in_turn},
                    {"uneven", pod.uneven},
                    {"gang", pod.gang},
                    {"hostile", pod.hostile},
                    {"arrives_ns", Nanos(pod.arrives)},
                    {"leaves_ns", Nanos(pod.leaves)}});
  }
  nlohmann::ordered_json faults = nlohmann::ordered_json::array();
  for (const FaultPlan& fault : plan.faults) {
    nlohmann::ordered_json json{{"kind", FormatFaults(fault.kind)}, {"at_ns", Nanos(fault.at)}};
    if (fault.kind & kOnPods) json["pod"] = fault.pod;
    if (fault.kind & kOnProcesses) json["process"] = fault.process;
    if (fault.kind == kFrames) json["one_in"] = fault.one_in;
    if (fault.kind & (kFrames | kStops | kRestarts | kCuts | kRelays))
      json["for_ns"] = Nanos(fault.length);
    if (fault.kind == kCuts) json["noticed"] = fault.noticed;
    if (fault.kind == kResizes) json["share"] = SpecToJson(fault.spec);
    faults.push_back(json);
  }
  return nlohmann::ordered_json{{"seed", plan.seed},
                                {"gpus", plan.gpus},
                                {"relay", plan.relay},
                                {"late", plan.late},
                                {"length_ns", Nanos(plan.length)},
                                {"calm_from_ns", Nanos(plan.calm_from)},
                                {"pods", pods},
                                {"faults", faults}}
             .dump(1) +
         "\n";
}

Result<Plan> ReadPlan(const std::string& text, const std::string& name) {
  Plan plan;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const auto time = [](const nlohmann::json& from, const char* key) {
      return Duration(from.at(key).get<int64_t>());
    };
    plan.seed = json.at("seed");
    plan.gpus = json.at("gpus");
    plan.relay = json.value("relay", false);
    plan.late = json.value("late", false);
    plan.length = time(json, "length_ns");
    plan.calm_from = time(json, "calm_from_ns");
    for (const nlohmann::json& from : json.at("pods")) {
      PodPlan pod;
      pod.id = from.at("id");
      pod.name = from.at("name");
      pod.spec = SpecFrom(from.at("share"));
      pod.processes = from.at("processes");
      pod.gpus = from.at("gpus").get<std::vector<uint32_t>>();
      pod.kernel = time(from, "kernel_ns");
      pod.long_every = from.value("long_every", 0u);
      pod.long_kernel = Duration(from.value("long_kernel_ns", int64_t{0}));
      pod.burst = time(from, "burst_ns");
      pod.pause = time(from, "pause_ns");
      pod.periodic = from.at("periodic");
      pod.jitter = from.at("jitter");
      pod.collective = from.at("collective");
      pod.collective_kernel = Duration(from.value("collective_kernel_ns", int64_t{0}));
      pod.threads = from.value("threads", 1u);
      pod.in_turn = from.value("in_turn", false);
      pod.uneven = from.value("uneven", false);
      pod.gang = from.value("gang", 0u);
      pod.hostile = from.value("hostile", false);
      pod.arrives = time(from, "arrives_ns");
      pod.leaves = time(from, "leaves_ns");
      plan.pods.push_back(pod);
    }
    for (const nlohmann::json& from : json.at("faults")) {
      const std::string kind = from.at("kind");
      const std::optional<Fault> named = FaultNamed(kind);
      if (!named) {
        std::string what = name;
        what += ": '" + kind + "' is no kind of fault";
        return Fail(ErrorCode::kInvalid, what);
      }
      FaultPlan fault;
      fault.kind = *named;
      fault.at = time(from, "at_ns");
      fault.pod = from.value("pod", 0u);
      fault.process = from.value("process", 0u);
      fault.length = Duration(from.value("for_ns", int64_t{0}));
      fault.one_in = from.value("one_in", fault.one_in);
      fault.noticed = from.value("noticed", false);
      if (fault.kind == kResizes) fault.spec = SpecFrom(from.at("share"));
      plan.faults.push_back(fault);
    }
  } catch (const nlohmann::json::exception& error) {
    return Fail(ErrorCode::kInvalid, name + " is no plan: " + error.what());
  }
  if (auto checked = CheckPlan(plan); !checked) {
    return Fail(ErrorCode::kInvalid, name + ": " + checked.error().message);
  }
  return plan;
}

}  // namespace baton::world
