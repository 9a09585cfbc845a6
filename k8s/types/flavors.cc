#include "k8s/types/flavors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

// What a flavor says, as Kubernetes spells it: by the annotation's key, which is a SharePod's too.
std::vector<std::pair<std::string_view, std::string>> SizeTexts(const spec::PodRequest& flavor) {
  std::vector<std::pair<std::string_view, std::string>> texts{
      {keys::kRequest, policy::PercentText(flavor.share.request)},
      {keys::kLimit, policy::PercentText(flavor.share.limit)}};
  const GpuMemory memory{static_cast<uint32_t>(MibOf(flavor.memory_cap)), flavor.memory_part};
  if (memory != GpuMemory{}) texts.emplace_back(keys::kMemory, GpuMemoryText(memory));
  return texts;
}

bool Says(const Json& gpu, std::string_view key) {
  const Json* value = Find(gpu, key);
  return value != nullptr && !value->is_null();
}

Result<void> FillInGpu(const spec::Flavors& flavors, const Json* before, const std::string& field,
                       Json& gpu) {
  const std::string name = TextAt(gpu, keys::kFlavor);
  if (name.empty()) return {};
  const bool other = before != nullptr && TextAt(*before, keys::kFlavor) != name;
  const auto flavor = spec::FindFlavor(flavors, name);
  if (!flavor) {
    // It was filled in when there was such a flavor.
    if (!other && Says(gpu, keys::kRequest) && Says(gpu, keys::kLimit)) return {};
    return Refuse(field + ".flavor", flavor.error().message);
  }
  for (const auto& [key, text] : SizeTexts(**flavor)) {
    const Json* was = other ? Find(*before, key) : nullptr;
    const Json* is = Find(gpu, key);
    const bool untouched = was != nullptr && is != nullptr && *was == *is;
    if (!Says(gpu, key) || untouched) gpu[std::string(key)] = text;
  }
  return {};
}

std::string Field(const std::string& key) { return fmt::format("metadata.annotations[{}]", key); }

// The annotations of a pod that is being filled in.
class Notes {
 public:
  explicit Notes(Json& pod) : pod_(pod) {}

  std::string Get(const std::string& key) const {
    const Json* all = Find(pod_, "metadata/annotations");
    if (all == nullptr || !all->is_object()) return "";
    const auto found = all->find(key);
    return found != all->end() && found->is_string() ? found->get<std::string>() : "";
  }
  // Of a container, else of the pod.
  std::string Of(const std::string& container, std::string_view key) const {
    std::string text = Get(ContainerKey(container, key));
    return text.empty() ? Get(PodKey(key)) : text;
  }
  void Set(const std::string& key, const std::string& text) {
    pod_["metadata"]["annotations"][key] = text;
  }

 private:
  Json& pod_;
};

bool Limits(const Json& container, std::string_view resource) {
  const Json* limits = Find(container, "resources/limits");
  return limits != nullptr && limits->is_object() && limits->contains(std::string(resource));
}

Result<void> FillInContainer(const spec::PodRequest& flavor, uint32_t unit, Notes& notes,
                             const std::string& said_in, Json& container) {
  const std::string name = TextAt(container, "name");
  if (Limits(container, kWholeResource)) {
    return Refuse(said_in, fmt::format("container {} requests whole GPUs ({}), which have no size; "
                                       "remove one of the two",
                                       name, kWholeResource));
  }
  uint32_t count = 1;
  if (const std::string text = notes.Of(name, keys::kCount); !text.empty()) {
    auto read = ReadCount(Field(PodKey(keys::kCount)), text, kCountMax);
    if (!read) return tl::unexpected(read.error());
    count = *read;
  }
  const bool has_share = Limits(container, kShareResource);
  const bool has_memory = Limits(container, kMemoryResource);
  for (const auto& [key, text] : SizeTexts(flavor)) {
    const bool by_limits =
        (key == keys::kRequest && has_share) || (key == keys::kMemory && has_memory);
    if (by_limits || !notes.Of(name, key).empty()) continue;
    notes.Set(ContainerKey(name, key), text);
  }
  if (has_share && has_memory) return {};
  Json& resources = container["resources"];
  if (!resources.is_object()) resources = Json::object();
  Json& limits = resources["limits"];
  if (!limits.is_object()) limits = Json::object();
  // What cannot be read is complained of where the whole pod is.
  const auto share = ParsePercent(notes.Of(name, keys::kRequest));
  if (!has_share && share) {
    limits[std::string(kShareResource)] =
        std::to_string(UnitsOf(share->millionths(), kShareUnit, count).least);
  }
  // With swap limits say the memory request.
  const auto memory = ParseGpuMemory(notes.Of(name, keys::kMemory));
  if (!has_memory && memory && memory->mib > 0 && notes.Get(PodKey(keys::kSwap)) != "true") {
    limits[std::string(kMemoryResource)] = std::to_string(UnitsOf(memory->mib, unit, count).least);
  }
  return {};
}

}  // namespace

Result<spec::Flavors> ParseFlavors(const std::vector<std::string>& texts) {
  spec::Flavors flavors;
  for (const std::string& text : texts) {
    const size_t equal = text.find('=');
    Json fields = Json::object();
    for (const std::string& part :
         Words(equal == std::string::npos ? "" : std::string_view(text).substr(equal + 1))) {
      const size_t at = part.find('=');
      if (at == std::string::npos) {
        return Fail(ErrorCode::kInvalid,
                    Quoted(text) + " is no flavor; write such as small=request=10,memory=4Gi");
      }
      fields[part.substr(0, at)] = part.substr(at + 1);
    }
    if (auto added = spec::AddFlavor(flavors, std::string_view(text).substr(0, equal), fields);
        !added) {
      return tl::unexpected(added.error());
    }
  }
  return flavors;
}

std::string FlavorsText(const spec::Flavors& flavors) {
  std::string text;
  for (const auto& [name, flavor] : flavors) {
    if (!text.empty()) text += ';';
    text += name + '=';
    for (const auto& [key, size] : SizeTexts(flavor)) {
      if (text.back() != '=') text += ',';
      text += std::string(key) + '=' + size;
    }
  }
  return text;
}

Result<spec::Flavors> ReadFlavorsText(const std::string& text) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    texts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return ParseFlavors(texts);
}

std::set<std::string> FlavorsNamedBy(const Json& share_pod) {
  std::set<std::string> names{TextAt(share_pod, "spec/gpu/flavor")};
  for (const Json& container : ListAt(share_pod, "spec/containers")) {
    names.insert(TextAt(container, "gpu/flavor"));
  }
  names.erase("");
  return names;
}

Result<void> FillInSharePod(const spec::Flavors& flavors, const Json& before, Json& share_pod) {
  const Json* spec = Find(share_pod, "spec");
  if (spec == nullptr || !spec->is_object()) return {};
  if (const Json* gpu = Find(*spec, "gpu"); gpu != nullptr && gpu->is_object()) {
    if (TextAt(*gpu, keys::kMode) == spec::kExclusive && Says(*gpu, keys::kFlavor)) {
      return Refuse("spec.gpu.flavor",
                    "mode exclusive uses whole GPUs; remove the flavor, or use mode time-slice");
    }
    if (auto filled =
            FillInGpu(flavors, Find(before, "spec/gpu"), "spec.gpu", share_pod["spec"]["gpu"]);
        !filled) {
      return filled;
    }
  }
  const Json& were = ListAt(before, "spec/containers");
  for (size_t i = 0; i < ListAt(share_pod, "spec/containers").size(); ++i) {
    Json& container = share_pod["spec"]["containers"][i];
    const Json* gpu = Find(container, "gpu");
    if (gpu == nullptr || !gpu->is_object()) continue;
    const Json* was = i < were.size() ? Find(were[i], "gpu") : nullptr;
    if (auto filled =
            FillInGpu(flavors, was, fmt::format("spec.containers[{}].gpu", i), container["gpu"]);
        !filled) {
      return filled;
    }
  }
  return {};
}

Result<void> FillInPod(const spec::Flavors& flavors, uint32_t memory_unit_mib, Json& pod) {
  const Json* annotations = Find(pod, "metadata/annotations");
  if (annotations == nullptr || !annotations->is_object()) return {};
  Notes notes(pod);
  const std::string of_pod = notes.Get(PodKey(keys::kFlavor));
  std::vector<Json*> containers;
  bool some = false;  // ask by themselves
  for (const char* list : {"initContainers", "containers"}) {
    for (size_t i = 0; i < ListAt(pod, std::string("spec/") + list).size(); ++i) {
      Json& container = pod["spec"][list][i];
      const std::string own = ContainerKey(TextAt(container, "name"), keys::kFlavor);
      some = some || Limits(container, kShareResource) || Limits(container, kWholeResource) ||
             !notes.Get(own).empty();
      containers.push_back(&container);
    }
  }
  bool used = false;
  for (Json* container : containers) {
    std::string key = ContainerKey(TextAt(*container, "name"), keys::kFlavor);
    std::string name = notes.Get(key);
    if (name.empty()) {
      const bool asks =
          some ? Limits(*container, kShareResource) || Limits(*container, kWholeResource)
               : containers.size() == 1;
      if (of_pod.empty() || !asks) continue;
      key = PodKey(keys::kFlavor);
      name = of_pod;
    }
    used = true;
    const auto flavor = spec::FindFlavor(flavors, name);
    if (!flavor) return Refuse(Field(key), flavor.error().message);
    if (auto filled = FillInContainer(**flavor, std::max<uint32_t>(1, memory_unit_mib), notes,
                                      Field(key), *container);
        !filled) {
      return filled;
    }
  }
  if (!of_pod.empty() && !used) {
    return Refuse(
        Field(PodKey(keys::kFlavor)),
        fmt::format("which of the {} containers is of this flavor? Say it in annotation "
                    "{}",
                    containers.size(),
                    ContainerKey(containers.empty() ? "NAME" : TextAt(*containers.back(), "name"),
                                 keys::kFlavor)));
  }
  return {};
}

}  // namespace baton::k8s
