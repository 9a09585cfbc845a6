#include "policy/share.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace baton::policy {

Result<ShareSpec> Validated(ShareSpec spec) {
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
  if (spec.slack_weight == 0) spec.slack_weight = spec.request;
  return spec;
}

void FluidShares(std::span<Entitlement> pods) {
  int64_t requested = 0;
  int64_t weights = 0;
  bool any_below_limit = false;
  for (Entitlement& p : pods) {
    requested += p.request;
    weights += p.slack_weight;
  }
  for (Entitlement& p : pods) {
    p.fluid =
        requested <= kWhole
            ? p.request
            : static_cast<Share>(std::max<int64_t>(1, int64_t{p.request} * kWhole / requested));
    any_below_limit |= p.fluid < p.limit;
  }
  int64_t slack = kWhole - requested;
  if (slack <= 0 || !any_below_limit) return;

  auto weight = [&](const Entitlement& p) -> int64_t { return weights == 0 ? 1 : p.slack_weight; };
  // Water-filling: pods in the order in which the rising level reaches their limits. A pod's level
  // is its room over its weight; compared by cross multiplication, exactly.
  std::vector<uint32_t> order;
  order.reserve(pods.size());
  for (uint32_t i = 0; i < pods.size(); ++i) {
    if (pods[i].fluid < pods[i].limit && weight(pods[i]) > 0) order.push_back(i);
  }
  auto room = [&](uint32_t i) { return int64_t{pods[i].limit} - pods[i].fluid; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int64_t left = room(a) * weight(pods[b]);
    const int64_t right = room(b) * weight(pods[a]);
    return left != right ? left < right : a < b;
  });
  int64_t filling = 0;
  for (uint32_t i : order) filling += weight(pods[i]);
  for (uint32_t i : order) {
    const int64_t w = weight(pods[i]);
    const int64_t part = std::min(slack * w / filling, room(i));
    pods[i].fluid += static_cast<Share>(part);
    slack -= part;
    filling -= w;
  }
}

}  // namespace baton::policy
