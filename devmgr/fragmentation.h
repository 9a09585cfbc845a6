// How much of a node's free GPU time the usual pods could not use.
//
// The measure of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
// Fragmentation Gradient Descent" (USENIX ATC'23). For a pod class m: on a node that cannot take it
// all free GPU time is lost to it; on one that can, what is free on cards too full for one of its
// virtual GPUs. A node's fragmentation is that, averaged over the classes by how often they come.
#ifndef BATON_DEVMGR_FRAGMENTATION_H_
#define BATON_DEVMGR_FRAGMENTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "devmgr/request.h"

namespace baton::devmgr {

// What is free on one node, in coarse units: free rounded down.
struct FreeNode {
  static constexpr size_t kCards = VgpuRequest::kCardsMax;

  size_t cards = 0;
  std::array<int16_t, kCards> share{};   // thousandths of the card
  std::array<int16_t, kCards> memory{};  // 64 MiB
  std::array<int16_t, kCards> part{};    // thousandths of the card's memory
  int16_t cpu = kEnough;                 // tenths of a core
  int16_t host = kEnough;                // GiB quarters
  static constexpr int16_t kEnough = INT16_MAX;

  static int16_t CardMemory(uint64_t mib) { return Cut(mib / 64); }
  static int16_t Cpu(uint64_t milli) { return Cut(milli / 100); }
  static int16_t Host(uint64_t mib) { return Cut(mib / 256); }

 private:
  static int16_t Cut(uint64_t n) { return n < kEnough ? static_cast<int16_t>(n) : kEnough; }
};

// The pods that usually come. Learned from those that did: counts by class, of which the most
// frequent kClasses are used. Until some came: pods of a whole card, of a half and of a quarter.
class Mix {
 public:
  static constexpr size_t kClasses = 64;
  // Of kScale: the weights of all classes add up to no more.
  static constexpr int32_t kScale = INT16_MAX;

  Mix();
  // Counts the pod. One without virtual GPUs is not counted: all GPU time is lost to it anywhere.
  void Learn(const PodRequest& request);
  // Changes when what Fragmentation() says does.
  uint64_t version() const { return version_; }

  // Thousandths of a card x kScale. The time is that of kClasses x cards vector operations, some
  // 100 ns.
  int64_t Fragmentation(const FreeNode& node) const;

 private:
  using Class = std::tuple<int16_t, int16_t, int16_t, int16_t, int16_t, int16_t>;
  using Row = std::array<int16_t, kClasses>;
  void Settle();

  std::map<Class, uint64_t> counts_;
  uint64_t learned_ = 0;
  uint64_t settled_ = 0;  // learned_ when the rows were made
  uint64_t version_ = 0;
  size_t used_ = 0;  // rows beyond are zero
  alignas(64) Row share_{}, memory_{}, part_{}, count_{}, cpu_{}, host_{}, weight_{};
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_FRAGMENTATION_H_
