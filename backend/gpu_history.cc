#include "backend/gpu_history.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "ledger/report.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// By the beginning of a bucket, in seconds since 1970: the part of it that was held.
using Course = std::map<int64_t, double>;

// From its first bucket to its last one, those between in which it used nothing as well. Percent
// to a tenth.
json HeldBy(const Course& course, int64_t seconds) {
  json held = json::array();
  int64_t next = course.begin()->first;
  for (const auto& [t, part] : course) {
    for (; next < t; next += seconds) held.push_back(0);
    held.push_back(std::round(part * 1000) / 10);
    next = t + seconds;
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
    if (gpus.size() != 1)
      return Fail(ErrorCode::kInvalid, "gpu names one of several GPUs; /api/v1/status lists them");
    gpu = gpus.begin()->first;
  }
  return LedgerQuery([window = *window, gpu](ledger::Ledger& ledger) -> Result<json> {
    const auto activities = ledger.Activities(window, gpu);
    if (!activities) return tl::unexpected(activities.error());
    int64_t seconds = ledger::BucketSeconds(window);
    // One that came again under its name is the same pod here.
    std::map<std::pair<std::string, std::string>, Course> courses;
    for (const ledger::Activity& activity : *activities) {
      seconds = activity.seconds;
      Course& course = courses[{activity.owner.name_space, activity.owner.pod}];
      for (const ledger::Activity::Bucket& bucket : activity.buckets) {
        course[bucket.t] += static_cast<double>(bucket.held);
      }
    }
    json rows = json::array();
    for (const auto& [name, course] : courses) {
      rows.push_back({{"pod", name.second},
                      {"namespace", name.first},
                      {"begin_s", course.begin()->first},
                      {"held", HeldBy(course, seconds)}});
    }
    return json{{"gpu", gpu},
                {"from", ledger::FormatTime(window.from)},
                {"to", ledger::FormatTime(window.to)},
                {"bucket_s", seconds},
                {"rows", std::move(rows)}};
  });
}

}  // namespace baton::backend
