// Rounds: who of those that wait is placed, who goes for whom, and why the others wait.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "k8s/binder/core_impl.h"

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

}  // namespace

const devmgr::PodRequest& Core::Impl::RequestOf(const Entry& entry) const {
  return entry.share ? entry.share->request : entry.pod->request;
}

const PodNeeds& Core::Impl::NeedsOf(const Entry& entry) const {
  return entry.share ? entry.share->needs : entry.pod->needs;
}

const GpuPod& Core::Impl::GpuOf(const Entry& entry) const {
  return entry.share ? entry.share->gpu : entry.pod->gpu;
}

bool Core::Impl::MayDisplace(const Entry& entry) const {
  // A pod has it from its class; a SharePod's may not be made yet.
  if (!entry.pod) return classes.MayPreempt(*entry.share->child);
  return TextAt(entry.pod->object, "spec/preemptionPolicy") != "Never";
}

void Core::Impl::Round() {
  round_wanted = false;
  last_round = now.at;
  ++totals.rounds;
  std::vector<devmgr::WaitingPod> pods;
  std::map<std::string, PodNeeds> needs;
  for (const std::string& key : waiting) {
    const Entry& entry = entries.at(key);
    const GpuPod& gpu = GpuOf(entry);
    if (!entry.gang.empty() && gangs.at(entry.gang).size() < gpu.gang_size) continue;
    devmgr::WaitingPod pod;
    pod.request = RequestOf(entry);
    auto found = volumes.Resolve(entry.name.name_space, NeedsOf(entry));
    if (!found) continue;
    needs[key] = *std::move(found);
    pod.request.off_nodes = view.OffNodes(needs[key]);
    pod.since = SinceOf(entry.share ? entry.share->object : entry.pod->object);
    pod.gang = entry.gang;
    pod.passed_over = entry.passed_over;
    pod.displaces = MayDisplace(entry);
    pods.push_back(std::move(pod));
  }
  const devmgr::Round round =
      devmgr::Schedule(view.cluster(), ClusterModes(), pods, {}, {}, kept, options.round);
  // Who was tried before one of whom a node was kept may fit there now.
  round_wanted |= std::any_of(kept.begin(), kept.end(), [&](const auto& before) {
    return std::none_of(round.reservations.begin(), round.reservations.end(),
                        [&](const auto& r) { return r.holder == before.holder; });
  });
  kept = round.reservations;
  for (const devmgr::PlacedNow& placed : round.placed) {
    Entry& entry = entries.at(placed.pod);
    ++totals.decided;
    entry.decided_for = HolderOf(entry);
    entry.passed_over = 0;
    entry.why = Why();
    SetWaits(entry, false);
    Touch(placed.pod);
  }
  PurgeDisplacing();
  refused.clear();
  refused_priority = INT32_MIN;
  for (const devmgr::Refusal& refusal : round.refused) {
    Entry& entry = entries.at(refusal.pod);
    entry.passed_over = refusal.passed_over;
    refused_priority = std::max(refused_priority, RequestOf(entry).priority);
    const bool never = refusal.code == ErrorCode::kNotFound;
    const std::string kind = refusal.code == ErrorCode::kInvalid ? "Invalid"
                             : never                             ? "NoSuchCard"
                                                                 : "Unschedulable";
    const Instant when =
        kind == entry.shown.kind ? entry.explained_at + options.say_again : kAlways;
    refused[{when, refusal.pod}] = {{kind, refusal.why}, needs[refusal.pod]};
  }
  for (const devmgr::Proposal& proposal : round.proposals) Displace(proposal);
  for (const auto& [pod, displacing_now] : displacing) {
    std::erase_if(kept, [&, &name = pod](const auto& r) { return r.holder == name; });
    kept.push_back({pod, {displacing_now.node}});
  }
  for (const std::string& key : resizers) Touch(key);
}

void Core::Impl::PurgeDisplacing() {
  std::vector<std::string> over;
  for (auto& [pod, others] : displacing) {
    std::erase_if(others.victims, [&](const auto& victim) {
      const auto found = entries.find(victim.first);
      return found == entries.end() || !found->second.pod ||
             found->second.pod->uid != victim.second || !found->second.pod->takes_room;
    });
    if (others.victims.empty() || !waiting.contains(pod)) over.push_back(pod);
  }
  for (const std::string& pod : over) StopDisplacing(pod);
}

void Core::Impl::StopDisplacing(const std::string& pod) {
  const auto it = displacing.find(pod);
  if (it == displacing.end()) return;
  for (const auto& [key, uid] : it->second.victims) {
    const auto found = entries.find(key);
    if (found != entries.end() && found->second.evict_uid == uid) {
      found->second.evict_uid.clear();
    }
  }
  displacing.erase(it);
  round_wanted |= std::erase_if(kept, [&](const auto& r) { return r.holder == pod; }) > 0;
}

void Core::Impl::Displace(const devmgr::Proposal& proposal) {
  const auto drop = [&] {
    std::erase_if(kept, [&](const auto& r) { return r.holder == proposal.pod; });
  };
  // The room that it was promised comes.
  if (displacing.contains(proposal.pod)) return;
  size_t on_their_way = 0;
  for (const auto& [pod, others] : displacing) on_their_way += others.victims.size();
  const auto& victims = proposal.displacement.pods;
  if (on_their_way + victims.size() > options.evictions_max) {
    drop();
    return;
  }
  // The API server may not take its pod: a quota for pods of its class, a policy. So nobody goes
  // before it has.
  if (Entry& entry = entries.at(proposal.pod); entry.share && !entry.pod) {
    entry.make_child = true;
    Touch(entry.key);
    drop();
    return;
  }
  Displacing made;
  made.node = proposal.displacement.node;
  for (const std::string& key : victims) {
    const auto found = entries.find(key);
    // What is not on its node yet is asked for again in the next round.
    if (found == entries.end() || !found->second.pod || found->second.pod->node.empty()) {
      drop();
      return;
    }
    made.victims[key] = found->second.pod->uid;
  }
  for (const auto& [key, uid] : made.victims) {
    Entry& victim = entries.at(key);
    victim.evict_uid = uid;
    victim.evict_for = proposal.pod;
    Touch(key);
  }
  Tell(entries.at(proposal.pod), false, "Preempting", "Preempting",
       fmt::format("{} pods of lower priority are deleted on node {} to make room", victims.size(),
                   made.node));
  displacing[proposal.pod] = std::move(made);
}

std::string Core::Impl::Explain(const Entry& entry, const std::string& why, const PodNeeds& needs) {
  std::string text = why;
  PodRequest request = RequestOf(entry);
  request.off_nodes = view.OffNodes(needs);
  for (const devmgr::NodeRefusal& refusal : view.cluster().Explain(request)) {
    // Of nodes without GPUs there may be many, and their number has been said.
    if (refusal.cards.empty() && GpuOf(entry).asks()) continue;
    std::string line = refusal.why;
    const std::string off = view.WhyOff(needs, refusal.node);
    const std::string closed = view.WhyClosed(refusal.node);
    if (!off.empty()) {
      line = off;
    } else if (!closed.empty()) {
      line = closed;
    } else if (line.find(kPrefix) != std::string::npos) {
      // One of Baton's own resources is short.
      line = view.WhyKubelet(request, refusal.node);
    }
    if (line.empty()) {
      // Cards that say the same are named together.
      std::vector<std::pair<std::string, std::string>> groups;
      for (size_t c = 0; c < refusal.cards.size(); ++c) {
        const std::string& card = refusal.cards[c].why;
        const auto same = std::find_if(groups.begin(), groups.end(),
                                       [&](const auto& group) { return group.second == card; });
        if (same != groups.end()) {
          same->first += "," + std::to_string(c);
        } else {
          groups.emplace_back(std::to_string(c), card);
        }
      }
      for (const auto& [cards, reason] : groups) {
        line += fmt::format("{}card {} {}", line.empty() ? "" : "; ", cards,
                            reason.empty() ? "would do, but is not enough" : reason);
      }
    }
    text += "\n" + refusal.node + ": " + line;
    if (text.size() > kMessageMax) break;
  }
  return text;
}

void Core::Impl::ExplainSome() {
  uint32_t left = options.explain_per_step;
  while (left > 0 && !refused.empty() && refused.begin()->first.first <= now.at) {
    const auto node = refused.extract(refused.begin());
    const auto found = entries.find(node.key().second);
    if (found == entries.end() || !found->second.waits) continue;
    Entry& entry = found->second;
    const Refused& refusal = node.mapped();
    --left;
    entry.explained_at = now.at;
    std::string why = Explain(entry, refusal.why.text, refusal.needs);
    const auto promise = displacing.find(entry.key);
    if (promise != displacing.end()) {
      why = fmt::format("{} pods of lower priority end on node {} to make room for it",
                        promise->second.victims.size(), promise->second.node);
    }
    Accepted(entry);  // whether it still would be refused shows when there is room
    entry.why = {refusal.why.kind, Cut(std::move(why))};
    Touch(entry.key);
  }
}

}  // namespace baton::k8s
