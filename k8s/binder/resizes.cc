#include "k8s/binder/resizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "k8s/cluster/vgpu_sizes.h"

namespace baton::k8s {
namespace {

// The greater of both sizes, of each virtual GPU.
devmgr::Placement Most(devmgr::Placement a, const devmgr::Placement& b) {
  for (size_t i = 0; i < a.vgpus.size(); ++i) {
    devmgr::Fit& fit = a.vgpus[i].fit;
    fit.share = std::max(fit.share, b.vgpus[i].fit.share);
    fit.memory_mib = std::max(fit.memory_mib, b.vgpus[i].fit.memory_mib);
  }
  return a;
}

// Whether a patch of a pod's annotations says another size.
bool SaysSize(const Json& patch) {
  const Json* annotations = Find(patch, "metadata/annotations");
  if (annotations == nullptr || !annotations->is_object()) return false;
  return std::any_of(
      annotations->items().begin(), annotations->items().end(), [](const auto& annotation) {
        const std::string& key = annotation.key();
        return key.ends_with("/request") || key.ends_with("/limit") || key.ends_with("/memory");
      });
}

}  // namespace

std::optional<Json> Resizes::Reconcile(const Entry& entry, const GpuPod& wanted, const Share* share,
                                       bool in_doubt, const std::string& kept_for) {
  const std::string& key = entry.key;
  why_not_.erase(key);
  if (!places_.HasPlace(key)) {
    waiting_.insert(key);  // its node's agent does not know its GPUs now
    return std::nullopt;
  }
  const bool parts = HasParts(places_.PlaceOf(key));
  auto resized = WithRequestedSizes(wanted.request, places_.PlaceOf(key), view_.cluster());
  if (resized) {
    if (auto allowed = CheckAllowed(entry, *resized, kept_for); !allowed) {
      resized = tl::unexpected(allowed.error());
    }
  }
  if (resized) {
    // The team that had it before gets nothing of its growth.
    view_.SetTeam(key, entry.request().team);
    if (!places_.HasPlace(key)) {
      waiting_.insert(key);
      return std::nullopt;
    }
    const auto grown = Resize(key, Most(*resized, places_.PlaceOf(key)));
    if (!grown) resized = tl::unexpected(grown.error());
  }
  if (!resized) {
    const std::string& why = why_not_[key] = resized.error().message;
    waiting_.insert(key);
    if (share == nullptr) events_.Add(entry, true, "ResizeRefused", "Resizing", why);
    return Keep(entry, in_doubt);
  }
  std::optional<Json> patch;
  if (share != nullptr) patch = ChangesOfChild(*share, entry.pod->object);
  if (patch && SaysSize(*patch)) changing_.insert(key);
  // Parts that were made stay as the Binding named them.
  if (!parts && (!entry.pod->placement || !(*entry.pod->placement == *resized))) {
    changing_.insert(key);
    if (!patch) patch = Json::object();
    for (auto& [annotation, value] : PlacementAnnotations(wanted, *resized, entry.pod->gpu)) {
      (*patch)["metadata"]["annotations"][annotation] = value;
    }
  }
  if (patch) return patch;
  if (!(places_.PlaceOf(key) == *resized)) {
    (void)Resize(key, *resized);
    queue_.RequestRound();
  }
  if (changing_.erase(key) > 0) {
    events_.Add(entry, false, "Resized", "Resizing", "GPU share or memory was changed in place");
  }
  return std::nullopt;
}

bool Resizes::Allows(const Entry& entry, const devmgr::Placement& placement) const {
  const devmgr::Ledger ledger(teams_.quotas(), view_.cluster());
  return ledger.Admit(entry.request(), devmgr::TakenBy(placement)).has_value();
}

Result<void> Resizes::CheckAllowed(const Entry& entry, const devmgr::Placement& to,
                                   const std::string& kept_for) const {
  const auto more = [](uint64_t is, uint64_t was) { return is > was ? is - was : 0; };
  const devmgr::Amount is = devmgr::TakenBy(to);
  const devmgr::Amount was = devmgr::TakenBy(places_.PlaceOf(entry.key));
  const devmgr::Amount growth{more(is.share, was.share), more(is.memory_mib, was.memory_mib)};
  if (growth != devmgr::Amount{}) {
    if (HasParts(to)) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("what was made of a GPU by {} has a fixed size; delete the pod and "
                              "create it again",
                              to.vgpus.front().mode));
    }
    if (!kept_for.empty()) {
      return Fail(
          ErrorCode::kExhausted,
          fmt::format("what is free on the node is kept for {}, for which others go", kept_for));
    }
    const devmgr::Ledger ledger(teams_.quotas(), view_.cluster());
    if (auto admitted = ledger.Admit(entry.request(), growth); !admitted) return admitted;
  }
  const std::string& space = entry.name.name_space;
  if (!objects_.quotas().HasAny(space)) return {};
  const uint32_t unit = view_.memory_unit_mib();
  const GpuPod& limits = entry.pod->gpu;
  const std::string why = objects_.quotas().WhyNot(
      space, objects_.ChargeOfOthers(space, entry.key, view_.cluster()),
      ChargeAt(limits, places_.PlaceOf(entry.key), unit), ChargeAt(limits, to, unit));
  if (!why.empty()) return Fail(ErrorCode::kExhausted, why);
  return {};
}

std::optional<Json> Resizes::Reject(const Entry& entry, std::string why, bool in_doubt) {
  if (entry.share) why_not_[entry.key] = std::move(why);
  return Keep(entry, in_doubt);
}

std::optional<Json> Resizes::Keep(const Entry& entry, bool in_doubt) {
  const auto& placement = entry.pod->placement;
  if (!places_.HasPlace(entry.key) || !placement || places_.PlaceOf(entry.key) == *placement ||
      HasParts(*placement)) {
    return std::nullopt;
  }
  // A patch of nothing: its answer has the annotations.
  if (in_doubt) return Json::object();
  (void)Resize(entry.key, *placement);
  return std::nullopt;
}

const std::string& Resizes::WhyNot(const std::string& key) const {
  static const std::string none;
  const auto it = why_not_.find(key);
  return it == why_not_.end() ? none : it->second;
}

Result<void> Resizes::Resize(const std::string& key, const devmgr::Placement& to) {
  const devmgr::Placement before = places_.PlaceOf(key);
  const auto set = [&](size_t i, const devmgr::Fit& fit) {
    const devmgr::Vgpu& vgpu = to.vgpus[i];
    return view_.cluster().Resize(key, vgpu.container, vgpu.group, fit.share, fit.memory_mib);
  };
  for (size_t i = 0; i < to.vgpus.size(); ++i) {
    const devmgr::Fit& there = places_.PlaceOf(key).vgpus[i].fit;
    const devmgr::Fit& fit = to.vgpus[i].fit;
    if (there.share == fit.share && there.memory_mib == fit.memory_mib) continue;
    if (auto done = set(i, fit); !done) {
      while (i-- > 0) (void)set(i, before.vgpus[i].fit);
      return done;
    }
  }
  // What others lack is different now.
  if (!(places_.PlaceOf(key) == before)) {
    queue_.RequestRound();
    QueueWaiting();
  }
  return {};
}

}  // namespace baton::k8s
