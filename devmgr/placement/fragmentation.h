// How much of a node's free GPU time the usual pods could not use: three measures.
//
// Fragmentation is the measure of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent" (USENIX ATC'23). For a pod class m: on a node that
// cannot take it all free GPU time is lost to it; on one that can, what is free on GPUs too full
// for one of its virtual GPUs. A node's fragmentation is that, averaged over the classes by how
// often they come.
//
// Fragmentation asks whether one more pod fits. Remainder looks further: it is the mean of that and
// of what would be left were the node filled up with pods of class m alone, as many as its GPUs,
// processors and memory allow. So half a GPU counts as of little use where pods of 0.47 come, and
// a free GPU beside too few processors before the last of them is gone.
//
// Scarcity weighs that by demand and supply. What is free on a node is worth, for each class of
// pods that may go there, what they could use of it (nine parts by the first measure, one by the
// second), times what the class asks for, divided by all GPUs of the cluster that could ever take
// it: of a model that it accepts, on nodes with as many GPUs, processors and as much memory. So a
// whole node is dear where pods of eight GPUs come, and a model where many name it and few have it.
#ifndef BATON_DEVMGR_PLACEMENT_FRAGMENTATION_H_
#define BATON_DEVMGR_PLACEMENT_FRAGMENTATION_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "devmgr/placement/policy.h"
#include "devmgr/placement/request.h"

namespace baton::devmgr {

// What is free on one node, in coarse units: free rounded down.
struct FreeNode {
  static constexpr size_t kCards = VgpuRequest::kCardsMax;

  size_t cards = 0;
  std::array<int16_t, kCards> share{};   // thousandths of the GPU
  std::array<int16_t, kCards> memory{};  // 64 MiB
  std::array<int16_t, kCards> part{};    // thousandths of the GPU's memory
  int16_t cpu = kEnough;                 // tenths of a core
  int16_t host = kEnough;                // GiB quarters
  uint32_t model = 0;                    // Supply::model of the node
  static constexpr int16_t kEnough = INT16_MAX;

  static int16_t CardMemory(uint64_t mib) { return Cut(mib / 64); }
  static int16_t Cpu(uint64_t milli) { return Cut(milli / 100); }
  static int16_t Host(uint64_t mib) { return Cut(mib / 256); }

 private:
  static int16_t Cut(uint64_t n) { return n < kEnough ? static_cast<int16_t>(n) : kEnough; }
};

// Nodes that are alike as to which pods they could ever take.
struct Supply {
  uint32_t model = 0;               // a number for that of its GPUs
  std::string name;                 // of the model
  size_t cards = 0;                 // usable
  uint32_t card_mib = 0;            // of one GPU
  int16_t cpu = FreeNode::kEnough;  // as in FreeNode
  int16_t host = FreeNode::kEnough;

  friend auto operator<=>(const Supply&, const Supply&) = default;
};

// The pods that usually come, and the nodes that they could go to. Learned from those that came:
// counts by class, of which the kClasses that ask for most are used. Of more than kMemory pods the
// later ones count more. Where the last kWindow pods clearly name other models than those before,
// those count no more than two such windows: so a mix that was wrong, or is over, is forgotten
// while the scarce models are still free. Sizes are not looked at: in a trace they change by the
// hour, and forgetting cost more than it gained. Until some came: pods of a whole GPU, of a half
// and of a quarter.
class Mix {
 public:
  static constexpr size_t kClasses = 64;
  // Classes are looked at in blocks, those that come most first.
  static constexpr size_t kBlock = 16;
  static constexpr size_t kBlocks = kClasses / kBlock;
  // Once so many pods were counted, each counts half.
  static constexpr uint64_t kMemory = 16'384;
  static constexpr size_t kWindow = 256;  // pods
  // Of kScale: the weights of all classes add up to no more.
  static constexpr int32_t kScale = INT16_MAX;
  // Losses are in halves of a thousandth of a GPU x kScale.
  static constexpr int64_t kLossUnit = 2 * int64_t{kScale};
  using Losses = std::array<int64_t, kBlocks>;  // by block

  Mix();
  // Counts the pod. One without virtual GPUs is not counted: all GPU time is lost to it anywhere.
  void Learn(const PodRequest& request);
  // One more node of that kind, or one less. Counts from the next Weigh().
  void Add(const Supply& node);
  void Remove(const Supply& node);
  // Weighs the classes anew where nodes came or went; else nothing.
  void Weigh();
  // Changes when what Fragmentation() says does.
  uint64_t version() const { return version_; }

  // A node's GPUs that are not full, those in the same state together.
  struct Cards {
    int16_t share, memory, part;
    int16_t alike;  // so many
  };
  struct Sum {
    explicit Sum(const FreeNode& free);
    // Of one GPU in the state `from`, of which some is free, another share and memory is free.
    void Change(const Cards& from, const Cards& to);

    size_t kinds = 0;
    int16_t total = 0;  // share
    int16_t cpu, host;
    uint32_t model;
    std::array<Cards, FreeNode::kCards + 1> cards;

   private:
    void Add(const Cards& one);
  };

  // By Rule::kFragmentation, kRemainder or kScarcity, for which it is negative: what is free is
  // worth so much. The time is that of kClasses x (kinds of GPUs that are not full) vector
  // operations: some 100 ns.
  Losses LossesOf(Rule rule, const Sum& node) const;
  // What the losses grow by from `before` to those of `after`, which is the same node with `taken`
  // thousandths of share less. Nothing as soon as it is certain that it is more than `limit`: no
  // class can lose less than it did by more than what was taken, or use more than it could.
  std::optional<int64_t> Growth(Rule rule, const Losses& before, const Sum& after, int64_t taken,
                                int64_t limit) const;

 private:
  using Class = std::tuple<int16_t, int16_t, int16_t, int16_t, int16_t, int16_t>;
  using Row = std::array<int16_t, kClasses>;
  // Models that a pod names, and those that it must not have.
  using Models = std::pair<std::vector<std::string>, std::vector<std::string>>;
  struct Counted {
    uint64_t pods = 0;  // in kOfPod
    std::map<Models, uint64_t> by_models;
  };
  static constexpr uint64_t kOfPod = 64;
  // Kinds of pods by the models that they name, by which it is seen that others come.
  static constexpr size_t kKinds = 9;
  using Kinds = std::array<uint64_t, kKinds>;
  // How much the classes' room counts on nodes of one model.
  struct Worth {
    alignas(64) Row weight{};  // of kScale together
    Losses weights{};          // of each block
    int64_t price = 0;         // what these have to be multiplied by, in kPrice
  };
  static constexpr int64_t kPrice = 1'024;

  // A pod of the window.
  struct Recent {
    Class key;
    Models models;
    size_t kind;
  };

  void Remember(Recent pod);
  void Count(const Recent& pod);
  void Scale(uint64_t part, uint64_t of);
  void Settle();
  void WeighClasses();
  int64_t FragmentationOf(const Sum& node, size_t block) const;
  int64_t RemainderOf(const Sum& node, size_t block) const;
  int64_t ScarcityOf(const Sum& node, size_t block) const;
  int64_t LossOf(Rule rule, const Sum& node, size_t block) const;
  template <Rule rule>
  int64_t Lost(const Sum& node, size_t block) const;

  std::map<Class, Counted> counts_;
  uint64_t learned_ = 0;       // pods
  uint64_t settled_ = 0;       // learned_ when the rows were made
  std::deque<Recent> window_;  // the last pods, which count in full
  Kinds recent_{}, before_{};  // pods in the window, and those before as they count now
  uint64_t version_ = 0;
  std::vector<std::pair<Class, Counted>> used_;  // the classes of the rows
  std::map<Supply, uint64_t> supply_;            // nodes
  bool weighed_ = true;                          // since supply_ changed
  size_t blocks_ = 0;                            // beyond them rows are zero
  Losses weights_{};                             // of each block together
  alignas(64) Row share_{}, memory_{}, part_{}, count_{}, cpu_{}, host_{}, weight_{};
  std::vector<Worth> worth_;  // by Supply::model
  // For Remainder(): share x count, 1 / (count, cpu, host), and how many virtual GPUs of each class
  // go on a GPU of which so many thousandths are free.
  alignas(64) Row together_{};
  alignas(64) std::array<float, kClasses> per_count_{}, per_cpu_{}, per_host_{};
  std::vector<Row> slots_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_FRAGMENTATION_H_
