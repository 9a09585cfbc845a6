// The world's GPU: one kernel after another, in the order in which they were launched. What it
// records of each pod is the truth that the books are held against.
#ifndef BATON_WORLD_GPU_H_
#define BATON_WORLD_GPU_H_

#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace baton::world {

class WorldGpu {
 public:
  struct Kernel {
    uint32_t process = 0;
    PodId pod;
    Duration length{0};  // Duration::max(): it never ends
  };

  // The pod whose kernels are pending or running; nothing when idle. Launching for another pod
  // meanwhile is an overlap.
  std::optional<PodId> occupant() const {
    if (queue_.empty()) return std::nullopt;
    return queue_.front().pod;
  }

  void Launch(const Kernel& kernel, Instant now) {
    if (queue_.empty()) end_ = kernel.length == Duration::max() ? kNever : now + kernel.length;
    queue_.push_back(kernel);
    Add(kernel);
  }

  // When the running kernel ends; kNever when there is none, or when it never does.
  Instant end() const { return queue_.empty() ? kNever : end_; }

  // The running kernel has ended: end() == now.
  Kernel Finish(Instant now) {
    const Kernel done = queue_.front();
    queue_.pop_front();
    Take(done);
    busy_ += done.length;
    if (!queue_.empty()) {
      const Duration length = queue_.front().length;
      end_ = length == Duration::max() ? kNever : now + length;
    }
    return done;
  }

  // The process is dead: what it has pending is dropped, what runs ends in its own time; one that
  // would never end is cut now.
  void Kill(uint32_t process, Instant now) {
    for (size_t i = queue_.size(); i-- > 1;) {
      if (queue_[i].process != process) continue;
      Take(queue_[i]);
      queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
    }
    if (!queue_.empty() && queue_.front().process == process && end_ == kNever) {
      queue_.front().length = Duration(0);
      end_ = now;
    }
  }

  uint32_t PendingOf(uint32_t process) const {
    return process < of_.size() ? of_[process].kernels : 0;
  }
  // Unfinished GPU time of the process.
  Duration BacklogOf(uint32_t process, Instant now) const {
    if (PendingOf(process) == 0) return Duration(0);
    const Kernel& running = queue_.front();
    const bool runs = running.process == process && running.length != Duration::max();
    return of_[process].length - (runs ? running.length - (end_ - now) : Duration(0));
  }
  Duration busy() const { return busy_; }

 private:
  // Of the kernels in the queue: how many, and the length of those that end.
  struct Sum {
    uint32_t kernels = 0;
    Duration length{0};
  };
  void Add(const Kernel& kernel) {
    if (kernel.process >= of_.size()) of_.resize(kernel.process + 1);
    ++of_[kernel.process].kernels;
    if (kernel.length != Duration::max()) of_[kernel.process].length += kernel.length;
  }
  void Take(const Kernel& kernel) {
    --of_[kernel.process].kernels;
    if (kernel.length != Duration::max()) of_[kernel.process].length -= kernel.length;
  }

  std::deque<Kernel> queue_;
  std::vector<Sum> of_;  // by process
  Instant end_ = kNever;
  Duration busy_{0};
};

}  // namespace baton::world

#endif  // BATON_WORLD_GPU_H_
