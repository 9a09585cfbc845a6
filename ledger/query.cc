// What the ledger answers: sums by the coarsest buckets that fit.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "ledger/add_up.h"
#include "ledger/asked.h"
#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "ledger/database.h"
#include "ledger/floors.h"
#include "ledger/ledger.h"
#include "ledger/periods.h"
#include "ledger/settled.h"

namespace baton::ledger {
namespace {

// A part of the answer's time that is added up by itself: a period as far as it lies in a span.
struct Section {
  size_t period = 0;  // of Uses::periods by time
  size_t span = 0;    // of Uses::spans
};

constexpr const char* kOfAccounts =
    "JOIN accounts a ON a.id = u.account JOIN gpus g ON g.id = a.gpu";

// How By is written in SQL: over accounts a and GPUs g; a period is filled in later.
const char* KeyOf(By by) {
  switch (by) {
    case By::kTeam:
      return "a.team";
    case By::kUser:
      return "a.user_name";
    case By::kNamespace:
      return "a.name_space";
    case By::kPod:
      return kPodKey;
    case By::kGpu:
      return "g.uuid";
    case By::kNode:
      return "g.node";
    case By::kModel:
      return "g.model";
    case By::kDay:
    case By::kMonth:
    case By::kTotal:
    case By::kPrice:
      break;
  }
  return "''";
}

// Pieces that one question reads, and the sections that each is part of: added to them or taken
// off.
struct Asked {
  struct Part {
    size_t section;
    int sign;
  };
  std::vector<Piece> pieces;
  std::vector<std::vector<Part>> parts;  // of each piece; unless by_piece, of all together
  bool by_piece = true;
};

// How many pieces one question reads. The databases take 10 000.
constexpr size_t kPiecesMax = 1000;

// What to ask for the periods as far as they lie in spans, section by section; all by time.
std::vector<Asked> WhatToAsk(const std::vector<Period>& periods, const std::vector<Span>& spans,
                             const std::array<int64_t, 4>& floors, bool by_period,
                             std::vector<Section>& sections) {
  // A piece may be added to one section and taken off from another.
  std::map<std::tuple<size_t, int64_t, int64_t>, std::vector<Asked::Part>> parts;
  size_t span = 0;
  for (size_t i = 0; i < periods.size(); ++i) {
    const Period& period = periods[i];
    while (span + 1 < spans.size() && spans[span].window.to <= period.window.from) ++span;
    for (size_t j = span; j < spans.size(); ++j) {
      const Window common{std::max(period.window.from, spans[j].window.from),
                          std::min(period.window.to, spans[j].window.to)};
      if (j > span && common.from >= common.to) break;
      const bool whole = common.from == period.window.from && common.to == period.window.to;
      const std::vector<Piece> pieces = whole ? period.pieces : CutWindow(common, floors).pieces;
      for (const Piece& piece : FewestBuckets(pieces, floors)) {
        parts[{piece.level, piece.from, piece.to}].push_back(
            {sections.size(), piece.taken_off ? -1 : 1});
      }
      sections.push_back({i, j});
    }
  }
  std::vector<Asked> asked;
  if (sections.size() == 1 && !by_period) {
    for (const int sign : {1, -1}) {
      Asked& all = asked.emplace_back(Asked{{}, {{{0, sign}}}, false});
      for (const auto& [at, of] : parts) {
        const auto [level, from, to] = at;
        if (of.front().sign == sign) all.pieces.push_back({level, from, to});
      }
    }
    return asked;
  }
  for (const auto& [at, of] : parts) {
    const auto [level, from, to] = at;
    if (asked.empty() || asked.back().pieces.size() == kPiecesMax) asked.emplace_back();
    asked.back().pieces.push_back({level, from, to});
    asked.back().parts.push_back(of);
  }
  return asked;
}

bool IsZero(const Sums& s) {
  return s.held_ns == 0 && s.busy_ns == 0 && s.waited_ns == 0 && s.unmanaged_ns == 0 &&
         s.memory_mib_ms == 0 && s.launches == 0 && s.grants == 0 && s.revocations == 0 &&
         s.energy_j == 0 && s.uncontended_ns == 0;
}

// The value below which a fraction `q` of the values lies (nearest rank); 0 of none.
template <class T>
T Quantile(std::vector<T>& values, double q) {
  if (values.empty()) return T{};
  auto rank = static_cast<size_t>(q * static_cast<double>(values.size()));
  rank = std::min(rank, values.size() - 1);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end());
  return values[rank];
}

}  // namespace

int64_t BucketSeconds(Window window) { return kLevels[LevelFor(window)].seconds; }

Int128 ParseSum(std::string_view text) {
  const bool below = !text.empty() && text.front() == '-';
  if (below) text.remove_prefix(1);
  Int128 sum = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(sum, 10, &sum) ||
        __builtin_add_overflow(sum, c - '0', &sum)) {
      return 0;
    }
  }
  return below ? -sum : sum;
}

std::string FormatSum(Int128 sum) {
  std::string text;
  for (Int128 left = sum; left != 0 || text.empty(); left /= 10) {
    const auto digit = static_cast<int>(left % 10);
    text += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (sum < 0) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

bool Question::own_capacity() const {
  return !filtered() && std::all_of(by.begin(), by.end(), [](By key) {
    return key == By::kGpu || key == By::kNode || key == By::kModel || key == By::kDay ||
           key == By::kMonth || key == By::kPrice;
  });
}

Result<Uses> Ledger::Query(const Question& question) {
  if (auto good = Check(question); !good) return tl::unexpected(good.error());
  static const std::vector<std::string> kUse(kCounterNames.begin(), kCounterNames.end());
  static const std::vector<std::string> kCapacity(kTimeNames.begin(), kTimeNames.end());
  const std::vector<By>& by = question.by;
  const bool own_capacity = question.own_capacity();
  const bool with_team = (Has(by, By::kUser) || Has(by, By::kPod)) && !Has(by, By::kTeam);
  const std::string below = question.team + "/";
  // Keys, then team, then model, then span: the order of the answer. Not the database's, which has
  // an order of its own for letters.
  using Keys = std::vector<std::string>;
  std::map<std::tuple<Keys, std::string, std::string, size_t>, Sums> rows;
  std::map<std::tuple<Keys, std::string, size_t>, std::array<Int128, kTimeNames.size()>> capacity;
  std::map<std::pair<std::string, size_t>, std::pair<Int128, Int128>> others;
  Uses uses;
  auto done = Try([&] {
    rows.clear();
    capacity.clear();
    others.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    const std::array<int64_t, 4> floors = Floors(*database_);
    const WindowCut cut = CutWindowIn(question.zone, question.window, floors);
    uses = {};
    uses.window = cut.window;
    uses.spans = SpansOf(cut.window, question.changes, floors);
    const std::vector<Period> periods = AskedPeriods(*database_, question, cut, floors);
    std::vector<Section> sections;
    const std::vector<Asked> all =
        WhatToAsk(periods, uses.spans, floors, Has(by, By::kDay) || Has(by, By::kMonth), sections);
    for (const Period& period : periods) {
      if (!period.name.empty()) uses.periods[period.name] = period.window;
    }

    // The columns behind the piece's: a key for each of `by`, the team, the model.
    const auto columns = [&](bool of_use) {
      std::string select;
      std::string group;
      for (size_t i = 0; i < by.size(); ++i) {
        const bool period = by[i] == By::kDay || by[i] == By::kMonth;
        const std::string name = fmt::format("k{}", i);
        select += fmt::format("{} AS {}, ", of_use || own_capacity ? KeyOf(by[i]) : "''", name);
        if (!period) group += name + ", ";
      }
      select += fmt::format("{} AS k_team, g.model", of_use && with_team ? "a.team" : "''");
      return std::pair(select, group + "k_team, g.model");
    };
    const int first_sum = 1 + static_cast<int>(by.size()) + 2;
    const int model = first_sum - 1;
    const auto keys_of = [&](const Row& row, const Section& section, bool of_use) {
      Keys keys;
      for (size_t i = 0; i < by.size(); ++i) {
        const auto column = 1 + static_cast<int>(i);
        if (by[i] != By::kDay && by[i] != By::kMonth) {
          keys.push_back(row.Text(column));
        } else if (of_use || own_capacity) {
          // A month is what a day's name begins with.
          keys.push_back(periods[section.period].name.substr(0, by[i] == By::kDay ? 10 : 7));
        } else {
          keys.emplace_back();
        }
      }
      return keys;
    };
    for (const Asked& asked : all) {
      // Hands on each row with each of the sections that it counts for.
      const auto ask = [&](const Grouped& grouped, const std::vector<Value>& values,
                           const std::function<void(const Row&, const Section&, int)>& take) {
        AddUp(*database_, asked.pieces, asked.by_piece, grouped, values, [&](const Row& row) {
          for (const Asked::Part& part : asked.parts[static_cast<size_t>(row.Int(0))]) {
            take(row, sections[part.section], part.sign);
          }
        });
      };

      std::vector<Value> values;
      const auto [select, group] = columns(true);
      Grouped use{.kind = Kind::kUse,
                  .joins = kOfAccounts,
                  .select = select,
                  .columns = kUse,
                  .where = question.filtered() ? Filter(question, below, values) : "",
                  .group = group};
      ask(use, values, [&](const Row& row, const Section& section, int sign) {
        Sums& sum =
            rows[{keys_of(row, section, true), row.Text(model - 1), row.Text(model), section.span}];
        int column = first_sum;
        for (Int128* to :
             {&sum.held_ns, &sum.busy_ns, &sum.waited_ns, &sum.unmanaged_ns, &sum.memory_mib_ms,
              &sum.launches, &sum.grants, &sum.revocations, &sum.energy_j, &sum.uncontended_ns}) {
          *to += sign * row.Wide(column++);
        }
      });

      if (question.filtered()) {
        use.select = use.group = "g.model";
        use.columns = {"held_ns", "energy_j"};
        use.where = "NOT (" + use.where + ")";
        ask(use, values, [&](const Row& row, const Section& section, int sign) {
          auto& [held_ns, energy_j] = others[{row.Text(1), section.span}];
          held_ns += sign * row.Wide(2);
          energy_j += sign * row.Wide(3);
        });
      }

      const auto [of_gpus, by_gpus] = columns(false);
      const Grouped there{.kind = Kind::kGpu,
                          .joins = "JOIN gpus g ON g.id = u.gpu",
                          .select = of_gpus,
                          .columns = kCapacity,
                          .where = "",
                          .group = by_gpus};
      ask(there, {}, [&](const Row& row, const Section& section, int sign) {
        int column = first_sum;
        for (Int128& sum :
             capacity[{keys_of(row, section, false), row.Text(model), section.span}]) {
          sum += sign * row.Wide(column++);
        }
      });
    }
  });
  if (!done) return tl::unexpected(done.error());
  // What was only in what is taken off again is in no row.
  for (const auto& [key, sum] : rows) {
    if (IsZero(sum)) continue;
    const auto& [keys, team, model, span] = key;
    uses.rows.push_back({keys, team, model, sum, span});
  }
  for (const auto& [key, times] : capacity) {
    if (times == std::array<Int128, kTimeNames.size()>{}) continue;
    const auto& [keys, model, span] = key;
    uses.capacity.push_back({keys, model, times[0], times[1], times[2], span});
  }
  for (const auto& [key, sums] : others) {
    if (sums == std::pair<Int128, Int128>{}) continue;
    uses.others.push_back({key.first, sums.first, sums.second, key.second});
  }
  return uses;
}

Result<Int128> Ledger::HeldBy(const std::string& team, Window window, const ModelWeights& weights) {
  if (auto good = Check(window); !good) return tl::unexpected(good.error());
  Int128 held_ns = 0;
  auto done = Try([&] {
    held_ns = 0;
    const Transaction transaction(*database_, Database::Access::kRead);
    const std::array<int64_t, 4> floors = Floors(*database_);
    std::vector<Value> values;
    const std::string below = team + "/";
    const Grouped by_model{.kind = Kind::kUse,
                           .joins = kOfAccounts,
                           .select = "g.model",
                           .columns = {"held_ns"},
                           .where = team.empty() ? "" : OfTeam(team, below, values),
                           .group = "g.model"};
    std::map<std::string, Int128> of_model;
    std::vector<Piece> pieces[2];  // to add, and to take off
    for (const Piece& piece : FewestBuckets(CutWindow(window, floors).pieces, floors)) {
      pieces[piece.taken_off ? 1 : 0].push_back(piece);
    }
    for (const int sign : {1, -1}) {
      AddUp(*database_, pieces[sign < 0 ? 1 : 0], false, by_model, values,
            [&](const Row& row) { of_model[row.Text(1)] += sign * row.Wide(2); });
    }
    for (const auto& [model, ns] : of_model) {
      const double weight = WeightOf(weights, model);
      held_ns += weight == 1 ? ns : static_cast<Int128>(weight * static_cast<double>(ns));
    }
  });
  if (!done) return tl::unexpected(done.error());
  return held_ns;
}

namespace {

// The buckets in which Activities() looks at a window: its level, and from when to when.
struct Stage {
  size_t level = 0;
  int64_t from = 0;  // seconds
  int64_t to = 0;
};
Stage StageOf(Database& database, Window window) {
  Stage stage;
  stage.level = LevelFor(window);
  const std::array<int64_t, 4> floors = Floors(database);
  const int64_t from_s = Millis(window.from) / 1000;
  while (stage.level + 1 < kLevels.size() && from_s < floors[stage.level]) ++stage.level;
  const int64_t seconds = kLevels[stage.level].seconds;
  stage.from = Floor(from_s, seconds);
  stage.to = Ceil((Millis(window.to) + 999) / 1000, seconds);
  return stage;
}

}  // namespace

Result<std::vector<Activity>> Ledger::Activities(Window window, const std::string& gpu) {
  if (auto good = Check(window); !good) return tl::unexpected(good.error());
  std::vector<Activity> activities;
  auto done = Try([&] {
    activities.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    const Stage stage = StageOf(*database_, window);
    const int64_t seconds = kLevels[stage.level].seconds;

    struct Account {
      std::pair<int64_t, int64_t> meter;  // GPU, pod
      Owner owner;
      std::string gpu;
    };
    // All of the window's first: rows of a bucket come by account, which says of which pod it is.
    const auto buckets = [&](const std::vector<std::string>& columns) {
      return BucketsIn(*database_, Kind::kUse, kLevels[stage.level], columns, "$1", "$2") + " b";
    };
    std::vector<Value> values = {stage.from, stage.to};
    std::string where;
    if (!gpu.empty()) {
      values.emplace_back(gpu);
      where =
          " WHERE account IN (SELECT id FROM accounts WHERE gpu IN (SELECT id FROM gpus WHERE uuid"
          " = $3))";
    }
    std::map<int64_t, Account> accounts;
    database_->Run(
        "SELECT a.id, a.gpu, a.pod, a.name, a.name_space, a.team, a.user_name, g.uuid FROM"
        " (SELECT DISTINCT account FROM " +
            buckets({}) + where +
            ") u"
            " JOIN accounts a ON a.id = u.account JOIN gpus g ON g.id = a.gpu",
        values, [&](const Row& row) {
          accounts[row.Int(0)] = {{row.Int(1), row.Int(2)},
                                  {row.Text(3), row.Text(4), row.Text(5), row.Text(6)},
                                  row.Text(7)};
        });
    std::map<std::pair<int64_t, int64_t>, Activity> of;
    const auto part = [seconds](int64_t ns) {
      return static_cast<float>(static_cast<double>(ns) / (static_cast<double>(seconds) * 1e9));
    };
    database_->Run(
        "SELECT t, account, held_ns, busy_ns, waited_ns, memory_peak_mib, grants, launches FROM " +
            buckets({"held_ns", "busy_ns", "waited_ns", "memory_peak_mib", "grants", "launches"}) +
            where + " ORDER BY t, account",
        values, [&](const Row& row) {
          const int64_t t = row.Int(0);
          const Account& account = accounts.at(row.Int(1));
          Activity& activity = of[account.meter];
          // There may be another owner within the bucket.
          if (activity.buckets.empty() || activity.buckets.back().t != t) {
            activity.buckets.push_back({.t = t});
          }
          Activity::Bucket& bucket = activity.buckets.back();
          bucket.held += part(row.Int(2));
          bucket.busy += part(row.Int(3));
          bucket.waited += part(row.Int(4));
          bucket.memory_peak_mib = std::max(bucket.memory_peak_mib, row.Int(5));
          // Pods without tokens hold all the time, whether it is measured what they execute or not.
          activity.measured |=
              row.Int(6) > 0 || row.Int(7) > 0 || (row.Int(3) > 0 && row.Int(2) <= 0);
          activity.owner = account.owner;
          activity.gpu = account.gpu;
          activity.seconds = seconds;
        });
    for (auto& [meter, activity] : of) activities.push_back(std::move(activity));
  });
  if (!done) return tl::unexpected(done.error());
  std::sort(activities.begin(), activities.end(), [](const Activity& a, const Activity& b) {
    return std::tie(a.owner.name_space, a.owner.pod, a.gpu) <
           std::tie(b.owner.name_space, b.owner.pod, b.gpu);
  });
  return activities;
}

Profile ProfileOf(const Activity& activity) {
  Profile profile;
  profile.owner = activity.owner;
  profile.gpu = activity.gpu;
  profile.seconds = activity.seconds;
  profile.buckets = (activity.buckets.back().t - activity.buckets.front().t) / activity.seconds + 1;
  std::vector<float> held, wanted;
  std::vector<int64_t> peaks;
  for (const Activity::Bucket& bucket : activity.buckets) {
    held.push_back(bucket.held);
    wanted.push_back(bucket.held + bucket.waited);
    peaks.push_back(bucket.memory_peak_mib);
  }
  profile.memory_peak_mib = *std::max_element(peaks.begin(), peaks.end());
  profile.memory_p99_mib = Quantile(peaks, 0.99);
  // It was there, and used nothing.
  held.resize(static_cast<size_t>(profile.buckets), 0.0f);
  wanted.resize(static_cast<size_t>(profile.buckets), 0.0f);
  profile.wanted_p50 = std::clamp<double>(Quantile(wanted, 0.5), 0.0, 1.0);
  profile.held_p50 = std::clamp<double>(Quantile(held, 0.5), 0.0, 1.0);
  profile.held_p99 = std::clamp<double>(Quantile(held, 0.99), 0.0, 1.0);
  return profile;
}

Result<std::vector<Profile>> Ledger::Profiles(Window window) {
  const auto activities = Activities(window);
  if (!activities) return tl::unexpected(activities.error());
  std::vector<Profile> profiles;
  for (const Activity& activity : *activities) profiles.push_back(ProfileOf(activity));
  return profiles;
}

Result<std::vector<BookedGpu>> Ledger::Gpus(Window window) {
  if (auto good = Check(window); !good) return tl::unexpected(good.error());
  std::vector<BookedGpu> gpus;
  auto done = Try([&] {
    gpus.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    const Stage stage = StageOf(*database_, window);
    // A GPU that two sources told of stands as the last one did.
    std::map<std::string, BookedGpu> by_uuid;
    database_->Run(
        "SELECT node, uuid, model, memory_bytes FROM gpus WHERE id IN"
        " (SELECT DISTINCT gpu FROM " +
            BucketsIn(*database_, Kind::kGpu, kLevels[stage.level], {}, "$1", "$2") +
            " b) ORDER BY id",
        {stage.from, stage.to}, [&](const Row& row) {
          by_uuid[row.Text(1)] = {row.Text(0), row.Text(1), row.Text(2),
                                  static_cast<uint64_t>(row.Int(3))};
        });
    for (auto& [uuid, gpu] : by_uuid) gpus.push_back(std::move(gpu));
  });
  if (!done) return tl::unexpected(done.error());
  std::stable_sort(gpus.begin(), gpus.end(),
                   [](const BookedGpu& a, const BookedGpu& b) { return a.node < b.node; });
  return gpus;
}

}  // namespace baton::ledger
