#include "bench/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/parse.h"

namespace baton::bench {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

Result<std::vector<PodShare>> ParseMix(std::string_view text) {
  std::vector<PodShare> mix;
  std::set<std::string> names;
  policy::ShareSum sum;
  for (const std::string& part : Split(text, ',')) {
    const std::vector<std::string> fields = Split(part, ':');
    if (fields.size() < 2 || fields.size() > 3 || !IsName(fields[0])) {
      return Fail(ErrorCode::kInvalid, "'" + part +
                                           "' is not a pod; write name:request:limit, as "
                                           "in train:60:100");
    }
    const auto request = policy::ParsePercent(fields[1]);
    if (!request) return tl::unexpected(request.error());
    const auto limit = policy::ParsePercent(fields.size() == 3 ? fields[2] : "100");
    if (!limit) return tl::unexpected(limit.error());
    const auto spec = policy::Validated({.request = *request, .limit = *limit});
    if (!spec) return Fail(spec.error().code, fields[0] + ": " + spec.error().message);
    if (!names.insert(fields[0]).second) {
      return Fail(ErrorCode::kInvalid, "two pods are called " + fields[0] + "; names must differ");
    }
    sum += *request;
    mix.push_back({fields[0], *request, *limit, 0});
  }
  if (sum > policy::kWhole) {
    return Fail(ErrorCode::kInvalid,
                "the requests add up to " + policy::PercentText(sum) + " %; a GPU has 100");
  }
  std::vector<policy::Entitlement> shares;
  for (const PodShare& pod : mix) {
    const policy::ShareSpec spec = *policy::Validated({.request = pod.request, .limit = pod.limit});
    shares.push_back({spec.request, spec.limit, spec.slack_weight});
  }
  policy::FluidShares(shares);
  for (size_t i = 0; i < mix.size(); ++i) mix[i].target = policy::Percent(shares[i].fluid);
  return mix;
}

}  // namespace baton::bench
