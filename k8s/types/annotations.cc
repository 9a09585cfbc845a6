#include "k8s/types/annotations.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace baton::k8s {

std::string LabelOfNode(std::string_view node) {
  constexpr size_t kLabelMax = 63;
  if (node.size() <= kLabelMax) return std::string(node);
  return fmt::format("{}-{:016x}", node.substr(0, kLabelMax - 17), HashOf(node));
}

std::string PodKey(std::string_view key) { return std::string(kPrefix).append(key); }

std::string ContainerKey(std::string_view container, std::string_view key) {
  return std::string(container).append(".container.").append(kPrefix).append(key);
}

std::string TicketOf(std::string_view pod_uid, std::string_view container) {
  constexpr size_t kNameMax = 27;  // wire::Hello::ticket without "UUID/"
  constexpr size_t kHashed = kNameMax - 1 - 16;
  if (container.size() <= kNameMax) return fmt::format("{}/{}", pod_uid, container);
  return fmt::format("{}/{}~{:016x}", pod_uid, container.substr(0, kHashed), HashOf(container));
}

}  // namespace baton::k8s
