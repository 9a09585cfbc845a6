// batond's books: takes snapshots of what was used to the ledger, tells the schedulers what teams
// weigh, and answers who used what, who is owed what, and why.
//
//   arbiter ──snapshot──▶ LedgerWriter (threads) ──▶ ledger ──decayed use──▶ weights ──▶ arbiter
//
// A ledger that fails never touches the GPUs: the totals are kept in the usage book and booked
// later. Not thread safe: lives in the event loop; the ledger has threads of its own.
#ifndef BATON_BACKEND_BOOKS_H_
#define BATON_BACKEND_BOOKS_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/arbiter.h"
#include "config/options.h"
#include "ledger/writer.h"
#include "node/event_log.h"
#include "teams/budget.h"
#include "teams/standing.h"
#include "teams/tree.h"

namespace baton::backend {

// What a pod asks for, without its name and what is secret.
nlohmann::json PublicFields(const spec::PodRequest& pod);

// What a pod that is there asks for, and where it is. Taken on the event loop, which has no time
// for more than a copy of it.
struct PresentPod {
  spec::PodRequest request;
  std::vector<std::string> gpus;
};
std::vector<PresentPod> PresentPods(const Arbiter& arbiter);
// By NAMESPACE/NAME, as the log of changes writes them.
std::map<std::string, std::string> AsInTheLog(const std::vector<PresentPod>& present);

class Books : private TeamPolicy {
 public:
  using Answer = std::function<void(Result<nlohmann::json>)>;

  // `source`: UsageBook::identity().
  Books(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter,
        std::string source, node::EventLog& log);
  ~Books() override;

  // Reads the teams' file; on an error what was read before stays.
  Result<void> ReadTeams();
  // Opens the ledger in the background and begins. kInvalid: the database's name.
  Result<void> Start();
  // Books what there is, as long as that takes no more than some seconds.
  void Stop();

  // A report (backend/reports.h), by its name as "command"; answered from this loop, at once or
  // later. Other fields, and values that make no sense: kInvalid.
  void Ask(const nlohmann::json& question, Answer answer);

  // Writes down, for `baton log`, what somebody has changed: `change` without its time, node, was
  // and is, which may be null. `rationed`: the uid of a user whose changes are not to crowd out
  // those of others; 0: an operator's.
  void Record(ledger::Change change, const nlohmann::json& was, const nlohmann::json& is,
              uint32_t rationed);

  // The same for what the configuration and the teams' file say now and did not say before. Start()
  // does it by itself.
  void RecordSettings();

  // Called after each batch that was booked.
  void OnBooked(std::function<void()> told) { told_ = std::move(told); }
  // A sentence while something is wrong; empty when all is well.
  std::string Trouble() const;

  // For metrics.
  const teams::Teams& teams() const { return teams_; }
  const std::vector<teams::Use>& uses() const { return uses_; }
  const std::vector<teams::Use>& by_team() const { return by_team_; }
  const teams::Budgets& budgets() const { return budgets_; }
  bool has_teams() const { return has_teams_; }
  // The ledger has said what teams used, since this was started.
  bool looked() const { return looked_; }
  // Hours that teams with a budget held in its period; those not asked for yet are missing.
  using Held = std::map<std::string, Result<double>>;
  const Held& held() const { return held_; }

  // As the central one, and as a node's (backend/upstream.h).
  // A batch of another batond. `booked` is called from this loop.
  void Put(ledger::Batch batch, std::function<void(Result<bool>)> booked);
  // What a central batond says: the teams' file, their decayed use, and the hours that those with a
  // budget held in its period.
  void SetTeams(teams::Teams teams, std::vector<teams::Use> uses, Held held);
  // From here on what SetTeams() said counts, and neither the file nor the use of this node alone.
  void FollowUpstream() { follows_upstream_ = true; }
  // The next batch has a number above `seq`: the central one knows this source up to there. A
  // number that leaves no room for more (ledger.h: at most 2^60) is nobody's.
  void StartAbove(uint64_t seq) {
    if (seq < uint64_t{1} << 59) seq_ = std::max(seq_, seq);
  }
  // Called when the teams, their use or their budgets have been looked at.
  void OnTeams(std::function<void()> told) { teams_told_ = std::move(told); }
  ledger::LedgerWriter& writer() { return *writer_; }

 private:
  // TeamPolicy
  policy::ShareSpec Effective(const Pod& pod) override;
  std::vector<uint32_t> Weights(const std::vector<std::string>& teams) override;
  Result<void> Admit(const Pod& pod) override;

  void Tick();
  void TakeSnapshot();
  void LookAtTeams();
  void UseTeams();

  boost::asio::io_context& io_;
  const config::Options& options_;
  Arbiter& arbiter_;
  const std::string source_;
  node::EventLog& log_;
  std::unique_ptr<ledger::LedgerWriter> writer_;
  boost::asio::steady_timer timer_;
  uint64_t seq_ = 0;    // of the last batch
  bool ready_ = false;  // seq_ is known
  bool snapping_ = false;
  ledger::Batch beginning_;  // the totals when this was started
  std::string said_;         // the trouble that was last logged
  std::function<void()> told_;
  std::function<void()> teams_told_;
  // By uid: of this hour's changes, how many are written down and how many are not.
  struct Ration {
    int64_t hour = 0;
    int64_t written = 0;
    int64_t left_out = 0;
  };
  std::map<uint32_t, Ration> rations_;

  bool has_teams_ = false;
  bool follows_upstream_ = false;
  bool looking_ = false;  // the ledger is asked
  Instant use_at_{};      // when it was last asked what pods use, and said so or is to
  bool looked_ = false;
  teams::Teams teams_;
  std::vector<teams::Use> uses_;     // by user
  std::vector<teams::Use> by_team_;  // the same by team: weights are made of it, of each GPU
  Held held_;
  teams::Budgets budgets_;
  teams::TeamIndex index_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_BOOKS_H_
