#include "scheduler/token_scheduler.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace baton::scheduler {

TokenScheduler::TokenScheduler(const SchedulerOptions& options, uint64_t last_epoch,
                               uint64_t first_epoch)
    : options_(options),
      holding_(options_, roster_, forecast_, line_, next_, turn_, last_epoch, first_epoch) {}

void TokenScheduler::Step(Instant now, const Event& event, Effects& effects) {
  turn_.effects = &effects;
  const Instant before = std::exchange(turn_.now, std::max(turn_.now, now));
  ChargeStrays(turn_.now - before);
  line_.Pass(turn_.now - before, holding_.pod());
  ++steps_;
  // With many GPUs and pods the next holder is not in the cache; fetch it while the event is
  // handled.
  if (const auto likely = line_.queue().PrefetchLikely()) roster_.Prefetch(*likely);
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { clients_.On(e); }) {
          clients_.On(e);
        } else if constexpr (!std::is_same_v<std::decay_t<decltype(e)>, Tick>) {
          On(e);
        }
      },
      event);
  if (!to_be_idle_.empty()) SettleIdle();
  line_.ForgetRested();
  if (!cut()) Decide();
  if (!gangs_.empty()) gangs_.Rank(cut());
  turn_.effects = nullptr;
}

void TokenScheduler::Decide() {
  strays_.Expire();
  if (holding_.held()) holding_.Tend();
  if (!strays_.empty() || gangs_.reserved() != Roster::kNobody) return;
  if (!holding_.held()) {
    const auto next = line_.Next();
    if (next) holding_.Grant(*next, line_.Quota(*next));
  } else if (AwaitsNext(holding_.token(), next_, roster_) && !roster_.has_gangs()) {
    const auto next = line_.Next();
    // One of idle priority is not: somebody with a request may come until then.
    if (next && !roster_.pod(*next).idle_priority()) {
      SendAhead(holding_.token(), *next, holding_.NextEpoch(), line_.Quota(*next), roster_, turn_,
                next_);
    }
  }
}

// While no token was out and somebody claimed to run, that one kept the GPU from all others.
void TokenScheduler::ChargeStrays(Duration passed) {
  if (strays_.empty() || holding_.held() || cut() || passed <= Duration(0)) return;
  line_.ChargeAside(roster_.client(strays_.oldest()).pod, passed);
  gangs_.NotKept(passed);
}

std::optional<std::string> TokenScheduler::Invariants() const {
  const auto& members = holding_.token().members;
  if (holding_.held() != (holding_.pod() != Roster::kNobody)) return "a token without a pod";
  if (!holding_.held() && !members.empty()) return "a free token has members";
  size_t with_part = 0;
  std::vector<uint32_t> wanting(roster_.pods().size());
  for (uint32_t c = 0; c < roster_.clients().size(); ++c) {
    const Client& client = roster_.client(c);
    if (!client.id) continue;
    with_part += client.member();
    wanting[client.pod] += client.wants;
    if (client.wants && !client.connected()) return "a client that is away wants the token";
    if (!client.member()) continue;
    if (client.pod != holding_.pod()) return "a client of another pod has a part of the token";
    if (std::count(members.begin(), members.end(), c) != 1) return "a part without a member";
    if (client.joined_at > turn_.now) return "a part of the future";
  }
  if (with_part != members.size()) return "a member without a part";
  for (uint32_t p = 0; p < roster_.pods().size(); ++p) {
    const Pod& pod = roster_.pod(p);
    if (!pod.id) continue;
    if (pod.wanting != wanting[p]) return "a pod's clients that want the token do not add up";
    const bool waits = pod.waiting_since != kNever;
    if (waits && holding_.pod() == p) return "the pod that holds waits";
    if (holding_.pod() != p && pod.asks() != waits) {
      return "a pod that asks does not stand in line, or one that does not ask does";
    }
  }
  if (next_.sent()) {
    if (!holding_.held() || next_.pod() == holding_.pod())
      return "the next token has none before it";
    for (const uint32_t c : next_.clients()) {
      if (!roster_.client(c).id || roster_.client(c).pod != next_.pod()) {
        return "a client of another pod was sent the next token";
      }
      if (roster_.client(c).member()) return "who has a part is next as well";
    }
  }
  if (!strays_.bounded()) return "a claim is waited for for too long";
  const auto lags = line_.queue().fluid().SumOfLags();
  if (lags && std::abs(Nanos(*lags)) > 1'000'000) return "the lags do not sum to zero";
  return std::nullopt;
}

Instant TokenScheduler::wakeup() const {
  const Instant at = line_.demand().wakeup();
  if (cut()) return at;
  if (holding_.held()) return std::min({at, strays_.wakeup(), holding_.wakeup()});
  return std::min(at, strays_.empty() ? line_.NextRefill() : strays_.wakeup());
}

std::optional<PodId> TokenScheduler::holder() const {
  if (!holding_.held()) return std::nullopt;
  return roster_.pod(holding_.pod()).id;
}

bool TokenScheduler::Holds(ClientId client, std::optional<uint64_t> epoch) const {
  const uint32_t c = roster_.Find(client);
  return c != Roster::kNobody && (!epoch || roster_.client(c).epoch == *epoch) &&
         (roster_.client(c).member() || strays_.Has(c) || next_.Has(c));
}

std::vector<PodStatus> TokenScheduler::Status(Instant now) {
  const bool requester_holds = holding_.held() && !roster_.pod(holding_.pod()).idle_priority();
  std::vector<PodStatus> all;
  for (uint32_t index = 0; index < roster_.pods().size(); ++index) {
    const Pod& pod = roster_.pod(index);
    if (!pod.id) continue;
    PodStatus s;
    s.pod = pod.id;
    line_.Describe(index, now, requester_holds, s);
    s.holding = holding_.pod() == index;
    s.held = Duration(pod.held_ns);
    s.waited = Duration(pod.waited_ns);
    s.waiting_since = pod.waiting_since;
    if (s.waiting) s.waited += now - pod.waiting_since;
    s.grants = pod.grants;
    s.revocations = pod.revocations;
    all.push_back(s);
  }
  std::sort(all.begin(), all.end(),
            [](const PodStatus& a, const PodStatus& b) { return a.pod < b.pod; });
  return all;
}

GangView TokenScheduler::Gang(PodId id) const {
  GangView view;
  const uint32_t index = roster_.Find(id);
  if (index == Roster::kNobody) return view;
  const Pod& pod = roster_.pod(index);
  const uint32_t reserved = gangs_.reserved();
  view.wants = pod.wanting > 0;
  view.rank = pod.rank;
  view.request = line_.queue().requests().RateOf(index);
  view.behind = line_.queue().requests().HowFar(index);
  view.owed_much = pod.owed_much;
  view.reserved = reserved == index;
  view.taken = reserved != Roster::kNobody && reserved != index;
  view.free = view.reserved && !holding_.held() && strays_.empty() && !cut();
  view.holds = holding_.pod() == index;
  view.quota = line_.Quota(index);
  view.allowance = line_.queue().Allowance(index, turn_.now);
  if (view.free) view.allowance -= gangs_.kept();
  view.contended = line_.demand().anybody_waits();
  view.overdue = strays_.overdue();
  holding_.Describe(view);
  return view;
}

void TokenScheduler::On(const PodSet& event) {
  uint32_t index = roster_.Find(event.pod);
  if (index == Roster::kNobody) {
    index = roster_.AddPod(event.pod, event.gang);
    strays_.Allow(roster_.pod(index));
    return line_.Add(index, event.spec, event.owner, event.limit_full_at);
  }
  std::erase_if(to_be_idle_, [&event](const PodSet& set) { return set.pod == event.pod; });
  const bool idle = event.spec.priority == policy::Priority::kIdle;
  if (!idle || roster_.pod(index).idle_priority() || !HasToken(index)) {
    return Set(index, event.spec);
  }
  // It was granted by its request, which pays for all of that: or a pod that is of idle priority
  // whenever it holds would have its longest kernels for nothing.
  to_be_idle_.push_back(event);
}

void TokenScheduler::Set(uint32_t index, const policy::ShareSpec& spec) {
  const Pod& pod = roster_.pod(index);
  const bool was_idle = pod.idle_priority();
  const bool moves = was_idle != (spec.priority == policy::Priority::kIdle);
  if (moves && holding_.held()) holding_.ChargeProgress();
  line_.Update(index, spec);
  if (!moves || !holding_.held()) return;
  if (was_idle && pod.waiting_since != kNever) holding_.MakeWay(index);
}

// Those that have no token any more are of idle priority now; a token that was sent ahead, and has
// begun, ends.
void TokenScheduler::SettleIdle() {
  std::erase_if(to_be_idle_, [this](const PodSet& set) {
    const uint32_t index = roster_.Find(set.pod);
    if (index == Roster::kNobody) return true;
    if (HasToken(index)) {
      if (holding_.pod() == index && holding_.token().deadline > turn_.now) holding_.End();
      return false;
    }
    Set(index, set.spec);
    return true;
  });
}

void TokenScheduler::On(const PodRemoved& event) {
  const uint32_t index = roster_.Find(event.pod);
  if (index == Roster::kNobody) return;
  Pod& pod = roster_.pod(index);
  pod.removed = true;
  for (const uint32_t c : pod.clients) clients_.SetWants(c, false);
  if (pod.gang) On(GangStep{event.pod, GangStep::Do::kRest});
  if (holding_.pod() == index) return holding_.End();
  if (next_.pod() == index) return;  // it has had its token first
  if (gangs_.reserved() == index) gangs_.Unreserve();
  clients_.Forget(index);
}

void TokenScheduler::On(const LinkCut& event) {
  if (event.cut) {
    cut_at_ = std::min(cut_at_, turn_.now);
  } else if (cut()) {
    const Duration away = turn_.now - std::exchange(cut_at_, kNever);
    strays_.LinkBack(away);
    holding_.LinkBack(away);
  }
}

void TokenScheduler::On(const GangStep& event) {
  using Do = GangStep::Do;
  const uint32_t index = roster_.Find(event.pod);
  if (index == Roster::kNobody || !roster_.pod(index).gang) return;
  Pod& pod = roster_.pod(index);
  const bool holds = holding_.pod() == index;
  switch (event.act) {
    case Do::kWait:
    case Do::kRest:
      pod.gang_waits = event.act == Do::kWait && !pod.removed;
      clients_.UpdateWaiting(index);
      gangs_.Stand(index, pod.gang_waits, event.behind);
      return;
    case Do::kReserve:
      if (gangs_.Reserve(index) && !holds) holding_.EndForGang();
      return;
    case Do::kGrant:
      if (gangs_.reserved() != index || holding_.held() || !strays_.empty()) return;
      gangs_.ChargeKept();
      holding_.Grant(index, event.span);
      return;
    case Do::kExtend:
      if (holds) holding_.Extend(event.span);
      return;
    case Do::kClose:
      if (holds) holding_.Close();
      return;
    case Do::kReopen:
    case Do::kReopenAll:
      if (holds) holding_.LetOn(event.span, event.act == Do::kReopenAll);
      return;
    case Do::kCap:
      gangs_.Cap(index);
      return;
    case Do::kRelease:
      if (holds && holding_.token().members.empty()) {
        clients_.TakeBack();
      } else if (!holds && gangs_.reserved() == index) {
        gangs_.Unreserve();
      }
      return;
  }
}

void TokenScheduler::On(const TeamWeights& event) {
  line_.queue().SetTeamWeights({event.weights.begin(), event.weights.end()});
}

void TokenScheduler::On(const PodHeldBack& event) {
  const uint32_t index = roster_.Find(event.pod);
  if (index == Roster::kNobody || roster_.pod(index).gang) return;
  Pod& pod = roster_.pod(index);
  if (pod.held_back == event.held_back) return;
  pod.held_back = event.held_back;
  clients_.UpdateWaiting(index);
  if (pod.held_back && holding_.pod() == index) holding_.End();
}

}  // namespace baton::scheduler
