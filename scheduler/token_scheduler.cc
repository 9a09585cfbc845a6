#include "scheduler/token_scheduler.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace baton::scheduler {
namespace {

// What a client may say of revisions that this side does not know of.
constexpr uint64_t kRevMost = uint64_t{1} << 62;

// Takes what the report says of the client itself. Whether it has heard the last word about the
// token that it was sent. A client that names a token later than the `last` one lies, and so does
// one that names a later revision than it was told, but for its first report: after a restart it
// knows more of them than this side. Or it would have drained each token before it was sent.
bool Note(Roster::Client& client, const ClientReport& report, uint64_t last, bool fresh,
          Instant now) {
  // What a heartbeat in the middle of a drain says moves it nearer, never further: the backlog of
  // work that waits for another launch does not shrink.
  const Instant done_at = now + report.backlog;
  const bool drains = report.phase == wire::Phase::kDraining;
  client.done_at = drains && client.draining ? std::min(client.done_at, done_at) : done_at;
  client.draining = drains;
  if (report.epoch != client.epoch) return report.epoch > client.epoch && report.epoch <= last;
  if (report.rev <= client.rev) return report.rev == client.rev;
  if (client.told && !fresh) return false;
  client.rev = std::min(report.rev, kRevMost);
  return true;
}

// How long a client that has drained has held its part.
Duration HeldBy(const Roster::Client& client, const ClientReport& report, Instant now) {
  const Duration held = now - client.joined_at;
  if (report.held > Duration(0)) return std::min(held, report.held);
  if (client.away_since == kNever || report.epoch != client.epoch) return held;
  // Only it can know when it drained; what it says counts for the time that nobody watched, and for
  // what it takes to come back.
  const Duration known = client.away_since - client.joined_at;
  const Duration seen = now - std::min(now, client.watched_from + kHearing);
  return std::clamp(report.claimed, std::min(held, known + seen), held);
}

}  // namespace

TokenScheduler::TokenScheduler(const SchedulerOptions& options, uint64_t last_epoch,
                               uint64_t first_epoch)
    : options_(options),
      holding_(options_, roster_, forecast_, line_, turn_, last_epoch, first_epoch) {}

void TokenScheduler::Step(Instant now, const Event& event, Effects& effects) {
  turn_.effects = &effects;
  const Instant before = std::exchange(turn_.now, std::max(turn_.now, now));
  ChargeStrays(turn_.now - before);
  ++steps_;
  // With many GPUs and pods the next holder is not in the cache; fetch it while the event is
  // handled.
  if (const auto likely = line_.queue().PrefetchLikely()) roster_.Prefetch(*likely);
  std::visit(
      [this](const auto& e) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(e)>, Tick>) On(e);
      },
      event);
  line_.ForgetRested();
  if (!cut()) {
    strays_.Expire();
    if (holding_.held()) holding_.Tend();
    if (!holding_.held() && strays_.empty() && gangs_.reserved() == Roster::kNobody) {
      const auto next = line_.Next();
      if (next) holding_.Grant(*next, line_.Quota(*next));
    }
  }
  if (!gangs_.empty()) gangs_.Rank(cut());
  turn_.effects = nullptr;
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
         (roster_.client(c).member() || strays_.Has(c));
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
  if (index != Roster::kNobody) {
    const Pod& pod = roster_.pod(index);
    const bool was_idle = pod.idle_priority();
    const bool moves = was_idle != (event.spec.priority == policy::Priority::kIdle);
    if (moves && holding_.held()) holding_.ChargeProgress();
    line_.Update(index, event.spec);
    if (!moves || !holding_.held()) return;
    if (!was_idle && holding_.pod() == index) holding_.GiveWay();
    if (was_idle && pod.waiting_since != kNever) holding_.MakeWay(index);
    return;
  }
  index = roster_.AddPod(event.pod, event.gang);
  strays_.Allow(roster_.pod(index));
  line_.Add(index, event.spec, event.limit_full_at);
}

void TokenScheduler::On(const PodRemoved& event) {
  const uint32_t index = roster_.Find(event.pod);
  if (index == Roster::kNobody) return;
  Pod& pod = roster_.pod(index);
  pod.removed = true;
  for (const uint32_t c : pod.clients) SetWants(c, false);
  if (pod.gang) On(GangStep{event.pod, GangStep::Do::kRest});
  if (holding_.pod() == index) return holding_.End();
  if (gangs_.reserved() == index) gangs_.Unreserve();
  Forget(index);
}

void TokenScheduler::On(const ClientAttached& event) {
  if (const uint32_t c = roster_.Find(event.client); c != Roster::kNobody) {
    Client& client = roster_.client(c);
    client.contact = Client::Contact::kNew;
    // What was sent to the old connection may be lost; its next report tells.
    if (client.member()) client.part = Client::Part::kSent;
    return;
  }
  const uint32_t pod = roster_.Find(event.pod);
  if (pod != Roster::kNobody && !roster_.pod(pod).removed) roster_.AddClient(event.client, pod);
}

void TokenScheduler::On(const ClientReport& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  Client& client = roster_.client(c);
  if (event.seq <= client.seq || !client.connected()) return;
  client.seq = event.seq;
  const bool fresh =
      std::exchange(client.contact, Client::Contact::kHeard) == Client::Contact::kNew;
  const bool heard = Note(client, event, epoch(), fresh, turn_.now);
  const bool holds = event.phase == wire::Phase::kHolding || event.phase == wire::Phase::kDraining;
  if (heard && client.part == Client::Part::kSent) {
    client.part = Client::Part::kConfirmed;
    if (client.rev == 1 && event.phase == wire::Phase::kHolding) {
      forecast_.NoteConfirmed(turn_.now - client.sent_at);
    }
  }
  // Back on a new connection: what the old one lost is said again now, not when it is overdue.
  if (fresh && client.member() && !heard) holding_.members().Send(c);
  holds ? OnHolding(c, event, fresh) : OnDrained(c, event, heard);
}

// It holds the token, or drains it.
void TokenScheduler::OnHolding(uint32_t c, const ClientReport& report, bool fresh) {
  Client& client = roster_.client(c);
  if (!client.member()) {
    // Only who comes (back) can hold something that this side does not know of, and only while its
    // pod has made no more of such claims than it may.
    const bool may = roster_.pod(client.pod).claims.Left(turn_.now) > Duration(0);
    if (!fresh || !may) return strays_.Stop(c, report.epoch);
    Adopt(c, {report.epoch, turn_.now, turn_.now, Duration(0), true});
  }
  if (report.epoch >= client.epoch) {  // it has held all along
    client.away_since = kNever;
    client.unwatched = Duration(0);
    if (client.member()) holding_.SetUnwatched(Duration(0));
  }
  SetWants(c, true);
}

// It holds nothing: it is idle, or waits.
void TokenScheduler::OnDrained(uint32_t c, const ClientReport& report, bool heard) {
  SetWants(c, report.phase == wire::Phase::kWaiting);
  const Client& client = roster_.client(c);
  // A report that names an earlier token was sent before the last one arrived, and that one may
  // have opened the gate again since.
  if (client.member() && heard && holding_.Drained(c, HeldBy(client, report, turn_.now))) {
    TakeBack();
  }
  strays_.Release(c);
  holding_.members().Admit(c);
}

void TokenScheduler::On(const ClientDisconnected& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  SetWants(c, false);
  Client& client = roster_.client(c);
  client.contact = Client::Contact::kAway;
  if (client.member() && event.heard_at != kNever && client.away_since == kNever) {
    client.away_since = std::clamp(event.heard_at, client.joined_at, turn_.now);
    client.watched_from = turn_.now;
  }
}

void TokenScheduler::On(const ClientGone& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  SetWants(c, false);
  roster_.Unlist(c);
  // Until its end was seen nobody else could use the GPU: all of that is its own.
  const Client& client = roster_.client(c);
  if (client.member()) {
    const Duration unwatched = client.away_since != kNever ? client.unwatched : Duration(0);
    if (holding_.Drained(c, turn_.now - client.joined_at - unwatched)) TakeBack();
  }
  strays_.Release(c);
  roster_.Free(c);
}

void TokenScheduler::On(const HolderRestored& event) {
  const uint32_t pod = roster_.Find(event.pod);
  if (pod == Roster::kNobody || roster_.Find(event.client) != Roster::kNobody) return;
  const Instant now = turn_.now;
  const uint32_t c = roster_.AddClient(event.client, pod);
  Client& client = roster_.client(c);
  client.contact = Client::Contact::kAway;
  const Instant granted_at = std::min(event.granted_at, now);
  Adopt(c, {event.epoch, granted_at, std::clamp(event.joined_at, granted_at, now), event.charged});
  if (!client.member()) return;
  client.rev = 1;  // at least that much was sent
  client.away_since = std::clamp(granted_at + event.charged, client.joined_at, now);
  client.watched_from = now;
  client.unwatched = now - client.away_since;
  holding_.SetUnwatched(now - std::min(granted_at + event.charged, now));
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
      UpdateWaiting(index);
      gangs_.Stand(index, pod.gang_waits);
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
        TakeBack();
      } else if (!holds && gangs_.reserved() == index) {
        gangs_.Unreserve();
      }
      return;
  }
}

void TokenScheduler::On(const TeamWeights& event) {
  line_.queue().SetTeamWeights({event.weights.begin(), event.weights.end()});
}

// A client holds without having been sent the present token: it held when this daemon was started
// anew, or launched on its own while no backend answered. What runs must drain before anyone is
// granted.
void TokenScheduler::Adopt(uint32_t c, const Holding::Adopted& hold) {
  const uint32_t pod = roster_.client(c).pod;
  // Another pod holds already; all that is left is to stop this one.
  if (holding_.held() && holding_.pod() != pod) return strays_.Stop(c, hold.epoch);
  if (!holding_.held() && roster_.pod(pod).gang) gangs_.FoundHolding(pod);
  holding_.Adopt(c, hold);
}

void TokenScheduler::On(const PodHeldBack& event) {
  const uint32_t index = roster_.Find(event.pod);
  if (index == Roster::kNobody || roster_.pod(index).gang) return;
  Pod& pod = roster_.pod(index);
  if (pod.held_back == event.held_back) return;
  pod.held_back = event.held_back;
  UpdateWaiting(index);
  if (pod.held_back && holding_.pod() == index) holding_.End();
}

void TokenScheduler::SetWants(uint32_t c, bool wants) {
  Client& client = roster_.client(c);
  if (client.wants == wants) return;
  client.wants = wants;
  Pod& pod = roster_.pod(client.pod);
  wants ? ++pod.wanting : --pod.wanting;
  UpdateWaiting(client.pod);
}

// A pod waits when it asks for the token and does not hold it.
void TokenScheduler::UpdateWaiting(uint32_t pod) {
  const bool holds = holding_.pod() == pod;
  if (holds || !roster_.pod(pod).asks()) return line_.Leave(pod, holds);
  // What the holder has had until now was not at the cost of this one.
  if (holding_.held()) holding_.ChargeProgress();
  if (line_.Enter(pod) && holding_.held()) holding_.MakeWay(pod);
}

// Nobody holds a part of the token any more: it is free.
void TokenScheduler::TakeBack() {
  const uint32_t index = holding_.pod();
  if (const Instant since = holding_.token().claimed_at; since != kNever) {
    roster_.pod(index).claims.Spend(turn_.now - since);
  }
  holding_.Return();
  gangs_.Returned(index);
  const Pod& pod = roster_.pod(index);
  if (pod.removed) {
    Forget(index);
  } else if (pod.asks()) {
    line_.Enter(index);
  } else {
    line_.Rest(index);
  }
}

void TokenScheduler::Forget(uint32_t pod) {
  for (const uint32_t c : roster_.pod(pod).clients) strays_.Release(c);
  line_.Remove(pod);
  roster_.RemovePod(pod);
}

}  // namespace baton::scheduler
