#include "backend/gpu_history.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "ledger/report.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// From its first bucket to its last one, those between in which it used nothing as well. Percent
// to a tenth.
json HeldBy(const ledger::Activity& activity) {
  json held = json::array();
  int64_t t = activity.buckets.front().t;
  for (const ledger::Activity::Bucket& bucket : activity.buckets) {
    for (; t < bucket.t; t += activity.seconds) held.push_back(0);
    held.push_back(std::round(static_cast<double>(bucket.held) * 1000) / 10);
    t = bucket.t + activity.seconds;
  }
  return held;
}

}  // namespace

Result<ReportAnswer> AskHistory(const std::map<std::string, std::string>& field,
                                const ReportView& view) {
  const auto window = WindowOf(field, "1h");
  if (!window) return tl::unexpected(window.error());
  std::string gpu = field.at("gpu");
  if (gpu.empty()) {
    const auto& gpus = view.arbiter.gpus();
    if (gpus.size() != 1) return Fail(ErrorCode::kInvalid, "gpu names one of several GPUs");
    gpu = gpus.begin()->first;
  }
  return LedgerQuery([window = *window, gpu](ledger::Ledger& ledger) -> Result<json> {
    const auto activities = ledger.Activities(window, gpu);
    if (!activities) return tl::unexpected(activities.error());
    int64_t seconds = ledger::BucketSeconds(window);
    json rows = json::array();
    for (const ledger::Activity& activity : *activities) {
      seconds = activity.seconds;
      rows.push_back({{"pod", activity.owner.pod},
                      {"namespace", activity.owner.name_space},
                      {"begin_s", activity.buckets.front().t},
                      {"held", HeldBy(activity)}});
    }
    return json{{"gpu", gpu},
                {"from", ledger::FormatTime(window.from)},
                {"to", ledger::FormatTime(window.to)},
                {"bucket_s", seconds},
                {"rows", std::move(rows)}};
  });
}

}  // namespace baton::backend
