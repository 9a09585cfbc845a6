// Who may connect to the pods' socket: bounds in all, by user and by Kubernetes pod, so that what
// one has costs only itself. Also connections that have said no Hello yet, of which only the newest
// are waited for.
// No I/O, no clock. Not thread safe.
#ifndef BATON_NODE_ADMISSION_H_
#define BATON_NODE_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "node/process.h"
#include "node/refusals.h"

namespace baton::node {

struct TenantLimits {
  size_t clients_max = 4096;           // connections and processes still watched
  size_t clients_per_uid = 1024;       // so one user cannot take all of them
  size_t clients_per_pod = 512;        // the same for a Kubernetes pod, whatever its user
  uint32_t frames_per_second = 20000;  // of all processes of a pod, sustained; more is read later
  uint32_t frames_burst = 200000;
  size_t unsent_frames_max = 64;  // a client that leaves more unread is disconnected
  Duration hello_timeout = std::chrono::seconds(5);
  Duration drain_timeout = std::chrono::seconds(10);  // how long NVML may list a dead process
};

// How many frames may yet be read, of one connection or of a pod's together.
class FrameRate {
 public:
  FrameRate(const TenantLimits& limits, Instant now)
      : per_second_(limits.frames_per_second),
        burst_(limits.frames_burst),
        left_(burst_),
        at_(now) {}

  // Whether one may be read at `now` (never before an earlier call's).
  bool May(Instant now);
  void Read() { --left_; }

 private:
  const int64_t per_second_;
  const int64_t burst_;
  int64_t left_;
  Instant at_{};  // what was earned until here is in left_
};

// Those of pods, which their tickets stand for.
class FrameRates {
 public:
  explicit FrameRates(const TenantLimits& limits) : limits_(limits) {}
  // The same for the same ticket, while anybody has it.
  std::shared_ptr<FrameRate> Of(std::string_view ticket, Instant now);

 private:
  const TenantLimits limits_;
  std::map<std::string, std::weak_ptr<FrameRate>, std::less<>> of_;
};

class Admission {
 public:
  // Hooks say Hello at once: more connections of one owner are not waited for.
  static constexpr size_t kSilentMax = 64;
  struct Refusal {
    std::string text;     // for the client
    std::string warning;  // for the operator; empty: it was said of late
  };

  explicit Admission(const TenantLimits& limits) : limits_(limits) {}

  // Whose bound a process counts for, for people too: its Kubernetes pod's, or else its user's.
  static std::string OwnerOf(const Peer& peer);
  // Why one more may not connect, while there are `clients` in all.
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
  Refusals refusals_;
};

}  // namespace baton::node

#endif  // BATON_NODE_ADMISSION_H_
