// What teams are guaranteed of the cluster's GPUs, and what they may use at most.
//
// A team is a path ("research/vision"); a quota on it is for the team and all below it. What a team
// uses beyond its guarantee it borrows: from whoever leaves it idle, for as long as they do. Its
// pods are covered by the guarantee in this order: those that a quota further down covers, then the
// higher priority, then by name; each whose GPU share and memory are still left of the guarantee is
// covered, the others are borrowed. So the covered pods never exceed the guarantee, whoever goes of
// the others, and a pod that is larger than what is left is borrowed as a whole.
//
// Pure. Not thread safe.
#ifndef BATON_DEVMGR_PLACEMENT_QUOTA_H_
#define BATON_DEVMGR_PLACEMENT_QUOTA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/preemption.h"
#include "devmgr/placement/what_if.h"

namespace baton::devmgr {

// Of all GPUs together.
struct Amount {
  uint64_t share = 0;  // millionths of a GPU
  uint64_t memory_mib = 0;

  Amount& operator+=(const Amount& other);
  friend bool operator==(const Amount&, const Amount&) = default;
};
// At least what a placement of it takes: memory that is asked for as a part of a GPU is not known
// before there is one.
Amount AskedBy(const PodRequest& request);
Amount TakenBy(const Placement& placement);

struct Quota {
  std::string team;  // a path; "" stands for all teams
  // Absent: that resource is not looked at. Both guarantees absent: nothing is guaranteed.
  std::optional<uint64_t> guaranteed_share;  // millionths of a GPU, at most kShareMax
  std::optional<uint64_t> guaranteed_memory_mib;
  std::optional<uint64_t> ceiling_share;
  std::optional<uint64_t> ceiling_memory_mib;
  static constexpr uint64_t kShareMax = 1'000'000'000'000;  // a million GPUs
  static constexpr uint64_t kMemoryMax = 1ull << 50;        // MiB

  bool guarantees() const { return guaranteed_share || guaranteed_memory_mib; }
  friend bool operator==(const Quota&, const Quota&) = default;
};

// A pod without a team is of this one.
inline constexpr std::string_view kNoTeam = "default";
// Whether `team` is `above` or below it.
bool IsOfTeam(std::string_view team, std::string_view above);

class Quotas {
 public:
  static constexpr size_t kQuotasMax = 10'000;

  Quotas() = default;
  // kInvalid, one sentence: two for one team, a path with an empty part or of more than 16 parts or
  // 256 bytes, a guarantee above the ceiling of the team or of one above it, guarantees that
  // together exceed that of the nearest team above that has one for that resource.
  static Result<Quotas> Make(std::vector<Quota> quotas);

  const std::vector<Quota>& all() const { return quotas_; }  // by path
  // kExhausted where the pod could not be placed though nobody used anything: it asks for more than
  // a ceiling. The sentence says whose, and what to do.
  Result<void> AdmitEver(const PodRequest& request) const;
  // Indices in all(), from the team's own to the topmost.
  std::vector<size_t> Chain(std::string_view team) const;

 private:
  std::vector<Quota> quotas_;
};

// Who uses what, at one moment: a copy of what matters of the cluster's pods. Where there are no
// quotas it costs nothing; else O(pods log pods) to make.
class Ledger {
 public:
  // Keeps a reference to the quotas.
  Ledger(const Quotas& quotas, const Cluster& cluster);

  // A pod has been placed or has gone.
  void Add(const PodRequest& request, const Placement& placement);
  void Remove(std::string_view pod);

  // kExhausted where a team's ceiling does not allow that much more; the sentence says whose and
  // what it uses. Nothing more is always allowed. `without`: of these pods it is taken that they
  // have gone.
  Result<void> Admit(const PodRequest& request, const Amount& more,
                     std::span<const PlacedPod* const> without = {}) const;
  // Whether that much more is within the guarantee of the pod's team, or of one above it; `without`
  // likewise.
  bool Entitled(std::string_view team, const Amount& more,
                std::span<const PlacedPod* const> without = {}) const;
  // Whether a pod that is placed may have to go for one of `team` that is entitled to `more`: it is
  // outside the team that guarantees that (the lowest one), and not covered by a guarantee of its
  // own, that of a team which does not contain `team` too. None where it is not entitled. The test
  // is good until the ledger changes.
  PodTest Reclaimable(std::string_view team, const Amount& more) const;
  // Whether no guarantee is broken if a placed pod goes for one of `team`: none covers it but those
  // that are guaranteed to `team` too.
  PodTest Unprotected(std::string_view team) const;
  // Whether a guarantee covers it.
  bool Covered(std::string_view pod) const;

  // "team research/vision uses 3.5 GPUs, 3.0 of them guaranteed and 0.5 borrowed, of 5.0 at most".
  // Empty where no quota concerns the team.
  std::string Standing(std::string_view team) const;
  Amount UseOf(size_t quota) const { return uses_[quota]; }

 private:
  struct Entry {
    uint32_t team;  // in teams_
    int32_t priority;
    Amount amount;
    mutable uint32_t covered = 0;  // by each of the team's chain: a bit; see covered_
  };
  struct Team {
    std::string path;
    std::vector<size_t> chain;
  };
  static constexpr size_t kChainMax = 32;

  uint32_t TeamIndex(std::string_view path);
  void Cover() const;
  bool Protected(const Entry& pod, std::string_view team) const;
  // The lowest of the team's quotas whose guarantee has room for that; nothing: none has.
  std::optional<size_t> Guarantor(std::string_view team, const Amount& more,
                                  std::span<const PlacedPod* const> without = {}) const;
  // What the quota's teams use without those.
  Amount UseWithout(size_t quota, std::span<const PlacedPod* const> without) const;

  const Quotas& quotas_;
  std::vector<Team> teams_;
  std::map<std::string, uint32_t, std::less<>> team_indices_;
  std::map<std::string, Entry, std::less<>> pods_;
  mutable bool covered_ = false;  // Entry::covered is up to date
  std::vector<Amount> uses_;      // by quota
};

// Which borrowed pods would have to go for a pod that is entitled to its room by a guarantee, with
// least disturbance (devmgr/placement/preemption.h). Only proposed. It is for a pod that is valid,
// not placed and fits nowhere, or that only ceilings of teams above the one that guarantees keep
// out: then what goes is of those teams and brings them below their ceilings. kDenied: it is not
// entitled. kExhausted.
Result<Displacement> Reclaim(const Cluster& cluster, Modes modes, const Ledger& ledger,
                             const PodRequest& request, const DisplacementOptions& options = {});

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_QUOTA_H_
