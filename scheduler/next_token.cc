#include "scheduler/next_token.h"

#include <algorithm>
#include <utility>

namespace baton::scheduler {
namespace {

// Of a Token that tells a client to close.
constexpr uint64_t kRecalled = 2;
// A holder that drains by itself so long before its deadline leaves.
constexpr Duration kLeaves = std::chrono::milliseconds(2);

}  // namespace

bool NextToken::Has(uint32_t c) const {
  return std::find(clients_.begin(), clients_.end(), c) != clients_.end();
}

void NextToken::Begin(uint32_t pod, uint64_t epoch, Duration quota, Instant now) {
  *this = NextToken();
  pod_ = pod;
  epoch_ = epoch;
  quota_ = quota;
  sent_at_ = now;
}

void NextToken::Restore(uint32_t pod, uint64_t epoch, Duration quota, Instant sent_at) {
  Begin(pod, epoch, quota, sent_at);
  restored_ = true;
}

bool NextToken::Defer(uint32_t c, const ClientReport& report, Instant now) {
  if (!sent() || report.epoch != epoch_ || !Has(c)) return false;
  const Instant said_at = now - report.age;
  if (report.pod_held > Duration(0)) {
    measured_at_ = std::min(measured_at_, std::max(sent_at_, said_at - report.pod_held));
  }
  for (Kept& kept : kept_) {
    if (kept.client != c) continue;
    if (report.seq <= kept.report.seq) return true;
    // How long it has held is said by its node until the one before it is back.
    const Duration held = IsDrained(report.phase) ? kept.report.held : Duration(0);
    kept = {c, report, said_at};
    kept.report.held = std::max(report.held, held);
    return true;
  }
  kept_.push_back({c, report, said_at});
  return true;
}

Instant NextToken::began_at() const {
  Instant first = kNever;
  for (const Kept& kept : kept_) {
    const ClientReport& report = kept.report;
    if (report.claimed == Duration(0)) continue;
    const Duration ago = IsDrained(report.phase) ? report.drained_ago : Duration(0);
    first = std::min(first, kept.at - ago - report.claimed);
  }
  return first == kNever ? kNever : std::max(first, sent_at_);
}

void NextToken::Forget(uint32_t c, uint64_t rev, Instant now) {
  if (!Has(c)) return;
  clients_.erase(std::find(clients_.begin(), clients_.end(), c));
  Instant until = now;
  std::erase_if(kept_, [&](const Kept& kept) {
    if (kept.client != c) return false;
    gone_held_ = std::max(gone_held_, kept.report.held);
    if (IsDrained(kept.report.phase) && kept.report.rev == rev) until = kept.at;
    return true;
  });
  gone_at_ = std::max(gone_at_, until);
}

Duration NextToken::held() const {
  Duration longest = gone_held_;
  for (const uint32_t c : clients_) {
    const auto kept =
        std::find_if(kept_.begin(), kept_.end(), [c](const Kept& one) { return one.client == c; });
    if (kept == kept_.end() || kept->report.held == Duration(0)) return gone_held_;
    longest = std::max(longest, kept->report.held);
  }
  return longest;
}

void NextToken::Recall(Roster& roster, const Turn& turn) {
  if (std::exchange(recalled_, true)) return;
  for (const uint32_t c : clients_) {
    Roster::Client& client = roster.client(c);
    client.rev = kRecalled;
    turn.Emit(SendToken{client.id, epoch_, kRecalled, Duration(0), true, {}});
  }
}

bool NextToken::closed() const {
  return recalled_ && std::all_of(clients_.begin(), clients_.end(), [this](uint32_t c) {
           return std::any_of(kept_.begin(), kept_.end(), [c](const Kept& kept) {
             return kept.client == c && kept.report.rev >= kRecalled &&
                    IsDrained(kept.report.phase);
           });
         });
}

NextToken NextToken::Take() {
  NextToken taken = std::move(*this);
  *this = NextToken();
  epoch_ = taken.epoch_;
  return taken;
}

std::vector<ClientReport> NextToken::TakeKept(Instant now) {
  std::vector<ClientReport> reports;
  for (const Kept& kept : kept_) {
    reports.push_back(kept.report);
    reports.back().age = now - kept.at;
  }
  kept_.clear();
  return reports;
}

bool AwaitsNext(const Token& token, const NextToken& next, const Roster& roster) {
  if (!token.held() || token.adopted || next.sent() || token.members.size() != 1) return false;
  if (token.stage != Token::Stage::kOpen && !token.closed()) return false;
  const Roster::Pod& pod = roster.pod(token.pod);
  // One of idle priority gives way by itself.
  if (pod.gang || pod.idle_priority() || pod.removed || pod.clients.size() != 1) return false;
  const Roster::Client& client = roster.client(token.members.front());
  // It leaves, or its quota is over: it does not compete for more.
  const bool ends = token.renew_at == kNever || client.done_at + kLeaves < token.deadline;
  return client.words && client.heard() && client.draining && ends &&
         client.part == Roster::Client::Part::kConfirmed;
}

void SendAhead(const Token& token, uint32_t pod, uint64_t epoch, Duration quota, Roster& roster,
               const Turn& turn, NextToken& next) {
  const Roster::Client& holder = roster.client(token.members.front());
  const SendToken::After after{holder.id, token.epoch, holder.rev};
  for (const uint32_t c : roster.pod(pod).clients) {
    Roster::Client& client = roster.client(c);
    if (!client.parked() || !client.words || !client.heard()) continue;
    if (!next.sent()) next.Begin(pod, epoch, quota, turn.now);
    next.Add(c);
    client.epoch = epoch;
    client.rev = 1;
    client.told = true;
    client.lost = false;
    client.ahead = true;
    client.away_since = kNever;
    turn.Emit(StoreNext{client.id, roster.pod(pod).id, epoch, turn.now});
    // Contended, as the holder comes back for more as far as anybody can tell.
    turn.Emit(SendToken{client.id, epoch, 1, quota, true, after});
  }
}

bool RestoreNext(const Token& token, uint32_t c, uint64_t epoch, Duration quota, Instant sent_at,
                 Roster& roster, NextToken& next) {
  Roster::Client& client = roster.client(c);
  const bool another = next.sent() && next.pod() != client.pod;
  if (!token.held() || token.pod == client.pod || another || epoch <= token.epoch) return false;
  if (!next.sent()) next.Restore(client.pod, epoch, quota, sent_at);
  next.Add(c);
  client.epoch = epoch;
  client.rev = 1;
  client.lost = true;
  client.ahead = true;
  return true;
}

}  // namespace baton::scheduler
