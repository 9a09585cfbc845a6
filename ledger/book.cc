// Ledger::Apply(): a batch becomes rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/team_path.h"
#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "ledger/database.h"
#include "ledger/kept_use.h"
#include "ledger/ledger.h"
#include "ledger/merge.h"
#include "ledger/settled.h"
#include "ledger/stored_text.h"

namespace baton::ledger {
namespace {

constexpr size_t kSamplesMax = 1'000'000;
constexpr int64_t kNumberMax = int64_t{1} << 60;
constexpr int64_t kSpoolMax = 8640;
// Of a full spool, so many batches are looked at for two to merge.
constexpr size_t kLooksMax = 64;
// What counts as a jump of a source's clock. Smaller ones heal within a day by themselves.
constexpr int64_t kJump_ms = 86'400'000;
constexpr int64_t kDrift_ms = 600'000;
constexpr WallTime kTimeMin = std::chrono::sys_days(std::chrono::year(2000) / 1 / 1);
constexpr WallTime kTimeMax = std::chrono::sys_days(std::chrono::year(2200) / 1 / 1);

Result<void> Check(const Batch& batch) {
  const auto wrong = [](const std::string& what) {
    return Fail(ErrorCode::kInvalid, "a batch for the ledger is refused: " + what);
  };
  const auto good = [](int64_t number) { return number >= 0 && number <= kNumberMax; };
  const auto name = [](const std::string& uuid) { return !uuid.empty() && IsClean(uuid); };
  if (batch.source.size() != 32 ||
      batch.source.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return wrong("its source must be 32 hex digits");
  }
  if (batch.seq < 1 || batch.seq > kNumberMax) return wrong("its seq must be 1 to 2^60");
  if (batch.to < kTimeMin || batch.to >= kTimeMax) {
    return wrong("its time must lie in the years 2000 to 2199; set the machine's clock");
  }
  if (batch.samples.size() > kSamplesMax || batch.gpus.size() > kSamplesMax) {
    return wrong("it has more than a million samples");
  }
  for (const Sample& sample : batch.samples) {
    if (!name(sample.gpu)) return wrong("a GPU's uuid must be 1 to 512 bytes of UTF-8");
    if (sample.pod > kNumberMax || !good(sample.memory_peak_mib)) {
      return wrong("a pod's numbers must be 0 to 2^60");
    }
    for (const int64_t number : NumbersOf(sample.total)) {
      if (!good(number)) return wrong("a pod's numbers must be 0 to 2^60");
    }
  }
  for (const GpuSample& gpu : batch.gpus) {
    if (!name(gpu.uuid)) return wrong("a GPU's uuid must be 1 to 512 bytes of UTF-8");
    if (gpu.memory_bytes > kNumberMax || !good(Nanos(gpu.idle)) || !good(gpu.energy_j)) {
      return wrong("a GPU's numbers must be 0 to 2^60");
    }
  }
  return {};
}

// Rows for one table, written some hundred at a time.
class Rows {
 public:
  Rows(Database& database, std::string head, size_t columns, std::string tail)
      : database_(database), head_(std::move(head)), columns_(columns), tail_(std::move(tail)) {}
  void Add(std::initializer_list<Value> front, const Numbers& numbers,
           std::initializer_list<Value> back) {
    values_.insert(values_.end(), front);
    values_.insert(values_.end(), numbers.begin(), numbers.end());
    Add(back);
  }
  void Add(std::initializer_list<Value> row) {
    values_.insert(values_.end(), row);
    if (values_.size() == kSizes[0] * columns_) Write(0);
  }
  void Finish() {
    for (size_t size = 0; size < kSizes.size(); ++size) {
      while (values_.size() >= kSizes[size] * columns_) Write(size);
    }
  }

  // Few different ones, so that each is prepared once.
  static constexpr std::array<size_t, 4> kSizes = {128, 32, 8, 1};
  // "($1, $2), ($3, $4)"; `format` is what stands for each, "$" for the placeholder.
  static std::string Placeholders(size_t rows, size_t columns, std::string_view format = "$") {
    std::string text;
    size_t number = 0;
    for (size_t row = 0; row < rows; ++row) {
      text += row == 0 ? "(" : ", (";
      for (size_t column = 0; column < columns; ++column) {
        if (column != 0) text += ", ";
        for (const char c : format) {
          text += c;
          if (c == '$') text += std::to_string(++number);
        }
      }
      text += ')';
    }
    return text;
  }

 private:
  // The first rows there are.
  void Write(size_t size) {
    if (texts_[size].empty()) {
      texts_[size] = head_ + " VALUES " + Placeholders(kSizes[size], columns_) + tail_;
    }
    const auto end = values_.begin() + static_cast<ptrdiff_t>(kSizes[size] * columns_);
    if (end == values_.end()) {
      database_.Run(texts_[size], values_);
      values_.clear();
      return;
    }
    database_.Run(texts_[size], std::vector<Value>(values_.begin(), end));
    values_.erase(values_.begin(), end);
  }

  Database& database_;
  const std::string head_;
  const size_t columns_;
  const std::string tail_;
  std::vector<Value> values_;
  std::array<std::string, kSizes.size()> texts_;
};

// Sums of what sources say, which may be nonsense.
void AddUpTo(int64_t& sum, int64_t more) {
  if (__builtin_add_overflow(sum, more, &sum)) {
    sum = more > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  }
}

class Booking {
 public:
  Booking(Database& database, const Batch& batch) : database_(database), batch_(batch) {}

  // False when this or a later batch of the source is booked.
  bool Book() {
    bool known = false;
    uint64_t last_seq = 0;
    int64_t from_ms = 0;
    database_.Run("SELECT id, seq, booked_until_ms FROM sources WHERE name = $1",
                  {std::string_view(batch_.source)}, [&](const Row& row) {
                    known = true;
                    source_ = row.Int(0);
                    last_seq = static_cast<uint64_t>(row.Int(1));
                    from_ms = row.Int(2);
                  });
    if (known && batch_.seq <= last_seq) return false;
    if (!known) source_ = NextId("sources");
    uint64_t largest_pod = 0;
    for (const Sample& sample : batch_.samples) largest_pod = std::max(largest_pod, sample.pod);
    database_.Run(
        "INSERT INTO sources (id, name, node, seq, booked_until_ms, largest_pod)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET node = excluded.node,"
        " seq = excluded.seq, booked_until_ms = excluded.booked_until_ms, largest_pod = CASE WHEN"
        " excluded.largest_pod > sources.largest_pod THEN excluded.largest_pod"
        " ELSE sources.largest_pod END",
        {source_, std::string_view(batch_.source), Stored(batch_.node),
         static_cast<int64_t>(batch_.seq), Millis(batch_.to), static_cast<int64_t>(largest_pod)});

    if (known) FollowClock(from_ms, Millis(batch_.to));
    ReadGpus();
    ListGpus();
    ReadMeters(known);
    SetMeters();
    if (known) {
      from_ms_ = from_ms;
      const auto moved = std::count_if(meters_.begin(), meters_.end(),
                                       [](const Meter& meter) { return meter.moved(); });
      parts_ = CutGap(from_ms, Millis(batch_.to), static_cast<size_t>(moved) + gpus_.size());
      AddUse();
      AddPresence();
    }
    return true;
  }

 private:
  struct Gpu {
    int64_t id = 0;
    bool listed_before = false;
    bool listed = false;
    Duration idle{0};
    int64_t energy_j = 0;  // what its total has grown by
    int64_t held_ns = 0;
    std::vector<int64_t> held_of_part;
  };
  struct Meter {
    const Sample* sample;
    Gpu* gpu;
    Owner owner;  // as stored
    int64_t account = 0;
    bool known = false;
    bool same_owner = false;
    Numbers total{};
    Numbers grown{};
    bool moved() const { return grown != Numbers{}; }
  };

  // Remembers a jump ahead of the source's clock, or what looks like one (a daemon that was stopped
  // for days), and takes back what was booked ahead when the clock steps back behind it.
  void FollowClock(int64_t from_ms, int64_t to_ms) {
    // The last time before the jump, and the first one after it.
    const std::string before = "before_jump_of_" + std::to_string(source_);
    const std::string after = "after_jump_of_" + std::to_string(source_);
    if (to_ms - from_ms > kJump_ms) {
      for (const auto& [name, value] : {std::pair(&before, from_ms), std::pair(&after, to_ms)}) {
        database_.Run(
            "INSERT INTO meta (name, value) VALUES ($1, $2)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            {std::string_view(*name), value});
      }
      return;
    }
    if (from_ms - to_ms <= kJump_ms) return;
    int64_t before_ms = -1;
    int64_t after_ms = -1;
    database_.Run("SELECT name, value FROM meta WHERE name = $1 OR name = $2",
                  {std::string_view(before), std::string_view(after)}, [&](const Row& row) {
                    (row.Text(0) == before ? before_ms : after_ms) = row.Int(1);
                  });
    if (before_ms < 0 || after_ms < 0) return;
    // A clock that was ahead and is right now says no less than what has passed since. One that
    // begins at the same wrong time with each start of the machine (an empty battery) does.
    if (to_ms < before_ms + (from_ms - after_ms) - kDrift_ms) return;
    NoteRewritten(database_);
    for (const Level& level : kLevels) {
      const int64_t bucket = Part{to_ms - 1, to_ms}.BucketAt(level);
      const auto sum = [](const std::string& column) {
        return "CAST(SUM(" + column + ") AS BIGINT)";
      };
      UnpackAfter(database_, level, bucket, source_);
      const std::string use = TableOf(Kind::kUse, level);
      const std::string of_use =
          " WHERE t > $1 AND account IN (SELECT a.id FROM accounts a"
          " JOIN gpus g ON g.id = a.gpu WHERE g.source = $2)";
      database_.Run(fmt::format("INSERT INTO {0} (t, account, {1}, memory_peak_mib)"
                                " SELECT CAST($1 AS BIGINT), account, {2}, MAX(memory_peak_mib)"
                                " FROM {0}{3} GROUP BY account{4}",
                                use, CounterList(), CounterList(sum), of_use,
                                OnConflictAdd(Kind::kUse, level)),
                    {bucket, source_});
      database_.Run(fmt::format("DELETE FROM {}{}", use, of_use), {bucket, source_});
      const std::string gpu = TableOf(Kind::kGpu, level);
      const std::string of_gpu = " WHERE t > $1 AND gpu IN (SELECT id FROM gpus WHERE source = $2)";
      database_.Run(
          fmt::format("INSERT INTO {0} (t, gpu, {1}) SELECT CAST($1 AS BIGINT), gpu, {2}"
                      " FROM {0}{3} GROUP BY gpu{4}",
                      gpu, TimeList(), TimeList(sum), of_gpu, OnConflictAdd(Kind::kGpu, level)),
          {bucket, source_});
      database_.Run(fmt::format("DELETE FROM {}{}", gpu, of_gpu), {bucket, source_});
    }
    database_.Run("DELETE FROM meta WHERE name = $1 OR name = $2",
                  {std::string_view(before), std::string_view(after)});
  }

  int64_t NextId(const std::string& table) {
    int64_t id = 0;
    database_.Run("SELECT COALESCE(MAX(id), 0) + 1 FROM " + table, {},
                  [&](const Row& row) { id = row.Int(0); });
    return id;
  }
  std::string_view Stored(const std::string& text) {
    return IsClean(text) ? std::string_view(text)
                         : std::string_view(cleaned_.emplace_back(Clean(text)));
  }

  struct GpuRow {
    int64_t id = 0;
    std::string node;
    std::string model;
    int64_t memory_bytes = 0;
    bool listed = false;
    int64_t energy_j = 0;
  };
  void ReadGpus() {
    database_.Run(
        "SELECT uuid, id, node, model, memory_bytes, listed, counted_j FROM gpus WHERE source = $1",
        {source_}, [&](const Row& row) {
          rows_[row.Text(0)] = {row.Int(1), row.Text(2),     row.Text(3),
                                row.Int(4), row.Int(5) != 0, row.Int(6)};
        });
  }

  // All GPUs that the batch names get their row; those that it does not list lose the mark.
  void ListGpus() {
    int64_t next_id = NextId("gpus");
    Rows rows(database_,
              "INSERT INTO gpus (id, source, uuid, node, model, memory_bytes, listed, counted_j)",
              8,
              " ON CONFLICT (id) DO UPDATE SET node = excluded.node, model = excluded.model,"
              " memory_bytes = excluded.memory_bytes, listed = excluded.listed,"
              " counted_j = excluded.counted_j");
    const std::string_view node = Stored(batch_.node);
    for (const GpuSample& sample : batch_.gpus) {
      const auto known = rows_.find(sample.uuid);
      Gpu& gpu = gpus_[sample.uuid];
      if (gpu.listed) {
        throw DatabaseError(
            ErrorCode::kInvalid,
            "a batch for the ledger is refused: it lists GPU " + sample.uuid + " twice");
      }
      gpu.listed = true;
      gpu.idle = sample.idle;
      std::string_view model = Stored(sample.model);
      auto memory = static_cast<int64_t>(sample.memory_bytes);
      gpu.id = known == rows_.end() ? next_id++ : known->second.id;
      int64_t energy_j = sample.energy_j;
      gpu.energy_j = energy_j;
      if (known != rows_.end()) {
        const GpuRow& row = known->second;
        gpu.listed_before = row.listed;
        // A daemon that knows its uuid alone (NVML is away) takes its model, and the price of all
        // its hours, from nobody.
        if (model.empty()) model = row.model;
        if (memory == 0) memory = row.memory_bytes;
        // An earlier version says nothing of energy.
        energy_j = std::max(energy_j, row.energy_j);
        gpu.energy_j = energy_j - row.energy_j;
        if (row.listed && row.node == node && row.model == model && row.memory_bytes == memory &&
            row.energy_j == energy_j) {
          continue;
        }
      }
      rows.Add({gpu.id, source_, std::string_view(sample.uuid), node, model, memory, int64_t{1},
                energy_j});
    }
    for (const Sample& sample : batch_.samples) {
      Gpu& gpu = gpus_[sample.gpu];
      if (gpu.id != 0) continue;
      const auto known = rows_.find(sample.gpu);
      if (known != rows_.end()) {
        gpu.id = known->second.id;
        continue;
      }
      gpu.id = next_id++;
      rows.Add({gpu.id, source_, std::string_view(sample.gpu), node, std::string_view(), int64_t{0},
                int64_t{0}, int64_t{0}});
    }
    rows.Finish();
    for (const auto& [uuid, row] : rows_) {
      if (!row.listed) continue;
      const auto it = gpus_.find(uuid);
      if (it != gpus_.end() && it->second.listed) continue;
      database_.Run("UPDATE gpus SET listed = 0 WHERE id = $1", {row.id});
    }
  }

  // What each pod has used since, and of whom it is. Orders meters_ by GPU and pod.
  void ReadMeters(bool source_known) {
    meters_.reserve(batch_.samples.size());
    for (const Sample& sample : batch_.samples) {
      const auto text = [&](const std::string& t) { return std::string(Stored(t)); };
      Meter meter{&sample, &gpus_.find(sample.gpu)->second, {}, 0, false, false, {}, {}};
      meter.owner = {text(sample.owner.pod), text(sample.owner.name_space),
                     TeamPath(text(sample.owner.team)), text(sample.owner.user)};
      meter.total = NumbersOf(sample.total);
      if (source_known) meter.grown = meter.total;
      meters_.push_back(std::move(meter));
    }
    const auto key = [](const Meter& m) { return std::pair(m.gpu->id, m.sample->pod); };
    std::sort(meters_.begin(), meters_.end(),
              [&](const Meter& a, const Meter& b) { return key(a) < key(b); });
    for (size_t i = 1; i < meters_.size(); ++i) {
      if (key(meters_[i]) == key(meters_[i - 1])) {
        throw DatabaseError(ErrorCode::kInvalid, "a batch for the ledger is refused: pod " +
                                                     std::to_string(meters_[i].sample->pod) +
                                                     " stands twice on GPU " +
                                                     meters_[i].sample->gpu);
      }
    }
    if (!source_known) return;
    for (size_t first = 0; first < meters_.size();) {
      size_t size = 0;
      while (Rows::kSizes[size] > meters_.size() - first) ++size;
      const size_t last = first + Rows::kSizes[size];
      std::vector<Value> values;
      for (size_t i = first; i < last; ++i) {
        values.emplace_back(meters_[i].gpu->id);
        values.emplace_back(static_cast<int64_t>(meters_[i].sample->pod));
      }
      static const std::string kBegin = "WITH asked (gpu, pod) AS (VALUES ";
      static const std::string kEnd =
          ") SELECT m.gpu, m.pod, m.account, a.name, a.name_space, a.team, a.user_name, " +
          CounterList([](const std::string& name) { return "m." + name; }) +
          " FROM asked JOIN meters m ON m.gpu = asked.gpu AND m.pod = asked.pod"
          " JOIN accounts a ON a.id = m.account";
      static const std::array<std::string, Rows::kSizes.size()> kTexts = [] {
        std::array<std::string, Rows::kSizes.size()> texts;
        for (size_t i = 0; i < texts.size(); ++i) {
          texts[i] = fmt::format("{}{}{}", kBegin,
                                 Rows::Placeholders(Rows::kSizes[i], 2, "CAST($ AS BIGINT)"), kEnd);
        }
        return texts;
      }();
      database_.Run(kTexts[size], values, [&](const Row& row) {
        const std::pair at(row.Int(0), static_cast<uint64_t>(row.Int(1)));
        Meter& meter = *std::lower_bound(meters_.begin(), meters_.end(), at,
                                         [&](const Meter& m, const auto& k) { return key(m) < k; });
        meter.known = true;
        meter.account = row.Int(2);
        meter.same_owner = row.Text(3) == meter.owner.pod &&
                           row.Text(4) == meter.owner.name_space &&
                           row.Text(5) == meter.owner.team && row.Text(6) == meter.owner.user;
        for (size_t c = 0; c < kCounterNames.size(); ++c) {
          const int64_t before = row.Int(7 + static_cast<int>(c));
          // An earlier version says nothing of these.
          if (c >= kFirstCounters) meter.total[c] = std::max(meter.total[c], before);
          meter.grown[c] = meter.total[c] - before;
        }
      });
      first = last;
    }
  }

  // The totals that this batch says, and an account for every owner. Orders meters_ by account.
  void SetMeters() {
    int64_t next_id = NextId("accounts");
    Rows accounts(database_,
                  "INSERT INTO accounts (id, gpu, pod, name, name_space, team, user_name)", 7, "");
    Rows meters(
        database_, "INSERT INTO meters (gpu, pod, account, " + CounterList() + ")",
        3 + kCounterNames.size(),
        " ON CONFLICT (gpu, pod) DO UPDATE SET account = excluded.account, " +
            CounterList([](const std::string& name) { return name + " = excluded." + name; }));
    for (Meter& meter : meters_) {
      const int64_t gpu = meter.gpu->id;
      const auto pod = static_cast<int64_t>(meter.sample->pod);
      if (!meter.same_owner) {
        const Owner& owner = meter.owner;
        int64_t account = 0;
        if (meter.known) {
          database_.Run(
              "SELECT id FROM accounts WHERE gpu = $1 AND pod = $2 AND name = $3"
              " AND name_space = $4 AND team = $5 AND user_name = $6",
              {gpu, pod, std::string_view(owner.pod), std::string_view(owner.name_space),
               std::string_view(owner.team), std::string_view(owner.user)},
              [&](const Row& row) { account = row.Int(0); });
        }
        if (account == 0) {
          account = next_id++;
          accounts.Add({account, gpu, pod, std::string_view(owner.pod),
                        std::string_view(owner.name_space), std::string_view(owner.team),
                        std::string_view(owner.user)});
        }
        meter.account = account;
      }
      if (!meter.known || !meter.same_owner || meter.moved()) {
        meters.Add({gpu, pod, meter.account}, meter.total, {});
      }
    }
    accounts.Finish();
    meters.Finish();
    std::sort(meters_.begin(), meters_.end(),
              [](const Meter& a, const Meter& b) { return a.account < b.account; });
  }

  int64_t whole_ms() const { return parts_.back().to_ms - parts_.front().from_ms; }
  // Of the whole time, what has passed before part `i`.
  int64_t ElapsedBefore(size_t i) const {
    return i == parts_.size() ? whole_ms() : parts_[i].from_ms - parts_.front().from_ms;
  }

  void AddUse() {
    NoteUseAt(database_, parts_.front().BucketAt(kLevels[0]));
    for (const Level& level : kLevels) {
      Rows rows(database_,
                "INSERT INTO " + TableOf(Kind::kUse, level) + " (t, account, " + CounterList() +
                    ", memory_peak_mib)",
                3 + kCounterNames.size(), OnConflictAdd(Kind::kUse, level));
      for (const Run& run : RunsOf(parts_, level)) {
        const int64_t begin = ElapsedBefore(run.first);
        const int64_t end = ElapsedBefore(run.last);
        for (const Meter& meter : meters_) {
          if (!meter.moved()) continue;
          Numbers share;
          for (size_t c = 0; c < kCounterNames.size(); ++c) {
            share[c] =
                Before(meter.grown[c], end, whole_ms()) - Before(meter.grown[c], begin, whole_ms());
          }
          rows.Add({run.bucket, meter.account}, share, {meter.sample->memory_peak_mib});
        }
      }
      rows.Finish();
    }
    for (Meter& meter : meters_) {
      const int64_t held_ns = meter.grown[kHeld];
      if (held_ns == 0) continue;
      Gpu& gpu = *meter.gpu;
      AddUpTo(gpu.held_ns, held_ns);
      gpu.held_of_part.resize(parts_.size());
      for (size_t i = 0; i < parts_.size(); ++i) {
        AddUpTo(gpu.held_of_part[i], Before(held_ns, ElapsedBefore(i + 1), whole_ms()) -
                                         Before(held_ns, ElapsedBefore(i), whole_ms()));
      }
    }
  }

  void AddPresence() {
    const int64_t gap_ms = Millis(batch_.to) - from_ms_;
    // Of the gap, what batches that were merged into this one tell of.
    const int64_t told_ms = std::max<int64_t>(
        0, std::min(gap_ms, Millis(batch_.to) - std::max(Millis(batch_.there_since()), from_ms_)));
    const bool heard_of = gap_ms > 0 && gap_ms - told_ms <= kPresenceGapMax_ms;
    struct Times {
      int64_t gpu;
      std::vector<int64_t> present_ns;
      std::vector<int64_t> idle_ns;
      std::vector<int64_t> energy_j;
    };
    std::vector<Times> all;
    for (auto& [uuid, gpu] : gpus_) {
      if (!gpu.listed && gpu.held_ns <= 0) continue;
      const std::vector<int64_t> none(parts_.size());
      Times times{gpu.id, none, none, none};
      gpu.held_of_part.resize(parts_.size());
      const int64_t at_most =
          std::min(gap_ms > 0 ? gap_ms : kPresenceGapMax_ms, kNumberMax / 1'000'000) * 1'000'000;
      const int64_t idle_ns = std::min(Nanos(gpu.idle), at_most);
      const int64_t used_ns =
          std::min(std::clamp<int64_t>(gpu.held_ns, 0, at_most) + idle_ns, at_most);
      const int64_t present_ns =
          gpu.listed ? std::max(used_ns, std::min(told_ms, at_most / 1'000'000) * 1'000'000)
                     : used_ns;
      for (size_t i = 0; i < parts_.size(); ++i) {
        const auto of = [&](int64_t total) {
          return Before(total, ElapsedBefore(i + 1), whole_ms()) -
                 Before(total, ElapsedBefore(i), whole_ms());
        };
        times.present_ns[i] = heard_of && gpu.listed_before && gpu.listed
                                  ? (parts_[i].to_ms - parts_[i].from_ms) * 1'000'000
                                  : of(present_ns);
        // What was held is known better than what was idle.
        const int64_t held_ns = std::clamp<int64_t>(gpu.held_of_part[i], 0, times.present_ns[i]);
        times.idle_ns[i] = std::min(of(idle_ns), times.present_ns[i] - held_ns);
        times.energy_j[i] = of(gpu.energy_j);
      }
      all.push_back(std::move(times));
    }
    std::sort(all.begin(), all.end(), [](const Times& a, const Times& b) { return a.gpu < b.gpu; });
    for (const Level& level : kLevels) {
      Rows rows(database_,
                "INSERT INTO " + TableOf(Kind::kGpu, level) + " (t, gpu, " + TimeList() + ")",
                2 + kTimeNames.size(), OnConflictAdd(Kind::kGpu, level));
      for (const Run& run : RunsOf(parts_, level)) {
        for (const Times& times : all) {
          int64_t present_ns = 0;
          int64_t idle_ns = 0;
          int64_t energy_j = 0;
          for (size_t i = run.first; i < run.last; ++i) {
            present_ns += times.present_ns[i];
            idle_ns += times.idle_ns[i];
            energy_j += times.energy_j[i];
          }
          if (present_ns != 0 || energy_j != 0) {
            rows.Add({run.bucket, times.gpu, present_ns, idle_ns, energy_j});
          }
        }
      }
      rows.Finish();
    }
  }

  Database& database_;
  const Batch& batch_;
  int64_t source_ = 0;
  int64_t from_ms_ = 0;
  std::vector<Part> parts_;
  std::map<std::string, GpuRow, std::less<>> rows_;
  std::map<std::string_view, Gpu> gpus_;  // of this batch, by uuid
  std::vector<Meter> meters_;
  std::deque<std::string> cleaned_;
};

void Spool(Database& database, const Batch& batch) {
  // Remembered, as an empty spool would forget where it was.
  int64_t number = 1;
  database.Run("SELECT value + 1 FROM meta WHERE name = 'spooled'", {},
               [&](const Row& row) { number = row.Int(0); });
  database.Run(
      "INSERT INTO meta (name, value) VALUES ('spooled', $1)"
      " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
      {number});
  const auto put = [&](int64_t at, const Batch& body) {
    const std::string bytes = EncodeBatch(body);
    database.Run(
        "INSERT INTO spool (number, body) VALUES ($1, $2)"
        " ON CONFLICT (number) DO UPDATE SET body = excluded.body",
        {at, Blob{bytes}});
  };
  int64_t first = number;
  database.Run("SELECT COALESCE(MIN(number), $1) FROM spool", {number},
               [&](const Row& row) { first = row.Int(0); });
  if (number - first >= kSpoolMax) {
    // Not the first one: it may be on its way, or booked upstream and not acknowledged, and its
    // idle time would be counted twice. The oldest that loses nothing by it, if that is among those
    // that are looked at, else the oldest.
    std::vector<std::pair<int64_t, Batch>> oldest;
    std::optional<size_t> into;  // its number there
    const auto read_next = [&] {
      const size_t before = oldest.size();
      database.Run("SELECT number, body FROM spool WHERE number > $1 ORDER BY number LIMIT 1",
                   {before == 0 ? 0 : oldest.back().first}, [&](const Row& row) {
                     Result<Batch> old = DecodeBatch(row.Bytes(1));
                     oldest.emplace_back(row.Int(0), old ? std::move(*old) : Batch{});
                   });
      return oldest.size() > before;
    };
    for (bool well = false; !well && oldest.size() < kLooksMax && read_next();) {
      const size_t last = oldest.size() - 1;
      if (last < 2 || oldest[last - 1].second.source != oldest[last].second.source) continue;
      well = IsMergedWell(oldest[last - 1].second, oldest[last].second);
      if (well || !into) into = last;
    }
    if (into) {
      auto& [at, older] = oldest[*into - 1];
      auto& [next, newer] = oldest[*into];
      MergeInto(std::move(older), newer);
      put(next, newer);
      database.Run("DELETE FROM spool WHERE number = $1", {at});
    }
  }
  put(number, batch);
}

}  // namespace

Result<bool> Ledger::Apply(const Batch& batch) { return Book(batch, false); }
Result<bool> Ledger::ApplyAndSpool(const Batch& batch) { return Book(batch, true); }

Result<bool> Ledger::Book(const Batch& batch, bool spool) {
  if (auto good = Check(batch); !good) return tl::unexpected(good.error());
  bool booked = false;
  auto done = Try([&] {
    Transaction transaction(*database_, Database::Access::kWrite);
    if (!Booking(*database_, batch).Book()) return;
    if (spool) Spool(*database_, batch);
    transaction.Commit();
    booked = true;
  });
  if (!done) return tl::unexpected(done.error());
  return booked;
}

}  // namespace baton::ledger
