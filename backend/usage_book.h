// The accounts: what each pod has used of each GPU, exact over crashes of the daemon.
//
// Kinds of entries: a pod's has its totals. A client's (by incarnation) has the counters that
// client last reported; what a later report says beyond them is added to the pod's totals, so a
// report may be lost, repeated or late and counts once. Held time is the exception: a pod's is what
// its tokens were charged, a client's what it reported when it last held nothing.
//
// A pod may have one more, under a number made of its GPU's: until when a part of what its limit
// allows at once is used up, what of its held time no pod of another team wanted (in held_ns), and
// its energy. So may the GPU, for its own.
//
// All live in a file that is mapped into memory: changing a number costs no system call, and a
// daemon that is killed at any instant leaves them in the page cache. (A power cut may lose the
// last half minute.)
//
// Where the disk is full or not writable the book goes on in memory and says so. A file that
// somebody cuts short is written anew from a copy that is as old as the last Flush(): touching what
// is gone would otherwise end the process (SIGBUS, of which the first open book takes the handler).
// Not thread safe.
#ifndef BATON_BACKEND_USAGE_BOOK_H_
#define BATON_BACKEND_USAGE_BOOK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/mapped_file.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "node/process.h"

namespace baton::backend {

// Cumulative. Times in nanoseconds.
struct Usage {
  uint64_t held_ns = 0;  // token granted → the last of the pod's clients drained
  uint64_t busy_ns = 0;
  uint64_t launches = 0;
  uint64_t waited_ns = 0;
  uint64_t unmanaged_ns = 0;
  uint64_t copies_bytes = 0;
  uint64_t grants = 0;
  uint64_t revocations = 0;
};

// Energy of a pod on a GPU, or of a GPU, at the last reading of its counter.
struct EnergyAccount {
  double joules = 0;     // in all
  uint64_t held_ns = 0;  // of a pod: its held time at that reading
  // Of a GPU: what its counter said, and when; kNever: before this machine started.
  double counter = 0;
  Instant at = kNever;
};

struct UsageEntry {
  uint64_t used = 0;
  uint64_t pod = 0;
  uint64_t gpu = 0;          // HashOf() its uuid
  uint64_t incarnation = 0;  // 0: the pod's totals
  // Of a pod: the token that it holds or held last, and the held_ns before that.
  uint64_t hold_epoch = 0;
  uint64_t hold_base_ns[2] = {};  // for even and odd epochs
  Usage usage;
  uint64_t memory_mib_ms = 0;  // of a pod: device memory over time

  // `epoch` is about to be granted. A daemon that dies within this leaves the older hold as it was.
  void BeginHold(uint64_t epoch);
  // What of this token is in held_ns; 0 when it is not the last one.
  uint64_t ChargedFor(uint64_t epoch) const {
    return epoch == hold_epoch ? usage.held_ns - hold_base_ns[epoch % 2] : 0;
  }
};
static_assert(sizeof(UsageEntry) == 128);

class UsageBook {
 public:
  UsageBook() = default;
  UsageBook(const UsageBook&) = delete;
  UsageBook& operator=(const UsageBook&) = delete;

  // Maps the file, made when absent. A file that is not a usage book is moved aside.
  // Returns what went wrong, for the operator; empty when nothing did. An error: it is not for this
  // daemon to touch, since a newer version wrote it or it cannot be moved aside.
  // `boot_id`: of the kernel; instants of another boot mean nothing.
  Result<std::string> Open(const std::string& path, std::string_view boot_id = {});
  // Drawn at random when the book was begun: 32 hex digits. Totals of different books have nothing
  // to do with each other.
  const std::string& identity() const { return identity_; }
  // Draws another: the pods that these totals were of are not known any more, and their ids may be
  // given out again.
  void ChangeIdentity();
  // Why the book is not (wholly) in its file; empty when it is.
  const std::string& degraded() const { return degraded_; }

  // `gpu`: HashOf() its uuid. The entry, made when absent. Stays where it is until it is dropped.
  UsageEntry& At(PodId pod, uint64_t gpu, uint64_t incarnation);
  // Null when there is none.
  UsageEntry* Find(PodId pod, uint64_t gpu, uint64_t incarnation) const;
  // The largest id of a pod that has an entry; 0 when there is none.
  uint64_t LargestPod() const { return index_.empty() ? 0 : std::get<0>(index_.rbegin()->first); }
  // What policy::FairQueue::LimitFullAt() said last of the pod. It is kept as long as the pod's
  // account there; an instant that has passed where nothing is known.
  void SetLimitFullAt(PodId pod, uint64_t gpu, Instant at);
  Instant LimitFullAt(PodId pod, uint64_t gpu) const;
  // What of the pod's held time no pod of another team wanted, in nanoseconds; none of it where
  // nothing is known, nor more than it held. `more` may be negative, to take back.
  // Does nothing for a pod that has no account there.
  void AddUncontended(PodId pod, uint64_t gpu, int64_t more_ns);
  uint64_t Uncontended(PodId pod, uint64_t gpu) const;
  // Kept as long as the pod's account there; of the GPU (pod 0) for ever. Zeros where there is
  // none.
  void SetEnergy(PodId pod, uint64_t gpu, const EnergyAccount& energy);
  EnergyAccount EnergyOf(PodId pod, uint64_t gpu) const;
  // The newest hold_epoch on a GPU; 0 when there is none.
  uint64_t NewestHold(uint64_t gpu) const;
  // Forgets a client's entries, or (incarnation 0) everything of a pod.
  void Drop(PodId pod, uint64_t incarnation);
  // Between these a pod's totals and what a client last reported change together: a daemon that
  // dies in between finds both as they were.
  void Begin(const UsageEntry& total, const UsageEntry& last);
  void End();
  // Asks the kernel to write what changed; does not wait. What went wrong since the last time, for
  // the operator; empty when nothing did.
  std::string Flush();

 private:
  // Writes the file anew from what is in memory, and maps it again. False: it stays in memory.
  bool WriteAnew();
  using Key = std::tuple<uint64_t, uint64_t, uint64_t>;
  struct Journal;
  UsageEntry* Allocate();
  UsageEntry* EntryAt(size_t at) const;
  // Its number in the file; 0 when it is not in there.
  size_t NumberOf(const UsageEntry& entry) const;
  Journal* journal() const;

  std::string path_;
  UniqueFd fd_;
  MappedFile map_;
  size_t file_size_ = 0;  // allocated on disk
  size_t next_ = 0;       // first entry never used
  std::vector<UsageEntry*> free_;
  std::deque<UsageEntry> overflow_;  // when the disk has no room
  std::map<Key, UsageEntry*> index_;
  uint64_t boot_ = 0;  // HashOf() its id
  std::string identity_;
  std::string degraded_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_USAGE_BOOK_H_
