// A stream of the world's GPUs: one kernel after another, in the order in which they were launched.
#ifndef BATON_WORLD_STREAM_H_
#define BATON_WORLD_STREAM_H_

#include <vector>

#include "base/time.h"

namespace baton::world {

class Stream {
 public:
  struct Kernel {
    uint32_t process = 0;
    uint32_t thread = 0;  // of the process
    Duration length{0};   // Duration::max(): it never ends
    // Counts its thread's collectives from 1; 0: it is none. Once at the head of the queue it waits
    // until Begin().
    uint32_t collective = 0;
  };

  bool empty() const { return first_ == queue_.size(); }
  void Launch(const Kernel& kernel, Instant now) {
    queue_.push_back(kernel);
    Add(kernel);
    if (queue_.size() == first_ + 1) Start(now);
  }

  // The collective at the head of the queue that waits for its peers, or nothing.
  const Kernel* gathering() const { return gathering_ ? &queue_[first_] : nullptr; }
  // Its peers have come: it runs.
  void Begin(Instant now) {
    gathering_ = false;
    end_ = now + front().length;
  }

  // When the running kernel ends; kNever when there is none, or when it never does.
  Instant end() const { return end_; }

  // The running kernel has ended: end() == now.
  Kernel Finish(Instant now) {
    const Kernel done = front();
    // What is done stays in place until nothing is left, or it is half of all.
    if (++first_ == queue_.size()) {
      queue_.clear();
      first_ = 0;
    } else if (first_ >= 64 && first_ * 2 >= queue_.size()) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(first_));
      first_ = 0;
    }
    Take(done);
    end_ = kNever;
    if (!empty()) Start(now);
    return done;
  }

  // The process is dead: what it has pending is dropped, what runs ends in its own time; one that
  // would never end is cut now. How many are dropped.
  uint32_t Kill(uint32_t process, Instant now) {
    uint32_t dropped = 0;
    for (size_t i = queue_.size(); i-- > first_ + 1;) {
      if (queue_[i].process != process) continue;
      Take(queue_[i]);
      queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(i));
      ++dropped;
    }
    if (!empty() && front().process == process && end_ == kNever) {
      Take(front());
      queue_[first_].length = Duration(0);
      Add(front());
      gathering_ = false;
      end_ = now;
    }
    return dropped;
  }

  uint32_t PendingOf(uint32_t process) const {
    return process < of_.size() ? of_[process].kernels : 0;
  }
  // Unfinished GPU time of the process.
  Duration BacklogOf(uint32_t process, Instant now) const {
    if (PendingOf(process) == 0) return Duration(0);
    const Kernel& running = front();
    const bool runs = running.process == process && end_ != kNever;
    return of_[process].length - (runs ? running.length - (end_ - now) : Duration(0));
  }

 private:
  // Of the kernels in the queue: how many, and the length of those that end.
  struct Sum {
    uint32_t kernels = 0;
    Duration length{0};
  };
  const Kernel& front() const { return queue_[first_]; }
  void Start(Instant now) {
    const Kernel& kernel = front();
    gathering_ = kernel.collective != 0 && kernel.length != Duration::max();
    end_ = gathering_ || kernel.length == Duration::max() ? kNever : now + kernel.length;
  }
  void Add(const Kernel& kernel) {
    if (kernel.process >= of_.size()) of_.resize(kernel.process + 1);
    ++of_[kernel.process].kernels;
    if (kernel.length != Duration::max()) of_[kernel.process].length += kernel.length;
  }
  void Take(const Kernel& kernel) {
    --of_[kernel.process].kernels;
    if (kernel.length != Duration::max()) of_[kernel.process].length -= kernel.length;
  }

  std::vector<Kernel> queue_;  // from first_ on
  size_t first_ = 0;
  std::vector<Sum> of_;  // by process
  Instant end_ = kNever;
  bool gathering_ = false;
};

}  // namespace baton::world

#endif  // BATON_WORLD_STREAM_H_
