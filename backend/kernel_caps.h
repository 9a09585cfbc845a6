// Memory caps that the driver holds beside the hook: for all processes of a container, whether the
// hook is in them or not. Drivers from R615 on have them, for cgroups (v2). Where node or driver
// has none, or the pod is in no container of its own, the hook's cap holds alone.
//
// The driver counts contexts and code too, and the hook does not: its cap is the pod's and an
// allowance for each of its processes. No memory is guaranteed to a group that way (its soft limit
// is 0): a guarantee would have to be taken back from the groups above before the group goes, and
// containers go without a word.
//
// No I/O of its own: the driver is asked on the thread for devices. Not thread safe: of the event
// loop.
#ifndef BATON_BACKEND_KERNEL_CAPS_H_
#define BATON_BACKEND_KERNEL_CAPS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "backend/devices.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "config/options.h"
#include "node/event_log.h"

namespace baton::backend {

class KernelCaps {
 public:
  // What was refused is tried again after this.
  static constexpr Duration kTryAgain = std::chrono::seconds(30);
  // Tend() does nothing where it last did something less than this ago.
  static constexpr Duration kTendEvery = std::chrono::milliseconds(20);
  // As devmgr::Nvml::CapMemory(); of any thread.
  using Cap = std::function<Result<void>(const std::string& gpu, const std::string& folder,
                                         uint64_t bytes)>;

  KernelCaps(const config::KernelCapOptions& options, const Pods& pods, const Gpus& gpus,
             node::EventLog& log)
      : options_(options), pods_(pods), gpus_(gpus), log_(log) {}
  ~KernelCaps() { *alive_ = false; }

  // Before, and where this is never called, the driver cannot. `why`: it cannot, in a sentence;
  // empty: it can, as far as is known.
  void Start(DeviceMaker& maker, Cap cap, std::string why);
  // Makes the driver's caps what the pods and their processes are now. To be called when a process
  // has come, and now and then.
  void Tend(Instant now);

  // Why the driver holds no caps on the GPU; empty: it can, as far as is known.
  std::string WhyNot(const Gpu& gpu) const;
  // Whether the driver holds the pod's cap there, in each container where the pod has processes. If
  // not, `why` says why in a clause; empty where there is nothing to hold.
  struct Held {
    bool by_driver = false;
    std::string why;
  };
  Held Of(const Gpu& gpu, const Pod& pod) const;

 private:
  using Key = std::pair<std::string, std::string>;  // uuid of the GPU, path of the group
  // What is to be; 0: no cap.
  struct Wish {
    PodId pod;
    uint64_t processes = 0;
    bool shared = false;  // with another pod
    uint64_t bytes = 0;
  };
  // What is.
  struct Group {
    uint64_t bytes = 0;      // as the driver last took it
    uint64_t asked = 0;      // of it last
    bool under_way = false;  // the driver is being asked
    Instant failed_at = kNever;
    std::string why;  // it refused
  };
  std::map<Key, Wish> Wishes() const;
  void Ask(const Key& key, Group& group, uint64_t bytes);
  void OnAnswer(const Key& key, uint64_t bytes, const Result<void>& answer);

  const config::KernelCapOptions& options_;
  const Pods& pods_;
  const Gpus& gpus_;
  node::EventLog& log_;
  DeviceMaker* maker_ = nullptr;
  Cap cap_;
  std::string why_ = "no NVIDIA driver is loaded";
  std::map<Key, Group> groups_;
  Instant tended_at_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_KERNEL_CAPS_H_
