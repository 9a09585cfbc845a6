#include "devmgr/machine/nvml_topology.h"

#include <bit>
#include <cstdio>
#include <map>
#include <numeric>

namespace baton::devmgr::nvml {
namespace {

// Sets that are joined two at a time.
class Groups {
 public:
  explicit Groups(size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t Add() {
    parent_.push_back(parent_.size());
    return parent_.size() - 1;
  }
  size_t Of(size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  // The lower number stays its group's name.
  void Join(size_t a, size_t b) {
    a = Of(a);
    b = Of(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parent_;
};

// Numbers the groups of the first `in.size()` members that are in one.
std::vector<int32_t> Numbered(const Groups& groups, const std::vector<bool>& in) {
  std::vector<int32_t> numbers(in.size(), -1);
  std::map<size_t, int32_t> number_of;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i]) continue;
    const auto next = static_cast<int32_t>(number_of.size());
    numbers[i] = number_of.try_emplace(groups.Of(i), next).first->second;
  }
  return numbers;
}

}  // namespace

std::vector<int32_t> NvLinkIslands(const Api& api, const std::vector<Reachable>& cards) {
  Groups groups(cards.size());
  std::vector<bool> linked(cards.size(), false);
  std::map<std::string, size_t> card_on, switch_on;
  for (size_t i = 0; i < cards.size(); ++i) {
    if (!cards[i].bus.empty()) card_on[cards[i].bus] = i;
  }
  const bool can_walk =
      api.link_state != nullptr && api.link_type != nullptr && api.link_pci != nullptr;
  for (size_t i = 0; can_walk && i < cards.size(); ++i) {
    const Device device = cards[i].device;
    for (unsigned link = 0; link < kMaxLinks; ++link) {
      unsigned active = 0, type = 0;
      PciInfo pci{};
      // The first link that is none ends the list; one that is down does not.
      if (api.link_state(device, link, &active) != kSuccess) break;
      if (active == 0 || api.link_type(device, link, &type) != kSuccess ||
          api.link_pci(device, link, &pci) != kSuccess) {
        continue;
      }
      const std::string bus = BusText(pci);
      if (type == kLinkToSwitch) {
        const auto [it, fresh] = switch_on.try_emplace(bus, 0);
        if (fresh) it->second = groups.Add();
        groups.Join(i, it->second);
        linked[i] = true;
      } else if (type == kLinkToGpu && card_on.contains(bus)) {
        groups.Join(i, card_on[bus]);
        linked[i] = linked[card_on[bus]] = true;
      }
    }
  }
  for (size_t i = 0; api.p2p_status != nullptr && i < cards.size(); ++i) {
    for (size_t j = i + 1; j < cards.size(); ++j) {
      unsigned status = 0;
      if (groups.Of(i) == groups.Of(j) ||
          api.p2p_status(cards[i].device, cards[j].device, kP2pOverNvLink, &status) != kSuccess ||
          status != kP2pOk) {
        continue;
      }
      groups.Join(i, j);
      linked[i] = linked[j] = true;
    }
  }
  return Numbered(groups, linked);
}

std::vector<int32_t> PcieGroups(const Api& api, const std::vector<Reachable>& cards) {
  Groups groups(cards.size());
  std::vector<bool> joined(cards.size(), false);
  for (size_t i = 0; api.common_ancestor != nullptr && i < cards.size(); ++i) {
    for (size_t j = i + 1; j < cards.size(); ++j) {
      unsigned level = 0;
      if (groups.Of(i) == groups.Of(j) ||
          api.common_ancestor(cards[i].device, cards[j].device, &level) != kSuccess ||
          level > kTopologyMultiple) {
        continue;
      }
      groups.Join(i, j);
      joined[i] = joined[j] = true;
    }
  }
  return Numbered(groups, joined);
}

std::string BusText(const PciInfo& pci) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xff,
                pci.device & 0x1f);
  return text;
}

int32_t NumaOf(const Api& api, Device device, const std::string& bus) {
  constexpr unsigned kWords = 16;  // 1024 nodes
  unsigned long nodes[kWords] = {};
  if (api.memory_affinity != nullptr &&
      api.memory_affinity(device, kWords, nodes, kAffinityOfNode) == kSuccess) {
    int32_t node = -1;
    int count = 0;
    for (unsigned word = 0; word < kWords; ++word) {
      count += std::popcount(nodes[word]);
      if (node < 0 && nodes[word] != 0) {
        node = static_cast<int32_t>(64 * word) + std::countr_zero(nodes[word]);
      }
    }
    if (count == 1) return node;
  }
  if (bus.empty()) return -1;
  int node = -1;
  if (std::FILE* file = std::fopen(("/sys/bus/pci/devices/" + bus + "/numa_node").c_str(), "re")) {
    if (std::fscanf(file, "%d", &node) != 1) node = -1;
    std::fclose(file);
  }
  return node >= 0 && node < 1024 ? node : -1;
}

}  // namespace baton::devmgr::nvml
