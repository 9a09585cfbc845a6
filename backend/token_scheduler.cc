#include "backend/token_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton::backend {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// Until the first grants have been measured.
constexpr Duration kGrantGuess = microseconds(100);
// After a link was cut: so long its clients have at least, to say what they did meanwhile.
constexpr Duration kHearing = seconds(1);
// A hook notices the end of its work, and its threads wake up, within about this.
constexpr Duration kWakeUp = microseconds(50);
// A token of less would be taken for one that is good for a launch.
constexpr Duration kQuotaLeast = 2 * wire::kSingleLaunch;

template <class List>
void EraseValue(List& values, uint32_t value) {
  values.erase(std::remove(values.begin(), values.end(), value), values.end());
}

}  // namespace

TokenScheduler::TokenScheduler(const SchedulerOptions& options, uint64_t last_epoch,
                               uint64_t first_epoch)
    : options_(options),
      queue_(options.fairness),
      epoch_(last_epoch),
      first_epoch_(first_epoch),
      grant_ns_(Nanos(kGrantGuess)) {}

void TokenScheduler::Step(Instant now, const Event& event, Effects& effects) {
  now_ = std::max(now_, now);
  ++steps_;
  effects_ = &effects;
  // With many GPUs and pods the next holder is not in the cache; fetch it while the event is
  // handled.
  if (const auto likely = queue_.PrefetchLikely()) {
    __builtin_prefetch(&pods_[*likely], 1);
    __builtin_prefetch(reinterpret_cast<const char*>(&pods_[*likely]) + 64, 1);
  }
  std::visit([this](const auto& e) { On(e); }, event);
  ForgetIdle();
  if (cut_at_ == kNever) {
    ForgetStopped();
    if (token_) TendToken();
  }
  if (!token_ && stopped_.empty() && cut_at_ == kNever && reserved_ == kNobody) {
    if (const auto slot = queue_.Pick(now_)) Grant(*slot, Quota(pods_[*slot]));
  }
  if (!gangs_.empty()) RankGangs();
  effects_ = nullptr;
}

Instant TokenScheduler::wakeup() const {
  Instant at = grace_.empty() ? kNever : grace_.front().first + options_.active_grace;
  if (cut_at_ != kNever) return at;
  for (const Stopped& s : stopped_) at = std::min(at, s.until);
  if (!token_) return stopped_.empty() ? std::min(at, queue_.NextRefill()) : at;
  if (!token_->closed) return std::min({at, token_->renew_at, token_->deadline});
  at = std::min(at, ChargeDue());
  for (const uint32_t c : token_->members) {
    const Client& client = clients_[c];
    if (!client.noticed) at = std::min(at, token_->ended_at + options_.drain_timeout);
    if (client.connected && !client.confirmed) at = std::min(at, client.sent_at + options_.resend);
  }
  if (!pods_[token_->pod].gang && Stuck()) {
    at = std::min(at, token_->deadline + options_.drain_reopen);
  }
  return at;
}

Duration TokenScheduler::handoff() const { return Duration(2 * grant_ns_) + kWakeUp; }

std::optional<PodId> TokenScheduler::holder() const {
  if (!token_) return std::nullopt;
  return pods_[token_->pod].id;
}

bool TokenScheduler::Holds(ClientId client) const {
  const auto found = client_index_.find(client.value);
  return found != client_index_.end() &&
         (clients_[found->second].member || clients_[found->second].stopped);
}

bool TokenScheduler::Holds(ClientId client, uint64_t epoch) const {
  const auto found = client_index_.find(client.value);
  return found != client_index_.end() && clients_[found->second].epoch == epoch &&
         (clients_[found->second].member || clients_[found->second].stopped);
}

std::vector<PodStatus> TokenScheduler::Status(Instant now) {
  std::vector<PodStatus> all;
  for (uint32_t index = 0; index < pods_.size(); ++index) {
    const Pod& pod = pods_[index];
    if (!pod.id) continue;
    PodStatus s;
    s.pod = pod.id;
    s.spec = queue_.spec(pod.slot);
    s.fluid = queue_.Fluid(pod.slot);
    s.holding = token_ && token_->pod == index;
    s.waiting = pod.waiting_since != kNever;
    s.throttled = s.waiting && queue_.Allowance(pod.slot, now) < Burst(pod);
    s.held = Duration(pod.held_ns);
    s.waited = Duration(pod.waited_ns);
    s.waiting_since = pod.waiting_since;
    if (s.waiting) s.waited += now - pod.waiting_since;
    s.lag = queue_.Lag(pod.slot);
    s.grants = pod.grants;
    s.revocations = pod.revocations;
    all.push_back(s);
  }
  std::sort(all.begin(), all.end(),
            [](const PodStatus& a, const PodStatus& b) { return a.pod < b.pod; });
  return all;
}

// -------------------------------------------------------------------------------------- events

void TokenScheduler::On(const PodSet& event) {
  if (Pod* pod = FindPod(event.pod)) {
    queue_.Update(pod->slot, event.spec, now_);
    return;
  }
  uint32_t index;
  if (free_pods_.empty()) {
    index = static_cast<uint32_t>(pods_.size());
    pods_.emplace_back();
  } else {
    index = free_pods_.back();
    free_pods_.pop_back();
  }
  Pod& pod = pods_[index];
  pod = Pod{};
  pod.id = event.pod;
  pod.gang = event.gang;
  gang_pods_ += event.gang ? 1 : 0;
  pod.stops = options_.drain_timeout;
  pod.stops_at = now_;
  pod.slot = queue_.Add(event.pod, event.spec, now_);
  pod_index_[event.pod.value] = index;
  BATON_CHECK(pod.slot == index);  // both give out and take back numbers in the same order
}

void TokenScheduler::On(const PodRemoved& event) {
  const auto found = pod_index_.find(event.pod.value);
  if (found == pod_index_.end()) return;
  const uint32_t index = found->second;
  Pod& pod = pods_[index];
  pod.removed = true;
  for (const uint32_t c : pod.clients) SetWants(clients_[c], false);
  if (pod.gang) On(GangStep{event.pod, GangStep::Do::kRest});
  if (reserved_ == index && !(token_ && token_->pod == index)) Unreserve();
  if (token_ && token_->pod == index) {
    token_->deadline = std::min(token_->deadline, now_);
    SendToMembers();
  } else {
    Forget(index);
  }
}

void TokenScheduler::On(const ClientAttached& event) {
  if (Client* client = FindClient(event.client)) {
    client->connected = true;
    client->fresh = true;
    // What was sent to the old connection may be lost; its next report tells.
    client->confirmed = client->confirmed && !client->member;
    return;
  }
  const auto found = pod_index_.find(event.pod.value);
  if (found == pod_index_.end() || pods_[found->second].removed) return;
  AddClient(event.client, found->second);
}

void TokenScheduler::On(const ClientReport& event) {
  const auto found = client_index_.find(event.client.value);
  if (found == client_index_.end()) return;
  const uint32_t c = found->second;
  Client& client = clients_[c];
  if (event.seq <= client.seq || !client.connected) return;
  client.seq = event.seq;
  const bool fresh = std::exchange(client.fresh, false);
  // What a heartbeat in the middle of a drain says moves it nearer, never further: the backlog of
  // work that waits for another launch does not shrink.
  const Instant done_at = now_ + event.backlog;
  const bool drains = event.phase == wire::Phase::kDraining;
  client.done_at = drains && client.draining ? std::min(client.done_at, done_at) : done_at;
  client.draining = drains;

  const bool heard =
      event.epoch > client.epoch || (event.epoch == client.epoch && event.rev >= client.rev);
  // After a restart the client knows more revisions than this side.
  if (event.epoch == client.epoch) client.rev = std::max(client.rev, event.rev);
  if (heard && !client.confirmed) {
    client.confirmed = true;
    if (client.member && client.rev == 1 && event.phase == wire::Phase::kHolding) {
      const int64_t sample = std::min(Nanos(now_ - client.sent_at), Nanos(options_.quota_max));
      grant_ns_ += (sample - grant_ns_) / 16;
    }
  }
  // Back on a new connection: what the old one lost is said again now, not when it is overdue.
  if (fresh && client.member && !heard) Send(c);
  switch (event.phase) {
    case wire::Phase::kHolding:
    case wire::Phase::kDraining:
      if (!client.member) {
        // Only who comes (back) can hold something that this side does not know of.
        if (!fresh) {
          if (!client.stopped) Stop(c, event.epoch);
          break;
        }
        Adopt(c, {event.epoch, now_, now_, Duration(0)});
      }
      if (event.epoch >= client.epoch) {  // it has held all along
        client.away_since = kNever;
        client.unwatched = Duration(0);
        if (client.member && token_) token_->unwatched = Duration(0);
      }
      SetWants(client, true);
      break;
    case wire::Phase::kIdle:
    case wire::Phase::kWaiting: {
      SetWants(client, event.phase == wire::Phase::kWaiting);
      // A report that names an earlier token was sent before the last one arrived, and that one may
      // have opened the gate again since.
      if (client.member && heard) {
        Duration held = now_ - client.joined_at;
        if (event.held > Duration(0)) {
          held = std::min(held, event.held);
        } else if (client.away_since != kNever && event.epoch == client.epoch) {
          // Only it can know when it drained; what it says counts for the time that nobody watched,
          // and for what it takes to come back.
          const Duration known = client.away_since - client.joined_at;
          const Duration seen = now_ - std::min(now_, client.watched_from + kHearing);
          held = std::clamp(event.claimed, std::min(held, known + seen), held);
        }
        Drained(c, held);
      }
      if (client.stopped) Unstop(c);
      const bool own =
          token_ && token_->pod == client.pod && !token_->closed && token_->reopened_at == kNever;
      if (client.wants && own && !client.member && now_ < token_->deadline) JoinToken(c);
      break;
    }
  }
}

void TokenScheduler::On(const ClientDisconnected& event) {
  Client* client = FindClient(event.client);
  if (client == nullptr) return;
  SetWants(*client, false);
  client->connected = false;
  if (client->member && event.heard_at != kNever && client->away_since == kNever) {
    client->away_since = std::clamp(event.heard_at, client->joined_at, now_);
    client->watched_from = now_;
  }
}

void TokenScheduler::On(const ClientGone& event) {
  const auto found = client_index_.find(event.client.value);
  if (found == client_index_.end()) return;
  const uint32_t c = found->second;
  SetWants(clients_[c], false);
  client_index_.erase(found);
  EraseValue(pods_[clients_[c].pod].clients, c);
  // Until its end was seen nobody else could use the GPU: all of that is its own.
  if (Client& client = clients_[c]; client.member) {
    const Duration unwatched = client.away_since != kNever ? client.unwatched : Duration(0);
    Drained(c, now_ - client.joined_at - unwatched);
  }
  if (clients_[c].stopped) Unstop(c);
  clients_[c] = Client{};
  free_clients_.push_back(c);
}

void TokenScheduler::On(const HolderRestored& event) {
  const auto found = pod_index_.find(event.pod.value);
  if (found == pod_index_.end() || client_index_.contains(event.client.value)) return;
  const uint32_t c = AddClient(event.client, found->second);
  Client& client = clients_[c];
  client.connected = false;
  const Instant granted_at = std::min(event.granted_at, now_);
  Adopt(c, {event.epoch, granted_at, std::clamp(event.joined_at, granted_at, now_), event.charged});
  if (!client.member) return;
  client.rev = 1;  // at least that much was sent
  client.away_since = std::clamp(granted_at + event.charged, client.joined_at, now_);
  client.watched_from = now_;
  client.unwatched = now_ - client.away_since;
  token_->unwatched = now_ - std::min(granted_at + event.charged, now_);
}

// ------------------------------------------------------------------------------- pods and clients

TokenScheduler::Client* TokenScheduler::FindClient(ClientId id) {
  const auto found = client_index_.find(id.value);
  return found == client_index_.end() ? nullptr : &clients_[found->second];
}

TokenScheduler::Pod* TokenScheduler::FindPod(PodId id) {
  const auto found = pod_index_.find(id.value);
  return found == pod_index_.end() ? nullptr : &pods_[found->second];
}

uint32_t TokenScheduler::AddClient(ClientId id, uint32_t pod) {
  uint32_t index;
  if (free_clients_.empty()) {
    index = static_cast<uint32_t>(clients_.size());
    clients_.emplace_back();
  } else {
    index = free_clients_.back();
    free_clients_.pop_back();
  }
  clients_[index] = Client{};
  clients_[index].id = id;
  clients_[index].pod = pod;
  client_index_[id.value] = index;
  pods_[pod].clients.push_back(index);
  return index;
}

void TokenScheduler::Forget(uint32_t index) {
  Pod& pod = pods_[index];
  for (const uint32_t c : pod.clients) {
    if (clients_[c].stopped) Unstop(c);
    client_index_.erase(clients_[c].id.value);
    clients_[c] = Client{};
    free_clients_.push_back(c);
  }
  gang_pods_ -= pod.gang ? 1 : 0;
  queue_.Remove(pod.slot);
  pod_index_.erase(pod.id.value);
  pod = Pod{};
  free_pods_.push_back(index);
}

void TokenScheduler::SetWants(Client& client, bool wants) {
  if (client.wants == wants) return;
  client.wants = wants;
  Pod& pod = pods_[client.pod];
  wants ? ++pod.wanting : --pod.wanting;
  UpdateWaiting(pod);
}

// Brings the queue's picture of the pod up to date: it waits when a client wants the token and the
// pod does not hold it.
void TokenScheduler::UpdateWaiting(Pod& pod) {
  const auto index = static_cast<uint32_t>(&pod - pods_.data());
  const bool holds = token_ && token_->pod == index;
  const bool waits = (pod.gang ? pod.gang_waits : pod.wanting > 0) && !holds && !pod.removed;
  if (waits == (pod.waiting_since != kNever)) return;
  if (waits) {
    if (pod.idle_since != kNever) queue_.CapLag(pod.slot, queue_.Credit(pod.slot));
    pod.idle_since = kNever;
    pod.waiting_since = now_;
    ++waiting_pods_;
    queue_.SetActive(pod.slot, true);
    if (!pod.gang) {
      queue_.SetWaiting(pod.slot, true, Burst(pod));
      if (token_) Cut(pod);
    } else if (token_ && !token_->closed && !token_->contended) {
      SendToMembers();
    }
    return;
  }
  pod.waited_ns += Nanos(now_ - pod.waiting_since);
  pod.waiting_since = kNever;
  --waiting_pods_;
  if (!pod.gang) queue_.SetWaiting(pod.slot, false, Burst(pod));
  if (!holds) {
    pod.idle_since = now_;
    grace_.emplace_back(now_, index);
  }
}

void TokenScheduler::ForgetIdle() {
  while (!grace_.empty() && grace_.front().first + options_.active_grace <= now_) {
    const auto [since, index] = grace_.front();
    grace_.pop_front();
    Pod& pod = pods_[index];
    if (!pod.id || pod.idle_since != since) continue;  // it came back, or is somebody else
    pod.idle_since = kNever;
    queue_.SetActive(pod.slot, false);
  }
}

// ------------------------------------------------------------------------------------- the token

// The shortest token that keeps hand-offs at their fraction of the GPU's time.
Duration TokenScheduler::BaseQuota() const {
  const int64_t ns =
      Nanos(handoff()) * policy::kWhole / std::max<uint32_t>(1, options_.handoff_fraction);
  return std::clamp(Duration(ns), options_.quota_min, options_.quota_max);
}

// What the pod will hold when it is next granted. The bound on everybody's lag rests on this being
// no less than what comes: where the pod ran out of work before, about as much again; a pod that
// never does is predicted its longest recent hold.
Duration TokenScheduler::Burst(const Pod& pod) const {
  if (pod.saturating || pod.burst_ns == 0) return std::max(BaseQuota(), Duration(pod.service_ns));
  return Duration(std::max<int64_t>(1, pod.burst_ns));
}

// Long enough to pay for its hand-off and to finish the usual burst, within the bounds and what the
// pod's limit still allows.
Duration TokenScheduler::Quota(const Pod& pod) const {
  const Duration wanted =
      std::min(std::max(BaseQuota(), Duration(pod.burst_ns)), options_.quota_max);
  return std::max(kQuotaLeast, std::min(wanted, queue_.Allowance(pod.slot, now_)));
}

// Decides early enough that an extension arrives before the clients close their gates, which they
// do ahead of the deadline by the work they have in flight.
void TokenScheduler::PlanRenewal(Duration span) {
  token_->renew_at =
      token_->deadline -
      std::min(span / 2, options_.backlog + Duration(2 * grant_ns_) + microseconds(500));
}

bool TokenScheduler::RivalWaits() const { return waiting_pods_ > 0; }

void TokenScheduler::Grant(uint32_t index, Duration quota) {
  ChargeKept();
  epoch_ = std::max(epoch_ + 1, first_epoch_);
  token_ = Token();
  Token& token = *token_;
  token.pod = index;
  Pod& pod = pods_[index];
  if (pod.waiting_since != kNever) token.waited = now_ - pod.waiting_since;
  UpdateWaiting(pod);
  ++pod.grants;
  token.granted_at = now_;
  token.quota = quota;
  token.deadline = now_ + token.quota;
  PlanRenewal(token.quota);
  token.contended = RivalWaits();
  for (const uint32_t c : pod.clients) {
    if (clients_[c].wants && clients_[c].connected) JoinToken(c);
  }
  BATON_CHECK(pod.gang || !token.members.empty());
}

// Fans the present token out to one more client.
void TokenScheduler::JoinToken(uint32_t c) {
  Join(c, now_);
  Send(c);
}

void TokenScheduler::Join(uint32_t c, Instant joined_at) {
  Client& client = clients_[c];
  client.member = true;
  client.noticed &= client.epoch == epoch_;  // one that is let on is reported once
  client.joined_at = joined_at;
  client.away_since = kNever;
  client.unwatched = Duration(0);
  token_->members.push_back(c);
  effects_->push_back(
      StoreHolder{client.id, pods_[client.pod].id, epoch_, joined_at, token_->waited});
}

void TokenScheduler::Send(uint32_t c) {
  Client& client = clients_[c];
  client.rev = client.epoch == epoch_ ? client.rev + 1 : 1;
  client.epoch = epoch_;
  client.confirmed = false;
  client.sent_at = now_;
  Duration left = token_->closed ? Duration(0) : token_->deadline - now_;
  // The little that is left of an ordinary token must not be taken for a single launch.
  if (left <= wire::kSingleLaunch && token_->reopened_at == kNever) left = Duration(0);
  effects_->push_back(
      SendToken{client.id, epoch_, client.rev, std::max(Duration(0), left), token_->contended});
}

void TokenScheduler::SendToMembers() {
  token_->contended = RivalWaits();
  for (const uint32_t c : token_->members) Send(c);
}

void TokenScheduler::Drained(uint32_t c, Duration held) {
  Client& client = clients_[c];
  client.member = false;
  client.confirmed = true;
  EraseValue(token_->members, c);
  // The pod has held from its first client's grant to its last one's drain.
  token_->measured = std::max(token_->measured, client.joined_at - token_->granted_at + held);
  if (token_->members.empty() && !pods_[client.pod].gang) {
    ReturnToken();
  } else if (token_->measured > token_->charged) {
    // Now, for after a restart this client has nothing more to claim.
    Charge(pods_[token_->pod], token_->measured - token_->charged);
    token_->charged = token_->measured;
  }
}

// The last member has drained: true up the charge, learn the burst, and the token is free.
void TokenScheduler::ReturnToken() {
  const Token token = std::move(*token_);
  token_.reset();
  if (reserved_ == token.pod) reserved_ = kNobody;
  kept_since_ = now_;
  Pod& pod = pods_[token.pod];
  Charge(pod, token.measured - token.charged);
  pod.saturating = pod.wanting > 0;
  // A hold beyond this was an accident (a stopped process, a hung kernel); who had one is not to be
  // treated for long as if every hold of it were such.
  const int64_t measured = std::min(Nanos(token.measured), 10 * Nanos(options_.quota_max));
  pod.service_ns = std::max(measured, pod.service_ns - pod.service_ns / 8);
  if (!pod.saturating) {
    // Up at once, down slowly: a burst cut in two costs a hand-off and a wait.
    pod.burst_ns = std::max(measured, (3 * pod.burst_ns + measured) / 4);
  }
  if (token.measured > 2 * token.quota + options_.quota_max) {
    effects_->push_back(
        Notice{Notice::Kind::kOverrun, pod.id, ClientId{}, token.measured - token.quota});
  }
  effects_->push_back(ClearHolders{epoch_});
  if (pod.removed) {
    Forget(token.pod);
    return;
  }
  UpdateWaiting(pod);
  if (pod.waiting_since == kNever) {
    pod.idle_since = now_;
    grace_.emplace_back(now_, token.pod);
  }
}

// Charges the holder for what it has held so far, by this side's clock; ReturnToken sets right what
// this estimates. Not for the time that nobody watched, before its clients are heard of.
void TokenScheduler::ChargeProgress() {
  const Duration watched = now_ - token_->granted_at - token_->unwatched - Duration(grant_ns_);
  const Duration held = std::max(Duration(0), watched) - token_->charged;
  Charge(pods_[token_->pod], held);
  token_->charged += held;
}

// A drain may last for ever, and this daemon may end any time: the account is never further behind
// than by one token.
Instant TokenScheduler::ChargeDue() const {
  return token_->granted_at + token_->unwatched + Duration(grant_ns_) + token_->charged +
         options_.quota_max;
}

void TokenScheduler::Charge(Pod& pod, Duration held) {
  queue_.Charge(pod.slot, held, now_);
  pod.held_ns += Nanos(held);
  effects_->push_back(Charged{pod.id, held});
}

// A client says that it holds or drains without having been sent the present token: it held when
// this daemon was started anew, or launched on its own while no backend answered. What runs must
// drain before anyone is granted.
void TokenScheduler::Adopt(uint32_t c, const Adopted& hold) {
  Client& client = clients_[c];
  if (token_ && token_->pod != client.pod) {
    // Another pod holds already; all that is left is to stop this one.
    if (!client.stopped) Stop(c, hold.epoch);
    return;
  }
  if (!token_) {
    // A token of its own, by this daemon's numbers: what the client says of an epoch never given out
    // here counts for nothing, and what it is told must not look old.
    if (hold.epoch > epoch_) epoch_ = std::max(epoch_ + 1, first_epoch_);
    token_ = Token();
    token_->pod = client.pod;
    token_->granted_at = hold.granted_at;
    token_->charged = hold.charged;
    token_->deadline = now_;
    token_->ended_at = now_;
    token_->closed = true;
    token_->quota = options_.quota_max;
    if (reserved_ != kNobody) ChargeKept();
    Pod& pod = pods_[client.pod];
    if (pod.gang) reserved_ = client.pod;
    queue_.SetActive(pod.slot, true);
    pod.idle_since = kNever;
    UpdateWaiting(pod);
  }
  client.epoch = hold.epoch;
  client.rev = 0;
  client.confirmed = true;
  Join(c, hold.joined_at);
}

// Nobody is granted until it has drained, or drain_timeout has passed. The claim may be false: all
// such claims of a pod together hold up the GPU for a hundredth of the time, and once
// drain_timeout.
void TokenScheduler::Stop(uint32_t c, uint64_t epoch) {
  Pod& pod = pods_[clients_[c].pod];
  pod.stops = std::min(pod.stops + (now_ - pod.stops_at) / 100, options_.drain_timeout);
  pod.stops_at = now_;
  effects_->push_back(SendToken{clients_[c].id, epoch, ~uint64_t{0}, Duration(0), true});
  if (pod.stops <= Duration(0)) return;
  clients_[c].stopped = true;
  stopped_.push_back({c, now_, now_ + pod.stops});
}

void TokenScheduler::Unstop(uint32_t c) {
  clients_[c].stopped = false;
  const auto found = std::find_if(stopped_.begin(), stopped_.end(),
                                  [c](const Stopped& s) { return s.client == c; });
  pods_[clients_[c].pod].stops -= now_ - found->since;
  stopped_.erase(found);
}

void TokenScheduler::ForgetStopped() {
  for (size_t i = 0; i < stopped_.size();) {
    const Stopped s = stopped_[i];
    if (s.until > now_) {
      ++i;
      continue;
    }
    const Client& client = clients_[s.client];
    if (now_ - s.since >= options_.drain_timeout) {
      effects_->push_back(
          Notice{Notice::Kind::kHung, pods_[client.pod].id, client.id, now_ - s.since});
      if (options_.drain_kill) effects_->push_back(KillClient{client.id});
    }
    Unstop(s.client);
  }
}

void TokenScheduler::On(const TeamWeights& event) {
  queue_.SetTeamWeights({event.weights.begin(), event.weights.end()});
}

void TokenScheduler::On(const LinkCut& event) {
  if (event.cut) {
    cut_at_ = std::min(cut_at_, now_);
    return;
  }
  if (cut_at_ == kNever) return;
  const Duration away = now_ - cut_at_;
  for (Stopped& s : stopped_) s.until += away;
  cut_at_ = kNever;
  if (!token_) return;
  // What its clients said meanwhile is still to come. A drain goes on where it was, so that a link
  // which is cut again and again does not keep a hung kernel alive.
  token_->deadline = std::max(token_->deadline, now_);
  if (token_->closed) {
    const Instant still =
        now_ - options_.drain_timeout + std::min(options_.drain_timeout, kHearing);
    token_->ended_at = std::max(std::min(now_, token_->ended_at + away), still);
  }
  for (const uint32_t c : token_->members) clients_[c].noticed = false;
}

// A pod has started to wait while another holds.
void TokenScheduler::Cut(const Pod& by) {
  if (token_->closed) return;
  Pod& holder = pods_[token_->pod];
  const bool high =
      queue_.Urgent(by.slot) && queue_.spec(holder.slot).priority == policy::Priority::kLow;
  ChargeProgress();
  const bool early =
      queue_.served().count() >= next_cut_served_ns_ && queue_.FinishesBefore(by.slot, holder.slot);
  const bool allowed = queue_.Allowance(by.slot, now_) >= std::min(Burst(by), options_.quota_min);
  const Instant at = high ? now_ : std::max(now_, token_->granted_at + options_.quota_min);
  if (holder.gang) {
    // Ends on all its GPUs or on none: its coordinator sees to it.
    token_->revoked |= high && allowed;
    if (!token_->contended) SendToMembers();
    return;
  }
  if ((high || early) && allowed && at < token_->deadline) {
    token_->deadline = at;
    token_->renew_at = kNever;
    ++holder.revocations;
    if (high) {
      effects_->push_back(Notice{Notice::Kind::kRevoked, holder.id, ClientId{}, Duration(0)});
    } else {
      next_cut_served_ns_ = Nanos(queue_.served() + BaseQuota());
    }
    SendToMembers();
  } else if (!token_->contended) {
    SendToMembers();  // so that it comes back as soon as its work runs out
  }
}

void TokenScheduler::TendToken() {
  if (!token_->closed && token_->renew_at <= now_) Renew();
  if (!token_->closed && token_->deadline <= now_) {
    token_->closed = true;
    token_->ended_at = std::min(token_->ended_at, token_->deadline);
    token_->renew_at = kNever;
  }
  if (token_->closed) WatchDrain();
}

// Shortly before the token ends: the holder competes with those who wait. If it is still the one
// furthest below its share it goes on, without a drain.
void TokenScheduler::Renew() {
  token_->renew_at = kNever;
  Pod& holder = pods_[token_->pod];
  if (holder.wanting == 0 || holder.gang) return;
  ChargeProgress();
  queue_.SetWaiting(holder.slot, true, Burst(holder));
  const auto next = queue_.Pick(now_);
  queue_.SetWaiting(holder.slot, false, Burst(holder));
  if (!next || *next != holder.slot) return;
  const Duration left = token_->deadline - now_;
  const Duration wanted = RivalWaits() ? Quota(holder) : options_.quota_max;
  const Duration more = std::min(wanted, queue_.Allowance(holder.slot, now_) - left);
  if (more <= Duration(0)) return;
  token_->quota += more;
  token_->deadline += more;
  PlanRenewal(more);
  SendToMembers();
}

void TokenScheduler::WatchDrain() {
  if (ChargeDue() <= now_) ChargeProgress();
  const Instant ended = token_->ended_at;
  Pod& holder = pods_[token_->pod];
  for (const uint32_t c : token_->members) {
    Client& client = clients_[c];
    if (client.connected && !client.confirmed && client.sent_at + options_.resend <= now_) Send(c);
    if (!client.noticed && ended + options_.drain_timeout <= now_) {
      client.noticed = true;
      effects_->push_back(Notice{Notice::Kind::kHung, holder.id, client.id, now_ - ended});
      if (options_.drain_kill) effects_->push_back(KillClient{client.id});
    }
  }
  if (holder.gang || token_->deadline + options_.drain_reopen > now_ || !Stuck()) return;
  token_->closed = false;
  token_->deadline = now_ + options_.quota_min;
  SendToMembers();
  for (const uint32_t c : holder.clients) {
    if (Parked(clients_[c])) JoinToken(c);
  }
  effects_->push_back(Notice{Notice::Kind::kReopened, holder.id, ClientId{}, now_ - ended});
}

// ------------------------------------------------------------------------------------- gangs

void TokenScheduler::On(const GangStep& event) {
  using Do = GangStep::Do;
  const auto found = pod_index_.find(event.pod.value);
  if (found == pod_index_.end() || !pods_[found->second].gang) return;
  const uint32_t index = found->second;
  Pod& pod = pods_[index];
  const bool holds = token_ && token_->pod == index;
  switch (event.act) {
    case Do::kWait:
    case Do::kRest: {
      pod.gang_waits = event.act == Do::kWait && !pod.removed;
      UpdateWaiting(pod);
      const auto by_id = [this](uint32_t a, uint32_t b) { return pods_[a].id < pods_[b].id; };
      const auto at = std::lower_bound(gangs_.begin(), gangs_.end(), index, by_id);
      const bool listed = at != gangs_.end() && *at == index;
      if (pod.gang_waits && !listed) gangs_.insert(at, index);
      if (!pod.gang_waits && listed) gangs_.erase(at);
      pod.rank = GangView::kUnranked;
      return;
    }
    case Do::kReserve:
      if (reserved_ != kNobody) return;
      reserved_ = index;
      kept_since_ = now_;
      if (!token_ || token_->closed || holds) return;
      ++pods_[token_->pod].revocations;
      token_->deadline =
          std::min(token_->deadline, std::max(now_, token_->granted_at + options_.quota_min));
      token_->renew_at = kNever;
      SendToMembers();
      return;
    case Do::kGrant:
      if (reserved_ != index || token_ || !stopped_.empty()) return;
      Grant(index, event.span);
      token_->renew_at = kNever;
      return;
    case Do::kExtend:
      if (!holds || token_->closed) return;
      token_->quota += event.span;
      token_->deadline += event.span;
      SendToMembers();
      return;
    case Do::kClose:
      if (!holds) return;
      if (token_->closed || token_->deadline <= now_) return;  // they close by themselves
      token_->deadline = now_;
      token_->closed = true;
      token_->ended_at = std::min(token_->ended_at, now_);
      SendToMembers();
      return;
    case Do::kReopen:
    case Do::kReopenAll:
      if (!holds || !token_->closed) return;
      token_->closed = false;
      token_->reopened_at = now_;
      token_->deadline = now_ + event.span;
      for (const uint32_t c : pod.clients) {
        if (Parked(clients_[c])) {
          JoinToken(c);
        } else if (clients_[c].member && event.act == Do::kReopenAll) {
          Send(c);
        }
      }
      return;
    case Do::kCap:
      queue_.CapLag(pod.slot, GangCredit(pod));
      return;
    case Do::kRelease:
      if (holds && token_->members.empty()) {
        // All of the time was its own, whether it had work here or not.
        token_->measured =
            std::max(token_->measured, now_ - token_->granted_at - token_->unwatched);
        ReturnToken();
      } else if (!holds && reserved_ == index) {
        Unreserve();
      }
      return;
  }
}

// While the GPU is kept free for a gang, the gang is charged as if it held.
void TokenScheduler::ChargeKept() {
  if (reserved_ == kNobody || token_) return;
  Charge(pods_[reserved_], now_ - kept_since_);
  kept_since_ = now_;
}

// The reservation ends without a token.
void TokenScheduler::Unreserve() {
  ChargeKept();
  reserved_ = kNobody;
}

// Which of the gangs come before every single pod that waits or holds here, in their order.
void TokenScheduler::RankGangs() {
  for (const uint32_t g : gangs_) {
    if (pods_[g].rank == GangView::kUnranked) pods_[g].first_lag = kNoLag;
    pods_[g].rank = GangView::kUnranked;
  }
  if (cut_at_ != kNever) return;
  if (token_) ChargeProgress();
  const auto stand = [this](uint32_t index, bool in_line) {
    queue_.SetWaiting(pods_[index].slot, in_line, Burst(pods_[index]));
  };
  // Whoever holds competes too, or it would lose its turn by draining. So do those who stopped
  // asking a moment ago: a gang's hold is too long to be handed out for a gap between two kernels.
  std::vector<uint32_t> absent;
  if (token_ && !pods_[token_->pod].gang && pods_[token_->pod].wanting > 0) {
    absent.push_back(token_->pod);
  }
  for (const auto& [since, index] : grace_) {
    const Pod& pod = pods_[index];
    if (pod.id && pod.idle_since == since && !pod.gang) absent.push_back(index);
  }
  for (const uint32_t a : absent) stand(a, true);
  for (const uint32_t g : gangs_) stand(g, true);
  uint32_t rank = 0;
  for (auto next = queue_.Pick(now_); next && pods_[*next].gang; next = queue_.Pick(now_)) {
    Pod& gang = pods_[*next];
    gang.rank = rank++;
    stand(*next, false);
  }
  for (const uint32_t g : gangs_) {
    Pod& gang = pods_[g];
    gang.owed_much = false;
    if (gang.rank == GangView::kUnranked) {
      stand(g, false);
      continue;
    }
    const Duration lag = queue_.Lag(gang.slot);
    if (gang.first_lag == kNoLag) gang.first_lag = lag;
    gang.owed_much = lag > GangCredit(gang);
  }
  for (const uint32_t a : absent) stand(a, false);
}

// Less than its next hold, or than it took to come first, would put it back in line as often as
// another of its GPUs is not ready.
Duration TokenScheduler::GangCredit(const Pod& gang) const {
  const Duration least = std::max(queue_.Credit(gang.slot), 2 * Burst(gang));
  return gang.first_lag == kNoLag ? least : std::max(least, gang.first_lag);
}

GangView TokenScheduler::Gang(PodId id) const {
  GangView view;
  const auto found = pod_index_.find(id.value);
  if (found == pod_index_.end()) return view;
  const uint32_t index = found->second;
  const Pod& pod = pods_[index];
  view.wants = pod.wanting > 0;
  view.rank = pod.rank;
  view.owed_much = pod.owed_much;
  view.reserved = reserved_ == index;
  view.taken = reserved_ != kNobody && reserved_ != index;
  view.free = view.reserved && !token_ && stopped_.empty() && cut_at_ == kNever;
  view.holds = token_ && token_->pod == index;
  view.quota = Quota(pod);
  view.allowance = queue_.Allowance(pod.slot, now_);
  if (view.free) view.allowance -= now_ - kept_since_;
  view.contended = RivalWaits();
  if (view.holds) {
    view.drained = token_->members.empty();
    view.closed = token_->closed;
    view.revoked = token_->revoked;
    for (const uint32_t c : token_->members) {
      const Client& client = clients_[c];
      view.done_at = std::max(view.done_at, client.done_at);
      view.stuck |= token_->closed || client.joined_at < token_->reopened_at;
    }
    for (const uint32_t c : pod.clients) {
      if (Parked(clients_[c])) view.parked.push_back(clients_[c].id);
    }
  } else if (token_) {
    // A kernel that was as long before is waited for.
    const Duration usual = Duration(2 * pods_[token_->pod].service_ns);
    view.overdue = token_->closed && now_ - token_->ended_at > std::max(options_.quota_max, usual);
  }
  view.overdue |= !stopped_.empty() && now_ - stopped_.front().since > options_.quota_max;
  return view;
}

// Wants the token of its own pod, which is being drained, and holds no part of it.
bool TokenScheduler::Parked(const Client& client) const {
  return client.wants && client.connected && !client.member;
}

// Members that still work on the GPU may be waiting there for what a parked client of the same pod
// is to launch.
bool TokenScheduler::Stuck() const {
  const auto& members = token_->members;
  const auto& clients = pods_[token_->pod].clients;
  return std::any_of(members.begin(), members.end(),
                     [this](uint32_t c) { return clients_[c].connected; }) &&
         std::any_of(clients.begin(), clients.end(),
                     [this](uint32_t c) { return Parked(clients_[c]); });
}

}  // namespace baton::backend
