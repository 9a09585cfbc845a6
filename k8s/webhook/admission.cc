#include "k8s/webhook/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "base/suggest.h"
#include "devmgr/placement/quota.h"
#include "k8s/api/base64.h"
#include "k8s/types/annotations.h"
#include "k8s/types/flavors.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/read.h"
#include "k8s/types/share_pod.h"
#include "k8s/types/translate.h"
#include "k8s/webhook/tenant.h"
#include "net/message.h"
#include "spec/modes.h"

namespace baton::k8s {

namespace {

constexpr size_t kWarningsMax = 8;
constexpr size_t kWarningBytesMax = 250;
constexpr std::string_view kContainerPart = ".container.baton.dev/";
constexpr std::string_view kEphemeralContainers = "spec/ephemeralContainers";

std::string PointerPart(const std::string& key) {
  std::string part = "/";
  for (const char c : key) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else {
      part += c;
    }
  }
  return part;
}

// A JSON patch (RFC 6902) that makes `to` of `from`. Lists are replaced as a whole unless they have
// the same length, which keeps the patch short: we only ever add to them.
void Diff(const Json& from, const Json& to, const std::string& path, Json& patch) {
  if (from == to) return;
  if (from.is_object() && to.is_object()) {
    for (const auto& [key, value] : from.items()) {
      const std::string at = path + PointerPart(key);
      const auto other = to.find(key);
      if (other == to.end()) {
        patch.push_back({{"op", "remove"}, {"path", at}});
      } else {
        Diff(value, *other, at, patch);
      }
    }
    for (const auto& [key, value] : to.items()) {
      if (from.contains(key)) continue;
      patch.push_back({{"op", "add"}, {"path", path + PointerPart(key)}, {"value", value}});
    }
    return;
  }
  if (from.is_array() && to.is_array() && from.size() == to.size()) {
    for (size_t i = 0; i < from.size(); ++i)
      Diff(from[i], to[i], fmt::format("{}/{}", path, i), patch);
    return;
  }
  patch.push_back({{"op", "replace"}, {"path", path}, {"value", to}});
}

const Json& At(const Json& object, std::string_view pointer) {
  static const Json& null = *new Json();
  const Json* found = Find(object, pointer);
  return found == nullptr ? null : *found;
}

std::vector<std::string> ContainersOf(const Json& pod) {
  std::vector<std::string> names;
  for (const char* list : {"spec/initContainers", "spec/containers"}) {
    const Json& containers = At(pod, list);
    if (!containers.is_array()) continue;
    for (const Json& container : containers) names.push_back(TextAt(container, "name"));
  }
  return names;
}

// What of a pod's annotations only Baton may write: where its GPUs are.
bool IsPlacement(const std::string& key) {
  if (key == PodKey(keys::kPlacement)) return true;
  if (key.find(kContainerPart) == std::string::npos) return false;
  const std::array ours{keys::kDevices, keys::kTicket, keys::kMpsPipe, keys::kMpsShare,
                        keys::kMpsMemory};
  return std::any_of(ours.begin(), ours.end(), [&](std::string_view one) {
    return key.ends_with(std::string("/").append(one));
  });
}

// Of a pod's annotations those that are Baton's, whether it knows them or not.
std::map<std::string, Json> OwnAnnotations(const Json& pod) {
  std::map<std::string, Json> own;
  const Json& annotations = At(pod, "metadata/annotations");
  if (!annotations.is_object()) return own;
  for (const auto& [key, value] : annotations.items()) {
    if (key.starts_with(kPrefix) || key.find(kContainerPart) != std::string::npos) own[key] = value;
  }
  return own;
}

class Reviewer {
 public:
  Reviewer(const Json& request, const AdmissionOptions& options)
      : request_(request),
        options_(options),
        name_space_(TextAt(request, "namespace")),
        update_(TextAt(request, "operation") == "UPDATE"),
        object_(At(request, "object")),
        old_(At(request, "oldObject")),
        tenant_options_{options.tenancy, options.facts, options.inject.memory_unit_mib,
                        options.check_quotas},
        tenant_(tenant_options_, name_space_, TextAt(request, "userInfo/username")) {}

  Result<void> MutatePod(Json& patch) {
    Json pod = object_;
    if (!ByBaton()) {
      auto understood = TranslateForeignNames(options_.foreign, pod);
      if (!understood) return tl::unexpected(understood.error());
      for (std::string& sentence : *understood) Warn(std::move(sentence));
    }
    auto done = Inject(pod, options_.inject);
    if (!done) return tl::unexpected(done.error());
    if (!*done) return {};
    if (!ByBaton()) {
      TenantWishes wishes = WishesOfPod(pod);
      const bool gang = TextAt(pod, "spec/schedulerName") == kScheduler &&
                        OwnAnnotation(pod, keys::kGang).empty() &&
                        OwnAnnotation(pod, keys::kGangSize).empty();
      const auto batch = ReadBatch({Find(object_, "metadata")}, gang, wishes);
      if (!batch) return tl::unexpected(batch.error());
      Json& annotations = pod["metadata"]["annotations"];
      if (!batch->gang.empty()) {
        annotations[PodKey(keys::kGang)] = batch->gang;
        annotations[PodKey(keys::kGangSize)] = std::to_string(batch->gang_size);
      }
      std::string translated = OwnAnnotation(pod, keys::kTranslated);
      for (const std::string& sentence : batch->sentences) {
        translated += (translated.empty() ? "" : "; ") + sentence;
      }
      SetText(annotations, PodKey(keys::kTranslated), translated);
      if (auto ok = tenant_.Complete(wishes); !ok) return ok;
      SetText(annotations, PodKey(keys::kTeam), wishes.team);
      SetText(pod["metadata"]["annotations"], PodKey(keys::kUser), wishes.user);
    }
    Diff(object_, pod, "", patch);
    return {};
  }

  Result<void> MutateSharePod(Json& patch) {
    Json share_pod = object_;
    const Json* spec = Find(share_pod, "spec");
    if (spec == nullptr || !spec->is_object() || ByBaton() || Leaving()) return {};
    if (auto ok = FillInSharePod(options_.inject.flavors, old_, share_pod); !ok) return ok;
    if (update_) {
      Diff(object_, share_pod, "", patch);
      return {};
    }
    Json& gpu = share_pod["spec"]["gpu"];
    if (!gpu.is_null() && !gpu.is_object()) return {};
    TenantWishes wishes = WishesOfSharePod(share_pod);
    const std::string scheduler = TextAt(share_pod, "spec/template/spec/schedulerName");
    const bool ours =
        scheduler.empty() || scheduler == "default-scheduler" || scheduler == kScheduler;
    const auto batch =
        ReadBatch({Find(object_, "metadata"), Find(object_, "spec/template/metadata")},
                  ours && At(gpu, "gang").is_null(), wishes);
    if (!batch) return tl::unexpected(batch.error());
    if (!batch->gang.empty()) {
      gpu["gang"] = {{"name", batch->gang}, {"size", batch->gang_size}};
    }
    if (auto ok = tenant_.Complete(wishes); !ok) return ok;
    SetText(gpu, "team", wishes.team);
    SetText(gpu, "user", wishes.user);
    if (gpu.is_null()) share_pod["spec"].erase("gpu");
    Diff(object_, share_pod, "", patch);
    return {};
  }

  Result<void> ValidatePod() {
    if (auto ok = CheckPlacement(); !ok) return ok;
    const bool same = update_ && At(object_, "spec") == At(old_, "spec") &&
                      OwnAnnotations(object_) == OwnAnnotations(old_);
    // One that is being deleted runs for as long as its grace period is, and its node's agent
    // follows it until then.
    if (same) return {};
    const auto pod = ReadGpuPod(update_ || ByBaton() ? object_ : WithoutSharePod(object_),
                                options_.inject.memory_unit_mib);
    if (!pod) return tl::unexpected(pod.error());
    WarnOfAnnotations(*pod);
    if (update_) {
      if (auto ok = CheckFlavors(); !ok) return ok;
    }
    if (!pod->asks()) return {};
    if (update_) {
      if (auto ok = CheckModeChange(); !ok) return ok;
    }
    if (update_ && !TextAt(old_, "spec/nodeName").empty()) {
      if (auto ok = CheckPodChange(*pod); !ok) return ok;
    }
    if (auto ok = CheckPodTenant(*pod); !ok) return ok;
    if (auto ok = CheckCeiling(pod->request, "spec"); !ok) return ok;
    if (!update_ || TextAt(old_, TeamPointer()) != pod->asked.team) {
      const auto known = CheckTeam(pod->asked.team);
      if (!known) {
        return Fail(ErrorCode::kInvalid, fmt::format("metadata.annotations[{}]: {}",
                                                     PodKey(keys::kTeam), known.error().message));
      }
    }
    if (!update_) {
      for (const ContainerGpus& gpus : pod->containers) {
        const std::string& mode = pod->request.mode;
        if (gpus.whole || mode == spec::kExclusive || mode == spec::kMig || pod->asked.swap ||
            gpus.memory != GpuMemory{}) {
          continue;
        }
        Warn(fmt::format(
            "container {} has no GPU memory limit and can use up memory that other pods on its "
            "GPU need; add {} to its limits",
            gpus.name, kMemoryResource));
      }
    }
    return {};
  }

  // Who may add one to a pod may not do more to the node by it than who made the pod. Those that
  // are there cannot change, so an old mistake holds up no other.
  Result<void> ValidateEphemeralContainers() const {
    Json added{{"volumes", At(object_, "spec/volumes")}, {"ephemeralContainers", Json::array()}};
    const Json& old = At(old_, kEphemeralContainers);
    for (const Json& container : ListAt(object_, kEphemeralContainers)) {
      const bool there =
          old.is_array() && std::find(old.begin(), old.end(), container) != old.end();
      if (!there) added["ephemeralContainers"].push_back(container);
    }
    return CheckMounts(added, options_.inject);
  }

  Result<void> ValidateSharePod() {
    if (update_ && (Leaving() || At(object_, "spec") == At(old_, "spec"))) return {};
    if (update_) {
      if (auto ok = CheckSharePodChange(old_, object_); !ok) return ok;
    }
    if (auto ok = CheckSharePod(object_); !ok) return ok;
    if (auto ok = CheckSharePodTenant(); !ok) return ok;
    if (const auto gpus = GpusOf(object_)) {
      if (auto ok = CheckCeiling(gpus->request, "spec.gpu"); !ok) return ok;
    }
    const std::string team = TextAt(object_, "spec/gpu/team");
    if (!update_ || TextAt(old_, "spec/gpu/team") != team) {
      const auto known = CheckTeam(team);
      if (!known) {
        return Fail(ErrorCode::kInvalid, "spec.gpu.team: " + known.error().message);
      }
    }
    if (!update_ && TextAt(object_, "spec/gpu/mode") != spec::kExclusive &&
        At(object_, "spec/gpu/swap") != Json(true)) {
      const Json& containers = At(object_, "spec/containers");
      const bool several = containers.is_array() && !containers.empty();
      if (!several && At(object_, "spec/gpu/memory").is_null()) {
        Warn(
            "spec.gpu.memory is not set: the pod can use up memory that other pods on its GPU "
            "need");
      }
      for (size_t i = 0; several && i < containers.size(); ++i) {
        if (!At(containers[i], "gpu/memory").is_null()) continue;
        Warn(fmt::format(
            "spec.containers[{}].gpu.memory is not set: the container can use up memory that "
            "other pods on its GPU need",
            i));
      }
    }
    return {};
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  static std::string TeamPointer() { return "metadata/annotations/baton.dev~1team"; }

  static std::string OwnAnnotation(const Json& pod, std::string_view key) {
    return TextAt(pod, "metadata/annotations/baton.dev~1" + std::string(key));
  }
  static TenantWishes WishesOfPod(const Json& pod) {
    return {OwnAnnotation(pod, keys::kTeam),     OwnAnnotation(pod, keys::kUser),
            OwnAnnotation(pod, keys::kPriority), OwnAnnotation(pod, keys::kMode),
            OwnAnnotation(pod, keys::kAway),     TextAt(pod, "spec/priorityClassName"),
            OwnAnnotation(pod, keys::kGpuUuid),  OwnAnnotation(pod, keys::kNotGpuUuid)};
  }
  static TenantWishes WishesOfSharePod(const Json& share_pod) {
    const auto wish = [&](const char* key) {
      return TextAt(share_pod, std::string("spec/gpu/") + key);
    };
    return {wish("team"), wish("user"),   wish("priority"),
            wish("mode"), wish("away"),   TextAt(share_pod, "spec/template/spec/priorityClassName"),
            wish("uuid"), wish("notUuid")};
  }
  static void SetText(Json& object, const std::string& key, const std::string& text) {
    if (!text.empty()) {
      object[key] = text;
    } else if (object.is_object()) {
      object.erase(key);
    }
  }

  // What batch schedulers' words in these metadata say of what Baton's own leave open. A queue's
  // team is checked here too, where a sentence can name the queue.
  Result<BatchAnswer> ReadBatch(std::vector<const Json*> metadata, bool gang,
                                TenantWishes& wishes) {
    auto said = ReadBatchWords(options_.batch, options_.facts.get(),
                               {name_space_, std::move(metadata), wishes.team.empty(), gang});
    if (!said) return said;
    for (const std::string& sentence : said->sentences) Warn(sentence);
    if (said->team.empty()) return said;
    const TenantWishes was = wishes;
    wishes.team = said->team;
    auto ok = tenant_.CheckWishes(wishes, &was, [&](std::string_view) { return said->team_field; });
    if (auto known = CheckTeam(said->team); ok && !known) {
      ok =
          Fail(ErrorCode::kInvalid, fmt::format("{}: {}", said->team_field, known.error().message));
    }
    if (ok) return said;
    return Fail(ok.error().code,
                ok.error().message +
                    "; baton.dev/team (of a SharePod spec.gpu.team) comes before the "
                    "queue");
  }

  Result<void> CheckPodTenant(const GpuPod& pod) {
    if (ByBaton()) return {};
    if (!update_ && options_.facts != nullptr && !TextAt(object_, "spec/nodeName").empty()) {
      return Fail(ErrorCode::kDenied,
                  "spec.nodeName: Baton chooses the node and the GPUs; use nodeSelector or "
                  "affinity");
    }
    const TenantWishes was = WishesOfPod(old_);
    TenantWishes is = WishesOfPod(object_);
    if (!update_ && is.away.empty()) is.away = AwayOfContainers("spec/");
    auto ok = tenant_.CheckWishes(is, update_ ? &was : nullptr, [](std::string_view key) {
      return key == "priorityClassName" ? "spec.priorityClassName"
                                        : fmt::format("metadata.annotations[{}]", PodKey(key));
    });
    if (!ok || !update_) return ok;
    const auto before = ReadGpuPod(old_, options_.inject.memory_unit_mib);
    const GpuCharge now = before ? ChargeOf(*before, options_.inject.memory_unit_mib) : GpuCharge{};
    return tenant_.CheckQuota(NameOf(object_).name, now,
                              ChargeOf(pod, options_.inject.memory_unit_mib));
  }

  // What the hook would read, whoever wrote it.
  std::string AwayOfContainers(const std::string& spec) const {
    for (const char* list : {"initContainers", "containers"}) {
      for (const Json& container : ListAt(object_, spec + list)) {
        for (const Json& entry : ListAt(container, "env")) {
          if (TextAt(entry, "name") == "BATON_AWAY" && TextAt(entry, "value") != "wait") {
            return "open";
          }
        }
      }
    }
    return "";
  }

  Result<void> CheckSharePodTenant() {
    if (ByBaton()) return {};
    const TenantWishes was = WishesOfSharePod(old_);
    TenantWishes is = WishesOfSharePod(object_);
    if (is.away.empty()) is.away = AwayOfContainers("spec/template/spec/");
    auto ok = tenant_.CheckWishes(is, update_ ? &was : nullptr, [](std::string_view key) {
      return key == "priorityClassName" ? "spec.template.spec.priorityClassName"
                                        : "spec.gpu." + std::string(key);
    });
    if (!ok || !update_) return ok;
    const uint32_t unit = options_.inject.memory_unit_mib;
    const auto charge = [&](const Json& share_pod) -> GpuCharge {
      const auto gpu = GpusOf(share_pod);
      return gpu ? ChargeOf(*gpu, unit) : GpuCharge{};
    };
    return tenant_.CheckQuota(NameOf(object_).name, charge(old_), charge(object_));
  }

  // What a pod or SharePod asks for; nothing where it cannot be read.
  std::optional<GpuPod> GpusOf(const Json& object) const {
    const uint32_t unit = options_.inject.memory_unit_mib;
    Json pod = object;
    if (!At(object, "spec/template").is_null()) {
      auto child = ChildPod(object, unit);
      if (!child) return std::nullopt;
      pod = *std::move(child);
    }
    auto gpu = ReadGpuPod(pod, unit);
    if (!gpu) return std::nullopt;
    return *std::move(gpu);
  }

  // One that asks for more than its team may use at all would wait for ever. Who asks for no more
  // than before is let alone: the ceiling may have been lowered since.
  Result<void> CheckCeiling(const devmgr::PodRequest& request, const char* field) const {
    if (options_.facts == nullptr || ByBaton()) return {};
    const auto ok = options_.facts->AdmitEver(request);
    if (ok) return {};
    if (const auto before = update_ ? GpusOf(old_) : std::nullopt;
        before && before->request.team == request.team) {
      const devmgr::Amount was = devmgr::AskedBy(before->request);
      const devmgr::Amount is = devmgr::AskedBy(request);
      if (is.share <= was.share && is.memory_mib <= was.memory_mib) return {};
    }
    return Fail(ErrorCode::kDenied, fmt::format("{}: {}", field, ok.error().message));
  }

  bool Leaving() const { return update_ && At(object_, "metadata/deletionTimestamp").is_string(); }

  void Warn(std::string sentence) {
    if (warnings_.size() >= kWarningsMax) return;
    if (sentence.size() > kWarningBytesMax) sentence.resize(kWarningBytesMax);
    warnings_.push_back(std::move(sentence));
  }

  bool ByBaton() const {
    return TextAt(request_, "userInfo/username")
        .starts_with("system:serviceaccount:" + options_.own_namespace + ":");
  }

  // Of a SharePod's child the annotations alone count, so whoever makes a pod and calls it one
  // could ask for more by them than by its limits, which are what quotas see.
  static Json WithoutSharePod(Json pod) {
    const auto metadata = pod.find("metadata");
    if (metadata != pod.end() && metadata->is_object()) metadata->erase("ownerReferences");
    return pod;
  }

  // A tenant who could say where a pod's GPUs are would choose its GPU, and its neighbours'.
  Result<void> CheckPlacement() const {
    if (ByBaton()) return {};
    const Json& is = At(object_, "metadata/annotations");
    const Json& was = At(old_, "metadata/annotations");
    std::set<std::string> keys;
    for (const Json* annotations : {&is, &was}) {
      if (!annotations->is_object()) continue;
      for (const auto& [key, value] : annotations->items()) {
        if (IsPlacement(key)) keys.insert(key);
      }
    }
    for (const std::string& key : keys) {
      const auto value = [&](const Json& annotations) {
        const auto found = annotations.is_object() ? annotations.find(key) : annotations.end();
        return annotations.is_object() && found != annotations.end() ? *found : Json();
      };
      if (value(is) == value(was)) continue;
      return Fail(ErrorCode::kDenied,
                  fmt::format("metadata.annotations[{}]: only Baton may assign GPUs; {}", key,
                              update_ ? "do not change the annotation" : "remove the annotation"));
    }
    return {};
  }

  // They are looked up once.
  Result<void> CheckFlavors() const {
    const auto was = OwnAnnotations(old_);
    for (const auto& [key, value] : OwnAnnotations(object_)) {
      const auto before = was.find(key);
      if (!key.ends_with(std::string("/").append(keys::kFlavor)) ||
          (before != was.end() && before->second == value)) {
        continue;
      }
      return Fail(
          ErrorCode::kInvalid,
          fmt::format("metadata.annotations[{}]: a pod gets its flavor when it is created; "
                      "set {}, {} and {} instead",
                      key, PodKey(keys::kRequest), PodKey(keys::kLimit), PodKey(keys::kMemory)));
    }
    return {};
  }

  // As its annotation says, which means one thing for as long as the pod is there.
  static std::string ModeOf(const Json& pod) {
    const std::string mode = OwnAnnotation(pod, keys::kMode);
    return mode.empty() ? std::string(spec::kTimeSlice) : mode;
  }

  // Its containers have the hook or not, and cannot change.
  Result<void> CheckModeChange() const {
    const std::string was = ModeOf(old_);
    const std::string is = ModeOf(object_);
    if (is == was || (spec::ByToken(is) && spec::ByToken(was))) return {};
    return Fail(ErrorCode::kInvalid,
                fmt::format("metadata.annotations[{}]: immutable, for the pod's containers were "
                            "made for mode {}; delete the pod and create it again",
                            PodKey(keys::kMode), was));
  }

  // What a pod that has its GPUs cannot change: the binder would not follow.
  Result<void> CheckPodChange(const GpuPod& pod) const {
    const auto before = ReadGpuPod(old_, options_.inject.memory_unit_mib);
    if (!before || !before->asks()) return {};
    const auto refuse = [](std::string_view key) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("metadata.annotations[{}]: immutable once the pod is bound; "
                              "delete the pod and create it again",
                              PodKey(key)));
    };
    for (size_t i = 0; i < pod.containers.size() && i < before->containers.size(); ++i) {
      if (pod.containers[i].count != before->containers[i].count) return refuse(keys::kCount);
    }
    const devmgr::PodRequest& was = before->request;
    const devmgr::PodRequest& is = pod.request;
    if (ModeOf(object_) != ModeOf(old_)) return refuse(keys::kMode);
    if (is.models != was.models) return refuse(keys::kModel);
    if (is.not_models != was.not_models) return refuse(keys::kNotModel);
    if (is.uuids != was.uuids) return refuse(keys::kGpuUuid);
    if (is.not_uuids != was.not_uuids) return refuse(keys::kNotGpuUuid);
    if (is.node_rule != was.node_rule) return refuse(keys::kNodePolicy);
    if (is.card_rule != was.card_rule) return refuse(keys::kGpuPolicy);
    if (is.affinity != was.affinity) return refuse(keys::kAffinity);
    if (is.anti_affinity != was.anti_affinity) return refuse(keys::kAntiAffinity);
    if (is.exclusion != was.exclusion) return refuse(keys::kExclusion);
    if (pod.asked.swap != before->asked.swap) return refuse(keys::kSwap);
    if (pod.gang != before->gang) return refuse(keys::kGang);
    if (pod.gang_size != before->gang_size) return refuse(keys::kGangSize);
    return {};
  }

  Result<void> CheckTeam(const std::string& team) const {
    if (options_.teams == nullptr || team.empty()) return {};
    return teams::CheckKnown(*options_.teams, team);
  }

  // Annotations of ours that mean nothing: most likely misspelled.
  void WarnOfAnnotations(const GpuPod& pod) {
    const Json& annotations = At(object_, "metadata/annotations");
    if (!annotations.is_object()) return;
    static const std::vector<std::string> kContainerKeys{
        std::string(keys::kRequest), std::string(keys::kLimit), std::string(keys::kMemory),
        std::string(keys::kCount), std::string(keys::kFlavor)};
    static const std::vector<std::string> kPodKeys = [] {
      std::vector<std::string> all = kContainerKeys;
      for (const WishField& field : WishFields()) all.emplace_back(field.key);
      return all;
    }();
    const auto suggestion = [](const std::string& word, const std::vector<std::string>& words) {
      const std::string near = Nearest(word, words);
      return near.empty() ? std::string() : "; did you mean '" + near + "'?";
    };
    bool wishes = false;
    for (const auto& [key, value] : annotations.items()) {
      const size_t part = key.find(kContainerPart);
      const bool of_pod = key.starts_with(kPrefix);
      if (!of_pod && part == std::string::npos) continue;
      if (IsPlacement(key) || key == PodKey(keys::kInjected) || key == PodKey(keys::kTranslated) ||
          key == PodKey(keys::kTemplateHash) || key == PodKey(keys::kFlavors)) {
        continue;
      }
      const std::string word =
          of_pod ? key.substr(kPrefix.size()) : key.substr(part + kContainerPart.size());
      const std::vector<std::string>& words = of_pod ? kPodKeys : kContainerKeys;
      if (std::find(words.begin(), words.end(), word) == words.end()) {
        Warn(fmt::format("annotation {}: Baton has no such annotation{}", key,
                         suggestion(word, words)));
        continue;
      }
      wishes = true;
      if (of_pod || !pod.asks()) continue;
      const std::string container = key.substr(0, part);
      const bool asks = std::any_of(pod.containers.begin(), pod.containers.end(),
                                    [&](const ContainerGpus& g) { return g.name == container; });
      if (!asks) {
        Warn(fmt::format("annotation {}: no container of that name uses a GPU{}", key,
                         suggestion(container, ContainersOf(object_))));
      }
    }
    if (wishes && !pod.asks()) {
      Warn(
          fmt::format("the pod has GPU annotations but gets no GPU: no container has {} in "
                      "resources.limits",
                      kShareResource));
    }
  }

  const Json& request_;
  const AdmissionOptions& options_;
  const std::string name_space_;
  const bool update_;
  const Json& object_;
  const Json& old_;
  const TenantOptions tenant_options_;
  Tenant tenant_;
  std::vector<std::string> warnings_;
};

AdmissionVerdict NoReview(std::string_view why) {
  net::HttpResponse response = net::ErrorResponse(400, why);
  AdmissionVerdict verdict;
  verdict.status = response.status;
  verdict.body = std::move(response.body);
  return verdict;
}

}  // namespace

AdmissionVerdict Review(std::string_view body, AdmissionKind kind,
                        const AdmissionOptions& options) {
  const std::optional<Json> parsed = ParseObject(body);
  if (!parsed) {
    return NoReview("the body is not a JSON object or nests too deeply; send an AdmissionReview");
  }
  const Json& review = *parsed;
  if (TextAt(review, "apiVersion") != "admission.k8s.io/v1" ||
      TextAt(review, "kind") != "AdmissionReview") {
    return NoReview("the body is not an AdmissionReview of admission.k8s.io/v1");
  }
  const Json& request = At(review, "request");
  const std::string uid = TextAt(request, "uid");
  if (!request.is_object() || uid.empty() || uid.size() > 128) {
    return NoReview("the review has no request with a uid");
  }
  const std::string operation = TextAt(request, "operation");
  const std::string group = TextAt(request, "resource/group");
  const std::string resource = TextAt(request, "resource/resource");
  const bool is_pod = group.empty() && resource == resources::kPods.plural;
  const bool is_share_pod =
      group == resources::kSharePods.group && resource == resources::kSharePods.plural;
  const std::string part = TextAt(request, "subResource");
  const bool ephemeral = is_pod && part == "ephemeralcontainers";
  const bool ours = (is_pod || is_share_pod) && (part.empty() || ephemeral) &&
                    TextAt(request, "namespace") != options.own_namespace;
  if (ours && (operation == "CREATE" || operation == "UPDATE")) {
    if (!At(request, "object").is_object()) return NoReview("the review's request has no object");
    if (operation == "UPDATE" && !At(request, "oldObject").is_object()) {
      return NoReview("the review of an update has no oldObject");
    }
  }

  AdmissionVerdict verdict;
  verdict.kind = is_pod ? "Pod" : is_share_pod ? "SharePod" : "other";
  Json response{{"uid", uid}};
  Reviewer reviewer(request, options);
  Result<void> result;
  Json patch = Json::array();
  const bool mutates = operation == "CREATE" || (is_share_pod && operation == "UPDATE");
  if (ours && mutates && !ephemeral && kind == AdmissionKind::kMutate) {
    result = is_pod ? reviewer.MutatePod(patch) : reviewer.MutateSharePod(patch);
  } else if (ours && (operation == "CREATE" || operation == "UPDATE") &&
             kind == AdmissionKind::kValidate) {
    result = ephemeral ? reviewer.ValidateEphemeralContainers()
             : is_pod  ? reviewer.ValidatePod()
                       : reviewer.ValidateSharePod();
  }
  verdict.allowed = result.has_value();
  response["allowed"] = verdict.allowed;
  if (!result) {
    const bool denied = result.error().code == ErrorCode::kDenied;
    const bool away = result.error().code == ErrorCode::kUnavailable;
    response["status"] = {{"code", denied ? 403
                                   : away ? 503
                                          : 422},
                          {"reason", denied ? "Forbidden"
                                     : away ? "ServiceUnavailable"
                                            : "Invalid"},
                          {"message", result.error().message}};
  } else if (!patch.empty()) {
    response["patchType"] = "JSONPatch";
    response["patch"] = Base64(patch.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  if (!reviewer.warnings().empty()) response["warnings"] = reviewer.warnings();
  const Json answer{{"apiVersion", "admission.k8s.io/v1"},
                    {"kind", "AdmissionReview"},
                    {"response", std::move(response)}};
  verdict.body = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  return verdict;
}

}  // namespace baton::k8s
