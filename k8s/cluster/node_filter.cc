#include "k8s/cluster/node_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "k8s/types/annotations.h"
#include "k8s/types/inject.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

const Json kNothing = Json::object();

// The object there, else an empty one.
const Json& ObjectAt(const Json& object, std::string_view pointer) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_object() ? *found : kNothing;
}

std::map<std::string, std::string> TextsAt(const Json& object, std::string_view pointer) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : ObjectAt(object, pointer).items()) {
    if (value.is_string()) texts[key] = value.get<std::string>();
  }
  return texts;
}

std::vector<Requirement> ReadRequirements(const Json& list) {
  std::vector<Requirement> all;
  for (const Json& entry : list) {
    Requirement requirement{TextAt(entry, "key"), TextAt(entry, "operator"), {}};
    for (const Json& value : ListAt(entry, "values")) {
      if (value.is_string()) requirement.values.push_back(value.get<std::string>());
    }
    all.push_back(std::move(requirement));
  }
  return all;
}

std::vector<NodeTerm> ReadTerms(const Json& selector) {
  std::vector<NodeTerm> terms;
  for (const Json& term : ListAt(selector, "nodeSelectorTerms")) {
    terms.push_back({ReadRequirements(ListAt(term, "matchExpressions")),
                     ReadRequirements(ListAt(term, "matchFields"))});
  }
  return terms;
}

std::optional<int64_t> Integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `value`: null where the node has no such label.
bool Holds(const Requirement& requirement, const std::string* value) {
  const auto& values = requirement.values;
  const auto among = [&] {
    return std::find(values.begin(), values.end(), *value) != values.end();
  };
  if (requirement.op == "In") return value != nullptr && among();
  if (requirement.op == "NotIn") return value == nullptr || !among();
  if (requirement.op == "Exists") return value != nullptr;
  if (requirement.op == "DoesNotExist") return value == nullptr;
  if (requirement.op != "Gt" && requirement.op != "Lt") return false;
  if (value == nullptr || values.size() != 1) return false;
  const auto left = Integer(*value);
  const auto right = Integer(values.front());
  if (!left || !right) return false;
  return requirement.op == "Gt" ? *left > *right : *left < *right;
}

bool Holds(const NodeTerm& term, const NodeFacts& node) {
  if (term.labels.empty() && term.fields.empty()) return false;
  for (const Requirement& requirement : term.labels) {
    const auto label = node.labels.find(requirement.key);
    if (!Holds(requirement, label != node.labels.end() ? &label->second : nullptr)) return false;
  }
  for (const Requirement& requirement : term.fields) {
    if (requirement.key != "metadata.name" || !Holds(requirement, &node.name)) return false;
  }
  return true;
}

bool Tolerates(const Toleration& toleration, const Taint& taint) {
  if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
  if (toleration.key.empty()) return toleration.exists;
  if (toleration.key != taint.key) return false;
  return toleration.exists || toleration.value == taint.value;
}

// What is not counted elsewhere. Baton's own resources are: GPUs are given by the exact values,
// but the kubelet goes by the limits.
bool IsCounted(const std::string& resource) {
  return resource != "cpu" && resource != "memory" && resource != kWholeResource;
}

uint64_t Amount(const Json& quantity) {
  const auto amount = WholeQuantity(quantity);
  return amount && *amount > 0 ? static_cast<uint64_t>(*amount) : 0;
}

using Amounts = std::map<std::string, uint64_t>;

// A container's requests; what it only limits it requests.
Amounts RequestsOf(const Json& container) {
  Amounts amounts;
  for (const char* list : {"resources/limits", "resources/requests"}) {
    for (const auto& [resource, quantity] : ObjectAt(container, list).items()) {
      if (IsCounted(resource)) amounts[resource] = Amount(quantity);
    }
  }
  return amounts;
}

void Add(Amounts& sum, const Amounts& more) {
  for (const auto& [resource, amount] : more) {
    uint64_t& there = sum[resource];
    there += std::min(amount, UINT64_MAX - there);
  }
}

constexpr std::string_view kPort = "port ";

void AddPorts(const Json& container, Amounts& amounts) {
  for (const Json& port : ListAt(container, "ports")) {
    const Json* number = Find(port, "hostPort");
    if (number == nullptr || !number->is_number_unsigned() || *number == 0) continue;
    amounts[fmt::format("{}{}/{}", kPort, TextAt(port, "protocol", "TCP"),
                        number->get<uint64_t>())] = 1;
  }
}

}  // namespace

Result<PodNeeds> ReadNeeds(const Json& pod) {
  const auto refuse = [](std::string_view field, std::string_view what) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("{} is not supported by Baton's scheduler; {}", field, what));
  };
  PodNeeds needs;
  needs.selector = TextsAt(pod, "spec/nodeSelector");
  needs.node_name = TextAt(pod, "spec/nodeName");
  needs.hook_mounts = NeedsHookMounts(pod);
  constexpr std::string_view kRequired = "requiredDuringSchedulingIgnoredDuringExecution";
  for (const char* affinity : {"podAffinity", "podAntiAffinity"}) {
    const std::string field = fmt::format("spec/affinity/{}/{}", affinity, kRequired);
    if (ListAt(pod, field).empty()) continue;
    return refuse(fmt::format("spec.affinity.{}.{}", affinity, kRequired),
                  "use the annotations baton.dev/affinity and baton.dev/anti-affinity, or a "
                  "preferred affinity");
  }
  const std::string node_affinity = fmt::format("spec/affinity/nodeAffinity/{}", kRequired);
  if (const Json* required = Find(pod, node_affinity); required && required->is_object()) {
    needs.terms.push_back(ReadTerms(*required));
  }
  for (const Json& spread : ListAt(pod, "spec/topologySpreadConstraints")) {
    if (TextAt(spread, "whenUnsatisfiable") == "ScheduleAnyway") continue;
    return refuse("spec.topologySpreadConstraints with DoNotSchedule", "use ScheduleAnyway");
  }
  if (!ListAt(pod, "spec/resourceClaims").empty()) {
    return refuse("spec.resourceClaims",
                  "schedule the pod with kube-scheduler and baton-k8s extender");
  }
  for (const Json& entry : ListAt(pod, "spec/tolerations")) {
    const std::string op = TextAt(entry, "operator", "Equal");
    if (op != "Equal" && op != "Exists") continue;
    needs.tolerations.push_back(
        {TextAt(entry, "key"), op == "Exists", TextAt(entry, "value"), TextAt(entry, "effect")});
  }
  for (const Json& volume : ListAt(pod, "spec/volumes")) {
    if (Find(volume, "ephemeral") != nullptr) {
      // Its claim has the pod's name, and is made after the pod.
      needs.claims.push_back(TextAt(pod, "metadata/name") + "-" + TextAt(volume, "name"));
    }
    const std::string claim = TextAt(volume, "persistentVolumeClaim/claimName");
    if (!claim.empty()) needs.claims.push_back(claim);
  }
  return needs;
}

std::vector<NodeTerm> VolumeTerms(const Json& volume) {
  const Json* required = Find(volume, "spec/nodeAffinity/required");
  if (required == nullptr || !required->is_object()) return {};
  return ReadTerms(*required);
}

NodeFacts ReadFacts(const Json& node) {
  NodeFacts facts;
  facts.name = TextAt(node, "metadata/name");
  facts.labels = TextsAt(node, "metadata/labels");
  for (const Json& taint : ListAt(node, "spec/taints")) {
    facts.taints.push_back({TextAt(taint, "key"), TextAt(taint, "value"), TextAt(taint, "effect")});
  }
  // A kubelet that was never told of the resource runs pods as if they did not ask for it.
  const bool reported = !TextAt(node, "status/nodeInfo/bootID").empty();
  facts.mounts_hook =
      !reported || ObjectAt(node, "status/allocatable").contains(std::string(kShareResource));
  return facts;
}

std::string WhyNot(const PodNeeds& needs, const NodeFacts& node) {
  const auto mismatch = MismatchOf(needs, node);
  return mismatch ? mismatch->why : "";
}

std::optional<Mismatch> MismatchOf(const PodNeeds& needs, const NodeFacts& node) {
  if (!needs.node_name.empty() && needs.node_name != node.name) {
    return Mismatch{"other spec.nodeName", "the pod requests node " + needs.node_name};
  }
  for (const auto& [key, value] : needs.selector) {
    const auto label = node.labels.find(key);
    if (label != node.labels.end() && label->second == value) continue;
    return Mismatch{"node selector mismatch",
                    fmt::format("the node has no label {}={}", key, value)};
  }
  for (const std::vector<NodeTerm>& terms : needs.terms) {
    if (std::none_of(terms.begin(), terms.end(),
                     [&](const NodeTerm& term) { return Holds(term, node); })) {
      return Mismatch{"node affinity mismatch",
                      "the node does not match the required node affinity"};
    }
  }
  for (const Taint& taint : node.taints) {
    if (taint.effect != "NoSchedule" && taint.effect != "NoExecute") continue;
    if (std::any_of(needs.tolerations.begin(), needs.tolerations.end(),
                    [&](const Toleration& t) { return Tolerates(t, taint); })) {
      continue;
    }
    return Mismatch{"untolerated taint",
                    fmt::format("untolerated taint {}{}{}:{}", taint.key,
                                taint.value.empty() ? "" : "=", taint.value, taint.effect)};
  }
  if (needs.hook_mounts && !node.mounts_hook) {
    return Mismatch{"no hook on the node",
                    "the kubelet there does not mount Baton's hook yet: Baton's agent on the node "
                    "has not started, or is of a version before"};
  }
  return std::nullopt;
}

std::map<std::string, uint64_t> OtherResources(const Json& pod) {
  Amounts sum;    // of those that run side by side
  Amounts start;  // the most of any moment before
  Amounts ports;
  for (const Json& container : ListAt(pod, "spec/initContainers")) {
    const Amounts own = RequestsOf(container);
    if (TextAt(container, "restartPolicy") == "Always") {
      Add(sum, own);
      AddPorts(container, ports);
      continue;
    }
    Amounts moment = sum;
    Add(moment, own);
    for (const auto& [resource, amount] : moment) {
      start[resource] = std::max(start[resource], amount);
    }
  }
  for (const Json& container : ListAt(pod, "spec/containers")) {
    Add(sum, RequestsOf(container));
    AddPorts(container, ports);
  }
  for (const auto& [resource, amount] : start) sum[resource] = std::max(sum[resource], amount);
  for (const auto& [resource, quantity] : ObjectAt(pod, "spec/overhead").items()) {
    if (IsCounted(resource)) Add(sum, {{resource, Amount(quantity)}});
  }
  std::erase_if(sum, [](const auto& entry) { return entry.second == 0; });
  sum.merge(ports);
  sum["pods"] = 1;
  return sum;
}

std::map<std::string, uint64_t> OtherAllocatable(const Json& node) {
  Amounts amounts;
  for (const auto& [resource, quantity] : ObjectAt(node, "status/allocatable").items()) {
    if (IsCounted(resource)) amounts[resource] = Amount(quantity);
  }
  // A node that does not say takes as many as kubelets do.
  amounts.emplace("pods", 110);
  return amounts;
}

bool IsPort(std::string_view resource) { return resource.starts_with(kPort); }

}  // namespace baton::k8s
