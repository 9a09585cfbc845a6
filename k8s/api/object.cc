#include "k8s/api/object.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/nesting.h"
#include "net/url.h"

namespace baton::k8s {

std::string Resource::ApiVersion() const { return group.empty() ? version : group + "/" + version; }

std::string Resource::Path(std::string_view name_space, std::string_view name,
                           std::string_view subresource) const {
  std::string path = group.empty() ? "/api/" : "/apis/" + net::PercentEncode(group) + "/";
  path += net::PercentEncode(version);
  if (namespaced && !name_space.empty()) path += "/namespaces/" + net::PercentEncode(name_space);
  path += "/" + net::PercentEncode(plural);
  if (!name.empty()) path += "/" + net::PercentEncode(name);
  if (!subresource.empty()) path += "/" + net::PercentEncode(subresource);
  return path;
}

namespace resources {
const Resource kPods{"", "v1", "pods", "Pod", true};
const Resource kNodes{"", "v1", "nodes", "Node", false};
const Resource kEvents{"events.k8s.io", "v1", "events", "Event", true};
const Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease", true};
const Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
const Resource kSharePods{"baton.dev", "v1alpha1", "sharepods", "SharePod", true};
const Resource kGpuNodes{"baton.dev", "v1alpha1", "gpunodes", "GpuNode", false};
const Resource kTeams{"baton.dev", "v1alpha1", "teams", "Team", false};
const Resource kMutatingWebhooks{"admissionregistration.k8s.io", "v1",
                                 "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
                                 false};
const Resource kValidatingWebhooks{"admissionregistration.k8s.io", "v1",
                                   "validatingwebhookconfigurations",
                                   "ValidatingWebhookConfiguration", false};
const Resource kCustomResourceDefinitions{"apiextensions.k8s.io", "v1", "customresourcedefinitions",
                                          "CustomResourceDefinition", false};
const Resource kResourceQuotas{"", "v1", "resourcequotas", "ResourceQuota", true};
const Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass",
                                false};
const Resource kResourceClaims{"resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true};
const Resource kResourceSlices{"resource.k8s.io", "v1", "resourceslices", "ResourceSlice", false};
}  // namespace resources

std::string ObjectName::Text() const { return name_space.empty() ? name : name_space + "/" + name; }

const Json* Find(const Json& object, std::string_view pointer) {
  const Json* at = &object;
  while (!pointer.empty()) {
    const size_t slash = pointer.find('/');
    std::string key(pointer.substr(0, slash));
    pointer.remove_prefix(slash == std::string_view::npos ? pointer.size() : slash + 1);
    if (at->is_array()) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (error != std::errc() || end != key.data() + key.size() || index >= at->size()) {
        return nullptr;
      }
      at = &(*at)[index];
      continue;
    }
    if (!at->is_object()) return nullptr;
    for (size_t i = key.find("~1"); i != std::string::npos; i = key.find("~1", i + 1)) {
      key.replace(i, 2, "/");
    }
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string TextAt(const Json& object, std::string_view pointer, std::string_view missing) {
  const Json* at = Find(object, pointer);
  if (at == nullptr || !at->is_string()) return std::string(missing);
  return at->get_ref<const std::string&>();
}

std::optional<Json> ParseObject(std::string_view text) {
  constexpr size_t kDepthMax = 200;
  if (!JsonNestsWithin(text, kDepthMax)) return std::nullopt;
  Json parsed = Json::parse(text, nullptr, false);
  if (!parsed.is_object()) return std::nullopt;
  return parsed;
}

ObjectName NameOf(const Json& object) {
  return {TextAt(object, "metadata/namespace"), TextAt(object, "metadata/name")};
}
std::string UidOf(const Json& object) { return TextAt(object, "metadata/uid"); }
std::string ResourceVersionOf(const Json& object) {
  return TextAt(object, "metadata/resourceVersion");
}

bool IsOlderVersion(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text, uint64_t* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
  };
  uint64_t left = 0;
  uint64_t right = 0;
  return number(a, &left) && number(b, &right) && left < right;
}

}  // namespace baton::k8s
