#include "ledger/history.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "ledger/asked.h"
#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "ledger/database.h"
#include "ledger/floors.h"
#include "ledger/periods.h"
#include "ledger/settled.h"

namespace baton::ledger {
namespace {

// The finest level, from `level` on, that has the piece's buckets: all levels agree, so what a
// piece is added up from does not matter.
size_t LevelOf(const Piece& piece, size_t level, const std::array<int64_t, 4>& floors) {
  level = std::min(level, piece.level);
  while (level < piece.level && piece.from < floors[level]) ++level;
  return level;
}

WallTime AtSecond(int64_t second) { return WallTime(std::chrono::seconds(second)); }

// A reading of the database, in one transaction.
class Reading {
 public:
  Reading(Database& database, const Question& question, size_t uses_max)
      : database_(database),
        question_(question),
        below_(question.team + "/"),
        uses_max_(uses_max) {}

  // `coarse`: by the day.
  History Read(bool coarse) {
    const std::array<int64_t, 4> floors = Floors(database_);
    const WindowCut cut = CutWindowIn(question_.zone, question_.window, floors);
    history_.window = cut.window;
    const size_t level = coarse ? kLevels.size() - 1 : LevelFor(cut.window);
    ReadAccounts();
    Question by_day = question_;
    by_day.by = {By::kDay};
    for (const Period& period : AskedPeriods(database_, by_day, cut, floors)) {
      for (const Piece& piece : period.pieces) {
        ReadPiece({LevelOf(piece, level, floors), piece.from, piece.to}, period.name);
      }
    }
    return std::move(history_);
  }

 private:
  // Of the GPUs on which those asked for are or were.
  std::string OfGpus(std::vector<Value>& values) const {
    const std::string filter = Filter(question_, below_, values);
    return "SELECT id FROM gpus WHERE uuid IN (SELECT g.uuid FROM accounts a JOIN gpus g ON"
           " g.id = a.gpu" +
           (filter.empty() ? "" : " WHERE " + filter) + ")";
  }

  void ReadAccounts() {
    std::vector<Value> values;
    const std::string of_gpus = OfGpus(values);
    database_.Run(
        "SELECT g.id, g.uuid, s.booked_until_ms FROM gpus g JOIN sources s ON s.id = g.source"
        " WHERE g.id IN (" +
            of_gpus + ") ORDER BY g.uuid, g.id",
        values, [&](const Row& row) {
          const WallTime until(std::chrono::milliseconds(row.Int(2)));
          std::vector<History::Gpu>& gpus = history_.gpus;
          if (gpus.empty() || gpus.back().uuid != row.Text(1)) gpus.push_back({row.Text(1), until});
          gpus.back().booked_until = std::max(gpus.back().booked_until, until);
          gpus_[row.Int(0)] = gpus.size() - 1;
        });
    std::vector<Value> more;
    const std::string filter = Filter(question_, below_, more);
    std::set<int64_t> asked;
    database_.Run("SELECT a.id FROM accounts a" + (filter.empty() ? "" : " WHERE " + filter), more,
                  [&](const Row& row) { asked.insert(row.Int(0)); });
    database_.Run(
        "SELECT a.id, a.gpu, a.pod, a.name, a.name_space, a.team, a.user_name FROM accounts a"
        " WHERE a.gpu IN (" +
            of_gpus + ") ORDER BY a.id",
        values, [&](const Row& row) {
          accounts_[row.Int(0)] = history_.accounts.size();
          history_.accounts.push_back({{row.Text(3), row.Text(4), row.Text(5), row.Text(6)},
                                       static_cast<uint64_t>(row.Int(2)),
                                       gpus_.at(row.Int(1)),
                                       asked.contains(row.Int(0))});
        });
  }

  void ReadPiece(const Piece& piece, const std::string& day) {
    const int64_t length = kLevels[piece.level].seconds;
    const size_t first = history_.steps.size();
    for (int64_t t = piece.from; t < piece.to; t += length) {
      history_.steps.push_back({{AtSecond(t), AtSecond(t + length)}, day});
    }
    const auto step_of = [&](const Row& row) {
      return first + static_cast<size_t>((row.Int(0) - piece.from) / length);
    };
    const Level& level = kLevels[piece.level];
    std::vector<Value> values;
    const std::string of_gpus = OfGpus(values);
    values.emplace_back(piece.from);
    values.emplace_back(piece.to);
    const std::string from = "$" + std::to_string(values.size() - 1);
    const std::string to = "$" + std::to_string(values.size());
    std::vector<std::string> columns(kCounterNames.begin(), kCounterNames.end());
    columns.emplace_back("memory_peak_mib");
    database_.Run(
        "SELECT u.t, u.account, u.memory_peak_mib, " +
            CounterList([](const std::string& name) { return "u." + name; }) + " FROM " +
            BucketsIn(database_, Kind::kUse, level, columns, from, to) +
            " u WHERE u.account IN (SELECT id FROM accounts WHERE gpu IN (" + of_gpus +
            ")) ORDER BY u.t, u.account",
        values, [&](const Row& row) {
          if (history_.uses.size() >= uses_max_) {
            throw DatabaseError(ErrorCode::kExhausted,
                                "too many pods over too long a time for one receipt: ask for a "
                                "shorter window, or for teams or pods one by one");
          }
          const size_t step = step_of(row);
          const size_t account = accounts_.at(row.Int(1));
          std::vector<History::Use>& uses = history_.uses;
          if (uses.empty() || uses.back().step != step || uses.back().account != account) {
            uses.push_back({step, account, {}, 0});
          }
          Counters& use = uses.back().use;
          int column = 3;
          for (int64_t* to : {&use.held_ns, &use.busy_ns, &use.waited_ns, &use.unmanaged_ns,
                              &use.memory_mib_ms, &use.launches, &use.grants, &use.revocations}) {
            *to += row.Int(column++);
          }
          uses.back().memory_peak_mib = std::max(uses.back().memory_peak_mib, row.Int(2));
        });
    // A GPU that two sources know is one GPU.
    std::map<std::pair<size_t, size_t>, std::pair<int64_t, int64_t>> presence;
    database_.Run("SELECT u.t, u.gpu, u.present_ns, u.idle_ns FROM " +
                      BucketsIn(database_, Kind::kGpu, level, {"present_ns", "idle_ns"}, from, to) +
                      " u WHERE u.gpu IN (" + of_gpus + ")",
                  values, [&](const Row& row) {
                    auto& [present_ns, idle_ns] = presence[{step_of(row), gpus_.at(row.Int(1))}];
                    present_ns += row.Int(2);
                    idle_ns += row.Int(3);
                  });
    for (const auto& [at, times] : presence) {
      history_.presence.push_back({at.first, at.second, times.first, times.second});
    }
  }

  Database& database_;
  const Question& question_;
  const std::string below_;
  const size_t uses_max_;
  History history_;
  std::map<int64_t, size_t> gpus_;      // of history_.gpus, by id
  std::map<int64_t, size_t> accounts_;  // of history_.accounts, by id
};

}  // namespace

Result<History> Ledger::Steps(const Question& question, size_t uses_max) {
  if (auto good = Check(question.window); !good) return tl::unexpected(good.error());
  History history;
  const auto read = [&](bool coarse) {
    return Try([&] {
      const Transaction transaction(*database_, Database::Access::kRead);
      history = Reading(*database_, question, uses_max).Read(coarse);
    });
  };
  auto done = read(false);
  if (!done && done.error().code == ErrorCode::kExhausted) done = read(true);
  if (!done) return tl::unexpected(done.error());
  return history;
}

}  // namespace baton::ledger
