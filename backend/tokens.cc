#include "backend/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "base/parse.h"

namespace baton::backend {
namespace {

constexpr Duration kTickEvery = std::chrono::microseconds(100);
constexpr Duration kDueSoon = std::chrono::milliseconds(2);

}  // namespace

Tokens::Tokens(boost::asio::io_context& io, const config::Options& options, const Pods& pods,
               const Gpus& gpus, const ClientTable& clients, Accounts& accounts,
               node::EventLog& log)
    : io_(io),
      options_(options),
      pods_(pods),
      gpus_(gpus),
      clients_(clients),
      accounts_(accounts),
      log_(log),
      gangs_(options.scheduler),
      gang_timer_(io) {}

Tokens::~Tokens() { *alive_ = false; }

void Tokens::Step(Gpu& gpu, const scheduler::Event& event) {
  const bool had_gangs = gpu.scheduler.has_gangs();
  StepOne(gpu, event);
  if (had_gangs || gpu.scheduler.has_gangs()) TendGangs();
}

void Tokens::TendGangs() {
  if (gangs_.empty()) return;
  gangs_.Tend(MonotonicNow(),
              [this](const scheduler::TokenScheduler& scheduler, const scheduler::GangStep& step) {
                StepOne(*by_scheduler_.at(&scheduler), step);
              });
  const Instant at = gangs_.wakeup();
  if (at >= gang_armed_) return;
  gang_armed_ = at;
  gang_timer_.expires_at(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(Nanos(at))));
  gang_timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive) return;
    gang_armed_ = kNever;
    TendGangs();
  });
}

GangId Tokens::IdOf(const Pod& pod) {
  if (pod.gang.empty()) return GangId{pod.id.value};
  GangId& id = named_[pod.gang];
  if (!id) id = GangId{++last_named_};
  return id;
}

void Tokens::FormGang(const Pod& pod, const std::vector<const Pod*>& members) {
  if (!pod.in_gang()) return;
  std::vector<scheduler::GangScheduler::Member> there;
  for (Gpu* gpu : gpus_.all()) {
    for (const Pod* member : members) {
      if (member->Has(gpu->info.uuid)) there.push_back({member->id, &gpu->scheduler});
    }
  }
  size_t gpus = 0;
  for (const Pod* member : members) gpus += member->gpus.size();
  const bool complete = there.size() == gpus && pods_.MissingOf(pod) == 0;
  gangs_.Set(IdOf(pod), std::move(there), complete);
  if (members.empty()) named_.erase(pod.gang);
}

void Tokens::LeaveGang(const Pod& pod) {
  std::vector<const Pod*> others = pods_.GangOf(pod);
  std::erase_if(others, [&](const Pod* other) { return other->id == pod.id; });
  FormGang(pod, others);
}

void Tokens::StepOne(Gpu& gpu, const scheduler::Event& event) {
  const Instant now = MonotonicNow();
  now_ = now;
  effects_.clear();
  gpu.scheduler.Step(now, event, effects_);
  for (const scheduler::Effect& effect : effects_) {
    std::visit([&](const auto& e) { CarryOut(gpu, e); }, effect);
  }
  accounts_.NoteIdle(gpu, now);
  Arm(gpu);
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::SendToken& send) {
  const auto it = gpu.lanes.find(send.client.value);
  // One that held before a restart is connected before it says which index stands for this GPU.
  if (it == gpu.lanes.end() || !it->second->attached) return;
  wire::Token token;
  token.gpu = it->second->index;
  token.epoch = send.epoch;
  token.rev = send.rev;
  token.quota_ns = static_cast<uint64_t>(Nanos(send.quota));
  token.contended = send.contended;
  const Client& client = *it->second->client;
  if (!send.after.client) return SendTo(client, token);
  const auto before = gpu.lanes.find(send.after.client.value);
  if (before == gpu.lanes.end() || client.link == nullptr || !client.connected) return;
  token.after_client = before->second->client->number;
  token.after_epoch = send.after.epoch;
  token.after_rev = send.after.rev;
  client.link->SendAhead(client.number, token);
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::StoreHolder& store) {
  const auto it = gpu.lanes.find(store.client.value);
  if (it == gpu.lanes.end()) return;
  Lane& lane = *it->second;
  const Client& client = *lane.client;
  gpu.clear_file = false;
  if (gpu.holder != store.pod) {
    gpu.holder = store.pod;
    gpu.granted_at = now_;
    gpu.hold = {store.pod, now_ - store.waited, now_};
    ++gpu.grants;
    ++lane.total->usage.grants;
    lane.total->BeginHold(store.epoch);
  }
  if (gpu.file.Full(store.epoch)) {
    // Processes that came and went under this one token.
    gpu.file.Keep([&](const HolderFile::Member& member) {
      const Client* known =
          clients_.FindProcess({gpu.node, member.pid, member.start_time}, member.incarnation);
      return known != nullptr && gpu.scheduler.Holds(known->id);
    });
  }
  gpu.holder_stored = gpu.file.Store(
      store.epoch, {store.pod.value, client.pid, client.start_time, client.incarnation,
                    static_cast<uint64_t>(Nanos(store.joined_at))});
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::StoreNext& store) {
  const auto it = gpu.lanes.find(store.client.value);
  if (it == gpu.lanes.end()) return;
  const Client& client = *it->second->client;
  if (store.epoch != gpu.next_file.epoch()) ++gpu.sent_ahead;
  gpu.holder_stored = gpu.next_file.Store(
      store.epoch, {store.pod.value, client.pid, client.start_time, client.incarnation,
                    static_cast<uint64_t>(Nanos(store.sent_at))});
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::Charged& charged) {
  accounts_.Charge(gpu, charged.pod, charged.held, charged.uncontended, now_);
  if (charged.limit_full_at > now_) {
    accounts_.SetLimitFullAt(gpu, charged.pod, charged.limit_full_at);
  }
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::Settled& settled) {
  const auto it = gpu.lanes.find(settled.client.value);
  if (it != gpu.lanes.end()) accounts_.Settle(*it->second);
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::ClearHolders&) {
  gpu.hold.returned_at = now_;
  to_record_.emplace_back(&gpu, gpu.hold);
  gpu.holder = PodId{};
  gpu.hung = false;
  gpu.file.Forget();
  // Written later: until then a restart would wait for somebody who has drained, no more.
  gpu.clear_file = true;
  to_clear_.push_back(&gpu);
  Later();
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::KillClient& kill) {
  const auto it = gpu.lanes.find(kill.client.value);
  if (it == gpu.lanes.end()) return;
  const Client& client = *it->second->client;
  if (client.link == nullptr) return;
  client.link->KillProcess(client.number);
  log_.Add(node::EventLog::Level::kWarning, "token",
           fmt::format("killed {}: it did not drain within {}", Where(client),
                       FormatDuration(options_.scheduler.drain_timeout)));
}

void Tokens::CarryOut(Gpu& gpu, const scheduler::Notice& notice) {
  to_note_.emplace_back(&gpu, notice);
  Later();
}

void Tokens::Arm(Gpu& gpu) {
  // Ticks that lie close together are one: no deadline needs to be met that exactly.
  const Instant at = std::max(gpu.scheduler.wakeup(), gpu.ticked + kTickEvery);
  // A timer that is due too early only looks again, and moving it each time would cost a system
  // call. One that is due soon would come in the middle of a hand-off.
  if (at == gpu.armed || (at > gpu.armed && gpu.armed - now_ > kDueSoon)) return;
  gpu.armed = at;
  gpu.timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(Nanos(at))));
  gpu.timer.async_wait([this, alive = alive_, &gpu](const boost::system::error_code& error) {
    if (error || !*alive) return;
    gpu.armed = kNever;
    if (const Instant now = MonotonicNow(); now >= gpu.scheduler.wakeup()) {
      gpu.ticked = now;
      Step(gpu, scheduler::Tick{});
    } else {
      Arm(gpu);
    }
  });
}

void Tokens::Later() {
  if (std::exchange(later_, true)) return;
  boost::asio::post(io_, [this, alive = alive_] {
    if (*alive) Flush();
  });
}

void Tokens::Flush() {
  later_ = false;
  for (Gpu* gpu : to_clear_) {
    if (gpu->clear_file) gpu->holder_stored = gpu->file.Clear();
    gpu->clear_file = false;
  }
  to_clear_.clear();
  for (const auto& [gpu, hold] : to_record_) accounts_.Record(*gpu, hold);
  to_record_.clear();
  for (const auto& [gpu, notice] : to_note_) Note(*gpu, notice);
  to_note_.clear();
}

void Tokens::Note(Gpu& gpu, const scheduler::Notice& notice) {
  const Pod* pod = pods_.Find(notice.pod);
  const std::string name = pod != nullptr ? pod->name : "a deleted pod";
  const Client* client = clients_.Find(notice.client);
  const std::string who = client != nullptr ? name + " (" + Where(*client) + ")" : name;
  switch (notice.kind) {
    case scheduler::Notice::Kind::kHung:
      gpu.hung = true;
      log_.Add(node::EventLog::Level::kWarning, "token",
               fmt::format("{} on {} has not drained for {}: it is stopped, or a kernel does not "
                           "end; the GPU waits for it{}",
                           who, gpu.info.uuid, FormatDuration(notice.by),
                           options_.scheduler.drain_kill
                               ? ""
                               : " (scheduler.drain_action = \"kill\" would end it)"));
      return;
    case scheduler::Notice::Kind::kOverrun:
      ++gpu.overruns;
      log_.Add(node::EventLog::Level::kDebug, "token",
               fmt::format("{} on {} overran its token by {}", who, gpu.info.uuid,
                           FormatDuration(notice.by)));
      return;
    case scheduler::Notice::Kind::kRevoked:
      if (UsageEntry* account = accounts_.Of(gpu, notice.pod)) ++account->usage.revocations;
      log_.Add(node::EventLog::Level::kDebug, "token",
               fmt::format("{} on {} was revoked", who, gpu.info.uuid));
      return;
    case scheduler::Notice::Kind::kReopened:
      log_.Add(node::EventLog::Level::kDebug, "token",
               fmt::format("{} on {} got its token back: its drain waited for its own launch", who,
                           gpu.info.uuid));
      return;
  }
}

}  // namespace baton::backend
