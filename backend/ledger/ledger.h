// The books: who used what of which GPU, by time. SQLite in one file, or PostgreSQL for those who
// outgrow it; the SQL is the same.
//
//   usage books (cumulative counters) ──▶ Batch ──▶ Apply() ──▶ buckets of 10 s, minutes, hours, days
//                                                               ▲ reports, standing, advice
//
// What comes in is *cumulative*: a batch says how much each pod has used of each GPU since its
// beginning. The ledger remembers the last total of each, books the difference, and does both in one
// transaction: a batch that is lost costs resolution in time and nothing else, one that is repeated
// or late changes nothing, and a crash between two instructions leaves all of a batch or none of it.
//
// Not thread safe: one thread per Ledger. Several may be open on one database (one writes).
#ifndef BATON_BACKEND_LEDGER_LEDGER_H_
#define BATON_BACKEND_LEDGER_LEDGER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace baton::ledger {

// The wall clock, UTC. Nowhere else than in the ledger and what reads it does one appear.
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;
WallTime WallNow();
// Half open: [from, to).
struct Window {
  WallTime from;
  WallTime to;
};

// What a pod used of one GPU.
struct Counters {
  int64_t held_ns = 0;        // token granted → drained
  int64_t busy_ns = 0;        // part of it in which the GPU executed
  int64_t waited_ns = 0;      // somebody of the pod waited and nobody of it held
  int64_t unmanaged_ns = 0;   // launched without a token, the backend being away
  int64_t memory_mib_ms = 0;  // device memory over time
  int64_t launches = 0;
  int64_t grants = 0;
  int64_t revocations = 0;
};

// Whose use it is. Empty texts where nobody said.
struct Owner {
  std::string pod;
  std::string name_space;
  std::string team;  // a path: "research/vision"
  std::string user;
};

// One pod on one GPU.
struct Sample {
  uint64_t pod = 0;  // the source's id, never given out twice by it
  std::string gpu;   // uuid
  Owner owner;       // from now on
  Counters total;    // since the pod was made
  int64_t memory_peak_mib = 0;  // since the batch before
};

struct GpuSample {
  std::string uuid;
  std::string model;
  uint64_t memory_bytes = 0;
  Duration idle{0};  // of the time since the batch before: nobody held and nobody waited
};

struct Batch {
  std::string source;  // the usage book that the totals are of; 32 hex digits
  std::string node;    // its machine, for people
  uint64_t seq = 0;    // grows from batch to batch of a source, from 1
  // Everything since the batch before happened before this, evenly (as far as the ledger knows).
  WallTime to;
  std::vector<Sample> samples;  // those that are new or have moved; others may stand here too
  std::vector<GpuSample> gpus;  // all that are there
};

struct Retention {  // 0: for ever
  std::chrono::hours fine{6};
  std::chrono::hours minutes{14 * 24};
  std::chrono::hours hours{400 * 24};
  std::chrono::hours days{0};
};

struct LedgerOptions {
  // "sqlite:PATH", or what libpq takes: "postgresql://user@host/database".
  std::string database = "sqlite:/var/lib/baton/ledger.sqlite";
  Retention retention;
};

// A batch as bytes, and back. kInvalid: they are none.
std::string EncodeBatch(const Batch& batch);
Result<Batch> DecodeBatch(std::string_view bytes);

enum class By : uint8_t { kTeam, kUser, kNamespace, kPod, kGpu, kNode, kDay, kTotal };

// A part of a report: one key on one model of GPU.
struct UseRow {
  std::string key;    // by By: a team's path, "team user" for users is key + team, a day is "2026-11-21"
  std::string team;   // of a user or a pod; else empty
  std::string model;  // so that a price can be put on it
  Counters use;
};
struct CapacityRow {
  std::string key;    // of By::kGpu, kNode and kDay; else empty
  std::string model;
  int64_t present_ns = 0;  // the GPU was there
  int64_t idle_ns = 0;     // and nobody held or wanted it
};
struct Uses {
  // As answered: where fine buckets are gone, edges are moved out to the buckets that are left.
  Window window;
  std::vector<UseRow> rows;           // by key, then model
  std::vector<CapacityRow> capacity;  // by key, then model
};

// A team's user and what they held, older use counting less.
struct DecayedUse {
  std::string team;
  std::string user;
  double held_ns = 0;     // undecayed
  double decayed_ns = 0;  // Σ use · 2^(-age / half-life)
};

// How a pod used one GPU over a window, for advice. Shares are of the time in which the pod was
// there, 0 to 1, by the buckets that the window's length calls for (10 s, a minute, an hour).
struct Profile {
  Owner owner;
  std::string gpu;
  double held_p50 = 0, held_p99 = 0;
  int64_t memory_p99_mib = 0, memory_peak_mib = 0;
  int64_t buckets = 0;
};

class Ledger {
 public:
  // Opens or makes the database, migrates its schema, recovers from a torn write. A SQLite file
  // that is damaged or no database is moved aside and begun anew; `trouble` then says so in a
  // sentence for the operator. Errors: kUnavailable (disk, server), kInvalid (options; a schema
  // newer than this program).
  static Result<std::unique_ptr<Ledger>> Open(const LedgerOptions& options, std::string* trouble);
  virtual ~Ledger() = default;

  // Books a batch, wholly or not at all. False: this or a later one of the source is booked.
  // The first batch of a source that the ledger does not know only sets its totals' beginning.
  virtual Result<bool> Apply(const Batch& batch) = 0;
  // The seq and time of the last batch booked of a source; 0 when there is none.
  struct Last {
    uint64_t seq = 0;
    WallTime to;
    uint64_t largest_pod = 0;
  };
  virtual Result<Last> LastOf(const std::string& source) = 0;
  // Drops what retention lets go. Cheap when called often.
  virtual Result<void> Trim(WallTime now) = 0;

  virtual Result<Uses> Query(Window window, By by) = 0;
  virtual Result<std::vector<DecayedUse>> Decayed(WallTime now, Duration half_life) = 0;
  // Held GPU time of a team and all below it over a window, in nanoseconds.
  virtual Result<int64_t> HeldBy(const std::string& team, Window window) = 0;
  virtual Result<std::vector<Profile>> Profiles(Window window) = 0;

  // Batches that wait to be sent upstream, in the same database: Apply() of a batch and Spool() of
  // it with `spool` set are one transaction.
  virtual Result<bool> ApplyAndSpool(const Batch& batch) = 0;
  // The oldest batches above `seq`, at most `most`.
  virtual Result<std::vector<Batch>> Spooled(uint64_t above_seq, size_t most) = 0;
  virtual Result<void> DropSpooled(uint64_t up_to_seq) = 0;

  virtual Result<int64_t> SizeBytes() = 0;
};

}  // namespace baton::ledger

#endif  // BATON_BACKEND_LEDGER_LEDGER_H_
