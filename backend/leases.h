// Leases: pods that end by themselves. A grant reserves a share until a time; the holder renews it,
// or gives it back. Where there is no room now, a request may wait in a queue for the leases of
// others to end.
//
//            no room yet             room
//   asked ───────────────▶ queued ───────────▶ granted ───▶ ended: over, given back or revoked
//     │   room                │                   ▲  │ renewed
//     └───────────────────────┼───────────────────┘  ▲┘
//                             └──▶ ended: nobody asked about it for 10 s
//
// A granted lease is kept with its pod (backend/pods.h) over restarts; the queue is not kept. Time
// goes by the monotonic clock, and over a restart by the wall clock, of which a jump lengthens no
// lease beyond its term.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_LEASES_H_
#define BATON_BACKEND_LEASES_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/arbiter.h"
#include "backend/caller.h"
#include "backend/pods_file.h"
#include "base/time.h"
#include "config/options.h"
#include "node/event_log.h"

namespace baton::backend {

class Leases {
 public:
  static constexpr int64_t kTermMax = 86'400;  // seconds of a grant or a renewal
  static constexpr int64_t kWaitMax = 60;      // seconds for which a question waits for news
  static constexpr size_t kQueueMax = 64;
  static constexpr size_t kQueueOfUser = 8;
  // Questions that wait hold a connection each, of which a user has few: beyond so many of a user,
  // or of the operator, they are answered at once.
  static constexpr size_t kWaitersOfUser = 4;
  static constexpr size_t kWaitersOfOperator = 32;
  // Who asks nothing about a queued request for so long has gone.
  static constexpr Duration kUnheard = std::chrono::seconds(10);

  // Called once, at once or later.
  using Answer = std::function<void(Result<nlohmann::json>)>;

  // `unheard`: see kUnheard.
  Leases(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter,
         PodsFile& file, Duration unheard = kUnheard);
  ~Leases() { *alive_ = false; }

  // Told of each lease that is granted (`begins`) or ends by its time or by its holder. `who`:
  // whose it is, or who gave it back; null: its time is over.
  using Noted = std::function<void(const Pod& pod, const Caller* who, bool begins)>;
  void OnChange(Noted noted) { noted_ = std::move(noted); }

  // Takes up the leases of before; those that are over end now. Once, when the GPUs are known.
  void Restore();

  // `pod` as create_pod asks for it; without a name it gets one. `queue`: may wait for room.
  // What a user may not have is refused as for other pods. Answers what Tell() does.
  void Create(Pod pod, const Caller& caller, uint32_t term_s, bool queue, const Answer& answer);
  // How it stands with the lease, as docs/protocol.md has it; with `wait`, once that changes or the
  // time is over. kNotFound; kDenied: it is another user's.
  void Tell(const std::string& id, const Caller& caller, Duration wait, const Answer& answer);
  // Ends `term_s` from now; 0: as long as it was last granted for. kNotFound: it has ended, too.
  Result<nlohmann::json> Renew(const std::string& id, const Caller& caller, uint32_t term_s);
  // Given back, or out of the queue.
  void End(const std::string& id, const Caller& caller, const Answer& answer);
  // All of a node ("*": of all), the granted ones first.
  nlohmann::json List(const std::string& node) const;
  // What the request of the pod costs for that time, if prices are configured: {cost, currency}.
  nlohmann::json Cost(const Pod& pod, uint32_t term_s, const std::string& node) const;

 private:
  struct Held {
    PodId pod;
    Instant until;
    std::string why;      // while it is ended
    Duration again = {};  // until that is tried again, where it could not be; 0: not yet
  };
  // When a lease ends.
  struct Ending {
    Instant at;
    int64_t wall_ms;  // since 1970, as it was promised
  };
  struct Queued {
    Pod pod;  // its lease has the id and the term
    Caller caller;
    Instant heard;
    std::optional<Ending> expected = {};  // as of the last question about it
    bool trying = false;                  // a driver makes its devices
  };
  struct Ended {
    std::string id;
    int64_t uid;
    std::string node;  // whose lease it was; "*": of this daemon
    std::string why;
  };
  struct Waiter {
    std::string id;
    Caller caller;
    Instant until;
    Answer answer;
  };

  // What the caller may know and do; an error: nothing.
  Result<void> Check(const std::string& id, const Caller& caller) const;
  Queued* InQueue(const std::string& id);
  nlohmann::json StateOf(const std::string& id);
  std::optional<Ending> Expected(const Pod& pod, const std::string& node) const;
  nlohmann::json GrantedJson(const Pod& pod, const Held& held) const;
  nlohmann::json QueuedJson(Queued& queued) const;
  Result<void> Own(Pod& pod, const Caller& caller) const;
  void Place(Pod pod, const Caller& caller, const PodLifecycle::Made& done);
  void Grant(Pod& pod, const Caller& caller);
  void SetEnd(Held& held, Pod& pod, uint32_t term_s);
  void Dropped(const Pod& pod);
  void Finish(const std::string& id, const std::string& why, const Caller* who,
              const PodLifecycle::Done& done);
  void NoteEnded(Ended ended);
  void EndOverdue(Instant now);
  void ServeQueue(Instant now);
  void AnswerWaiters(Instant now);
  void Tend();
  void Arm();

  boost::asio::io_context& io_;
  const config::Options& options_;
  Arbiter& arbiter_;
  PodsFile& file_;
  const Duration unheard_;
  Noted noted_;
  boost::asio::steady_timer timer_;
  std::map<std::string, Held> held_;                // by id
  std::set<std::pair<Instant, std::string>> ends_;  // of those, when
  std::list<Queued> queue_;                         // in the order in which they came
  std::deque<Ended> ended_;                         // the last ones
  std::list<Waiter> waiters_;
  std::set<std::string> changed_;    // ids of which waiters are to be told
  Instant last_try_{}, next_try_{};  // of the queue
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_LEASES_H_
