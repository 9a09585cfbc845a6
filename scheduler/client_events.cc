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
  const Duration held = now - client.joined_at;
  if (report.held > Duration(0)) return std::min(held, report.held);
  if (client.away_since == kNever || report.epoch != client.epoch) return held;
  // Only it can know when it drained; what it says counts for the time that nobody watched, and for
  // what it takes to come back.
  const Duration known = client.away_since - client.joined_at;
  const Duration seen = now - std::min(now, client.watched_from + kHearing);
  const bool tells = report.drained_ago > Duration(0);
  const Duration said = tells ? held - std::min(held, report.drained_ago) : report.claimed;
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
  if (state.drained_ns > 0) report.drained_ago = DurationFromNanos(state.drained_ns) + age;
  return report;
}

void ClientEvents::On(const ClientAttached& event) {
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

void ClientEvents::On(const ClientReport& event) {
  const uint32_t c = roster_.Find(event.client);
  if (c == Roster::kNobody) return;
  Client& client = roster_.client(c);
  if (event.seq <= client.seq || !client.connected()) return;
  client.seq = event.seq;
  const bool fresh =
      std::exchange(client.contact, Client::Contact::kHeard) == Client::Contact::kNew;
  const bool heard = Note(client, event, holding_.token().epoch, fresh, turn_.now);
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
    const Duration held = HeldBy(client, report, turn_.now);
    // A report that names an earlier token was sent before the last one arrived, and that one may
    // have opened the gate again since.
    if (!heard) {
      if (report.epoch == client.epoch) NoteHeld(client, held);
    } else if (holding_.Drained(c, held, report.pod_held)) {
      TakeBack();
    }
  }
  strays_.Release(c);
  holding_.members().Admit(c);
}

void ClientEvents::On(const ClientDisconnected& event) {
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

void ClientEvents::On(const ClientGone& event) {
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

void ClientEvents::On(const HolderRestored& event) {
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

// A client holds without having been sent the present token: it held when this daemon was started
// anew, or launched on its own while no backend answered. What runs must drain before anyone is
// granted.
void ClientEvents::Adopt(uint32_t c, const Holding::Adopted& hold) {
  const uint32_t pod = roster_.client(c).pod;
  // Another pod holds already; all that is left is to stop this one.
  if (holding_.held() && holding_.pod() != pod) return strays_.Stop(c, hold.epoch);
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

void ClientEvents::TakeBack() {
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

void ClientEvents::Forget(uint32_t pod) {
  for (const uint32_t c : roster_.pod(pod).clients) strays_.Release(c);
  line_.Remove(pod);
  roster_.RemovePod(pod);
}

}  // namespace baton::scheduler
