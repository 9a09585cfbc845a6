#include "cli/advice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

using nlohmann::json;

constexpr int64_t kHourS = 3'600;

// What is to be set of a pod, and the rows that say so.
struct PodAdvice {
  json set = json::object();
  std::vector<json*> rows;
  std::string why_not;  // all of it is left as it is; empty: something is set
};
using Plan = std::map<std::string, PodAdvice>;  // by the pod's name

bool IsLeft(const json& row) { return row.contains("error"); }

Plan PlanOf(json& rows, const Invocation& invocation) {
  Plan plan;
  for (json& row : rows) {
    PodAdvice& advice = plan[row.at("pod").get<std::string>()];
    advice.rows.push_back(&row);
    row["applied"] = false;
    if (row.contains("cannot")) {
      row["error"] = row.at("cannot");
    } else if (!row.contains("set")) {
      row["error"] = "this batond is of a version before; use 'baton set'";
    } else {
      advice.set.update(row.at("set"));
    }
  }
  for (auto& [pod, advice] : plan) {
    if (advice.set.empty()) {
      advice.why_not = advice.rows.front()->at("error");
      continue;
    }
    // Others' pods: batond says so before anything is changed.
    const auto own = wire::Ask(invocation.socket_dir, {{"command", "pod"}, {"name", pod}});
    if (own || (own.error().code != ErrorCode::kDenied && own.error().code != ErrorCode::kNotFound))
      continue;
    advice.why_not = own.error().message;
    for (json* row : advice.rows) (*row)["error"] = advice.why_not;
  }
  return plan;
}

void PrintPlan(const Plan& plan) {
  for (const auto& [pod, advice] : plan) {
    if (!advice.why_not.empty()) {
      std::printf("%s: left as it is: %s\n", ToPrintable(pod).c_str(),
                  ToPrintable(advice.why_not).c_str());
      continue;
    }
    for (const json* row : advice.rows) {
      const auto text = [&](const char* key) {
        return ToPrintable(row->at(key).get<std::string>());
      };
      std::printf("%s: %s %s\n", ToPrintable(pod).c_str(), text("what").c_str(),
                  IsLeft(*row) ? ("is left as it is: " + text("error")).c_str()
                               : (text("now") + " -> " + text("set_to")).c_str());
    }
  }
}

bool SaysYes(size_t pods) {
  std::printf("Change %zu pod%s? [y/N] ", pods, pods == 1 ? "" : "s");
  std::fflush(stdout);
  char line[16] = "";
  return std::fgets(line, sizeof line, stdin) != nullptr && std::tolower(line[0]) == 'y';
}

// Whether batond took it.
bool Set(const std::string& pod, const PodAdvice& advice, const Invocation& invocation) {
  json request = advice.set;
  request["command"] = "set_pod";
  request["name"] = pod;
  const auto done = wire::Ask(invocation.socket_dir, request);
  for (json* row : advice.rows) {
    if (IsLeft(*row)) continue;
    (*row)["applied"] = done.has_value();
    if (!done) (*row)["error"] = done.error().message;
  }
  if (!done) Complain({done.error().code, pod + ": " + done.error().message});
  return done.has_value();
}

// "20 hours", "20 minutes", "200 seconds"
std::string Span(int64_t seconds) {
  if (seconds >= kHourS) return fmt::format("{} hours", seconds / kHourS);
  if (seconds >= 600) return fmt::format("{} minutes", seconds / 60);
  return fmt::format("{} seconds", seconds);
}

}  // namespace

std::string AdviceSummary(const json& answer) {
  const bool none = answer.at("rows").empty();
  // A batond of a version before.
  if (!answer.contains("pods")) return none ? "All requests and memory caps fit the use." : "";
  const auto pods = answer.at("pods").get<size_t>();
  const json& unseen = answer.at("unseen");
  const auto needed_s = answer.at("needed_s").get<int64_t>();
  if (pods == 0) return "No pod has been seen for long enough: there is none that takes tokens.";
  const size_t seen = pods - std::min(pods, unseen.size());
  std::string text;
  if (seen == 0) {
    text = "No pod has been seen for long enough: ";
  } else if (none) {
    text = seen == 1 ? "1 pod asks for what it uses."
                     : fmt::format("{} pods ask for what they use.", seen);
  }
  if (unseen.empty()) return text;
  if (seen != 0 && !text.empty()) text += ' ';
  text += fmt::format("{} of {} pods {} less than {} between first and last use", unseen.size(),
                      pods, unseen.size() == 1 ? "has" : "have", Span(needed_s));
  if (seen != 0) text += ", too little for advice";
  // Windows of up to a day are looked at by the minute.
  if (needed_s >= kHourS) text += "; with --last 24h, 20 minutes are enough";
  return text + ".";
}

int ApplyAdvice(const json& question, const ApplyOptions& options, const Invocation& invocation) {
  if (!options.yes && options.json) {
    return Complain({ErrorCode::kInvalid, "--apply as JSON asks nobody: add --yes"});
  }
  if (!options.yes && isatty(STDIN_FILENO) != 1) {
    return Complain({ErrorCode::kInvalid,
                     "--apply asks before it changes anything, and there is no terminal to ask on: "
                     "add --yes, or see without --apply what is advised"});
  }
  auto answer = wire::Ask(invocation.socket_dir, question, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  answer->erase("ok");
  Plan plan = PlanOf(answer->at("rows"), invocation);
  const auto pods = static_cast<size_t>(std::count_if(
      plan.begin(), plan.end(), [](const auto& entry) { return entry.second.why_not.empty(); }));
  if (!options.json) {
    PrintPlan(plan);
    if (const std::string summary = AdviceSummary(*answer); !summary.empty()) {
      std::puts(summary.c_str());
    }
    if (pods > 0 && !options.yes && !SaysYes(pods)) {
      std::puts("Nothing is changed.");
      return kFailed;
    }
  }
  size_t changed = 0;
  for (auto& [pod, advice] : plan) {
    if (advice.why_not.empty() && Set(pod, advice, invocation)) ++changed;
  }
  if (options.json) {
    std::puts(answer->dump().c_str());
  } else if (pods > 0) {
    std::printf("%zu pod%s changed.\n", changed, changed == 1 ? "" : "s");
  }
  return changed == pods ? 0 : kFailed;
}

}  // namespace baton::cli
