#include "tests/k8s/worlds/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "k8s/api/object.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s::testing {
namespace {

constexpr uint64_t kOneGpu = 1'000'000;

int64_t LimitsOf(const Json& pod, const char* resource) {
  int64_t sum = 0;
  for (const Json& container : pod["spec"]["containers"]) {
    const Json* limit = Find(container, std::string("resources/limits/") + resource);
    if (limit != nullptr) sum += *WholeQuantity(*limit);
  }
  return sum;
}

// What of a GPU is given away.
struct Given {
  uint64_t share = 0;
  uint64_t memory_mib = 0;
  size_t pods = 0;
  bool whole = false;
  std::set<std::string> anti, exclusion, gangs;
};

Given GivenOf(const std::string& card, const Pods& there) {
  Given given;
  for (const devmgr::PlacedPod* pod : there) {
    for (const devmgr::Vgpu& vgpu : pod->placement.vgpus) {
      if (vgpu.card != card) continue;
      given.share += vgpu.fit.share.millionths();
      given.memory_mib += vgpu.fit.memory_mib;
      ++given.pods;
      given.whole |= vgpu.mode == "exclusive";
      if (!pod->request.anti_affinity.empty()) given.anti.insert(pod->request.anti_affinity);
      if (!pod->request.gang.empty()) given.gangs.insert(pod->request.gang);
      given.exclusion.insert(pod->request.exclusion);
    }
  }
  return given;
}

// "H100 80GB" means "NVIDIA H100 80GB HBM3"; worlds have models of one word only.
bool Means(std::string word, std::string model) {
  const auto lower = [](std::string& text) {
    std::transform(text.begin(), text.end(), text.begin(), [](char c) {
      return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
  };
  lower(word);
  lower(model);
  return model.find(word) != std::string::npos;
}

bool IsKind(const devmgr::PodRequest& request, const devmgr::Card& card) {
  const auto means = [&](const std::string& word) { return Means(word, card.model); };
  if (!request.models.empty() &&
      std::none_of(request.models.begin(), request.models.end(), means)) {
    return false;
  }
  const auto is = [&](const std::vector<std::string>& uuids) {
    return std::find(uuids.begin(), uuids.end(), card.uuid) != uuids.end();
  };
  if ((!request.uuids.empty() && !is(request.uuids)) || is(request.not_uuids)) return false;
  return std::none_of(request.not_models.begin(), request.not_models.end(), means);
}

// Whether pods of one gang must be on different GPUs: not where they are told which.
bool Apart(const devmgr::PodRequest& request) {
  return !request.gang.empty() && request.affinity.empty() && request.uuids.empty();
}

// Whether a container's GPUs must be of one model.
bool OfOneModel(const devmgr::PodRequest& request) {
  return request.models.size() < 2 && request.uuids.empty();
}

struct One {
  size_t container;
  uint64_t share;
  uint32_t memory_mib;
  uint64_t part;  // of the GPU's memory, in millionths
};

std::vector<One> OnesOf(const devmgr::PodRequest& request) {
  std::vector<One> ones;
  for (size_t c = 0; c < request.containers.size(); ++c) {
    for (const devmgr::VgpuRequest& vgpu : request.containers[c].vgpus) {
      for (uint32_t n = 0; n < vgpu.count; ++n) {
        ones.push_back(
            {c, vgpu.share.millionths(), vgpu.memory_mib, vgpu.memory_part.millionths()});
      }
    }
  }
  return ones;
}

class Search {
 public:
  Search(const Wish& wish, const NodeSeen& node, const Pods& there,
         const std::set<std::string>& near, Takes takes)
      : request_(wish.request),
        cards_(node.cards),
        near_(near),
        takes_(takes),
        ones_(OnesOf(wish.request)) {
    for (const devmgr::Card& card : cards_) given_.push_back(GivenOf(card.uuid, there));
    taken_.resize(cards_.size());
    size_t most = 0;
    std::map<size_t, size_t> counts;
    for (const One& one : ones_) most = std::max(most, ++counts[one.container]);
    alike_ = most > 1 && OfOneModel(request_);
  }

  bool Try(size_t at) {
    if (at == ones_.size()) return true;
    for (size_t c = 0; c < cards_.size(); ++c) {
      if (!Allows(at, c)) continue;
      const One& one = ones_[at];
      const bool whole = request_.mode == "exclusive";
      const uint64_t memory_mib = MemoryOf(one, cards_[c]);
      Given before = given_[c];
      Given& given = given_[c];
      given.share += whole ? kOneGpu : one.share;
      given.memory_mib += memory_mib;
      ++given.pods;
      given.whole |= whole;
      taken_[c].push_back(one.container);
      const std::string model = std::exchange(model_, cards_[c].model);
      const bool first = std::exchange(any_, true);
      const bool found = Try(at + 1);
      model_ = model;
      any_ = first;
      taken_[c].pop_back();
      given_[c] = std::move(before);
      if (found) return true;
    }
    return false;
  }

 private:
  uint64_t MemoryOf(const One& one, const devmgr::Card& card) const {
    if (one.part == 0) return one.memory_mib;
    const uint64_t parts = uint64_t{card.memory_mib} * one.part;
    return takes_ == Takes::kAtLeast ? parts / kOneGpu : (parts + kOneGpu - 1) / kOneGpu + 1;
  }

  bool Allows(size_t at, size_t c) const {
    const One& one = ones_[at];
    const devmgr::Card& card = cards_[c];
    const Given& given = given_[c];
    if (card.health != devmgr::Health::kHealthy || card.cordoned) return false;
    if (!IsKind(request_, card)) return false;
    if (alike_ && any_ && card.model != model_) return false;
    if (std::find(taken_[c].begin(), taken_[c].end(), one.container) != taken_[c].end()) {
      return false;
    }
    if (given.whole) return false;
    if (request_.mode == "exclusive") {
      if (given.pods > 0) return false;
    } else if (given.share + one.share > kOneGpu) {
      return false;
    }
    if (given.memory_mib + MemoryOf(one, card) > card.memory_mib) return false;
    if (!request_.anti_affinity.empty() && given.anti.contains(request_.anti_affinity)) {
      return false;
    }
    if (!near_.empty() && !near_.contains(card.uuid)) return false;
    if (Apart(request_) && given.gangs.contains(request_.gang)) return false;
    return std::all_of(given.exclusion.begin(), given.exclusion.end(),
                       [&](const std::string& word) { return word == request_.exclusion; });
  }

  const devmgr::PodRequest& request_;
  const std::vector<devmgr::Card>& cards_;
  const std::set<std::string>& near_;
  const Takes takes_;
  const std::vector<One> ones_;
  std::vector<Given> given_;
  std::vector<std::vector<size_t>> taken_;  // containers of the pod that are on the GPU
  bool alike_ = false;
  bool any_ = false;
  std::string model_;
};

int64_t Counted(const Pods& there, const char* resource) {
  int64_t sum = 0;
  for (const devmgr::PlacedPod* pod : there) {
    const auto of = pod->request.resources.find(resource);
    if (of != pod->request.resources.end()) sum += static_cast<int64_t>(of->second);
  }
  return sum;
}

bool KubeletTakes(const Wish& wish, const NodeSeen& node, const Pods& there) {
  if (node.shares && wish.shares > 0 &&
      Counted(there, "baton.dev/gpu-share") + wish.shares > *node.shares) {
    return false;
  }
  return !node.memory || wish.memory == 0 ||
         Counted(there, "baton.dev/gpu-memory") + wish.memory <= *node.memory;
}

bool HasLabels(const Wish& wish, const NodeSeen& node) {
  return std::all_of(wish.request.node_labels.begin(), wish.request.node_labels.end(),
                     [&](const auto& label) {
                       const auto is = node.labels.find(label.first);
                       return is != node.labels.end() && is->second == label.second;
                     });
}

}  // namespace

NodeSeen SeeNode(const Json& node, const Json* gpu_node) {
  NodeSeen seen;
  seen.name = TextAt(node, "metadata/name");
  if (const Json* labels = Find(node, "metadata/labels"); labels != nullptr) {
    for (const auto& [key, value] : labels->items()) seen.labels[key] = value.get<std::string>();
  }
  const Json* cordoned = Find(node, "spec/unschedulable");
  if (cordoned != nullptr && cordoned->is_boolean() && cordoned->get<bool>()) {
    seen.closed = "it is cordoned";
  }
  if (const Json* taints = Find(node, "spec/taints"); taints != nullptr && !taints->empty()) {
    seen.closed = "it has a taint";
  }
  bool ready = false;
  if (const Json* conditions = Find(node, "status/conditions"); conditions != nullptr) {
    for (const Json& condition : *conditions) {
      ready |= TextAt(condition, "type") == "Ready" && TextAt(condition, "status") == "True";
    }
  }
  if (!ready) seen.closed = "it is not ready";
  const auto count = [&](const char* resource) -> std::optional<int64_t> {
    const Json* is = Find(node, std::string("status/allocatable/") + resource);
    return is == nullptr ? std::nullopt : std::optional(*WholeQuantity(*is));
  };
  seen.shares = count("baton.dev~1gpu-share");
  seen.memory = count("baton.dev~1gpu-memory");
  if (gpu_node != nullptr && Find(*gpu_node, "status/cards") != nullptr) {
    if (auto cards = CardsOf(*gpu_node)) seen.cards = *std::move(cards);
  }
  return seen;
}

std::optional<Wish> WishOf(const Json& object) {
  Wish wish;
  Json pod = object;
  if (TextAt(object, "kind") == "SharePod") {
    auto child = ChildPod(object, kMemoryUnitMib);
    if (!child) return std::nullopt;
    pod = *std::move(child);
  }
  auto gpu = ReadGpuPod(pod, kMemoryUnitMib);
  if (!gpu) return std::nullopt;
  wish.key = NameOf(object).Text();
  wish.request = std::move(gpu->request);
  wish.request.name = wish.key;
  wish.team = wish.request.team.empty() ? "default" : wish.request.team;
  wish.priority = wish.request.priority;
  wish.displaces = TextAt(pod, "spec/preemptionPolicy") != "Never";
  if (!gpu->gang.empty()) wish.gang = NameOf(object).name_space + "/" + gpu->gang;
  wish.gang_size = gpu->gang_size;
  wish.shares = LimitsOf(pod, "baton.dev~1gpu-share");
  wish.memory = LimitsOf(pod, "baton.dev~1gpu-memory");
  wish.volumes = Find(pod, "spec/volumes") != nullptr;
  return wish;
}

Sum SumOf(const devmgr::PodRequest& request) {
  Sum sum;
  for (const One& one : OnesOf(request)) sum += {one.share, one.memory_mib};
  return sum;
}

Sum SumOf(const devmgr::Placement& placement) {
  Sum sum;
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    sum += {vgpu.fit.share.millionths(), vgpu.fit.memory_mib};
  }
  return sum;
}

Sum MostOf(const devmgr::PodRequest& request, const std::vector<NodeSeen>& nodes) {
  Sum sum = SumOf(request);
  uint64_t largest = 0;
  for (const NodeSeen& node : nodes) {
    for (const devmgr::Card& card : node.cards) {
      largest = std::max<uint64_t>(largest, card.memory_mib);
    }
  }
  for (const devmgr::ContainerRequest& container : request.containers) {
    for (const devmgr::VgpuRequest& vgpu : container.vgpus) {
      const bool whole = request.mode == "exclusive";
      if (whole || vgpu.memory_part.millionths() > 0) sum.memory_mib += largest * vgpu.count;
      if (whole) sum.share += (1'000'000 - vgpu.share.millionths()) * vgpu.count;
    }
  }
  return sum;
}

std::set<std::string> CardsWithWord(const std::string& word, const Pods& everywhere) {
  std::set<std::string> cards;
  if (word.empty()) return cards;
  for (const devmgr::PlacedPod* pod : everywhere) {
    if (pod->request.affinity != word) continue;
    for (const devmgr::Vgpu& vgpu : pod->placement.vgpus) cards.insert(vgpu.card);
  }
  return cards;
}

bool Fits(const Wish& wish, const NodeSeen& node, const Pods& there,
          const std::set<std::string>& near, Takes takes) {
  if (!node.closed.empty() || !HasLabels(wish, node) || !KubeletTakes(wish, node, there)) {
    return false;
  }
  return Search(wish, node, there, near, takes).Try(0);
}

std::string WrongPlace(const Wish& wish, const devmgr::Placement& to, const NodeSeen& node,
                       const Pods& there) {
  if (!node.closed.empty()) return node.closed;
  if (!HasLabels(wish, node)) return "it lacks a label that the pod selects nodes by";
  if (!KubeletTakes(wish, node, there)) return "its kubelet would refuse the pod";
  const std::vector<One> ones = OnesOf(wish.request);
  if (ones.size() != to.vgpus.size()) return "the pod wants another number of GPUs";
  std::set<std::pair<uint32_t, std::string>> used;
  std::set<std::string> models;
  for (size_t i = 0; i < ones.size(); ++i) {
    const devmgr::Vgpu& vgpu = to.vgpus[i];
    const auto card = std::find_if(node.cards.begin(), node.cards.end(),
                                   [&](const auto& c) { return c.uuid == vgpu.card; });
    if (card == node.cards.end()) return "it has no " + vgpu.card;
    if (!used.emplace(vgpu.container, vgpu.card).second) {
      return vgpu.card + " is given to one container twice";
    }
    models.insert(card->model);
    if (card->health != devmgr::Health::kHealthy || card->cordoned) {
      return vgpu.card + " cannot be used";
    }
    if (!IsKind(wish.request, *card)) return vgpu.card + " is not one that is wanted";
    const bool whole = vgpu.mode == "exclusive";
    if (whole != (wish.request.mode == "exclusive")) return vgpu.card + " is in another mode";
    if (!whole && vgpu.fit.share.millionths() != ones[i].share) {
      return fmt::format("it gets {} of a million of {}, and wants {}", vgpu.fit.share.millionths(),
                         vgpu.card, ones[i].share);
    }
    if (!whole && ones[i].part == 0 && vgpu.fit.memory_mib != ones[i].memory_mib) {
      return fmt::format("it gets {} MiB of {}, and wants {}", vgpu.fit.memory_mib, vgpu.card,
                         ones[i].memory_mib);
    }
    const Given given = GivenOf(vgpu.card, there);
    if (given.whole || (whole && given.pods > 0)) return vgpu.card + " is exclusive, and shared";
    if (!wish.request.anti_affinity.empty() && given.anti.contains(wish.request.anti_affinity)) {
      return vgpu.card + " has a pod with its word of anti-affinity";
    }
    if (std::any_of(given.exclusion.begin(), given.exclusion.end(),
                    [&](const std::string& word) { return word != wish.request.exclusion; })) {
      return vgpu.card + " has a pod with another word of exclusion";
    }
    if (Apart(wish.request) && given.gangs.contains(wish.request.gang)) {
      return vgpu.card + " has another pod of its gang";
    }
  }
  if (models.size() > 1 && OfOneModel(wish.request)) return "its GPUs are of several models";
  return "";
}

}  // namespace baton::k8s::testing
