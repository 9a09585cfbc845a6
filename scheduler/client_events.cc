#include "scheduler/client_events.h"

#include <algorithm>
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

// How long a client that says it has drained has held its part.
Duration HeldBy(const Roster::Client& client, const ClientReport& report, Instant now) {
  if (report.held > Duration(0)) return std::min(now - client.joined_at, report.held);
  now -= report.age;  // when it said so
  const Duration held = std::max(Duration(0), now - client.joined_at);
  if (client.away_since == kNever || report.epoch != client.epoch) return held;
  // Only it can know when it drained; what it says counts for the time that nobody watched, and for
  // what it takes to come back.
  const Duration known = client.away_since - client.joined_at;
  const Duration seen = now - std::min(now, client.watched_from + kHearing);
  const bool tells = report.drained_ago > Duration(0);
  Duration said = tells ? held - std::min(held, report.drained_ago) : report.claimed;
  // Of what was sent ahead, perhaps by a daemon before this one, nobody knows when it began: where
  // the one before had said that it drained in words that took long to come, perhaps before
  // `joined_at`.
  said = std::max(said, report.claimed);
  return std::clamp(said, std::min(held, known + seen), held);
}

// The client has held for so long at least, though it is not known to have drained since: if it
// dies before it says so, that is charged as well.
void NoteHeld(Roster::Client& client, Duration held) {
  if (client.away_since == kNever) return;
  const Instant until = std::min(client.joined_at + held, client.watched_from);
  if (until <= client.away_since) return;
  client.unwatched = std::max(Duration(0), client.unwatched - (until - client.away_since));
  client.away_since = until;
}

}  // namespace

ClientReport ReportOf(ClientId client, const wire::State& state, const Measured& measured,
                      Duration age, uint64_t settled_ns) {
  ClientReport report{client, state.seq, state.phase, state.epoch, state.rev};
  report.held = measured.held;
  report.pod_held = measured.pod_held;
  report.claimed = DurationFromNanos(std::max(state.held_ns, settled_ns) - settled_ns);
  report.backlog = DurationFromNanos(state.backlog_ns);
  report.handoff = DurationFromNanos(state.handoff_ns);
  report.gpu_switch = DurationFromNanos(state.switch_ns);
  report.age = age;
  report.drained_ago = DurationFromNanos(state.drained_ns);
  return report;
}

void ClientEvents::On(const ClientAttached& event) {
  if (const uint32_t c = roster_.Find(event.client); c != Roster::kNobody) {
    Client& client = roster_.client(c);
    client.contact = Client::Contact::kNew;
    client.words = event.words;
    client.lost = true;
    // What was sent to the old connection may be lost; its next report tells.
    if (client.member()) client.part = Client::Part::kSent;
    return;
  }
  const uint32_t pod = roster_.Find(event.pod);
  if (pod == Roster::kNobody || roster_.pod(pod).removed) return;
  roster_.client(roster_.AddClient(event.client, pod)).words = event.words;
}

void ClientEvents::On(const ClientReport& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  Client& client = roster_.client(c);
  if (event.seq <= client.seq || !client.connected()) return;
  if (next_.Defer(c, event, turn_.now)) return;
  client.seq = event.seq;
  const bool fresh =
      std::exchange(client.contact, Client::Contact::kHeard) == Client::Contact::kNew;
  const bool heard = Note(client, event, holding_.token().epoch, fresh, turn_.now);
  const bool holds = event.phase == wire::Phase::kHolding || event.phase == wire::Phase::kDraining;
  if (heard && client.part == Client::Part::kSent) {
    client.part = Client::Part::kConfirmed;
    NoteConfirmed(client, event);
  }
  if (client.member() && client.ahead && event.epoch == client.epoch) NoteBegun(c, event);
  // Back on a new connection: what the old one lost is said again now, not when it is overdue.
  if (fresh && client.member() && !heard) {
    if (event.epoch < client.epoch) NoteNotReached(c);
    holding_.members().Send(c);
  }
  holds ? OnHolding(c, event, fresh) : OnDrained(c, event, heard);
}

// The client has heard the last word: what that tells of the way there, and of the hand-off.
void ClientEvents::NoteConfirmed(const Client& client, const ClientReport& report) {
  const bool granted = client.rev == 1;
  const Token& token = holding_.token();
  if (granted) forecast_.NoteSwitch(report.gpu_switch);
  if (client.ahead && granted) {
    if (report.epoch != client.epoch || token.ahead_at == kNever) return;
    return forecast_.NoteHandoff(std::min(report.handoff, turn_.now - token.ahead_at));
  }
  // Where a grant was sent ahead, its extensions tell how long the way takes.
  if (report.phase != wire::Phase::kHolding || !(client.ahead || granted)) return;
  const Duration way = turn_.now - client.sent_at;
  forecast_.NoteWay(way);
  // Its return took as long.
  if (granted && token.follows) forecast_.NoteHandoff(2 * way);
}

// It was sent its token ahead: when that began may be known only now.
void ClientEvents::NoteBegun(uint32_t c, const ClientReport& report) {
  const Instant said_at = turn_.now - report.age;
  // Where only it can know, each of its words may tell that more exactly: the way here is a part of
  // what they say.
  const bool away = roster_.client(c).away_since != kNever;
  const bool only_it = holding_.token().ahead_before || away;
  if (report.pod_held > Duration(0)) {
    holding_.NoteBegun(c, said_at - report.pod_held);
  } else if (only_it && report.claimed > Duration(0)) {
    const Duration ago = IsDrained(report.phase) ? report.drained_ago : Duration(0);
    holding_.NoteBegun(c, said_at - ago - report.claimed);
  }
}

// Its relay was lost, and it does not name the grant that it was sent before: it had nothing of it
// until now. That counts for the time that nobody watched.
void ClientEvents::NoteNotReached(uint32_t c) {
  const Client& client = roster_.client(c);
  if (client.away_since == kNever) return;
  holding_.members().NotReached(c, std::min(turn_.now, client.watched_from + kHearing));
}

// It holds the token, or drains it.
void ClientEvents::OnHolding(uint32_t c, const ClientReport& report, bool fresh) {
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
void ClientEvents::OnDrained(uint32_t c, const ClientReport& report, bool heard) {
  SetWants(c, report.phase == wire::Phase::kWaiting);
  Client& client = roster_.client(c);
  if (client.member()) {
    Duration held = HeldBy(client, report, turn_.now);
    if (report.held == Duration(0)) held = NoLongerThanNext(client, held);
    // A report that names an earlier token was sent before the last one arrived, and that one may
    // have opened the gate again since.
    if (!heard) {
      if (report.epoch == client.epoch) NoteHeld(client, held);
    } else if (holding_.Drained(c, held, report.pod_held)) {
      TakeBack(report.held > Duration(0));
    }
  }
  strays_.Release(c);
  holding_.members().Admit(c);
}

// What the client has held at most, where the next one says that it began while nobody watched.
Duration ClientEvents::NoLongerThanNext(const Client& client, Duration held) const {
  if (!next_.restored()) return held;
  const Instant began_at = next_.began_at();
  if (began_at == kNever) return held;
  return std::min(held, std::max(Duration(0), began_at - client.joined_at));
}

void ClientEvents::On(const ClientDisconnected& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  SetWants(c, false);
  Client& client = roster_.client(c);
  client.lost = true;
  client.contact = Client::Contact::kAway;
  const bool next = next_.Has(c);
  if ((client.member() || next) && event.heard_at != kNever && client.away_since == kNever) {
    const Instant since = next ? next_.sent_at() : client.joined_at;
    client.away_since = std::clamp(event.heard_at, since, turn_.now);
    client.watched_from = turn_.now;
  }
}

void ClientEvents::On(const ClientGone& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  SetWants(c, false);
  const bool next = next_.Has(c);
  next_.Forget(c, roster_.client(c).rev, turn_.now);
  roster_.Unlist(c);
  // Until its end was seen nobody else could use the GPU, but who was sent the next token ahead:
  // all of that is its own.
  const Client& client = roster_.client(c);
  if (client.member()) {
    const Duration unwatched = client.away_since != kNever ? client.unwatched : Duration(0);
    Duration held = turn_.now - client.joined_at - unwatched;
    const bool known = event.held > Duration(0) && event.epoch == client.epoch;
    if (known) held = std::min(held, event.held);
    held = NoLongerThanNext(client, held);
    if (holding_.Drained(c, held)) TakeBack();
  }
  strays_.Release(c);
  const uint32_t pod = client.pod;
  roster_.Free(c);
  // Its pod has waited for nothing but this token.
  if (next && next_.pod() != pod && holding_.pod() != pod && roster_.pod(pod).removed) {
    Forget(pod);
  }
}

void ClientEvents::On(const HolderRestored& event) {
  const uint32_t pod = roster_.Find(event.pod);
  if (pod == Roster::kNobody || roster_.Find(event.client) != Roster::kNobody) return;
  const Instant now = turn_.now;
  const uint32_t c = roster_.AddClient(event.client, pod);
  Client& client = roster_.client(c);
  client.contact = Client::Contact::kAway;
  const Instant granted_at = std::min(event.granted_at, now);
  if (event.ahead &&
      RestoreNext(holding_.token(), c, event.epoch, options_.quota_min, granted_at, roster_, next_))
    return;
  Adopt(c, {event.epoch, granted_at, std::clamp(event.joined_at, granted_at, now), event.charged});
  if (!client.member()) return;
  client.rev = 1;  // at least that much was sent
  client.away_since = std::clamp(granted_at + event.charged, client.joined_at, now);
  client.watched_from = now;
  client.unwatched = now - client.away_since;
  holding_.SetUnwatched(now - std::min(granted_at + event.charged, now));
}

// A client holds without having been sent the present token: it held when this daemon was started
// anew, or launched on its own while no backend answered. What runs must drain before anyone is
// granted.
void ClientEvents::Adopt(uint32_t c, const Holding::Adopted& hold) {
  const uint32_t pod = roster_.client(c).pod;
  // Another pod holds already, or may; all that is left is to stop this one.
  const bool others = holding_.pod() != pod || next_.may_begin();
  if (holding_.held() && others) return strays_.Stop(c, hold.epoch);
  if (!holding_.held() && roster_.pod(pod).gang) gangs_.FoundHolding(pod);
  holding_.Adopt(c, hold);
}

void ClientEvents::SetWants(uint32_t c, bool wants) {
  Client& client = roster_.client(c);
  if (client.wants == wants) return;
  client.wants = wants;
  Pod& pod = roster_.pod(client.pod);
  wants ? ++pod.wanting : --pod.wanting;
  UpdateWaiting(client.pod);
}

void ClientEvents::UpdateWaiting(uint32_t pod) {
  const bool holds = holding_.pod() == pod;
  if (holds || !roster_.pod(pod).asks()) return line_.Leave(pod, holds);
  // What the holder has had until now was not at the cost of this one.
  if (holding_.held()) holding_.ChargeProgress();
  if (line_.Enter(pod) && holding_.held()) holding_.MakeWay(pod);
}

void ClientEvents::TakeBack(bool said) {
  const uint32_t index = holding_.pod();
  if (const Instant since = holding_.token().claimed_at; since != kNever) {
    roster_.pod(index).claims.Spend(turn_.now - since);
  }
  holding_.Return();
  gangs_.Returned(index);
  const Pod& pod = roster_.pod(index);
  const PodId id = pod.id;
  if (pod.removed) {
    Forget(index);
  } else if (pod.asks()) {
    line_.Enter(index);
  } else {
    line_.Rest(index);
  }
  if (next_.sent()) BeginNext(said, id);
}

void ClientEvents::BeginNext(bool said, PodId before) {
  const uint32_t index = next_.pod();
  const std::vector<ClientReport> kept = next_.TakeKept(turn_.now);
  holding_.BeginNext(before);
  if (!holding_.held()) {
    if (roster_.pod(index).removed) Forget(index);
    return;
  }
  const uint64_t epoch = holding_.token().epoch;
  for (const ClientReport& report : kept) {
    On(report);
    const uint32_t c = roster_.Find(report.client);
    if (c != Roster::kNobody && !roster_.client(c).member()) turn_.Emit(Settled{report.client});
  }
  if (!holding_.held() || holding_.token().epoch != epoch) return;
  for (const uint32_t c : holding_.token().members) {
    const Client& client = roster_.client(c);
    if (!client.lost || !client.heard()) continue;
    const bool named = std::any_of(kept.begin(), kept.end(), [&client](const ClientReport& report) {
      return report.client == client.id;
    });
    if (!named) NoteNotReached(c);
  }
  holding_.TellNext(said);
  if (gangs_.reserved() != Roster::kNobody) holding_.EndForGang();
}

void ClientEvents::Forget(uint32_t pod) {
  for (const uint32_t c : roster_.pod(pod).clients) strays_.Release(c);
  line_.Remove(pod);
  roster_.RemovePod(pod);
}

}  // namespace baton::scheduler
