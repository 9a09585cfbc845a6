#include "devmgr/placement/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/random.h"
#include "devmgr/placement/csv.h"

namespace baton::devmgr {
namespace {

// Memory matters in a trace only in that all GPUs have some: pods ask for a part of it.
constexpr uint32_t kTraceMemory_mib = 32'768;

}  // namespace

Result<std::vector<Node>> ReadTraceNodes(std::string_view text) {
  auto csv = Csv::Open(text, {"sn", "cpu_milli", "memory_mib", "gpu", "model"}, 5);
  if (!csv) return tl::unexpected(csv.error());
  std::vector<Node> nodes;
  std::set<std::string_view> names;
  while (csv->Row()) {
    Node node;
    node.name = csv->Text(0);
    if (!names.insert(csv->Text(0)).second) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("line {}: node {} is listed twice", csv->line(), node.name));
    }
    node.cpu_milli = csv->Number<uint32_t>(1, std::numeric_limits<uint32_t>::max());
    node.memory_mib = csv->Number<uint64_t>(2, uint64_t{1} << 40);
    const auto count = csv->Number<uint32_t>(3, VgpuRequest::kCardsMax);
    if (!csv->error().empty()) break;
    for (uint32_t i = 0; i < count; ++i) {
      Card card;
      card.uuid = fmt::format("{}/{}", node.name, i);
      card.model = csv->Text(4);
      card.memory_mib = kTraceMemory_mib;
      node.cards.push_back(std::move(card));
    }
    nodes.push_back(std::move(node));
  }
  if (!csv->error().empty()) return Fail(ErrorCode::kInvalid, csv->error());
  return nodes;
}

Result<std::vector<PodRequest>> ReadTracePods(std::string_view text) {
  auto csv =
      Csv::Open(text, {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"}, 5);
  if (!csv) return tl::unexpected(csv.error());
  std::vector<PodRequest> pods;
  while (csv->Row()) {
    PodRequest pod;
    pod.name = csv->Text(0);
    pod.cpu_milli = csv->Number<uint32_t>(1, std::numeric_limits<uint32_t>::max());
    pod.memory_mib = csv->Number<uint64_t>(2, uint64_t{1} << 40);
    VgpuRequest vgpu;
    vgpu.count = csv->Number<uint32_t>(3, VgpuRequest::kCardsMax);
    vgpu.share = policy::kShareMin * csv->Number<uint32_t>(4, 1'000);
    vgpu.memory_part = vgpu.share;
    std::string_view spec = csv->Text(5);
    while (!spec.empty()) {
      const size_t bar = spec.find('|');
      if (bar != 0) pod.models.emplace_back(spec.substr(0, bar));
      spec.remove_prefix(bar == std::string_view::npos ? spec.size() : bar + 1);
    }
    if (vgpu.count > 0) pod.containers.push_back({"main", {vgpu}});
    const auto valid = Validate(pod);
    if (!csv->error().empty()) break;
    if (!valid) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("line {}: {}", csv->line(), valid.error().message));
    }
    pods.push_back(std::move(pod));
  }
  if (!csv->error().empty()) return Fail(ErrorCode::kInvalid, csv->error());
  return pods;
}

policy::ShareSum DemandOf(const PodRequest& request) {
  policy::ShareSum sum;
  for (const ContainerRequest& container : request.containers) {
    for (const VgpuRequest& vgpu : container.vgpus)
      sum += policy::ShareSum(vgpu.share) * vgpu.count;
  }
  return sum;
}

policy::ShareSum CapacityOf(const Cluster& cluster) {
  uint64_t cards = 0;
  for (const Node* node : cluster.Nodes()) cards += node->cards.size();
  return policy::ShareSum(policy::kWhole) * cards;
}

std::vector<PodRequest> Arrivals(const std::vector<PodRequest>& pods, policy::ShareSum capacity,
                                 double demand, uint64_t seed) {
  Random random(seed);
  std::vector<size_t> order(pods.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1],
              order[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1))]);
  }
  std::vector<PodRequest> arrivals;
  const policy::ShareSum enough(
      static_cast<uint64_t>(static_cast<double>(capacity.millionths()) * demand));
  policy::ShareSum sum;
  // A trace that asks for no GPU never fills one.
  const bool any = std::any_of(pods.begin(), pods.end(), [](const PodRequest& pod) {
    return DemandOf(pod) > policy::Share(0);
  });
  for (size_t i = 0; any ? sum < enough : i < pods.size(); ++i) {
    const size_t from =
        i < order.size()
            ? order[i]
            : static_cast<size_t>(random.Between(0, static_cast<int64_t>(pods.size()) - 1));
    arrivals.push_back(pods[from]);
    arrivals.back().name += fmt::format("#{}", i);
    sum += DemandOf(arrivals.back());
  }
  return arrivals;
}

PodRequest Replay::As(const PodRequest& request) const {
  PodRequest pod = request;
  if (!options_.whole) return pod;
  for (ContainerRequest& container : pod.containers) {
    for (VgpuRequest& vgpu : container.vgpus) {
      vgpu.share = vgpu.memory_part = policy::kWhole;
      vgpu.memory_mib = 0;
    }
  }
  return pod;
}

void Replay::Know(const std::vector<PodRequest>& pods) {
  for (const PodRequest& pod : pods) cluster_.Learn(As(pod));
}

bool Replay::Arrive(const PodRequest& request) {
  const PodRequest pod = As(request);
  const policy::ShareSum demand = DemandOf(request);
  arrived_ += demand;
  if (options_.learn) cluster_.Learn(pod);
  const auto placement = PlaceKnowing(cluster_, pod, options_.known);
  if (!placement) {
    ++failed_;
    return false;
  }
  ++placed_;
  allocated_ += demand;
  contention_.Add(pod, *placement);
  return true;
}

}  // namespace baton::devmgr
