#include "devmgr/placement/gang.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "base/check.h"
#include "base/random.h"
#include "devmgr/placement/replay.h"

namespace baton::devmgr {
namespace {

using Order = std::vector<size_t>;

auto SizeOf(const PodRequest& pod) {
  policy::Share part;
  uint64_t memory = 0;
  for (const ContainerRequest& container : pod.containers) {
    for (const VgpuRequest& vgpu : container.vgpus) {
      part = std::max(part, vgpu.share);
      memory += uint64_t{vgpu.memory_mib} * vgpu.count;
    }
  }
  return std::tuple(DemandOf(pod), part, memory);
}

Order LargestFirst(std::span<const PodRequest> pods) {
  Order order(pods.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto left = SizeOf(pods[a]);
    const auto right = SizeOf(pods[b]);
    return left != right ? left > right : pods[a].name < pods[b].name;
  });
  return order;
}

void Shuffle(Order& order, Random& random) {
  for (size_t i = order.size(); i > 1; --i) {
    const auto j = static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1));
    std::swap(order[i - 1], order[j]);
  }
}

}  // namespace

Result<std::vector<Placement>> PlaceGang(Cluster& cluster, std::span<const PodRequest> pods,
                                         const GangOptions& options) {
  if (pods.size() > kGangMax) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("a gang of {} pods; at most {}", pods.size(), kGangMax));
  }
  static const Names kNone;
  const Names& avoided = options.avoided != nullptr ? *options.avoided : kNone;
  std::vector<Placement> placements(pods.size());
  std::optional<Error> first;
  bool hopeless = false;  // no order will help
  size_t failed = 0;      // which one did not fit last
  const auto place = [&](const Order& order) {
    for (size_t i = 0; i < order.size(); ++i) {
      const PodRequest& pod = pods[order[i]];
      auto placement = DecideOff(cluster, pod, avoided);
      auto booked = placement ? cluster.Commit(pod, *placement)
                              : Result<void>(tl::unexpected(placement.error()));
      if (booked) {
        placements[order[i]] = *std::move(placement);
        continue;
      }
      failed = order[i];
      // The first one fails on the cluster as it is.
      hopeless = i == 0 || booked.error().code != ErrorCode::kExhausted;
      if (!first) first = booked.error();
      while (i-- > 0) BATON_CHECK(cluster.Delete(pods[order[i]].name).has_value());
      return false;
    }
    return true;
  };

  Order order(pods.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::set<Order> tried{order};
  if (place(order)) return placements;
  if (!hopeless) {
    order = LargestFirst(pods);
    if (tried.insert(order).second && place(order)) return placements;
  }
  Random random(options.seed);
  for (uint32_t r = 0; r < options.restarts && !hopeless; ++r) {
    const auto at = std::find(order.begin(), order.end(), failed);
    std::rotate(order.begin(), at, at + 1);
    if (tried.contains(order)) Shuffle(order, random);
    if (tried.insert(order).second && place(order)) return placements;
  }
  return tl::unexpected(*first);
}

}  // namespace baton::devmgr
