#include "backend/leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/status.h"
#include "backend/users.h"
#include "base/entropy.h"
#include "ledger/time_zone.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// Ended ones of which their holders can still learn why.
constexpr size_t kEndedMax = 1'000;
// Between two looks whether the queue has room: at least, and at most.
constexpr Duration kTryLeast = std::chrono::milliseconds(100);
constexpr Duration kTryMost = std::chrono::seconds(1);
// A pod whose devices cannot be destroyed yet is tried again, less and less often.
constexpr Duration kTryAgain = std::chrono::milliseconds(200);
constexpr Duration kTryAgainMost = std::chrono::seconds(30);

constexpr const char* kOver = "its time is over";
constexpr const char* kGivenBack = "it was given back";
constexpr const char* kRevoked = "it was revoked: its pod was deleted";

ledger::WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

// What all who look are told, whenever they do: to the second.
std::string WallText(int64_t unix_ms) {
  return ledger::FormatTime(ledger::WallTime(std::chrono::milliseconds(unix_ms)));
}

// To the millisecond, as a number for programs.
double SecondsUntil(Instant at) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(at - MonotonicNow());
  return static_cast<double>(std::max<int64_t>(0, left.count())) / 1000;
}

}  // namespace

Leases::Leases(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter,
               PodsFile& file, Duration unheard)
    : io_(io), options_(options), arbiter_(arbiter), file_(file), unheard_(unheard), timer_(io) {
  arbiter_.lifecycle().OnDropped([this](const Pod& pod) { Dropped(pod); });
}

void Leases::Restore() {
  const Instant now = MonotonicNow();
  const int64_t wall_ms = WallNow().time_since_epoch().count();
  std::vector<PodId> leased;
  for (const auto& [id, pod] : arbiter_.pods().all()) {
    if (!pod.lease.id.empty()) leased.push_back(id);
  }
  bool shortened = false;
  for (const PodId id : leased) {
    Pod& pod = *arbiter_.pods().Find(id);
    const int64_t term_ms = int64_t{pod.lease.term_s} * 1000;
    if (pod.lease.until_ms - wall_ms >
        term_ms) {  // the clock was set back: once, not at each start
      pod.lease.until_ms = wall_ms + term_ms;
      arbiter_.pods().Changed(id);
      shortened = true;
    }
    const int64_t left_ms = std::max<int64_t>(pod.lease.until_ms - wall_ms, 0);
    const Held held{id, now + std::chrono::milliseconds(left_ms), "", {}};
    held_[pod.lease.id] = held;
    ends_.emplace(held.until, pod.lease.id);
  }
  if (shortened) file_.Save();
  Tend();
}

json Leases::Cost(const Pod& pod, uint32_t term_s, const std::string& node) const {
  const auto& prices = options_.ledger.prices;
  std::string model;
  const auto& named = pod.gpus.empty() ? pod.wishes.gpus : pod.gpus;
  const auto known = named.empty() ? arbiter_.gpus().end() : arbiter_.gpus().find(named.front());
  if (known != arbiter_.gpus().end()) {
    model = known->second->info.name;
  } else if (const std::vector<Gpu*> gpus = arbiter_.GpusOf(node); !gpus.empty()) {
    model = gpus.front()->info.name;
  }
  const auto price = ledger::PriceAt(prices, model, WallNow());
  if (!price) return json::object();
  const size_t gpus = std::max<size_t>({1, pod.gpus.size(), pod.count});
  const double hours = policy::Percent(pod.share.request) / 100 * static_cast<double>(gpus) *
                       static_cast<double>(term_s) / 3600;
  return {{"cost", hours * *price}, {"currency", options_.ledger.currency}};
}

// Makes it the user's own, within what a user may have now.
Result<void> Leases::Own(Pod& pod, const Caller& caller) const {
  if (!caller.user) return {};
  auto own = spec::AsUser(options_.users, *caller.user,
                          PodsOfUser(arbiter_.pods(), caller.user->uid, nullptr), pod);
  if (!own) return tl::unexpected(own.error());
  static_cast<spec::PodRequest&>(pod) = std::move(*own);
  return {};
}

void Leases::Place(Pod pod, const Caller& caller, const PodLifecycle::Made& done) {
  pod.lease.until_ms = WallNow().time_since_epoch().count() + int64_t{pod.lease.term_s} * 1000;
  const uint32_t count = pod.count;
  arbiter_.lifecycle().CreatePod(std::move(pod), count, caller.node, done);
}

void Leases::Grant(Pod& pod, const Caller& caller) {
  Held& held = held_[pod.lease.id] = {pod.id, {}, "", {}};
  held.until = MonotonicNow() + std::chrono::seconds(pod.lease.term_s);
  ends_.emplace(held.until, pod.lease.id);
  // A driver has taken its time.
  if (pod.has_devices()) SetEnd(held, pod, pod.lease.term_s);
  if (noted_) noted_(pod, &caller, true);
  Arm();
}

void Leases::SetEnd(Held& held, Pod& pod, uint32_t term_s) {
  ends_.erase({held.until, pod.lease.id});
  held.until = MonotonicNow() + std::chrono::seconds(term_s);
  ends_.emplace(held.until, pod.lease.id);
  pod.lease.term_s = term_s;
  pod.lease.until_ms = WallNow().time_since_epoch().count() + int64_t{term_s} * 1000;
  arbiter_.pods().Changed(pod.id);
  file_.Save();
  Arm();
}

void Leases::Create(Pod pod, const Caller& caller, uint32_t term_s, bool queue,
                    const Answer& answer) {
  pod.lease = {RandomTicket().substr(0, 16), 0, term_s};
  if (pod.name.empty()) pod.name = "lease-" + pod.lease.id.substr(0, 8);
  if (auto own = Own(pod, caller); !own) return answer(tl::unexpected(own.error()));
  arbiter_.lifecycle().SetDefaultCap(pod);
  Place(pod, caller,
        [this, alive = alive_, pod, caller, queue, answer](const Result<Pod*>& made) mutable {
          if (!*alive) return;
          if (made) {
            Grant(**made, caller);
            return answer(GrantedJson(**made, held_.at((*made)->lease.id)));
          }
          const Error& refused = made.error();
          if (!queue || refused.code != ErrorCode::kExhausted) {
            return answer(tl::unexpected(refused));
          }
          if (auto count = arbiter_.lifecycle().Resolve(pod, pod.count, caller.node)) {
            pod.count = *count;
          }
          // Where more than room is missing, no end of a lease helps.
          const auto expected = Expected(pod, caller.node);
          if (!expected) return answer(tl::unexpected(refused));
          const auto mine = std::count_if(queue_.begin(), queue_.end(), [&](const Queued& other) {
            return caller.user && other.pod.uid == pod.uid;
          });
          if (queue_.size() >= kQueueMax || static_cast<size_t>(mine) >= kQueueOfUser) {
            return answer(Fail(ErrorCode::kExhausted,
                               refused.message + "; and too many requests wait for room already"));
          }
          queue_.push_back({pod, caller, MonotonicNow()});
          answer(QueuedJson(queue_.back()));
          Arm();
        });
}

// When enough leases have ended, if nobody renews and nobody else takes the room.
std::optional<Leases::Ending> Leases::Expected(const Pod& pod, const std::string& node) const {
  std::vector<std::string> names;
  std::vector<Ending> when;
  for (const auto& [at, id] : ends_) {
    const Pod* held = std::as_const(arbiter_).pods().Find(held_.at(id).pod);
    if (held == nullptr) continue;
    names.push_back(held->name);
    when.push_back({at, held->lease.until_ms});
  }
  const auto ended = arbiter_.vgpus().RoomAfter(pod, std::max<uint32_t>(1, pod.count), node, names);
  if (!ended || *ended == 0) return std::nullopt;
  return when[*ended - 1];
}

json Leases::GrantedJson(const Pod& pod, const Held& held) const {
  json answer = PodAnswer(arbiter_, pod);
  answer.update(Cost(pod, pod.lease.term_s, "*"));
  answer["lease"] = pod.lease.id;
  answer["state"] = "granted";
  answer["until"] = WallText(pod.lease.until_ms);
  answer["seconds"] = SecondsUntil(held.until);
  // What its programs need, for who starts them without `baton`; beside it LD_PRELOAD, where `hook`
  // says so.
  json& environment = answer["environment"];
  environment["BATON_TICKET"] = pod.ticket;
  if (!pod.by_token()) {
    environment["BATON_DISABLE"] = "1";
  } else if (arbiter_.PodIsOn(pod, "")) {
    environment["BATON_SOCKET"] =
        (std::filesystem::absolute(options_.server.socket_dir) / "baton.sock").string();
  }
  return answer;
}

json Leases::QueuedJson(Queued& queued) const {
  json answer = Cost(queued.pod, queued.pod.lease.term_s, queued.caller.node);
  answer["lease"] = queued.pod.lease.id;
  answer["state"] = "queued";
  answer["name"] = queued.pod.name;
  size_t before = 0;
  for (const Queued& other : queue_) {
    if (other.pod.lease.id == queued.pod.lease.id) break;
    ++before;
  }
  answer["before"] = before;
  queued.expected = Expected(queued.pod, queued.caller.node);
  if (queued.expected) {
    answer["until"] = WallText(queued.expected->wall_ms);
    answer["seconds"] = SecondsUntil(queued.expected->at);
  }
  return answer;
}

Leases::Queued* Leases::InQueue(const std::string& id) {
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [&](const Queued& one) { return one.pod.lease.id == id; });
  return found == queue_.end() ? nullptr : &*found;
}

Result<void> Leases::Check(const std::string& id, const Caller& caller) const {
  const auto answer = [&](bool here, bool mine) -> Result<void> {
    if (!here) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("no lease {} here; 'baton lease list' lists them", id));
    }
    if (!mine) return Fail(ErrorCode::kDenied, fmt::format("lease {} is not yours", id));
    return {};
  };
  const auto of_node = [&](const std::string& node) {
    return caller.node == "*" || caller.node == node;
  };
  if (const auto held = held_.find(id); held != held_.end()) {
    const Pod* pod = std::as_const(arbiter_).pods().Find(held->second.pod);
    return answer(pod != nullptr && arbiter_.PodIsOn(*pod, caller.node),
                  !caller.user || (pod->uid == caller.user->uid && pod->from_file.empty()));
  }
  for (const Queued& one : queue_) {
    if (one.pod.lease.id != id) continue;
    return answer(of_node(one.caller.node), !caller.user || one.pod.uid == caller.user->uid);
  }
  for (const Ended& one : ended_) {
    if (one.id == id) {
      return answer(of_node(one.node), !caller.user || one.uid == caller.user->uid);
    }
  }
  return answer(false, false);
}

// Of one that Check() has found.
json Leases::StateOf(const std::string& id) {
  if (const auto held = held_.find(id); held != held_.end()) {
    return GrantedJson(*arbiter_.pods().Find(held->second.pod), held->second);
  }
  if (Queued* queued = InQueue(id)) return QueuedJson(*queued);
  for (const Ended& one : ended_) {
    if (one.id == id) return {{"lease", id}, {"state", "ended"}, {"why", one.why}};
  }
  return {{"lease", id}, {"state", "ended"}, {"why", "long ago"}};
}

void Leases::Tell(const std::string& id, const Caller& caller, Duration wait,
                  const Answer& answer) {
  if (auto may = Check(id, caller); !may) return answer(tl::unexpected(may.error()));
  Queued* queued = InQueue(id);
  if (queued != nullptr) queued->heard = std::max(queued->heard, MonotonicNow() + wait);
  const auto waiting = static_cast<size_t>(
      std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
        return caller.user ? waiter.caller.user && waiter.caller.user->uid == caller.user->uid
                           : !waiter.caller.user;
      }));
  const bool may_wait = waiting < (caller.user ? kWaitersOfUser : kWaitersOfOperator);
  if (wait > Duration(0) && may_wait && (queued != nullptr || held_.count(id) != 0)) {
    waiters_.push_back({id, caller, MonotonicNow() + wait, answer});
    return Arm();
  }
  answer(StateOf(id));
}

Result<json> Leases::Renew(const std::string& id, const Caller& caller, uint32_t term_s) {
  if (auto may = Check(id, caller); !may) return tl::unexpected(may.error());
  if (Queued* queued = InQueue(id)) {
    queued->heard = std::max(queued->heard, MonotonicNow());
    if (term_s != 0) queued->pod.lease.term_s = term_s;
    return QueuedJson(*queued);
  }
  const auto ended = [&id](const std::string& why) {
    return Fail(ErrorCode::kNotFound, fmt::format("lease {} has ended: {}", id, why));
  };
  const auto held = held_.find(id);
  if (held == held_.end()) return ended(StateOf(id).at("why"));
  if (!held->second.why.empty()) return ended(held->second.why);
  if (held->second.again > Duration(0)) return ended(kOver);  // its devices cannot be destroyed yet
  Pod& pod = *arbiter_.pods().Find(held->second.pod);
  SetEnd(held->second, pod, term_s != 0 ? term_s : pod.lease.term_s);
  return GrantedJson(pod, held->second);
}

void Leases::End(const std::string& id, const Caller& caller, const Answer& answer) {
  if (auto may = Check(id, caller); !may) return answer(tl::unexpected(may.error()));
  if (const Queued* queued = InQueue(id)) {
    NoteEnded({id, queued->pod.uid, queued->caller.node, kGivenBack});
    queue_.remove_if([&](const Queued& one) { return one.pod.lease.id == id; });
    return answer(json::object());
  }
  if (held_.count(id) == 0) return answer(json::object());  // it has ended already
  Finish(id, kGivenBack, &caller, [answer](const Result<void>& ended) {
    answer(ended ? Result<json>(json::object()) : tl::unexpected(ended.error()));
  });
}

json Leases::List(const std::string& node) const {
  json rows = json::array();
  const auto row = [&rows](const Pod& pod, const char* state) -> json& {
    rows.push_back({{"lease", pod.lease.id},
                    {"state", state},
                    {"pod", pod.name},
                    {"user", pod.user},
                    {"team", pod.team},
                    {"request", policy::Percent(pod.share.request)},
                    {"gpus", pod.gpus}});
    return rows.back();
  };
  for (const auto& [at, id] : ends_) {
    const Pod* pod = std::as_const(arbiter_).pods().Find(held_.at(id).pod);
    if (pod == nullptr || !arbiter_.PodIsOn(*pod, node)) continue;
    json& one = row(*pod, "granted");
    one["until"] = WallText(pod->lease.until_ms);
    one["seconds"] = SecondsUntil(at);
  }
  for (const Queued& queued : queue_) {
    if (node != "*" && queued.caller.node != node) continue;
    json& one = row(queued.pod, "queued");
    // Worked out when its holder asked: of all at once that would take long.
    if (queued.expected) {
      one["until"] = WallText(queued.expected->wall_ms);
      one["seconds"] = SecondsUntil(queued.expected->at);
    }
  }
  return {{"leases", std::move(rows)}};
}

// Deletes the pod of a lease that is held. `who`: null: batond itself.
void Leases::Finish(const std::string& id, const std::string& why, const Caller* who,
                    const PodLifecycle::Done& done) {
  Held& held = held_.at(id);
  if (!held.why.empty()) return done({});  // it is under way
  held.why = why;
  Pod& pod = *arbiter_.pods().Find(held.pod);
  arbiter_.lifecycle().DeletePod(pod, [this, alive = alive_, id, was = pod,
                                       who = who == nullptr ? std::nullopt : std::optional(*who),
                                       done](const Result<void>& deleted) {
    if (!*alive) return;
    if (deleted && noted_) noted_(was, who ? &*who : nullptr, false);
    // It is tried again, or ends at its time.
    if (const auto held = held_.find(id); !deleted && held != held_.end()) {
      held->second.why.clear();
    }
    done(deleted);
  });
}

void Leases::NoteEnded(Ended ended) {
  changed_.insert(ended.id);
  ended_.push_back(std::move(ended));
  if (ended_.size() > kEndedMax) ended_.pop_front();
  Arm();
}

void Leases::Dropped(const Pod& pod) {
  const auto held = held_.find(pod.lease.id);
  if (held != held_.end() && held->second.pod == pod.id) {
    const auto gpu = arbiter_.gpus().find(pod.gpus.front());
    const std::string why = held->second.why.empty() ? kRevoked : held->second.why;
    ends_.erase({held->second.until, held->first});
    held_.erase(held);
    NoteEnded({pod.lease.id, pod.uid,
               gpu == arbiter_.gpus().end() ? std::string() : gpu->second->node, why});
  }
  if (!queue_.empty()) {
    next_try_ = std::min(next_try_, std::max(MonotonicNow(), last_try_ + kTryLeast));
    Arm();
  }
}

void Leases::EndOverdue(Instant now) {
  std::vector<std::string> over;
  for (const auto& [at, id] : ends_) {
    if (at > now) break;
    over.push_back(id);
  }
  for (const std::string& id : over) {
    Held& held = held_.at(id);
    Pod& pod = *arbiter_.pods().Find(held.pod);
    ends_.erase({held.until, id});
    if (!pod.from_file.empty()) {  // the operator's file has taken it over: it stays
      NoteEnded({id, pod.uid, "*", "the configuration has taken its pod over"});
      pod.lease = {};
      arbiter_.pods().Changed(pod.id);
      file_.Save();
      held_.erase(id);
      continue;
    }
    // Where its devices are being moved, or cannot be destroyed. Dropped() takes it off.
    held.again = std::clamp(2 * held.again, kTryAgain, kTryAgainMost);
    held.until = now + held.again;
    ends_.emplace(held.until, id);
    Finish(id, kOver, nullptr, [](const Result<void>&) {});
  }
}

void Leases::ServeQueue(Instant now) {
  for (auto it = queue_.begin(); it != queue_.end();) {
    const Queued& one = *it;
    if (one.trying || now - one.heard <= unheard_) {
      ++it;
      continue;
    }
    NoteEnded({one.pod.lease.id, one.pod.uid, one.caller.node,
               "nobody asked about it while it was queued"});
    it = queue_.erase(it);
  }
  if (now < next_try_ || queue_.empty()) return;
  last_try_ = now;
  next_try_ = now + kTryMost;
  std::vector<std::string> ids;
  for (const Queued& one : queue_) {
    if (!one.trying) ids.push_back(one.pod.lease.id);
  }
  for (const std::string& id : ids) {
    Queued* one = InQueue(id);
    if (!Own(one->pod, one->caller)) continue;  // who asked has as much as a user may have
    one->trying = true;
    Place(one->pod, one->caller,
          [this, alive = alive_, id, caller = one->caller](const Result<Pod*>& made) {
            if (!*alive) return;
            Queued* one = InQueue(id);
            if (one == nullptr) {  // given back while its devices were made
              if (!made) return;
              Grant(**made, caller);  // so that it ends at its time at the latest
              Finish(id, kGivenBack, &caller, [](const Result<void>&) {});
              return;
            }
            one->trying = false;
            if (!made && (made.error().code == ErrorCode::kExhausted ||
                          made.error().code == ErrorCode::kUnavailable)) {
              return;
            }
            if (made) {
              Grant(**made, one->caller);
              changed_.insert(id);
            } else {
              NoteEnded(
                  {id, one->pod.uid, one->caller.node, "it was refused: " + made.error().message});
            }
            queue_.remove_if([&](const Queued& other) { return other.pod.lease.id == id; });
            Arm();
          });
  }
}

void Leases::AnswerWaiters(Instant now) {
  std::list<Waiter> told;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    const auto next = std::next(it);
    if (it->until <= now || changed_.count(it->id) != 0) told.splice(told.end(), waiters_, it);
    it = next;
  }
  changed_.clear();
  for (const Waiter& waiter : told) {
    Tell(waiter.id, waiter.caller, Duration(0), waiter.answer);
  }
}

void Leases::Tend() {
  const Instant now = MonotonicNow();
  EndOverdue(now);
  ServeQueue(now);
  AnswerWaiters(now);
  Arm();
}

// For whatever is due next.
void Leases::Arm() {
  Instant next = kNever;
  if (!ends_.empty()) next = ends_.begin()->first;
  for (const Waiter& waiter : waiters_) next = std::min(next, waiter.until);
  if (!queue_.empty()) next = std::min(next, next_try_);
  const Instant now = MonotonicNow();
  if (!changed_.empty()) next = now;
  if (next == kNever) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(std::max(next - now, Duration(0)));
  timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) Tend();
  });
}

}  // namespace baton::backend
