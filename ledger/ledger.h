// The books: who used what of which GPU, by time. SQLite in one file, or PostgreSQL for those who
// outgrow it; the SQL is the same.
//
//   usage books (cumulative counters) ──▶ Batch ──▶ Apply() ──▶ buckets of 10 s, minutes, hours,
//   days
//                                                               ▲ reports, standing, advice
//
// What comes in is *cumulative*: a batch says how much each pod has used of each GPU since its
// beginning. The ledger remembers the last total of each, books the difference, and does both in
// one transaction: a batch that is lost costs resolution in time and nothing else where a later one
// has its pods again, one that is repeated or late changes nothing, and a crash between two
// instructions leaves all of a batch or none of it.
//
// Not thread safe: one thread per Ledger. Several may be open on one database (one writes).
#ifndef BATON_LEDGER_LEDGER_H_
#define BATON_LEDGER_LEDGER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "ledger/changes.h"
#include "ledger/options.h"
#include "ledger/wall_time.h"

namespace date {
class time_zone;
}

namespace baton::ledger {

WallTime WallNow();
// Half open: [from, to).
struct Window {
  WallTime from;
  WallTime to;
};

// A sum over many pods and GPUs. 64 bits of nanoseconds are 292 years: 1 200 GPUs for 90 days. Ten
// years of 10 000 GPUs with 100 waiting pods each are 2^78 ns.
__extension__ using Int128 = __int128;

// What a pod used of one GPU (Counters), or what many of them did (Sums).
template <class Number>
struct CountersOf {
  Number held_ns = 0;        // token granted → drained
  Number busy_ns = 0;        // part of it in which the GPU executed
  Number waited_ns = 0;      // somebody of the pod waited and nobody of it held
  Number unmanaged_ns = 0;   // launched without a token, the backend being away
  Number memory_mib_ms = 0;  // device memory over time
  Number launches = 0;
  Number grants = 0;
  Number revocations = 0;
  Number energy_j = 0;        // joules of the GPU's energy, as far as it was measured
  Number uncontended_ns = 0;  // part of held_ns in which no pod of another team wanted the GPU
};
using Counters = CountersOf<int64_t>;
using Sums = CountersOf<Int128>;

// Whose use it is. Empty texts where nobody said.
struct Owner {
  std::string pod;
  std::string name_space;
  std::string team;  // a path: "research/vision"
  std::string user;
};

// One pod on one GPU.
struct Sample {
  uint64_t pod = 0;             // the source's id, never given out twice by it
  std::string gpu;              // uuid
  Owner owner;                  // from now on
  Counters total;               // since the pod was made
  int64_t memory_peak_mib = 0;  // since the batch before
};

struct GpuSample {
  std::string uuid;
  std::string model;
  uint64_t memory_bytes = 0;
  Duration idle{0};  // of the time since the batch before: nobody held and nobody waited
  // Joules, of pods and without them, since the usage book was begun; 0: not measured.
  int64_t energy_j = 0;
};

struct Batch {
  std::string source;  // the usage book that the totals are of; 32 hex digits, lower case
  std::string node;    // its machine, for people
  uint64_t seq = 0;    // grows from batch to batch of a source, from 1
  // Everything since the batch before happened before this, evenly (as far as the ledger knows).
  WallTime to;
  // From when on all of `gpus` were there, as the batches say that were merged into this one; the
  // epoch: none was.
  WallTime since{};
  std::vector<Sample> samples;  // those that are new or have moved; others may stand here too
  std::vector<GpuSample> gpus;  // all that are there

  WallTime there_since() const { return since == WallTime{} ? to : since; }
};

// A batch as bytes, and back. kInvalid: they are none.
std::string EncodeBatch(const Batch& batch);
Result<Batch> DecodeBatch(std::string_view bytes);

enum class By : uint8_t {
  kTeam,
  kUser,
  kNamespace,
  kPod,
  kGpu,
  kNode,
  kDay,
  kTotal,
  kMonth,
  kModel,
  kPrice
};

// In which days and months begin (ledger/time_zone.h).
struct TimeZone {
  std::string name = "UTC";
  const date::time_zone* zone = nullptr;  // null: UTC
};

// What is asked of the books.
struct Question {
  Window window;
  std::vector<By> by = {By::kTotal};  // 1 to kBysMax, none twice; kTotal alone
  TimeZone zone = {};
  // Only the use of these; empty: of all. A team with all below it; a pod by its name, in any
  // namespace, or as NAMESPACE/NAME.
  std::string team = {}, user = {}, name_space = {}, pod = {};
  // Moments, by time: rows are apart for what was before and after each of them (Uses::spans).
  std::vector<WallTime> changes = {};

  bool filtered() const {
    return !team.empty() || !user.empty() || !name_space.empty() || !pod.empty();
  }
  // Whether each row has a capacity of its own: what GPUs and times have, and owners have not.
  bool own_capacity() const;
};
inline constexpr size_t kBysMax = 7;

// A part of a report: one key on one model of GPU.
struct UseRow {
  // One for each of Question::by: a team's path, a user, a day as "2026-11-21", a month as
  // "2026-11", "" for kTotal and kPrice (which is ReportJson()'s to say) ...
  std::vector<std::string> keys;
  // By user or pod, and not by team: these have a row for each team. Else empty.
  std::string team;
  std::string model;  // so that a price can be put on it
  Sums use;
  size_t span = 0;  // of Uses::spans
};
struct CapacityRow {
  std::vector<std::string> keys;  // where each row has a capacity of its own, else empty texts
  std::string model;
  Int128 present_ns = 0;  // the GPU was there
  Int128 idle_ns = 0;     // and nobody held or wanted it
  Int128 energy_j = 0;    // joules, of pods and without them
  size_t span = 0;        // of Uses::spans
};
struct OthersRow {
  std::string model;
  Int128 held_ns = 0;
  Int128 energy_j = 0;
  size_t span = 0;  // of Uses::spans
};
// A part of the window in which no price changed.
struct Span {
  // The window's beginning or one of Question::changes.
  WallTime since;
  // As answered: each change is at the nearest edge of the finest buckets that are left there.
  Window window;
};
struct Uses {
  // As answered: where fine buckets are gone, edges are moved out to the buckets that are left.
  Window window;
  std::vector<UseRow> rows;           // by keys, then team, then model, then span
  std::vector<CapacityRow> capacity;  // by keys, then model, then span
  // By model and span: what all whom the question leaves out held and took.
  std::vector<OthersRow> others;
  // By day and month: from when to when each of them is, as far as it lies in the window.
  std::map<std::string, Window> periods;
  std::vector<Span> spans;  // by time; at least one
};

// A team's user and what they held, older use counting less.
struct DecayedUse {
  std::string team;
  std::string user;
  double held_ns = 0;     // Σ weight · use
  double decayed_ns = 0;  // Σ weight · use · 2^(-age / half-life)
  // The part of decayed_ns in which no pod of another team wanted the GPU.
  double uncontended_ns = 0;
};

// Seconds of the buckets in which a pod's use over the window is looked at: 10 for windows up to an
// hour, a minute up to a day, else an hour.
int64_t BucketSeconds(Window window);

// What a pod did with one GPU over a window, bucket by bucket. Buckets are of BucketSeconds();
// coarser where those are dropped already.
struct Activity {
  struct Bucket {
    int64_t t = 0;  // its beginning, in seconds since 1970
    // Parts of its time: 0 to 1, but for corrections and what was booked late.
    float held = 0, busy = 0, waited = 0;
    int64_t memory_peak_mib = 0;
  };
  Owner owner;                  // the last one
  std::string gpu;              // uuid
  bool measured = false;        // else it had its part by other means than tokens, used or not
  int64_t seconds = 0;          // length of a bucket
  std::vector<Bucket> buckets;  // by time; at least one, none in which it used nothing
};

// How a pod used one GPU over a window, for advice. Shares are held time / time over the buckets
// from the pod's first use to its last one in the window, 0 to 1; those between in which it used
// nothing count.
struct Profile {
  Owner owner;      // the last one
  std::string gpu;  // uuid
  double held_p50 = 0, held_p99 = 0;
  double wanted_p50 = 0;  // held, or waited meanwhile
  // Of each bucket's peak, where there was use.
  int64_t memory_p99_mib = 0, memory_peak_mib = 0;
  int64_t buckets = 0;
  int64_t seconds = 0;  // length of a bucket
};

// By the same rules as Ledger::Profiles().
Profile ProfileOf(const Activity& activity);

// A GPU that was there, as its node told it last.
struct BookedGpu {
  std::string node;
  std::string uuid;
  std::string model;
  uint64_t memory_bytes = 0;  // 0: nobody said
};

// A batch in the spool. Numbers grow from batch to batch, over all sources.
struct SpooledBatch {
  uint64_t number = 0;
  Batch batch;
};

class Database;
struct History;
struct KeptUse;

class Ledger {
 public:
  // Opens or makes the database, migrates its schema, recovers from a torn write. A SQLite file
  // that is damaged or no database is moved aside (PATH.damaged) and begun anew; `trouble` then
  // says so in a sentence for the operator. Errors: kUnavailable (disk, server), kInvalid (options;
  // a schema newer than this program; a database of something else).
  static Result<std::unique_ptr<Ledger>> Open(const LedgerOptions& options, std::string* trouble);
  // The same, but connects with the first use, and again with each use after a failure.
  // Errors: kInvalid (options).
  static Result<std::unique_ptr<Ledger>> Later(const LedgerOptions& options);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Each function below may fail with kUnavailable (the disk is full, the server away: the same
  // call works again once that is over, nothing else is needed; a SQLite file that turns out to be
  // damaged is moved aside as by Open(), and the next call begins a new one), kInvalid as by Open()
  // and for wrong arguments, and kInternal. A failed call has changed nothing.

  // What was found damaged and moved aside since this was asked last; empty when nothing was.
  std::string TakeTrouble();

  // Books a batch, wholly or not at all. False: this or a later one of the source is booked.
  // The first batch of a source that the ledger does not know only sets its totals' beginning; a
  // pod that comes later began with zero.
  //
  // What a total has grown by (or lost: corrections are booked too, so that the buckets' sum is the
  // last total) is spread evenly over the time since the source's last batch, in parts of 10 s
  // where that is up to an hour, coarser ones else (buckets.h). Where the clock stepped back it is
  // booked at `to`. It belongs to the owner who stands in this batch.
  //
  // Where the clock stepped back by more than a day, after a jump ahead by more than a day, and
  // says no less now than what has passed since before that jump, what the source booked after `to`
  // is moved to `to`: it cannot have happened later than now. Else the clock may as well be wrong
  // now, and all stays where it is.
  //
  // A GPU that was listed in the last batch, no longer than an hour before there_since(), has been
  // present since; else since there_since(), and for as long as it was held or idle. Held + idle <=
  // present in each bucket, to the nanosecond for each pod and batch in it, where it is so of the
  // time between batches.
  //
  // kInvalid: a source that is not 32 hex digits, a seq of 0, a time out of the years 2000 to 2200,
  // a number below 0 or above 2^60, a pod that stands twice on a GPU, more than a million samples.
  // Owners', nodes' and models' names are cut at 512 bytes and stored as UTF-8.
  Result<bool> Apply(const Batch& batch);
  // The seq and time of the last batch booked of a source, and the largest id of a pod that ever
  // stood in one; 0 when there is none.
  struct Last {
    uint64_t seq = 0;
    WallTime to;
    uint64_t largest_pod = 0;
  };
  Result<Last> LastOf(const std::string& source);
  // Drops what retention lets go, a few hours' buckets of each level at a time. Cheap when called
  // often. Where a clock that was ahead dropped more, what is booked from then on is kept again.
  Result<void> Trim(WallTime now);

  // Who used what. A pod's key is NAMESPACE/NAME, or its name where it has no
  // namespace. Sums are exact, however large. kInvalid: from after to,
  // keys that do not go together.
  Result<Uses> Query(const Question& question);
  Result<Uses> Query(Window window, By by) { return Query({window, {by}}); }
  // By team and user, all that the days hold, each hour as much as its model weighs: older than a
  // week by the day, the rest by the hour, the age being that of the bucket's middle. Where the
  // half-life is below four hours, the last day by the minute; below four minutes, the last hour by
  // ten seconds. half_life >= 1 s, else kInvalid. The first question, and the first of a day, adds
  // up all buckets; one after it with the same half-life of four hours or more only the newest.
  Result<std::vector<DecayedUse>> Decayed(WallTime now, Duration half_life,
                                          const ModelWeights& weights = {});
  // Held GPU time of a team and all below it over a window, in nanoseconds, each as much as its
  // model weighs; of all teams for "".
  Result<Int128> HeldBy(const std::string& team, Window window, const ModelWeights& weights = {});
  // The same question step by step (ledger/history.h), by days; `by` and `changes` do not matter.
  // kExhausted: it would be of more than `uses_max` uses, of 88 bytes each.
  Result<History> Steps(const Question& question, size_t uses_max = 2'000'000);
  // Both by pod, then GPU. `gpu`: of this one alone.
  Result<std::vector<Activity>> Activities(Window window, const std::string& gpu = "");
  Result<std::vector<Profile>> Profiles(Window window);
  // That were there at some time of the window; by node, then uuid.
  Result<std::vector<BookedGpu>> Gpus(Window window);

  // Batches that wait to be sent upstream, in the same database: Apply() of a batch and adding it
  // to the spool are one transaction. False as by Apply(); nothing is added then. When 8 640 wait
  // (a day of them), the oldest is merged into the one after it.
  Result<bool> ApplyAndSpool(const Batch& batch);
  // The oldest batches above `number`, at most `most`.
  Result<std::vector<SpooledBatch>> Spooled(uint64_t above_number, size_t most);
  Result<void> DropSpooled(uint64_t up_to_number);

  // Writes down what was changed.
  Result<void> Record(const Change& change);
  // The same for what is configured on a node: each setting that is not as it was when this was
  // last called for `by.node` is a change of its own, `by` with its kind, object, was and is. What
  // the first call says is where it begins.
  Result<void> RecordSettings(const Change& by, const Settings& settings);
  // The newest first.
  Result<std::vector<Change>> Changes(const ChangesQuestion& question);

  // On disk, in bytes.
  Result<int64_t> SizeBytes();

 private:
  Ledger(std::unique_ptr<Database> database, const Retention& retention);
  // Connects where needed, runs `f`, and turns what it throws into an error.
  Result<void> Try(const std::function<void()>& f);
  Result<bool> Book(const Batch& batch, bool spool);

  std::unique_ptr<Database> database_;
  const Retention retention_;
  bool migrated_ = false;
  std::unique_ptr<KeptUse> kept_;  // of this connection's database
  std::string trouble_;
};

}  // namespace baton::ledger

#endif  // BATON_LEDGER_LEDGER_H_
