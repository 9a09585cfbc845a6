// The pods and clients of one GPU, by number: what its token scheduler knows of each. Numbers are
// dense and given out again; records move when one is added.
#ifndef BATON_SCHEDULER_ROSTER_H_
#define BATON_SCHEDULER_ROSTER_H_

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "scheduler/claim_budget.h"
#include "scheduler/views.h"

namespace baton::scheduler {

class Roster {
 public:
  static constexpr uint32_t kNobody = ~0u;
  static constexpr Duration kNoLag = Duration::min();
  using Numbers = boost::container::small_vector<uint32_t, 4>;

  // Aligned so that a decision among many pods touches as few cache lines as can be.
  struct alignas(64) Client {
    // What it says reaches this side.
    enum class Contact : uint8_t {
      kAway,   // not connected: it holds what it held, and wants nothing
      kNew,    // attached, and not heard of since: it may hold what this side does not know of
      kHeard,  // has reported since
    };
    // Its part of the present token.
    enum class Part : uint8_t {
      kNone,       // was not sent it, or has drained
      kSent,       // was sent it, and the last word about it may be lost
      kConfirmed,  // has reported the last word
    };
    ClientId id;
    uint32_t pod = 0;
    Contact contact = Contact::kNew;
    Part part = Part::kNone;
    bool wants = false;          // reported Waiting, or Holding and Draining (more may come)
    bool draining = false;       // its last report said so
    bool hang_reported = false;  // in the present token
    bool told = false;           // was sent `rev` by this side, which knows of no other
    bool words = false;          // has a word of its own, and reads others' (ClientAttached)
    bool ahead = false;          // was sent its part ahead
    bool lost = false;           // has lost its connection since then
    uint64_t seq = 0;            // of its last report
    uint64_t epoch = 0;          // of the last token sent
    uint64_t rev = 0;            // and its revision
    Instant sent_at{};
    Instant joined_at{};          // when it got its part
    Instant done_at{};            // when its work on the GPU should end, as it said
    Instant away_since = kNever;  // until here it is known to have held; since then, nobody watched
    Instant watched_from{};       // while away: since then somebody does again
    Duration unwatched{0};        // part of that in which this daemon was not there either

    bool connected() const { return contact != Contact::kAway; }
    bool heard() const { return contact == Contact::kHeard; }
    bool member() const { return part != Part::kNone; }
    // Wants the token, and has no part of the one that its pod may have.
    bool parked() const { return wants && !member(); }
  };
  struct alignas(128) Pod {
    PodId id;
    uint64_t owner = 0;    // as PodSet's
    bool removed = false;  // forgotten once its token is back
    bool gang = false;
    bool gang_waits = false;  // as its coordinator says
    bool held_back = false;   // stands aside (PodHeldBack)
    bool owed_much = false;   // GangView has it, and `rank`
    bool saturating = false;  // its last token ended with more to do
    struct {
      bool counted = false, later = false, idle = false;
      uint32_t team = 0;
    } want;                        // as Wanting has it
    uint32_t wanting = 0;          // clients that want the token
    uint32_t idle_slot = kNobody;  // of idle priority: its number among those (Line)
    uint32_t rank = GangView::kUnranked;
    Duration first_lag = kNoLag;  // of a gang: what it was owed when it came first, while it does
    Numbers clients;              // in order of attaching
    int64_t burst_ns = 0;         // predicted held time until it runs out of work; 0: not known yet
    int64_t usual_ns = 0;         // what such a hold lasts in the mean, of late; 0: not known yet
    int64_t service_ns = 0;       // longest recent hold, overrun included
    Duration token_most = Duration::max();  // its limit allows no longer one
    Instant rests_since = kNever;
    Instant waiting_since = kNever;
    int64_t held_ns = 0;
    int64_t waited_ns = 0;
    uint64_t grants = 0;
    uint64_t revocations = 0;
    int64_t overrun_ns = 0;  // longest drain of late, after its token had ended; 0: not known yet
    LatencyMet met;
    ClaimBudget claims;

    // It has a limit below the whole GPU.
    bool limited() const { return token_most != Duration::max(); }
    // Of idle priority: it has the GPU while nobody else has work for it.
    bool idle_priority() const { return idle_slot != kNobody; }
    // It is to stand in line whenever it does not hold.
    bool asks() const { return (gang ? gang_waits : wanting > 0) && !removed && !held_back; }
  };

  // kNobody when it is not known.
  uint32_t Find(PodId id) const { return Find(pod_index_, id.value); }
  uint32_t Find(ClientId id) const { return Find(client_index_, id.value); }
  Pod& pod(uint32_t index) { return pods_[index]; }
  const Pod& pod(uint32_t index) const { return pods_[index]; }
  Client& client(uint32_t index) { return clients_[index]; }
  const Client& client(uint32_t index) const { return clients_[index]; }
  // By number; those without an id are free.
  const std::vector<Pod>& pods() const { return pods_; }
  const std::vector<Client>& clients() const { return clients_; }
  bool has_gangs() const { return gangs_ > 0; }

  uint32_t AddPod(PodId id, bool gang);
  // With its clients.
  void RemovePod(uint32_t index);
  uint32_t AddClient(ClientId id, uint32_t pod);
  // No id leads to the client any more, and its pod does not know it. Its record stays until
  // Free().
  void Unlist(uint32_t client);
  void Free(uint32_t client);
  // Fetches the pod's record into the cache.
  void Prefetch(uint32_t pod) const;

 private:
  // For look-up only: never iterated.
  using Index = std::unordered_map<uint64_t, uint32_t>;
  static uint32_t Find(const Index& index, uint64_t id) {
    const auto found = index.find(id);
    return found == index.end() ? kNobody : found->second;
  }

  std::vector<Pod> pods_;
  std::vector<Client> clients_;
  std::vector<uint32_t> free_pods_;
  std::vector<uint32_t> free_clients_;
  Index pod_index_;
  Index client_index_;
  uint32_t gangs_ = 0;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_ROSTER_H_
