#include "k8s/types/share_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/suggest.h"
#include "k8s/types/annotations.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {

namespace {

constexpr std::string_view kLabel = "baton.dev/sharepod";
constexpr size_t kNameMax = 63;  // a label's value

// What one container of the template gets.
struct Ask {
  std::string field;  // "spec.gpu"
  std::string container;
  policy::Share request;
  policy::Share limit;
  GpuMemory memory;
  uint32_t count = 1;
};

struct Spec {
  std::vector<Ask> asks;
  PodWishes wishes;
};

// A field that may be written as a text, a number or a flag; empty: it is not there, or false.
Result<std::string> Scalar(const Json& object, std::string_view pointer, const std::string& field) {
  const Json* value = Find(object, pointer);
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string()) {
    auto text = value->get<std::string>();
    if (text.empty()) return Refuse(field, "the value is empty; set a value or remove the field");
    return text;
  }
  if (value->is_number()) return value->dump();
  if (value->is_boolean()) return value->get<bool>() ? "true" : "";
  return Refuse(field, "must be a string, a number or a boolean");
}

Result<void> ReadAsk(const Json& gpu, bool exclusive, Ask& ask) {
  const auto field = [&](const char* key) { return fmt::format("{}.{}", ask.field, key); };
  const auto percent = [&](const char* key) -> Result<std::optional<policy::Share>> {
    auto text = Scalar(gpu, key, field(key));
    if (!text) return tl::unexpected(text.error());
    if (text->empty()) return std::nullopt;
    auto share = ParsePercent(*text);
    if (!share) return Refuse(field(key), share.error().message);
    return std::optional(*share);
  };
  const auto request = percent("request");
  if (!request) return tl::unexpected(request.error());
  const auto limit = percent("limit");
  if (!limit) return tl::unexpected(limit.error());
  if (const std::string flavor = TextAt(gpu, keys::kFlavor);
      !*request && !*limit && !flavor.empty()) {
    return Refuse(field("flavor"), Quoted(flavor) + " is not offered; set request or limit");
  }
  if (!*request && !*limit && !exclusive) {
    return Refuse(ask.field,
                  "no GPU share is set; add request: \"30\" (guaranteed), limit: \"60\" "
                  "(maximum) or both");
  }
  // As everywhere in Baton: a request alone may use all that is idle, a limit alone is both.
  ask.limit = limit->value_or(policy::kWhole);
  ask.request = request->value_or(ask.limit);
  if (ask.limit < ask.request) {
    return Refuse(field("limit"),
                  fmt::format("the limit, {} %, is less than the request, {} %; raise the limit or "
                              "lower the request",
                              policy::PercentText(ask.limit), policy::PercentText(ask.request)));
  }
  if (exclusive && (ask.request != policy::kWhole || ask.limit != policy::kWhole)) {
    return Refuse(field(*request ? "request" : "limit"),
                  "mode exclusive uses whole GPUs; remove this field, or use mode time-slice");
  }
  auto memory = Scalar(gpu, "memory", field("memory"));
  if (!memory) return tl::unexpected(memory.error());
  if (!memory->empty()) {
    auto parsed = ParseGpuMemory(*memory);
    if (!parsed) return Refuse(field("memory"), parsed.error().message);
    ask.memory = *parsed;
  }
  auto count = Scalar(gpu, "count", field("count"));
  if (!count) return tl::unexpected(count.error());
  if (!count->empty()) {
    auto number = ReadCount(field("count"), *count, kCountMax);
    if (!number) return tl::unexpected(number.error());
    ask.count = *number;
  }
  return {};
}

std::string SharePodField(const WishField& field) {
  std::string path = "spec.gpu." + std::string(field.pointer);
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

// The containers of the template, init containers first.
std::vector<std::string> ContainersOf(const Json& share_pod) {
  std::vector<std::string> names;
  for (const char* list : {"spec/template/spec/initContainers", "spec/template/spec/containers"}) {
    for (const Json& container : ListAt(share_pod, list)) {
      names.push_back(TextAt(container, "name"));
    }
  }
  return names;
}

Result<void> CheckTemplate(const Json& share_pod) {
  const Json* spec = Find(share_pod, "spec/template/spec");
  const Json& containers = ListAt(share_pod, "spec/template/spec/containers");
  if (spec == nullptr || !spec->is_object() || containers.empty()) {
    return Refuse("spec.template.spec.containers", "at least one container is required");
  }
  for (const std::string& name : ContainersOf(share_pod)) {
    if (name.empty()) return Refuse("spec.template.spec.containers", "a container has no name");
  }
  if (!TextAt(*spec, "nodeName").empty()) {
    return Refuse("spec.template.spec.nodeName",
                  "Baton chooses the node; use nodeSelector or affinity");
  }
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : ListAt(*spec, list)) {
      for (const auto resource : {kShareResource, kMemoryResource, kWholeResource}) {
        for (const char* part : {"limits", "requests"}) {
          const Json* quantities = Find(container, std::string("resources/") + part);
          if (quantities != nullptr && quantities->is_object() &&
              quantities->contains(std::string(resource))) {
            return Refuse(
                fmt::format("spec.template.spec.{}[{}].resources.{}[{}]", list,
                            TextAt(container, "name"), part, resource),
                "a SharePod requests GPUs in spec.gpu or spec.containers; remove it here");
          }
        }
      }
    }
  }
  if (const Json* annotations = Find(share_pod, "spec/template/metadata/annotations");
      annotations != nullptr && annotations->is_object()) {
    for (const auto& [key, value] : annotations->items()) {
      if (key.starts_with(kPrefix) || key.find(".container.baton.dev/") != std::string::npos) {
        return Refuse(fmt::format("spec.template.metadata.annotations[{}]", key),
                      "a SharePod requests GPUs in spec.gpu or spec.containers; remove it here");
      }
    }
  }
  return {};
}

Result<Spec> ReadSpec(const Json& share_pod) {
  const ObjectName name = NameOf(share_pod);
  if (name.name.size() > kNameMax) {
    return Refuse("metadata.name", fmt::format("{} has {} bytes; at most {}", Quoted(name.name),
                                               name.name.size(), kNameMax));
  }
  if (auto ok = CheckTemplate(share_pod); !ok) return tl::unexpected(ok.error());
  Spec spec;
  static const Json& nothing = *new Json(Json::object());
  const Json* found = Find(share_pod, "spec/gpu");
  const Json& gpu = found == nullptr || found->is_null() ? nothing : *found;
  if (!gpu.is_object()) return Refuse("spec.gpu", "must be an object");
  for (const WishField& field : WishFields()) {
    auto text = Scalar(gpu, field.pointer, SharePodField(field));
    if (!text) return tl::unexpected(text.error());
    if (!text->empty()) spec.wishes[field.key] = std::move(*text);
  }
  if (auto ok = CheckWishes(spec.wishes, SharePodField); !ok) return tl::unexpected(ok.error());
  const bool exclusive = Wish(spec.wishes, keys::kMode) == ::baton::spec::kExclusive;

  const std::vector<std::string> names = ContainersOf(share_pod);
  const Json& several = ListAt(share_pod, "spec/containers");
  if (several.empty()) {
    if (names.size() > 1) {
      return Refuse("spec.gpu",
                    fmt::format("the template has {} containers; set each one's share in "
                                "spec.containers: [{{name: {}, gpu: {{request: \"30\"}}}}]",
                                names.size(), names.back()));
    }
    Ask ask{"spec.gpu", names.front(), {}, {}, {}, 1};
    if (auto ok = ReadAsk(gpu, exclusive, ask); !ok) return tl::unexpected(ok.error());
    spec.asks.push_back(std::move(ask));
    return spec;
  }
  for (const char* key : {"request", "limit", "memory", "count", "flavor"}) {
    if (gpu.contains(key)) {
      return Refuse(fmt::format("spec.gpu.{}", key),
                    "spec.containers is also set; set the share in one of the two");
    }
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < several.size(); ++i) {
    Ask ask{fmt::format("spec.containers[{}].gpu", i), TextAt(several[i], "name"), {}, {}, {}, 1};
    const std::string field = fmt::format("spec.containers[{}].name", i);
    if (std::find(names.begin(), names.end(), ask.container) == names.end()) {
      const std::string near = Nearest(ask.container, names);
      return Refuse(field, fmt::format("the template has no container {}; it has {}{}",
                                       Quoted(ask.container), fmt::join(names, ", "),
                                       near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    if (!seen.insert(ask.container).second) {
      return Refuse(field, Quoted(ask.container) + " is listed twice");
    }
    const Json* own = Find(several[i], "gpu");
    if (own == nullptr || !own->is_object()) return Refuse(ask.field, "must be an object");
    if (auto ok = ReadAsk(*own, exclusive, ask); !ok) return tl::unexpected(ok.error());
    spec.asks.push_back(std::move(ask));
  }
  return spec;
}

using Texts = std::vector<std::pair<std::string, std::string>>;

// The annotations that may change while the pod lives; an empty text is none.
Texts Changing(const Spec& spec) {
  Texts texts;
  for (const Ask& ask : spec.asks) {
    texts.emplace_back(ContainerKey(ask.container, keys::kRequest),
                       policy::PercentText(ask.request));
    texts.emplace_back(ContainerKey(ask.container, keys::kLimit), policy::PercentText(ask.limit));
    texts.emplace_back(ContainerKey(ask.container, keys::kMemory), GpuMemoryText(ask.memory));
  }
  for (const WishField& field : WishFields()) {
    if (field.may_change) texts.emplace_back(PodKey(field.key), Wish(spec.wishes, field.key));
  }
  return texts;
}

// FNV-1a over the template's text, whose keys are in order.
std::string TemplateHash(const Json& share_pod) {
  uint64_t hash = 0xcbf29ce484222325;
  const Json* found = Find(share_pod, "spec/template");
  const std::string text =
      found == nullptr ? "" : found->dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

Json Child(const Json& share_pod, const Spec& spec, uint32_t memory_unit_mib) {
  const uint32_t unit = std::max<uint32_t>(1, memory_unit_mib);
  const ObjectName name = NameOf(share_pod);
  Json metadata{{"name", name.name}, {"namespace", name.name_space}};
  for (const char* key : {"labels", "annotations"}) {
    const Json* theirs = Find(share_pod, std::string("spec/template/metadata/") + key);
    metadata[key] = theirs != nullptr && theirs->is_object() ? *theirs : Json::object();
  }
  metadata["labels"][std::string(kLabel)] = name.name;
  metadata["ownerReferences"] = Json::array({{{"apiVersion", resources::kSharePods.ApiVersion()},
                                              {"kind", resources::kSharePods.kind},
                                              {"name", name.name},
                                              {"uid", UidOf(share_pod)},
                                              {"controller", true},
                                              {"blockOwnerDeletion", true}}});
  Json& annotations = metadata["annotations"];
  annotations[PodKey(keys::kTemplateHash)] = TemplateHash(share_pod);
  for (auto& [key, text] : Changing(spec)) {
    if (!text.empty()) annotations[key] = std::move(text);
  }
  for (const Ask& ask : spec.asks) {
    annotations[ContainerKey(ask.container, keys::kCount)] = std::to_string(ask.count);
  }
  for (const WishField& field : WishFields()) {
    const std::string& text = Wish(spec.wishes, field.key);
    if (!field.may_change && !text.empty()) annotations[PodKey(field.key)] = text;
  }

  const ::baton::spec::PodRequest asked = AskedBy(spec.wishes);
  Json pod_spec = *Find(share_pod, "spec/template/spec");
  // Another scheduler's pods go where that one says, with the GPUs that the extender chooses.
  const std::string scheduler = TextAt(pod_spec, "schedulerName");
  if (scheduler.empty() || scheduler == "default-scheduler") pod_spec["schedulerName"] = kScheduler;
  for (const char* list : {"initContainers", "containers"}) {
    const auto containers = pod_spec.find(list);
    if (containers == pod_spec.end() || !containers->is_array()) continue;
    for (Json& container : *containers) {
      const std::string named = TextAt(container, "name");
      const auto ask = std::find_if(spec.asks.begin(), spec.asks.end(),
                                    [&](const Ask& a) { return a.container == named; });
      if (ask == spec.asks.end()) continue;
      Json& resources = container["resources"];
      if (!resources.is_object()) resources = Json::object();
      Json& limits = resources["limits"];
      if (!limits.is_object()) limits = Json::object();
      limits[std::string(kShareResource)] =
          std::to_string(UnitsOf(ask->request.millionths(), kShareUnit, ask->count).least);
      // What it takes of the GPU, wherever it is: with swap its cap does not count.
      const uint64_t mib = asked.swap ? MibOf(asked.memory_request) : ask->memory.mib;
      if (mib > 0) {
        limits[std::string(kMemoryResource)] = std::to_string(UnitsOf(mib, unit, ask->count).least);
      }
    }
  }
  return {{"apiVersion", resources::kPods.ApiVersion()},
          {"kind", resources::kPods.kind},
          {"metadata", std::move(metadata)},
          {"spec", std::move(pod_spec)}};
}

}  // namespace

Result<Json> ChildPod(const Json& share_pod, uint32_t memory_unit_mib) {
  const auto spec = ReadSpec(share_pod);
  if (!spec) return tl::unexpected(spec.error());
  Json child = Child(share_pod, *spec, memory_unit_mib);
  if (auto read = ReadGpuPod(child, memory_unit_mib); !read) return tl::unexpected(read.error());
  return child;
}

Result<void> CheckSharePod(const Json& share_pod) {
  auto child = ChildPod(share_pod, kMemoryUnitMib);
  if (!child) return tl::unexpected(child.error());
  return {};
}

Result<void> CheckSharePodChange(const Json& before, const Json& after) {
  static const Json& null = *new Json();
  const auto at = [](const Json& object, const std::string& pointer) -> const Json& {
    const Json* found = Find(object, pointer);
    return found == nullptr ? null : *found;
  };
  const auto same = [&](std::string_view field, const Json& was, const Json& is,
                        const Json& missing) -> Result<void> {
    const Json& old_value = was.is_null() ? missing : was;
    const Json& new_value = is.is_null() ? missing : is;
    if (old_value == new_value) return {};
    const auto shown = [](const Json& value) {
      if (value.is_null()) return std::string("not set");
      if (value.is_structured()) return std::string("something else");
      return value.is_string() ? Quoted(value.get_ref<const std::string&>()) : value.dump();
    };
    std::string change;
    if (!old_value.is_structured() && !new_value.is_structured()) {
      change = fmt::format(" (old value {}, new value {})", shown(old_value), shown(new_value));
    }
    return Refuse(
        field,
        fmt::format("field is immutable{}; delete the SharePod and create it again", change));
  };
  for (const WishField& field : WishFields()) {
    if (field.may_change) continue;
    const std::string pointer = "spec/gpu/" + std::string(field.pointer);
    const bool flag = field.field != nullptr && field.field->is_flag();
    if (auto ok = same(SharePodField(field), at(before, pointer), at(after, pointer),
                       flag ? Json(false) : null);
        !ok) {
      return ok;
    }
  }
  const Json one = 1;
  if (auto ok =
          same("spec.gpu.count", at(before, "spec/gpu/count"), at(after, "spec/gpu/count"), one);
      !ok) {
    return ok;
  }
  const Json& old_list = ListAt(before, "spec/containers");
  const Json& new_list = ListAt(after, "spec/containers");
  if (old_list.size() != new_list.size()) {
    return Refuse("spec.containers",
                  "the containers that use GPUs are immutable; delete the SharePod and create it "
                  "again");
  }
  for (size_t i = 0; i < old_list.size(); ++i) {
    const std::string field = fmt::format("spec.containers[{}]", i);
    for (const auto& [pointer, missing] : {std::pair<std::string, Json>{"name", Json()},
                                           std::pair<std::string, Json>{"gpu/count", one}}) {
      std::string name = field + "." + pointer;
      std::replace(name.begin(), name.end(), '/', '.');
      if (auto ok = same(name, at(old_list[i], pointer), at(new_list[i], pointer), missing); !ok) {
        return ok;
      }
    }
  }
  return {};
}

std::optional<Json> ChildChanges(const Json& share_pod, const Json& child) {
  const auto spec = ReadSpec(share_pod);
  if (!spec) return std::nullopt;
  static const Json& nothing = *new Json(Json::object());
  const Json* found = Find(child, "metadata/annotations");
  const Json& annotations = found != nullptr && found->is_object() ? *found : nothing;
  Json changes = Json::object();
  for (const auto& [key, text] : Changing(*spec)) {
    const auto is = annotations.find(key);
    if (text.empty()) {
      if (is != annotations.end()) changes[key] = nullptr;
    } else if (is == annotations.end() || *is != Json(text)) {
      changes[key] = text;
    }
  }
  // One that was made before children said so: its template could not change.
  const std::string hash = PodKey(keys::kTemplateHash);
  if (!annotations.contains(hash)) changes[hash] = TemplateHash(share_pod);
  if (changes.empty()) return std::nullopt;
  return Json{{"metadata", {{"annotations", std::move(changes)}}}};
}

bool SetCondition(Json& status, const Condition& condition,
                  std::optional<int64_t> observed_generation, const std::string& now) {
  if (!status.is_object()) status = Json::object();
  Json& list = status["conditions"];
  if (!list.is_array()) list = Json::array();
  Json next{{"type", condition.type},
            {"status", condition.status ? "True" : "False"},
            {"reason", condition.reason},
            {"message", condition.message},
            {"lastTransitionTime", now}};
  if (observed_generation) next["observedGeneration"] = *observed_generation;
  for (Json& entry : list) {
    if (TextAt(entry, "type") != condition.type) continue;
    const std::string since = TextAt(entry, "lastTransitionTime");
    // As texts: how a text and a Json compare in C++20 is not the same for all compilers.
    if (TextAt(entry, "status") == TextAt(next, "status") && !since.empty()) {
      next["lastTransitionTime"] = since;
    }
    if (entry == next) return false;
    entry = std::move(next);
    return true;
  }
  list.push_back(std::move(next));
  return true;
}

void RemoveCondition(Json& status, std::string_view type) {
  if (!status.is_object() || !status.contains("conditions")) return;
  Json& list = status["conditions"];
  if (!list.is_array()) return;
  Json left = Json::array();
  for (Json& entry : list) {
    if (TextAt(entry, "type") != type) left.push_back(std::move(entry));
  }
  list = std::move(left);
}

}  // namespace baton::k8s
