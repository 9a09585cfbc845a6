#include "backend/gpus.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::backend {
namespace {

bool IsIndex(const std::string& text) {
  return !text.empty() && text.size() < 5 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Gpu* Gpus::Find(const std::string& uuid) const {
  const auto it = gpus_.find(uuid);
  return it == gpus_.end() ? nullptr : it->second.get();
}

Gpu& Gpus::Add(std::unique_ptr<Gpu> gpu) {
  Gpu& added = *gpu;
  order_.push_back(&added);
  gpus_.emplace(added.info.uuid, std::move(gpu));
  return added;
}

std::vector<Gpu*> Gpus::OfNode(const std::string& node) const {
  std::vector<Gpu*> of_node;
  for (Gpu* gpu : order_) {
    if (!gpu->throw_away && (node == "*" || gpu->node == node)) of_node.push_back(gpu);
  }
  return of_node;
}

Result<std::vector<std::string>> Gpus::Resolve(const std::vector<std::string>& wanted,
                                               const std::string& node) const {
  const std::vector<Gpu*> all = OfNode(node);
  std::vector<std::string> uuids;
  for (const std::string& name : wanted) {
    std::string uuid = name;
    if (IsIndex(name)) {
      const auto index = static_cast<size_t>(std::stoul(name));
      if (index >= all.size()) {
        return Fail(ErrorCode::kNotFound, fmt::format("no GPU {}; there are {}", name, all.size()));
      }
      uuid = all[index]->info.uuid;
    }
    const bool known =
        std::any_of(all.begin(), all.end(), [&](const Gpu* gpu) { return gpu->info.uuid == uuid; });
    if (!known) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("no GPU {} here; 'baton status' lists the GPUs", name));
    }
    if (std::find(uuids.begin(), uuids.end(), uuid) != uuids.end()) {
      return Fail(ErrorCode::kInvalid, fmt::format("GPU {} is listed twice", name));
    }
    uuids.push_back(uuid);
  }
  const std::string& first = gpus_.at(uuids[0])->node;
  for (const std::string& uuid : uuids) {
    if (gpus_.at(uuid)->node != first) {
      return Fail(ErrorCode::kInvalid, "all GPUs of a pod must be on one node");
    }
  }
  return uuids;
}

bool Gpus::PodIsOn(const Pod& pod, const std::string& node) const {
  return node == "*" || std::any_of(pod.gpus.begin(), pod.gpus.end(), [&](const std::string& uuid) {
           auto it = gpus_.find(uuid);
           return it != gpus_.end() && it->second->node == node;
         });
}

}  // namespace baton::backend
