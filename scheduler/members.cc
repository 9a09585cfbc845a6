#include "scheduler/members.h"

#include <algorithm>

namespace baton::scheduler {
namespace {

// Clients may be wrong about their work, above all where it waits for another launch.
constexpr Duration kWorkMost = std::chrono::seconds(2);
constexpr uint32_t kReopenDoublings = 6;

}  // namespace

void Members::Enlist(uint32_t c, Instant joined_at) {
  Client& client = roster_.client(c);
  client.hang_reported &= client.epoch == token_.epoch;  // one that is let on is reported once
  client.joined_at = joined_at;
  client.away_since = kNever;
  client.unwatched = Duration(0);
  token_.members.push_back(c);
  Store(c);
}

void Members::Store(uint32_t c) {
  const Client& client = roster_.client(c);
  turn_.Emit(StoreHolder{client.id, roster_.pod(client.pod).id, token_.epoch, client.joined_at,
                         token_.waited});
}

void Members::NotReached(uint32_t c, Instant at) {
  Client& client = roster_.client(c);
  client.joined_at = std::max(client.joined_at, at);
  if (token_.measured == Duration(0)) {
    Instant first = kNever;
    for (const uint32_t m : token_.members) first = std::min(first, roster_.client(m).joined_at);
    token_.granted_at = std::max(token_.granted_at, first);
  }
  Store(c);
}

void Members::Join(uint32_t c) {
  roster_.client(c).ahead = false;
  Enlist(c, turn_.now);
  Send(c);
}

void Members::JoinParked() {
  for (const uint32_t c : roster_.pod(token_.pod).clients) {
    if (roster_.client(c).parked()) Join(c);
  }
}

void Members::Admit(uint32_t c) {
  const Client& client = roster_.client(c);
  if (client.parked() && token_.pod == client.pod && token_.admits() &&
      turn_.now < token_.deadline && !next_.may_begin()) {
    Join(c);
  }
}

void Members::Send(uint32_t c) {
  Client& client = roster_.client(c);
  client.rev = client.epoch == token_.epoch ? client.rev + 1 : 1;
  client.epoch = token_.epoch;
  client.told = true;
  client.part = Client::Part::kSent;
  client.sent_at = turn_.now;
  Duration left = token_.closed() ? Duration(0) : token_.deadline - turn_.now;
  // The little that is left of an ordinary token must not be taken for a single launch.
  if (left <= wire::kSingleLaunch && token_.stage != Token::Stage::kLetOn) left = Duration(0);
  if (next_.may_begin()) left = Duration(0);  // so no gate may open again
  turn_.Emit(SendToken{
      client.id, token_.epoch, client.rev, std::max(Duration(0), left), token_.contended, {}});
}

void Members::SendToAll() {
  token_.contended = demand_.contended(token_.pod);
  for (const uint32_t c : token_.members) Send(c);
}

void Members::Leave(uint32_t c) {
  token_.drained_at = turn_.now;
  roster_.client(c).part = Client::Part::kNone;
  auto& members = token_.members;
  members.erase(std::remove(members.begin(), members.end(), c), members.end());
}

void Members::WatchDrain() {
  const Instant now = turn_.now;
  const Instant ended = token_.ended_at;
  const Roster::Pod& holder = roster_.pod(token_.pod);
  for (const uint32_t c : token_.members) {
    Client& client = roster_.client(c);
    // Who has attached is sent what it lacks when its first report has said what it has.
    if (client.heard() && client.part == Client::Part::kSent &&
        client.sent_at + options_.resend <= now) {
      Send(c);
    }
    if (!client.hang_reported && ended + options_.drain_timeout <= now) {
      client.hang_reported = true;
      turn_.Emit(Notice{Notice::Kind::kHung, holder.id, client.id, now - ended});
      if (options_.drain_kill) turn_.Emit(KillClient{client.id});
    }
  }
  if (holder.gang || !Stuck() || ReopenAt() > now) return;
  if (next_.may_begin() && !CallBack()) return;
  token_.Reopen(now + options_.quota_min);
  SendToAll();
  JoinParked();
  turn_.Emit(Notice{Notice::Kind::kReopened, holder.id, ClientId{}, now - ended});
}

// What the next one needs before the holder's gate may open again; see NextToken. True: it has
// that.
bool Members::CallBack() {
  if (!next_.recalled()) next_.Recall(roster_, turn_);
  if (!next_.closed()) return false;
  if (next_.Ask()) SendToAll();
  const auto answers = [this](uint32_t c) {
    return roster_.client(c).part == Client::Part::kConfirmed;
  };
  if (!std::all_of(token_.members.begin(), token_.members.end(), answers)) return false;
  next_.SetOver();
  return true;
}

// Members that still work on the GPU may be waiting there for what a parked client of the same pod
// is to launch. Who has not been heard of since it attached may have drained.
bool Members::Stuck() const {
  const auto& members = token_.members;
  const auto& clients = roster_.pod(token_.pod).clients;
  return std::any_of(members.begin(), members.end(),
                     [this](uint32_t c) { return roster_.client(c).heard(); }) &&
         std::any_of(clients.begin(), clients.end(),
                     [this](uint32_t c) { return roster_.client(c).parked(); });
}

// Work that only takes its time is not stuck: that of all of them, one after the other, as they
// said, and what such drains took of late. More work comes with each reopening, so each waits for
// longer.
Instant Members::ReopenAt() const {
  Duration work{0};
  for (const uint32_t c : token_.members) {
    const Client& client = roster_.client(c);
    if (client.draining) work += std::max(Duration(0), client.done_at - token_.deadline);
  }
  const Instant done_at = token_.deadline + std::min(work, kWorkMost);
  const uint32_t doublings = std::min(token_.reopened, kReopenDoublings);
  const Duration usual(roster_.pod(token_.pod).overrun_ns);
  const Duration patience = std::max(options_.drain_reopen, std::min(2 * usual, kWorkMost));
  return std::max(done_at, token_.drained_at) + patience * (1 << doublings);
}

Instant Members::wakeup() const {
  Instant at = kNever;
  for (const uint32_t c : token_.members) {
    const Client& client = roster_.client(c);
    if (!client.hang_reported) at = std::min(at, token_.ended_at + options_.drain_timeout);
    if (client.heard() && client.part == Client::Part::kSent) {
      at = std::min(at, client.sent_at + options_.resend);
    }
  }
  if (!roster_.pod(token_.pod).gang && Stuck() && !(next_.recalled() && next_.may_begin())) {
    at = std::min(at, ReopenAt());
  }
  return at;
}

}  // namespace baton::scheduler
