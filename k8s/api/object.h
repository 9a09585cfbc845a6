// Names of objects and of their kinds, as the Kubernetes API has them. Values.
#ifndef BATON_K8S_API_OBJECT_H_
#define BATON_K8S_API_OBJECT_H_

#include <compare>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace baton::k8s {

using Json = nlohmann::json;

// A kind of objects and where it is served.
struct Resource {
  std::string group;  // empty: core
  std::string version;
  std::string plural;  // "pods"
  std::string kind;    // "Pod"
  bool namespaced = true;

  // "v1", "baton.dev/v1alpha1".
  std::string ApiVersion() const;
  // "/api/v1/namespaces/default/pods/name/status". Empty namespace: all of them (or a kind without
  // namespaces); empty name: the list. Parts are percent-encoded.
  std::string Path(std::string_view name_space, std::string_view name = {},
                   std::string_view subresource = {}) const;
};

namespace resources {
extern const Resource kPods, kNodes, kEvents /* events.k8s.io/v1 */, kLeases, kNamespaces;
extern const Resource kSharePods, kGpuNodes, kTeams;  // baton.dev/v1alpha1
extern const Resource kMutatingWebhooks, kValidatingWebhooks, kCustomResourceDefinitions;
extern const Resource kPriorityClasses, kResourceQuotas;
extern const Resource kResourceClaims, kResourceSlices;  // resource.k8s.io/v1
}  // namespace resources

struct ObjectName {
  std::string name_space;  // empty: a kind without namespaces
  std::string name;

  // "namespace/name", or "name".
  std::string Text() const;
  friend auto operator<=>(const ObjectName&, const ObjectName&) = default;
};

// Of an object that came from the API server; empty where it is not there or is no text. Never
// throws, whatever the object is.
ObjectName NameOf(const Json& object);
std::string UidOf(const Json& object);
std::string ResourceVersionOf(const Json& object);
// Resource versions are told apart only; where both are numbers, as they are with etcd, the greater
// is the newer, which tells a watch's event from the answer to a later write.
bool IsOlderVersion(const std::string& a, const std::string& b);
// A text at "a/b/c" (keys; "~1" stands for "/", as in JSON pointers), else `missing`.
std::string TextAt(const Json& object, std::string_view pointer, std::string_view missing = {});
// Null: not there.
const Json* Find(const Json& object, std::string_view pointer);
// Nothing: it is no JSON object, or lists and objects lie in each other deeper than any of the
// API's do (200; base/nesting.h).
std::optional<Json> ParseObject(std::string_view text);

// ApiError::reason of an eviction that a PodDisruptionBudget does not allow now (status 429).
inline constexpr const char* kDisruptionBudget = "DisruptionBudget";

// Why the API server did not do it.
struct ApiError {
  int status = 0;       // HTTP's; 0: no answer came, and it may or may not have been done
  std::string reason;   // "Conflict", "AlreadyExists", "NotFound", "Expired", "Invalid", ...
  std::string message;  // a sentence for people: who was asked for what, and the server's own words
  Duration retry_after{0};  // as the server wishes; 0: it said nothing
  std::string about{};      // what the server's words are about: "pods/a"; empty: it did not say

  bool conflict() const { return status == 409 && reason != "AlreadyExists"; }
  bool exists() const { return status == 409 && reason == "AlreadyExists"; }
  bool not_found() const { return status == 404; }
  bool gone() const { return status == 410; }
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

}  // namespace baton::k8s

#endif  // BATON_K8S_API_OBJECT_H_
