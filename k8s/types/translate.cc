#include "k8s/types/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "k8s/types/annotations.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

using Meaning = ForeignMeaning;
using Place = ForeignPlace;

constexpr std::string_view kAnyContainer = "NAME";
constexpr std::string_view kByTurns = "hami-core";  // HAMi's and Volcano's word
constexpr uint64_t kForeignMibMax = 1u << 24;

// Sizes that Baton's users say themselves; of a pod, or of a container.
constexpr std::array kSizeKeys{keys::kRequest, keys::kLimit, keys::kMemory, keys::kCount,
                               keys::kFlavor,  keys::kMode,  keys::kSwap,   keys::kMemoryRequest};

// A name that a pod has.
struct FoundName {
  const ForeignName* row;
  Json* container;  // null: of the pod
  std::string key;  // as it is written
  std::string field;
  Json value;
};

// What one container asks for.
struct ForeignAsk {
  Json* container;
  std::map<Meaning, const FoundName*> said;
  std::map<Meaning, uint64_t> number;  // GPUs, MiB, millionths
  std::vector<std::string> names;      // "nvidia.com/gpumem=3000"

  uint64_t Number(Meaning meaning) const {
    const auto found = number.find(meaning);
    return found == number.end() ? 0 : found->second;
  }
  bool Says(Meaning meaning) const { return said.contains(meaning); }
  bool OnlyCount() const { return said.size() == 1 && Says(Meaning::kCount); }
};

bool IsSize(Meaning meaning) { return meaning < Meaning::kModel; }

bool HasWhole(const Json& container) {
  for (const char* part : {"limits", "requests"}) {
    const Json* resources = Find(container, std::string("resources/") + part);
    if (resources != nullptr && resources->is_object() && resources->contains(kWholeResource)) {
      return true;
    }
  }
  return false;
}

// Nothing but the resource that Baton reads itself.
bool IsWhole(const FoundName& found) { return found.key == kWholeResource; }

bool Schedules(const ForeignFamily& family, const std::string& scheduler) {
  return std::find(family.schedulers.begin(), family.schedulers.end(), scheduler) !=
         family.schedulers.end();
}

// The name between the two parts of "nvidia.com/container.NAME.gpu-memory.limit".
std::optional<std::string> ContainerIn(std::string_view key, std::string_view pattern) {
  const size_t at = pattern.find(kAnyContainer);
  const std::string_view before = pattern.substr(0, at);
  const std::string_view after = pattern.substr(at + kAnyContainer.size());
  if (key.size() <= before.size() + after.size() || !key.starts_with(before) ||
      !key.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view name =
      key.substr(before.size(), key.size() - before.size() - after.size());
  if (name.find('.') != name.npos) return std::nullopt;
  return std::string(name);
}

// "0.25", "2000": in millionths, further decimals left out.
Result<uint64_t> Decimal(const std::string& text) {
  constexpr size_t kWholeDigits = 9;
  constexpr size_t kDecimals = 6;
  const size_t point = std::min(text.find('.'), text.size());
  const std::string whole = text.substr(0, point);
  std::string part = point < text.size() ? text.substr(point + 1) : "0";
  const auto digits = [](const std::string& all) {
    return !all.empty() && all.size() <= 24 &&
           all.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!digits(whole) || !digits(part) || whole.size() > kWholeDigits) {
    return Fail(ErrorCode::kInvalid, Quoted(text) + " is not a number, such as 0.5 or 2000");
  }
  part.resize(kDecimals, '0');
  return std::stoull(whole) * 1'000'000 + std::stoull(part);
}

// In GPUs, MiB or millionths, as the row says.
Result<uint64_t> NumberOf(const FoundName& found) {
  const ForeignName& row = *found.row;
  uint64_t millionths = 0;
  if (row.place == Place::kResource) {
    const auto milli = MilliQuantity(found.value);
    if (!milli) return Refuse(found.field, milli.error().message);
    if (*milli % 1'000 != 0) {
      return Refuse(found.field, fmt::format("'{:.15g}' is not a whole number; write one of {}",
                                             static_cast<double>(*milli) / 1e3, row.unit.word));
    }
    // More than anything here can be, and no more than can be multiplied.
    millionths = static_cast<uint64_t>(std::min<int64_t>(*milli, 1'000'000'000'000)) * 1'000;
  } else {
    const std::string text = found.value.is_string() ? found.value.get<std::string>() : "";
    if (row.unit.word == kQuantityUnit.word) {
      const auto memory = ParseGpuMemory(text);
      if (!memory) return Refuse(found.field, memory.error().message);
      if (memory->mib == 0) return Refuse(found.field, Quoted(text) + "; write a size such as 4Gi");
      return memory->mib;
    }
    const auto read = Decimal(text);
    if (!read) return Refuse(found.field, read.error().message);
    if (*read % 1'000'000 != 0 && row.unit.word != kFractionUnit.word) {
      return Refuse(found.field,
                    fmt::format("{}; write a whole number of {}", Quoted(text), row.unit.word));
    }
    millionths = *read;
  }
  if (row.unit.scale == 1) return millionths / 1'000'000;
  // A thousand are too many of any part.
  return std::min<uint64_t>(millionths, 1'000'000'000) * row.unit.scale / 1'000'000;
}

class Translation {
 public:
  Translation(const ForeignOptions& options, Json& pod) : options_(options), pod_(pod) {}

  // False: there is nothing to do.
  Result<bool> Read() {
    FindNames();
    const std::string scheduler = TextAt(pod_, "spec/schedulerName");
    const FoundName* first = nullptr;  // that Baton does not read itself
    for (const FoundName& found : found_) {
      if (IsWhole(found) && !Schedules(FamilyOf(found.row->family), scheduler)) continue;
      if (first != nullptr && found.row->family != first->row->family) {
        return Refuse(found.field, fmt::format("the pod has names of {} and of {} ({}); remove one",
                                               FamilyOf(found.row->family).title,
                                               FamilyOf(first->row->family).title, first->key));
      }
      if (first == nullptr) first = &found;
    }
    if (first == nullptr) return false;
    family_ = first->row->family;
    std::erase_if(found_, [&](const FoundName& found) { return found.row->family != family_; });
    const std::string own = OwnSize();
    if (!own.empty()) {
      for (const FoundName& found : found_) {
        if (IsWhole(found) || found.row->place == Place::kEnvironment) continue;
        return Refuse(found.field,
                      fmt::format("the pod has names of {} and Baton's {}; remove one of the two",
                                  FamilyOf(family_).title, own));
      }
    }
    if (auto ok = ReadAsks(); !ok) return tl::unexpected(ok.error());
    if (asks_.empty()) return false;
    for (const char* key : {"metadata", "metadata/annotations"}) {
      const Json* member = Find(pod_, key);
      if (member != nullptr && !member->is_null() && !member->is_object()) {
        return Refuse(key, "an object is needed");
      }
    }
    return CheckAll().map([] { return true; });
  }

  // After Read() was true.
  Result<std::vector<std::string>> Write() {
    for (const FoundName& found : found_) Remove(found);
    std::vector<std::string> sentences;
    for (const ForeignAsk& ask : asks_) sentences.push_back(WriteAsk(ask));
    if (auto ok = WriteWishes(sentences); !ok) return tl::unexpected(ok.error());
    const std::string scheduler = TextAt(pod_, "spec/schedulerName");
    for (const ForeignFamily& family : ForeignFamilies()) {
      if (options_.On(family.family) && Schedules(family, scheduler)) {
        pod_["spec"]["schedulerName"] = kScheduler;
      }
    }
    pod_["metadata"]["annotations"][PodKey(keys::kTranslated)] =
        fmt::format("{}", fmt::join(sentences, "; "));
    return sentences;
  }

 private:
  void FindNames() {
    for (const char* list : {"initContainers", "containers"}) {
      for (size_t i = 0; i < ListAt(pod_, std::string("spec/") + list).size(); ++i) {
        Json& container = pod_["spec"][list][i];
        if (container.is_object()) containers_.push_back({list, &container});
      }
    }
    const Json* annotations = Find(pod_, "metadata/annotations");
    if (annotations != nullptr && !annotations->is_object()) annotations = nullptr;
    for (const ForeignName& row : ForeignNames()) {
      if (!options_.On(row.family)) continue;
      if (row.place == Place::kAnnotation) {
        if (annotations != nullptr) FindAnnotation(row, *annotations);
        continue;
      }
      for (const auto& [list, container] : containers_) FindInContainer(row, list, *container);
    }
  }

  void FindInContainer(const ForeignName& row, const char* list, Json& container) {
    const std::string where = fmt::format("spec.{}[{}]", list, TextAt(container, "name"));
    const std::string key(row.name);
    if (row.place == Place::kEnvironment) {
      for (const Json& entry : ListAt(container, "env")) {
        if (TextAt(entry, "name") != key) continue;
        found_.push_back({&row, &container, key, fmt::format("{}.env[{}]", where, key), {}});
        return;
      }
      return;
    }
    for (const char* part : {"limits", "requests"}) {
      const Json* all = Find(container, std::string("resources/") + part);
      const auto at = all != nullptr && all->is_object() ? all->find(key) : Json::const_iterator();
      if (all == nullptr || !all->is_object() || at == all->end()) continue;
      found_.push_back(
          {&row, &container, key, fmt::format("{}.resources.{}[{}]", where, part, key), *at});
      return;
    }
  }

  void FindAnnotation(const ForeignName& row, const Json& annotations) {
    const auto add = [&](Json* container, const std::string& key, const Json& value) {
      found_.push_back({&row, container, key, fmt::format("metadata.annotations[{}]", key), value});
    };
    if (row.name.find(kAnyContainer) == row.name.npos) {
      const auto at = annotations.find(std::string(row.name));
      if (at != annotations.end()) add(nullptr, std::string(row.name), *at);
      return;
    }
    for (const auto& [key, value] : annotations.items()) {
      const auto name = ContainerIn(key, row.name);
      if (name) add(ContainerOf(*name), key, value);
    }
  }

  Json* ContainerOf(const std::string& name) const {
    for (const auto& [list, container] : containers_) {
      if (TextAt(*container, "name") == name) return container;
    }
    return nullptr;
  }

  // What Baton's users say of sizes: a resource or an annotation; empty: nothing.
  std::string OwnSize() const {
    for (const auto& [list, container] : containers_) {
      const Json* limits = Find(*container, "resources/limits");
      if (limits == nullptr || !limits->is_object()) continue;
      for (const auto resource : {kShareResource, kMemoryResource}) {
        if (limits->contains(std::string(resource))) return std::string(resource);
      }
    }
    const Json* annotations = Find(pod_, "metadata/annotations");
    if (annotations == nullptr || !annotations->is_object()) return "";
    for (const auto key : kSizeKeys) {
      if (annotations->contains(PodKey(key))) return PodKey(key);
      for (const auto& [list, container] : containers_) {
        std::string of_container = ContainerKey(TextAt(*container, "name"), key);
        if (annotations->contains(of_container)) return of_container;
      }
    }
    return "";
  }

  // The container that names of the pod as a whole are for.
  Result<Json*> Chosen() {
    for (const FoundName& found : found_) {
      if (found.row->meaning != Meaning::kContainer) continue;
      const std::string name = found.value.is_string() ? found.value.get<std::string>() : "";
      if (Json* container = ContainerOf(name)) return container;
      return Refuse(found.field, Quoted(name) + " is no container of the pod; write its name");
    }
    for (const auto& [list, container] : containers_) {
      if (std::string_view(list) == "containers") return container;
    }
    return static_cast<Json*>(nullptr);
  }

  Result<void> ReadAsks() {
    bool sizes = false;
    for (const FoundName& found : found_) {
      const bool count_alone =
          found.row->meaning == Meaning::kCount && found.row->place != Place::kResource;
      sizes |= IsSize(found.row->meaning) && !count_alone;
    }
    if (!sizes) return {};
    auto chosen = Chosen();
    if (!chosen) return tl::unexpected(chosen.error());
    // KAI's number of GPUs is of the container that says how much of each.
    Json* of_count = *chosen;
    const bool of_pod = std::any_of(found_.begin(), found_.end(), [](const FoundName& found) {
      return found.row->place == Place::kAnnotation && found.container == nullptr &&
             IsSize(found.row->meaning) && found.row->meaning != Meaning::kCount;
    });
    const FoundName* count = FoundOf(Meaning::kCount, Place::kAnnotation);
    const Json* named = nullptr;
    for (const FoundName& found : found_) {
      const bool by_name = found.row->name.find(kAnyContainer) != found.row->name.npos;
      if (!by_name) continue;
      if (found.container == nullptr) {
        return Refuse(found.field, "no container of the pod has that name; write its name");
      }
      if (!IsSize(found.row->meaning) || of_pod) continue;
      if (count != nullptr && named != nullptr && named != found.container) {
        return Refuse(count->field,
                      "two containers have sizes, and it may be of either; remove it");
      }
      named = of_count = found.container;
    }
    for (const FoundName& found : found_) {
      if (!IsSize(found.row->meaning)) continue;
      Json* container = found.container != nullptr              ? found.container
                        : found.row->meaning == Meaning::kCount ? of_count
                                                                : *chosen;
      if (container == nullptr) continue;  // a pod without containers, which is refused elsewhere
      if (auto ok = ReadSize(found, AskOf(container)); !ok) return ok;
    }
    // A zero alone is as if it were not there.
    std::erase_if(asks_, [](const ForeignAsk& ask) { return ask.said.empty(); });
    return {};
  }

  const FoundName* FoundOf(Meaning meaning, Place place) const {
    const auto found = std::find_if(found_.begin(), found_.end(), [&](const FoundName& one) {
      return one.row->meaning == meaning && one.row->place == place;
    });
    return found != found_.end() ? &*found : nullptr;
  }

  ForeignAsk& AskOf(Json* container) {
    for (ForeignAsk& ask : asks_) {
      if (ask.container == container) return ask;
    }
    asks_.push_back({container, {}, {}, {}});
    return asks_.back();
  }

  static Result<void> ReadSize(const FoundName& found, ForeignAsk& ask) {
    const Meaning meaning = found.row->meaning;
    if (found.field.find(".resources.requests[") != std::string::npos) {
      return Refuse(found.field, "write it in resources.limits too");
    }
    if (auto ok = CheckRequest(found); !ok) return ok;
    auto number = NumberOf(found);
    if (!number) return tl::unexpected(number.error());
    if (ask.Says(meaning)) {
      return Refuse(found.field,
                    fmt::format("{} says the same of the container; remove one of the two",
                                ask.said[meaning]->key));
    }
    if (*number == 0 && meaning == Meaning::kShare) {  // no limit
      ask.names.push_back(found.key + "=0");
      return {};
    }
    const uint64_t most = meaning == Meaning::kCount ? kCountMax
                          : meaning == Meaning::kMemory || meaning == Meaning::kMemoryRequest
                              ? kForeignMibMax
                          : meaning == Meaning::kReplica ? 1
                                                         : policy::kMillion;
    const bool fraction = meaning == Meaning::kFraction;
    const uint64_t least = fraction ? policy::kShareMin.millionths() : 1;
    if (*number < least || *number > most || (fraction && *number == most)) {
      return Refuse(found.field, fmt::format("{}; {}", Shown(found), Range(meaning)));
    }
    ask.said[meaning] = &found;
    ask.number[meaning] = fraction ? *number - *number % least : *number;
    // The API server writes resources in its own way: 3k for 3000.
    ask.names.push_back(found.key + "=" +
                        (found.row->place == Place::kAnnotation
                             ? found.value.get<std::string>()
                             : std::to_string(*number / found.row->unit.scale)));
    return {};
  }

  static std::string Shown(const FoundName& found) {
    if (found.value.is_string()) return Quoted(found.value.get<std::string>());
    return Quoted(found.value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  static std::string Range(Meaning meaning) {
    switch (meaning) {
      case Meaning::kCount:
        return fmt::format("write 1 to {} GPUs, or remove it and the sizes beside it", kCountMax);
      case Meaning::kMemory:
      case Meaning::kMemoryRequest:
        return "write 1 to 16777216 MiB, such as 16384 for 16Gi";
      case Meaning::kFraction:
        return fmt::format("write a fraction from 0.001 to below 1, or {}: 1 for a whole GPU",
                           kWholeResource);
      case Meaning::kReplica:
        return fmt::format("write 1: further replicas give no more of a GPU there; for more use {}",
                           kShareResource);
      default:
        return "write 1 to 100 percent";
    }
  }

  // Extended resources are requested as they are limited.
  static Result<void> CheckRequest(const FoundName& found) {
    if (found.row->place != Place::kResource) return {};
    const Json* requests = Find(*found.container, "resources/requests");
    if (requests == nullptr || !requests->is_object() || !requests->contains(found.key)) return {};
    const auto is = MilliQuantity((*requests)[found.key]);
    const auto limit = MilliQuantity(found.value);
    if (!limit || (is && *is == *limit)) return {};
    return Refuse(found.field, "resources.requests says something else; make them equal");
  }

  Result<void> CheckAll() {
    for (const FoundName& found : found_) {
      const ForeignName& row = *found.row;
      if (row.meaning == Meaning::kRefused) {
        return Refuse(found.field, fmt::format("Baton has nothing like it; {}", row.note));
      }
      if (row.meaning == Meaning::kOnly && found.value != Json(row.only)) {
        return Refuse(found.field, fmt::format("{}; Baton shares GPUs by time on Kubernetes: write "
                                               "{}, or remove the annotation",
                                               Shown(found), row.only));
      }
    }
    const ForeignAsk* whole = nullptr;
    const ForeignAsk* part = nullptr;
    for (const ForeignAsk& ask : asks_) {
      if (auto ok = CheckAsk(ask); !ok) return ok;
      (ask.OnlyCount() ? whole : part) = &ask;
    }
    if (whole == nullptr || part == nullptr) return {};
    return Refuse(
        whole->said.begin()->second->field,
        fmt::format("container {} asks for whole GPUs and container {} for a part of one; "
                    "a pod can use only one of the two: say how much of it {} needs",
                    TextAt(*whole->container, "name"), TextAt(*part->container, "name"),
                    TextAt(*whole->container, "name")));
  }

  static Result<void> CheckAsk(const ForeignAsk& ask) {
    if (ask.OnlyCount() && !IsWhole(*ask.said.at(Meaning::kCount)) && HasWhole(*ask.container)) {
      return Refuse(ask.said.at(Meaning::kCount)->field,
                    fmt::format("the container has {} too; remove one of the two", kWholeResource));
    }
    const FoundName* memory = nullptr;
    for (const Meaning meaning :
         {Meaning::kMemory, Meaning::kMemoryPart, Meaning::kMemoryRequest, Meaning::kFraction}) {
      const auto at = ask.said.find(meaning);
      if (at == ask.said.end()) continue;
      const FoundName* found = at->second;
      if (memory == nullptr) {
        memory = found;
        continue;
      }
      const bool both = memory->row->meaning == Meaning::kMemory &&
                        meaning == Meaning::kMemoryRequest &&
                        memory->row->unit.word == found->row->unit.word;
      if (!both) {
        return Refuse(found->field, fmt::format("{} says the memory of the same container; remove "
                                                "one of the two",
                                                memory->key));
      }
      if (ask.Number(Meaning::kMemory) != ask.Number(Meaning::kMemoryRequest)) {
        return Refuse(found->field,
                      fmt::format("it is not {}; make them equal, or use the annotations "
                                  "baton.dev/swap, baton.dev/memory and baton.dev/memory-request",
                                  memory->key));
      }
    }
    return {};
  }

  void Remove(const FoundName& found) {
    if (found.row->place == Place::kAnnotation) {
      pod_["metadata"]["annotations"].erase(found.key);
    } else if (found.row->place == Place::kResource) {
      for (const char* part : {"limits", "requests"}) {
        Json& resources = (*found.container)["resources"];
        if (resources.contains(part) && resources[part].is_object()) {
          resources[part].erase(found.key);
        }
      }
    }
  }

  // The sentence for users.
  std::string WriteAsk(const ForeignAsk& ask) {
    Json& container = *ask.container;
    const std::string name = TextAt(container, "name");
    const auto count = static_cast<uint32_t>(std::max<uint64_t>(1, ask.Number(Meaning::kCount)));
    Json& resources = container["resources"];
    if (!resources.is_object()) resources = Json::object();
    Json& limits = resources["limits"];
    if (!limits.is_object()) limits = Json::object();
    std::string said = fmt::format("container {}: {} means ", name, fmt::join(ask.names, ", "));
    if (ask.OnlyCount()) {
      limits[std::string(kWholeResource)] = std::to_string(count);
      if (const Json* requests = Find(resources, "requests");
          requests != nullptr && requests->is_object()) {
        resources["requests"][std::string(kWholeResource)] = std::to_string(count);
      }
      return said +
             fmt::format("{} whole GPU{} ({})", count, count == 1 ? "" : "s", kWholeResource);
    }
    policy::Share request = policy::kWhole * kForeignRequestPercent / 100;
    policy::Share limit = policy::kWhole;
    if (ask.Says(Meaning::kShare)) {
      request = limit = policy::Share(static_cast<uint32_t>(ask.Number(Meaning::kShare)));
    } else if (ask.Says(Meaning::kFraction)) {
      request = policy::Share(static_cast<uint32_t>(ask.Number(Meaning::kFraction)));
    } else if (ask.Says(Meaning::kReplica)) {
      const uint32_t part = policy::kMillion / options_.replicas;
      request = policy::Share(part - part % policy::kShareMin.millionths());
    }
    GpuMemory memory;
    memory.mib = static_cast<uint32_t>(
        std::max(ask.Number(Meaning::kMemory), ask.Number(Meaning::kMemoryRequest)));
    memory.part = policy::Share(static_cast<uint32_t>(
        std::max(ask.Number(Meaning::kMemoryPart), ask.Number(Meaning::kFraction))));

    Json& annotations = pod_["metadata"]["annotations"];
    annotations[ContainerKey(name, keys::kRequest)] = policy::PercentText(request);
    annotations[ContainerKey(name, keys::kLimit)] = policy::PercentText(limit);
    limits[std::string(kShareResource)] =
        std::to_string(UnitsOf(request.millionths(), kShareUnit, count).least);
    said += fmt::format("request {}, limit {}", policy::PercentText(request),
                        policy::PercentText(limit));
    const std::string size = GpuMemoryText(memory);
    if (!size.empty()) {
      annotations[ContainerKey(name, keys::kMemory)] = size;
      said += ", memory " + size;
    }
    // Inject() counts it in units, where it is no part.
    if (memory.mib > 0) {
      limits[std::string(kMemoryResource)] = fmt::format("{}Mi", uint64_t{memory.mib} * count);
    }
    if (count > 1) {
      annotations[ContainerKey(name, keys::kCount)] = std::to_string(count);
      said += fmt::format(", of each of {} GPUs", count);
    }
    return said;
  }

  Result<void> WriteWishes(std::vector<std::string>& sentences) {
    static const std::map<Meaning, std::string_view> kWishes{
        {Meaning::kModel, keys::kModel},
        {Meaning::kNotModel, keys::kNotModel},
        {Meaning::kUuid, keys::kGpuUuid},
        {Meaning::kNotUuid, keys::kNotGpuUuid},
        {Meaning::kNodePolicy, keys::kNodePolicy},
        {Meaning::kGpuPolicy, keys::kGpuPolicy},
        {Meaning::kMode, keys::kMode}};
    for (const FoundName& found : found_) {
      const auto wish = kWishes.find(found.row->meaning);
      if (wish == kWishes.end()) continue;
      const std::string key = PodKey(wish->second);
      Json& annotations = pod_["metadata"]["annotations"];
      const std::string text = found.value.is_string() ? found.value.get<std::string>() : "";
      const bool mode = found.row->meaning == Meaning::kMode;
      if (mode && text == kByTurns) continue;  // as where nothing is said
      if (annotations.contains(key)) {
        return Refuse(found.field, fmt::format("the pod has {} too; remove one of the two", key));
      }
      if (Words(text).empty()) return Refuse(found.field, "it is empty; remove it");
      const bool policy =
          found.row->meaning == Meaning::kNodePolicy || found.row->meaning == Meaning::kGpuPolicy;
      if (policy && text != "binpack" && text != "spread") {
        return Refuse(found.field, "it is none of binpack, spread");
      }
      if (mode && text != spec::kMig && text != spec::kMps) {
        return Refuse(found.field, fmt::format("{}; write {}, {} or {}, or remove the annotation",
                                               Quoted(text), kByTurns, spec::kMig, spec::kMps));
      }
      annotations[key] = text;
      sentences.push_back(fmt::format("{} means {}", found.key, key));
    }
    return {};
  }

  const ForeignOptions& options_;
  Json& pod_;
  std::vector<std::pair<const char*, Json*>> containers_;
  std::vector<FoundName> found_;
  Family family_ = Family::kHami;
  std::vector<ForeignAsk> asks_;
};

}  // namespace

Result<std::vector<std::string>> TranslateForeignNames(const ForeignOptions& options, Json& pod) {
  Json changed = pod;
  Translation translation(options, changed);
  const auto asks = translation.Read();
  if (!asks) return tl::unexpected(asks.error());
  if (!*asks) return std::vector<std::string>();
  auto sentences = translation.Write();
  if (sentences) pod = std::move(changed);
  return sentences;
}

}  // namespace baton::k8s
