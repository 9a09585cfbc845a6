#include "policy/share.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "policy/rational.h"

namespace baton::policy {
namespace {

// Takes part of what is poured, in proportion to its weight, until it is full.
struct Vessel {
  int64_t weight;  // below 2^33
  int64_t room;    // millionths, at most kMillion
  int64_t part = 0;
};

// Pours `amount` (at most kMillion) into vessels of weight above 0, each in proportion to its
// weight until it is full; what they cannot take, into the others in equal parts.
void WaterFill(int64_t amount, std::span<Vessel> vessels) {
  // In the order in which the rising level fills them. A vessel's level is its room over its
  // weight; compared by cross multiplication, exactly.
  std::vector<uint32_t> order;
  order.reserve(vessels.size());
  const auto pour = [&](auto weight) {
    order.clear();
    for (uint32_t i = 0; i < vessels.size(); ++i) {
      if (vessels[i].room > 0 && weight(i) > 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const int64_t left = vessels[a].room * weight(b);
      const int64_t right = vessels[b].room * weight(a);
      return left != right ? left < right : a < b;
    });
    int64_t filling = 0;
    for (const uint32_t i : order) filling += weight(i);
    for (const uint32_t i : order) {
      Vessel& vessel = vessels[i];
      vessel.part = std::min(amount * weight(i) / filling, vessel.room);
      amount -= vessel.part;
      filling -= weight(i);
    }
  };
  pour([&](uint32_t i) { return vessels[i].weight; });
  if (amount > 0) pour([&](uint32_t i) -> int64_t { return vessels[i].weight == 0; });
}

// Pours into teams first, then into the pods of each. `pods` are in the order of `vessels`.
void FillTeams(int64_t amount, std::span<const Entitlement> pods,
               std::span<const uint32_t> team_weights, std::span<Vessel> vessels) {
  std::vector<uint32_t> order(vessels.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return pods[a].team < pods[b].team; });
  std::vector<Vessel> teams;
  std::vector<Vessel> members;  // in `order`
  std::vector<size_t> begins;   // of each team, in `members`
  for (const uint32_t i : order) {
    const uint32_t team = pods[i].team;
    if (members.empty() || pods[order[members.size() - 1]].team != team) {
      teams.push_back({team < team_weights.size() ? team_weights[team] : 0, 0});
      begins.push_back(members.size());
    }
    members.push_back(vessels[i]);
    teams.back().room = std::min<int64_t>(kMillion, teams.back().room + vessels[i].room);
  }
  WaterFill(amount, teams);
  for (size_t t = 0; t < teams.size(); ++t) {
    const size_t end = t + 1 < teams.size() ? begins[t + 1] : members.size();
    WaterFill(teams[t].part, std::span(members).subspan(begins[t], end - begins[t]));
  }
  for (size_t i = 0; i < order.size(); ++i) vessels[order[i]].part = members[i].part;
}

// parts / unit, a power of ten: as many decimals as it takes.
std::string Decimal(uint64_t parts, uint64_t unit) {
  std::string decimals = std::to_string(unit + parts % unit).substr(1);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  return std::to_string(parts / unit) + (decimals.empty() ? "" : "." + decimals);
}

}  // namespace

std::string PercentText(ShareSum share) { return Decimal(share.millionths(), 10'000); }

std::string GpusText(ShareSum share) {
  const std::string text = Decimal(share.millionths(), kMillion);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::ostream& operator<<(std::ostream& out, ShareSum share) {
  return out << PercentText(share) << " %";
}

Result<Share> ParsePercent(std::string_view text) {
  const char* end = text.data() + text.size();
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  if (error == std::errc() && (unit.empty() || unit == "%") && number >= 0.1 && number <= 100) {
    return Share(std::llround(number * 10'000));
  }
  return Fail(ErrorCode::kInvalid, "'" + std::string(text.substr(0, 64)) +
                                       (text.size() > 64 ? "...'" : "'") +
                                       " is not a share; write a percentage from 0.1 to 100");
}

Share ShareOf(double gpus) { return Share(std::llround(gpus * kMillion)); }
ShareSum SharesOf(double gpus) { return ShareSum(std::llround(gpus * kMillion)); }

Result<ShareSpec> Validated(ShareSpec spec) {
  if (spec.latency != Duration(0) && (spec.latency < kLatencyMin || spec.latency > kLatencyMax)) {
    return Fail(ErrorCode::kInvalid, "the latency must be from 1ms to 10s");
  }
  if (spec.priority == Priority::kIdle) {
    if (spec.latency != Duration(0)) {
      return Fail(ErrorCode::kInvalid,
                  "a pod of idle priority has no latency: it waits while others have work; leave "
                  "the latency out, or choose another priority");
    }
    if (spec.request != Share(0)) {
      return Fail(ErrorCode::kInvalid,
                  "a pod of idle priority has no request: it runs only while no other pod of its "
                  "GPU has work; leave the request out, or choose another priority");
    }
    if (spec.limit < kShareMin || spec.limit > kWhole) {
      return Fail(ErrorCode::kInvalid, "the limit must be from 0.1 to 100 percent of a GPU");
    }
    if (spec.slack_weight == 0) spec.slack_weight = kShareMin.millionths();
    return spec;
  }
  if (spec.request < kShareMin || spec.request > kWhole) {
    return Fail(ErrorCode::kInvalid, "the request must be from 0.1 to 100 percent of a GPU");
  }
  if (spec.limit > kWhole) {
    return Fail(ErrorCode::kInvalid, "the limit must be at most 100 percent of a GPU");
  }
  if (spec.limit < spec.request) {
    return Fail(ErrorCode::kInvalid,
                "the limit is below the request; raise the limit or lower the request");
  }
  if (spec.slack_weight == 0) spec.slack_weight = spec.request.millionths();
  return spec;
}

void FluidShares(std::span<Entitlement> pods, std::span<const uint32_t> team_weights) {
  ShareSum requested;
  for (const Entitlement& p : pods) requested += p.request;
  for (Entitlement& p : pods) p.fluid = ScaledDown(p.request, requested);
  if (requested >= kWhole) return;
  std::vector<Vessel> vessels;
  vessels.reserve(pods.size());
  for (const Entitlement& p : pods) {
    vessels.push_back({p.slack_weight, (p.limit - p.fluid).millionths()});
  }
  const int64_t slack = (kWhole - requested).millionths();
  if (team_weights.empty()) {
    WaterFill(slack, vessels);
  } else {
    FillTeams(slack, pods, team_weights, vessels);
  }
  for (size_t i = 0; i < pods.size(); ++i) pods[i].fluid += Share(vessels[i].part);
}

uint32_t HistoryWeight(uint32_t w, uint32_t u, uint32_t k) {
  const int64_t weight = int64_t{w} * kMillion + int64_t{k} * (int64_t{w} - u);
  return static_cast<uint32_t>(std::max<int64_t>(0, weight) / kMillion);
}

}  // namespace baton::policy
