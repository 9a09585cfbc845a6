#include "k8s/binder/rounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "k8s/binder/explain.h"

namespace baton::k8s {
namespace {

// "2026-11-21T21:55:42Z" as 20261121215542: in the order in which things came.
uint64_t SinceOf(const Json& object) {
  uint64_t since = 0;
  size_t digits = 0;
  for (const char c : TextAt(object, "metadata/creationTimestamp")) {
    if (c < '0' || c > '9' || digits == 14) continue;
    since = since * 10 + static_cast<uint64_t>(c - '0');
    ++digits;
  }
  return since;
}

// Now, or again once its pod is there, which is being replaced.
bool WantsPlace(const Entry& entry) {
  if (!entry.share || entry.share->deleting) return entry.IsWanted();
  const Share& share = *entry.share;
  return !share.finished && !share.foreign && share.wrong.empty() && entry.gates().empty() &&
         !entry.HasLastingPod();
}

// How long to rest after a round that placed so many pods and refused none. To place a pod takes
// some 0.2 µs for each node (docs/results/placement.md): rounds take a tenth of the time.
Duration RestAfter(size_t pods, size_t nodes) {
  constexpr Duration kForNode = std::chrono::microseconds(2);
  return kForNode * (pods * nodes);
}

const char* WhyTheyGo(bool reclaims) {
  return reclaims ? "that borrowed what its team is guaranteed" : "of lower priority";
}

}  // namespace

void Rounds::Await(const Entry& entry, bool waited) {
  const GpuPod& gpu = entry.gpu();
  if (!entry.needs().claims.empty()) {
    claimants_.insert(entry.key);
    if (auto found = p_.objects.ResolvedNeeds(entry); !found) {
      p_.reasons.Set(entry.key, {"VolumeUnbound", found.error().message});
      // Claims of ephemeral volumes are made for a pod that is there.
      if (entry.share && !entry.pod) names_[entry.key].child_first = true;
      return;
    }
  }
  const size_t members = p_.objects.GangMembers(entry).size();
  if (members > 0 && members < gpu.gang_size) {
    p_.reasons.Set(entry.key, {"WaitingForGang", fmt::format("{} of {} pods of gang '{}' exist",
                                                             members, gpu.gang_size, gpu.gang)});
  }
  p_.view.Expect(entry.request());
  if (gpu.asks()) Learn(entry.key, entry.request());
  waiting_.insert(entry.key);
  if (!waited) p_.queue.RequestRound();
}

bool Rounds::Withdraw(const std::string& key) {
  claimants_.erase(key);
  return waiting_.erase(key) > 0;
}

void Rounds::VolumesChanged() {
  for (const std::string& key : claimants_) {
    p_.queue.Add(key);
    // It may be allowed on other nodes now.
    if (IsWaiting(key)) p_.queue.RequestRound();
  }
}

void Rounds::PodBound(int32_t priority) {
  // What it took may be borrowed.
  const bool reclaims = !p_.teams.quotas().all().empty() && refused_priority_ != INT32_MIN;
  if (priority < refused_priority_ || reclaims) p_.queue.RequestRound();
}

bool Rounds::NeedsChildFirst(const std::string& key) const {
  const auto it = names_.find(key);
  return it != names_.end() && it->second.child_first;
}

void Rounds::ChildMade(const std::string& key) {
  if (const auto it = names_.find(key); it != names_.end()) it->second.child_first = false;
}

void Rounds::Learn(const std::string& key, const devmgr::PodRequest& request) {
  if (std::exchange(names_[key].learned, true)) return;
  p_.view.cluster().Learn(request);
}

bool Rounds::RunIfDue(Instant now) {
  for (const auto& [pod, spared] : spared_) {
    if (spared.until <= now && !waiting_.empty()) p_.queue.RequestRound();
  }
  const bool changed = p_.queue.round_requested();
  if (now < next_round_ || (!changed && !seeks_)) return false;
  p_.queue.ClearRoundRequest();
  // Whom the rounds before did not get to is looked at next; then everybody anew.
  if (std::exchange(seeks_, false)) {
    seeks_again_ |= changed;
  } else {
    for (auto& [key, name] : names_) name.sought = false;
  }
  if (waiting_.empty()) {
    StopEndedPreemptions();
    std::erase_if(kept_, [&](const auto& r) { return preemptions_.Find(r.holder) == nullptr; });
  } else {
    Run(now);
  }
  return true;
}

bool Rounds::IsWithinQuota(const Entry& entry, const GpuCharge& together) {
  const std::string& space = entry.name.name_space;
  if (!entry.gpu().asks() || !p_.objects.quotas().HasAny(space)) return true;
  auto charged = charged_.find(space);
  if (charged == charged_.end()) {
    charged =
        charged_.emplace(space, p_.objects.ChargeOfOthers(space, entry.key, p_.view.cluster()))
            .first;
  }
  GpuCharge others = charged->second;
  others += together;
  const GpuCharge wanted = ChargeOf(entry.gpu(), p_.view.memory_unit_mib());
  // The API server has the last word on memory without a number.
  const GpuCharge now{0, 0, true};
  std::string why = p_.objects.quotas().WhyNot(space, others, now, wanted);
  if (why.empty()) return true;
  p_.reasons.Set(entry.key, {"QuotaExceeded", std::move(why)});
  p_.queue.Add(entry.key);
  return false;
}

bool Rounds::IsGangComplete(const Entry& entry) {
  const std::set<std::string>& members = p_.objects.GangMembers(entry);
  if (members.size() < entry.gpu().gang_size) return false;
  bool complete = true;
  std::string missing;
  GpuCharge together;
  for (const std::string& key : members) {
    const Entry& member = *p_.objects.Find(key);
    if (member.HasEnded() || member.HasLastingPod() || p_.assumed.Has(key)) continue;
    const bool can = IsWaiting(key) && p_.objects.ResolvedNeeds(member).has_value() &&
                     IsWithinQuota(member, together);
    together += ChargeOf(member.gpu(), p_.view.memory_unit_mib());
    if (!can && missing.empty()) missing = key;
    complete &= can;
  }
  if (complete) return true;
  for (const std::string& key : members) {
    // Who is missing says why itself.
    if (key == missing || !IsWaiting(key)) continue;
    p_.reasons.Set(key, {"WaitingForGang", fmt::format("{} of gang '{}' cannot be placed yet",
                                                       missing, entry.gpu().gang)});
    p_.queue.Add(key);
  }
  return false;
}

std::vector<devmgr::WaitingPod> Rounds::WaitingPods(std::map<std::string, PodNeeds>* needs) {
  std::vector<devmgr::WaitingPod> pods;
  std::map<std::string, bool> complete;  // gangs
  for (const std::string& key : waiting_) {
    const Entry& entry = *p_.objects.Find(key);
    const std::string gang = p_.objects.GangOf(entry);
    if (!gang.empty()) {
      const auto known = complete.find(gang);
      const bool is = known != complete.end() ? known->second : IsGangComplete(entry);
      complete.emplace(gang, is);
      if (!is) continue;
    }
    auto found = p_.objects.ResolvedNeeds(entry);
    if (!found || !IsWithinQuota(entry, {})) continue;
    devmgr::WaitingPod pod;
    pod.request = entry.request();
    pod.request.off_nodes = p_.view.OffNodes(*found);
    pod.since = SinceOf(entry.share ? entry.share->object : entry.pod->object);
    pod.gang = gang;
    const auto name = names_.find(key);
    pod.passed_over = name == names_.end() ? 0 : name->second.passed_over;
    // One for whom others are going already needs nobody more.
    pod.displaces = p_.objects.MayPreempt(entry) && preemptions_.Find(key) == nullptr;
    pod.sought = name != names_.end() && name->second.sought;
    pods.push_back(std::move(pod));
    (*needs)[key] = *std::move(found);
  }
  for (const auto& [key, preemption] : preemptions_.all()) {
    const Entry* entry = p_.objects.Find(key);
    if (needs->contains(key) || entry == nullptr) continue;
    devmgr::WaitingPod pod;
    pod.request = entry->request();
    pod.away = true;
    pods.push_back(std::move(pod));
  }
  return pods;
}

void Rounds::Run(Instant now) {
  ++rounds_;
  std::map<std::string, PodNeeds> needs;
  charged_.clear();
  const std::vector<devmgr::WaitingPod> pods = WaitingPods(&needs);
  std::erase_if(spared_, [&](const auto& pod) {
    const Entry* entry = p_.objects.Find(pod.first);
    return pod.second.until <= now || entry == nullptr || !entry->pod ||
           entry->pod->uid != pod.second.uid;
  });
  devmgr::RoundOptions options = p_.options.round;
  for (const auto& [pod, spared] : spared_) options.spared.insert(pod);
  std::vector<devmgr::Reservation> for_moves = moves_.Keep(waiting_);
  // A preemption's victims are on the node that is kept for it.
  std::erase_if(for_moves, [&](const auto& kept) { return preemptions_.Find(kept.holder); });
  for (const devmgr::Reservation& kept : for_moves) {
    DropReservation(kept.holder);
    kept_.push_back(kept);
  }
  const devmgr::Round round = devmgr::Schedule(p_.view.cluster(), p_.modes, pods, p_.teams.quotas(),
                                               p_.teams.standings(), kept_, options);
  const auto before = std::exchange(kept_, round.reservations);
  seeks_ = round.more;
  if (!seeks_ && std::exchange(seeks_again_, false)) p_.queue.RequestRound();
  // Of those that were placed some may be beyond the quota, and then all of their gang are. A
  // gang's stand together.
  const auto& placed = round.placed;
  const auto gang_of = [&](size_t i) { return p_.objects.GangOf(*p_.objects.Find(placed[i].pod)); };
  for (size_t begin = 0, end = 0; begin < placed.size(); begin = end) {
    bool within = true;
    GpuCharge together;
    for (const std::string gang = gang_of(begin);
         end == begin || (end < placed.size() && !gang.empty() && gang_of(end) == gang); ++end) {
      const Entry& entry = *p_.objects.Find(placed[end].pod);
      within = within && IsWithinQuota(entry, together);
      together += ChargeOf(entry.gpu(), p_.view.memory_unit_mib());
    }
    if (within) charged_[p_.objects.Find(placed[begin].pod)->name.name_space] += together;
    for (size_t i = begin; i < end; ++i) {
      const std::string& key = placed[i].pod;
      if (!within) {
        p_.assumed.Release(key);
        continue;
      }
      ++placed_;
      p_.assumed.Add(key, p_.objects.Find(key)->uid());
      names_[key].passed_over = 0;
      p_.reasons.Clear(key);
      waiting_.erase(key);
      p_.queue.Add(key);
    }
  }
  StopEndedPreemptions();
  for (const devmgr::Reservation& kept : for_moves) {
    DropReservation(kept.holder);
    if (IsWaiting(kept.holder) && moves_.Keeps(kept.holder)) kept_.push_back(kept);
  }
  // Who was tried before one of whom a node was kept may fit there now.
  const bool freed = std::any_of(before.begin(), before.end(), [&](const auto& kept) {
    // That of a preemption is kept until the victims have gone, if it is needed still.
    if (preemptions_.Find(kept.holder) != nullptr) return false;
    return std::none_of(kept_.begin(), kept_.end(),
                        [&](const auto& r) { return r.holder == kept.holder; });
  });
  if (freed) p_.queue.RequestRound();
  next_round_ = now + p_.options.round_interval;
  if (round.refused.empty()) {
    const size_t nodes = p_.view.cluster().Nodes().size();
    next_round_ = std::min(next_round_, now + RestAfter(pods.size(), nodes));
  }
  SetRefused(round.refused, needs);
  for (const devmgr::Proposal& proposal : round.proposals) Preempt(proposal);
  for (const auto& [pod, preemption] : preemptions_.all()) {
    DropReservation(pod);
    kept_.push_back({pod, {preemption.node}, true});
  }
}

void Rounds::SetRefused(const std::vector<devmgr::Refusal>& refused,
                        std::map<std::string, PodNeeds>& needs) {
  refused_.clear();
  refused_priority_ = INT32_MIN;
  size_t for_moves = 0;
  for (const devmgr::Refusal& refusal : refused) {
    Name& name = names_[refusal.pod];
    name.passed_over = refusal.passed_over;
    name.sought = refusal.sought;
    refused_priority_ =
        std::max(refused_priority_, p_.objects.Find(refusal.pod)->request().priority);
    const std::string kind = refusal.code == ErrorCode::kInvalid    ? "Invalid"
                             : refusal.code == ErrorCode::kNotFound ? "NoSuchCard"
                             : refusal.ceiling                      ? kTeamCeiling
                                                                    : "Unschedulable";
    const Entry& entry = *p_.objects.Find(refusal.pod);
    // Autoscalers cannot help one that a ceiling keeps out.
    if (entry.share && !entry.pod && kind != "Invalid" && !refusal.ceiling) {
      name.child_first = true;
      p_.queue.Add(refusal.pod);
    }
    const bool shown = kind == p_.reasons.shown(refusal.pod).kind;
    const Instant when = shown ? name.explained_at + p_.options.say_again : kAlways;
    // Moves are looked for for those that were tried first: others would have to wait all the same.
    const bool moves = kind == "Unschedulable" && entry.gpu().asks() && entry.gpu().gang.empty() &&
                       for_moves++ < kMovesFor;
    refused_[{when, refusal.pod}] = {{kind, refusal.why},
                                     std::move(needs[refusal.pod]),
                                     refusal.ceiling,
                                     moves,
                                     refusal.withheld};
  }
}

void Rounds::StopEndedPreemptions() {
  std::set<std::string> wanting;
  for (const auto& [pod, preemption] : preemptions_.all()) {
    const Entry* entry = p_.objects.Find(pod);
    // Others may have the room of one that the API server does not take.
    const bool comes_back = entry != nullptr && WantsPlace(*entry) && !p_.assumed.HasPlace(pod) &&
                            !p_.retries.IsRejected(pod);
    if (IsWaiting(pod) || comes_back) wanting.insert(pod);
  }
  for (const std::string& pod : preemptions_.Ended(wanting)) StopPreemption(pod);
}

void Rounds::StopPreemption(const std::string& pod) {
  if (preemptions_.Find(pod) == nullptr) return;
  preemptions_.Stop(pod);
  if (DropReservation(pod)) p_.queue.RequestRound();
}

bool Rounds::DropReservation(const std::string& pod) {
  return std::erase_if(kept_, [&](const auto& r) { return r.holder == pod; }) > 0;
}

void Rounds::SpareVictim(const std::string& key, const std::string& uid, Instant until,
                         const std::string& why) {
  Spared& spared = spared_[key] = {uid, until, "", why};
  if (!preemptions_.IsVictim(key, uid)) return;
  spared.pod = preemptions_.PreemptorOf(key);
  StopPreemption(spared.pod);
  p_.queue.RequestRound();
  if (const Entry* entry = p_.objects.Find(spared.pod)) {
    p_.events.Add(*entry, true, "EvictionRefused", "Preempting", key + " stays: " + why);
  }
}

void Rounds::Preempt(const devmgr::Proposal& proposal) {
  // The room that it was promised comes.
  if (preemptions_.Find(proposal.pod) != nullptr) return;
  const Entry& entry = *p_.objects.Find(proposal.pod);
  const devmgr::Displacement& displacement = proposal.displacement;
  // The API server may not take its pod: a quota for pods of its class, a policy. So nobody goes
  // before it has.
  const bool child_first = entry.share && !entry.pod;
  if (child_first && preemptions_.HasRoomFor(displacement)) {
    names_[entry.key].child_first = true;
    p_.queue.Add(entry.key);
  }
  if (child_first || !preemptions_.Start(entry.key, displacement, proposal.reclaims)) {
    DropReservation(entry.key);
    return;
  }
  moves_.Forget(displacement.pods);
  p_.events.Add(entry, false, "Preempting", "Preempting",
                fmt::format("deleting {} pods {} on node {}", displacement.pods.size(),
                            WhyTheyGo(proposal.reclaims), displacement.node));
}

void Rounds::ExplainSome(Instant now) {
  uint32_t left = p_.options.explain_per_step;
  while (left > 0 && !refused_.empty() && refused_.begin()->first.first <= now) {
    const auto node = refused_.extract(refused_.begin());
    const std::string& key = node.key().second;
    if (!IsWaiting(key)) continue;
    const Entry& entry = *p_.objects.Find(key);
    const Refused& refused = node.mapped();
    --left;
    names_[key].explained_at = now;
    std::string why;
    if (const Preemption* preemption = preemptions_.Find(key)) {
      why = fmt::format("waiting for {} preempted pods {} to end on node {}",
                        preemption->victims.size(), WhyTheyGo(preemption->reclaims),
                        preemption->node);
    } else if (refused.ceiling) {
      why = refused.reason.text;
      if (!refused.withheld.empty()) why += "; " + refused.withheld;
    } else {
      std::string besides = refused.withheld;
      for (const auto& [victim, spared] : spared_) {
        if (spared.pod != key) continue;
        besides += fmt::format("{}{} stays, for its eviction was refused: {}",
                               besides.empty() ? "" : "; ", victim, spared.why);
      }
      if (refused.moves) {
        devmgr::Names kept;
        for (const devmgr::Reservation& other : kept_) {
          if (other.holder != key) kept.insert(other.nodes.begin(), other.nodes.end());
        }
        const std::string moves = moves_.Propose(entry, refused.needs, kept);
        if (!moves.empty()) besides += (besides.empty() ? "" : "; ") + moves;
        left = 0;  // it takes as long as many of the others
      }
      why = ExplainPlacement(p_.view, entry.request(), refused.needs, entry.gpu().asks(),
                             refused.reason.text, besides);
    }
    // It says already why its pod cannot be created; of one that a ceiling keeps out none is.
    if (entry.share && !entry.pod && p_.retries.IsRejected(key) && !refused.ceiling) continue;
    // Whether the API server still rejects its Binding shows when there is room.
    p_.retries.Accept(key);
    p_.reasons.Set(key, {refused.reason.kind, Cut(std::move(why))});
    p_.queue.Add(key);
  }
}

Instant Rounds::next(Instant now) const {
  Instant next = kNever;
  if (p_.queue.round_requested() || seeks_) {
    next = std::max(now, next_round_);
  }
  // Who was spared may go then.
  for (const auto& [pod, spared] : spared_) {
    if (!waiting_.empty()) next = std::min(next, std::max(spared.until, now));
  }
  if (!refused_.empty()) {
    next = std::min(next, std::max(refused_.begin()->first.first, now + p_.options.round_interval));
  }
  return next;
}

void Rounds::ForgetObject(const std::string& key) {
  if (const auto it = names_.find(key); it != names_.end()) it->second.passed_over = 0;
}

void Rounds::ForgetWaiter(const std::string& key) {
  if (const auto it = names_.find(key); it != names_.end()) {
    it->second.learned = it->second.child_first = false;
  }
  StopPreemption(key);
}

}  // namespace baton::k8s
