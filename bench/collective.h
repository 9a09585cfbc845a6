// Where the ranks of one baton-burn, or of several, meet, as those of a training job meet in NCCL's
// kernels: no rank's stream goes on before every rank's stream has come. A rank is one launching
// thread, on a device of its own. What they share lies in memory that all their processes and
// devices see.
#ifndef BATON_BENCH_COLLECTIVE_H_
#define BATON_BENCH_COLLECTIVE_H_

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "base/parse.h"
#include "base/result.h"
#include "base/time.h"

namespace baton::bench {

// Thread safe, and safe between processes.
class Collective {
 public:
  static constexpr int kRanksMax = 256;

  // For ranks on these devices, 1 to kRanksMax of them. Processes that the caller forks from now on
  // share it. It stays until the last of them has ended.
  static Result<Collective*> Create(const std::vector<int>& devices) {
    void* at = mmap(nullptr, sizeof(Collective), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
    if (at == MAP_FAILED) {
      return Fail(ErrorCode::kInternal, std::string("no shared memory: ") + strerror(errno));
    }
    return new (at) Collective(devices);
  }

  // For rank `rank` of `ranks`, each of them a program of its own that opens the same file. The
  // file is made where there is none, and is good for one run.
  static Result<Collective*> Open(const std::string& path, int rank, int ranks, int device) {
    const auto failed = [&] {
      return Fail(ErrorCode::kInternal, "cannot share " + path + ": " + strerror(errno));
    };
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return failed();
    // Zeros are what the constructor makes, but for the number of ranks and their devices.
    if (ftruncate(fd, sizeof(Collective)) != 0) return failed();
    void* at = mmap(nullptr, sizeof(Collective), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return failed();
    close(fd);
    auto* shared = static_cast<Collective*>(at);
    shared->ranks_.store(ranks);
    shared->at(rank).device.store(device);
    shared->at(rank).come.store(true);
    return shared;
  }

  int ranks() const { return ranks_.load(); }
  // All ranks have opened it, as those of NCCL find each other before they launch anything.
  bool all_there() const {
    return std::all_of(all_, all_ + ranks(), [](const Rank& rank) { return rank.come.load(); });
  }

  // Whether the rank is to launch collective `n`, its next, counted from 1. False: no rank will.
  // Once one rank was told to, all are: else one would wait for ever for those who stopped earlier.
  bool Begin(int rank, uint32_t n) {
    uint64_t furthest = furthest_.load();
    while (n > static_cast<uint32_t>(furthest)) {
      if ((furthest & kOver) != 0) return false;
      if (furthest_.compare_exchange_weak(furthest, n)) break;
    }
    at(rank).begun.store(n);
    return true;
  }
  // No rank begins a collective from now on that none has begun yet.
  void End() { furthest_.fetch_or(kOver); }
  // A rank will not launch what it has begun: the others wait in vain.
  void GiveUp() { given_up_.store(true); }
  bool given_up() const { return given_up_.load(); }

  // Words for the devices, as bytes from the start of this object: the last collective that the
  // rank's stream has come to, and the last that it has left.
  size_t ArrivedOffset(int rank) const { return OffsetOf(at(rank).arrived); }
  size_t LeftOffset(int rank) const { return OffsetOf(at(rank).left); }

  // Collectives that all ranks have left.
  uint32_t Completed() const {
    uint32_t least = UINT32_MAX;
    for (int rank = 0; rank < ranks(); ++rank) least = std::min(least, at(rank).left.load());
    return least;
  }
  // Who waits for whom, in words: "device 1 waits in collective 7 for device 0". Empty: no
  // collective that has begun is unfinished.
  std::string Unfinished() const {
    std::string text;
    for (int rank = 0; rank < ranks(); ++rank) {
      const uint32_t n = at(rank).left.load() + 1;
      if (at(rank).begun.load() < n) continue;
      text += (text.empty() ? "" : "; ") + Name(rank);
      if (at(rank).arrived.load() < n) {
        text += " is still before collective " + std::to_string(n);
        continue;
      }
      text += " waits in collective " + std::to_string(n);
      std::string missing;
      for (int peer = 0; peer < ranks(); ++peer) {
        if (at(peer).arrived.load() >= n) continue;
        missing += (missing.empty() ? " for " : ", ") + Name(peer);
      }
      text += missing;
    }
    return text;
  }

 private:
  // One word each for the device to write, so that no read-modify-write crosses the bus.
  struct alignas(64) Rank {
    std::atomic<uint32_t> arrived{0}, left{0};
    std::atomic<uint32_t> begun{0};  // by the host
    std::atomic<int> device{0};
    std::atomic<bool> come{false};
  };
  static constexpr uint64_t kOver = uint64_t{1} << 63;

  explicit Collective(const std::vector<int>& devices) : ranks_(static_cast<int>(devices.size())) {
    for (int rank = 0; rank < ranks(); ++rank) {
      at(rank).device = devices[static_cast<size_t>(rank)];
      at(rank).come = true;
    }
  }
  Rank& at(int rank) { return all_[rank]; }
  const Rank& at(int rank) const { return all_[rank]; }
  size_t OffsetOf(const std::atomic<uint32_t>& word) const {
    return static_cast<size_t>(reinterpret_cast<const char*>(&word) -
                               reinterpret_cast<const char*>(this));
  }
  std::string Name(int rank) const {
    std::string name = "device " + std::to_string(at(rank).device);
    const auto same = std::count_if(
        all_, all_ + ranks(), [&](const Rank& other) { return other.device == at(rank).device; });
    return same > 1 ? name + " (rank " + std::to_string(rank) + ")" : name;
  }

  // The furthest collective that any rank has begun, and whether none is to follow it.
  std::atomic<uint64_t> furthest_{0};
  std::atomic<bool> given_up_{false};
  std::atomic<int> ranks_;
  Rank all_[kRanksMax];
};

// A device writes plain words where the host reads atomics.
static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint64_t>::is_always_lock_free);

// Says when ranks wait for one another in vain. One process's own; not thread safe.
class StallWatch {
 public:
  // `patience`: how long a collective may take.
  StallWatch(const Collective& collective, Duration patience, Instant now)
      : collective_(collective), patience_(patience), since_(now) {}

  // Why the ranks stand still; empty while they do not. A rank that gave up is waited for no longer
  // than a second.
  std::string Look(Instant now) {
    const uint32_t completed = collective_.Completed();
    const std::string unfinished = collective_.Unfinished();
    if (completed != completed_ || unfinished.empty()) {
      completed_ = completed;
      since_ = now;
      return "";
    }
    const Duration patience =
        collective_.given_up() ? std::min<Duration>(patience_, std::chrono::seconds(1)) : patience_;
    if (now - since_ < patience) return "";
    return "no collective has ended for " + FormatDuration(patience) + ": " + unfinished;
  }

 private:
  const Collective& collective_;
  const Duration patience_;
  Instant since_;
  uint32_t completed_ = 0;
};

}  // namespace baton::bench

#endif  // BATON_BENCH_COLLECTIVE_H_
