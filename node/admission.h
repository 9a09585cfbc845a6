// Who may connect to the pods' socket: bounds in all, by user and by Kubernetes pod, so that what
// one has costs only itself. Also connections that have said no Hello yet, of which only the newest
// are waited for.
// No I/O, no clock. Not thread safe.
#ifndef BATON_NODE_ADMISSION_H_
#define BATON_NODE_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"
#include "config/options.h"
#include "node/process.h"
#include "node/rate.h"
#include "node/refusals.h"

namespace baton::node {

struct TenantLimits {
  size_t clients_max = 4096;      // connections and processes still watched
  size_t clients_per_uid = 1024;  // so one user cannot take all of them
  size_t clients_per_pod = 512;   // the same for a Kubernetes pod, whatever its user
  // Read of all processes of a pod together, in the long run; twice as many at once. The rest is
  // read later.
  uint32_t frames_per_second = 10000;
  // Accepted of one owner (Admission::OwnerOf), in the long run; as many as clients_per_uid at
  // once.
  uint32_t connects_per_second = 100;
  size_t unsent_frames_max = 64;  // a client that leaves more unread is disconnected
  Duration hello_timeout = std::chrono::seconds(5);
  Duration drain_timeout = std::chrono::seconds(10);  // how long NVML may list a dead process
};

TenantLimits LimitsOf(const config::Options& options);

class Admission {
 public:
  // Hooks say Hello at once: more connections of one owner are not waited for.
  static constexpr size_t kSilentMax = 64;
  struct Refusal {
    std::string text;     // for the client
    std::string warning;  // for the operator; empty: it was said of late
    bool flood = false;   // its owner connects too often
  };

  explicit Admission(const TenantLimits& limits)
      : limits_(limits),
        connects_(limits.connects_per_second, int64_t{10} * limits.connects_per_second) {}

  // Whose bound a process counts for, for people too: its Kubernetes pod's, or else its user's.
  static std::string OwnerOf(const Peer& peer);
  // Why one more may not connect now, while there are `clients` in all.
  std::optional<Refusal> Refuse(const Peer& peer, size_t clients, Instant now);
  void Enter(const std::string& owner) { ++count_[owner]; }
  // "" is nobody.
  void Leave(const std::string& owner);

  // The owner's client `number` has said no Hello yet.
  void Silent(const std::string& owner, uint64_t number) { silent_[owner].push_back(number); }
  // It has, or is gone.
  void NotSilent(const std::string& owner, uint64_t number);
  // Whom to close where one more connects.
  std::optional<uint64_t> TooSilent(const std::string& owner) const;

  void Clear();
  // Which bounds are reached, and how many were refused of late; empty: none.
  std::string Trouble(Instant now) const { return refusals_.Trouble(now); }

 private:
  const TenantLimits limits_;
  std::map<std::string, size_t> count_;
  std::map<std::string, std::deque<uint64_t>> silent_;  // oldest first
  Rates connects_;                                      // of each owner
  Refusals refusals_;
};

}  // namespace baton::node

#endif  // BATON_NODE_ADMISSION_H_
