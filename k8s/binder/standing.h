// What teams weigh and have used, as the central batond's standing says it (GET /api/v1/standing).
#ifndef BATON_K8S_BINDER_STANDING_H_
#define BATON_K8S_BINDER_STANDING_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/placement/team_order.h"
#include "net/http_client.h"

namespace baton::k8s {

// kInvalid: it is no answer of that kind.
Result<devmgr::Standings> ReadStanding(std::string_view body);

struct StandingOptions {
  std::string url;              // of the daemon: "https://baton-central.baton-system:7412"
  std::string token_file = {};  // of its API; or none
  std::string ca_file = {};     // by which its certificate is trusted; or none: the system's
  Duration every = std::chrono::seconds(30);
  // An older answer is dropped; then only what runs counts.
  Duration age_max = std::chrono::minutes(10);
};

// Asks now and then, in a thread of its own. Thread safe.
class StandingSource {
 public:
  // `told` is called by that thread; nothing where what was told last is too old. Errors as of
  // net::HttpClient::Make().
  static Result<std::unique_ptr<StandingSource>> Start(StandingOptions options,
                                                       std::function<void(devmgr::Standings)> told);
  ~StandingSource();

  // Seconds since the last answer; nothing: there was none.
  std::optional<double> age_s() const;

 private:
  StandingSource(StandingOptions options, std::unique_ptr<net::HttpClient> client,
                 std::function<void(devmgr::Standings)> told);
  void Work();
  Result<devmgr::Standings> Ask();

  const StandingOptions options_;
  const std::unique_ptr<net::HttpClient> client_;
  const std::function<void(devmgr::Standings)> told_;
  std::atomic<int64_t> answered_ns_ = 0;  // when, by MonotonicNow(); 0: never
  std::thread worker_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_STANDING_H_
