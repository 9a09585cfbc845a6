// An API server in the test's process, over HTTP or HTTPS on loopback, which does wrong on demand
// what a healthy one will not: refuse, be slow, cut, stall, forget, answer nonsense.
//
// It knows the common kinds, SharePods, GpuNodes and what CustomResourceDefinitions add; its
// approximations stand in store.h. No admission, no garbage collection, no controllers.
//
// Thread safe. Its connections have a thread each.
#ifndef BATON_TESTS_K8S_STAND_IN_API_SERVER_H_
#define BATON_TESTS_K8S_STAND_IN_API_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "k8s/api/cluster_config.h"
#include "k8s/api/object.h"

namespace baton::k8s::testing {

struct ApiServerOptions {
  bool tls = false;
  std::string token = {};                               // that it wants to see; empty: none
  Duration bookmarks = std::chrono::milliseconds(200);  // between two of a watch
  size_t history_max = 50'000;  // changes of a kind that watches may begin from
  // A bound pod that is deleted stays with its deletionTimestamp until it is deleted with grace 0,
  // as a kubelet does. false: it is gone at once.
  bool graceful = true;
  uint64_t seed = 1;  // of faults by chance
};

enum class FaultKind : uint8_t {
  kAnswer,      // `status` and so on, without doing what was asked
  kSlow,        // does it after `delay`
  kHang,        // says nothing until ClearFaults()
  kCutBefore,   // closes the connection without doing it
  kCutAfter,    // does it, and closes the connection without an answer
  kHalfBody,    // does it, and closes the connection in the middle of the answer
  kMalformed,   // does it, and answers what is no JSON; in a watch, after `events`
  kWrongType,   // does it, and answers a page of HTML
  kCutWatch,    // closes a watch after `events`, in the middle of the next
  kEndWatch,    // ends a watch as a server does, after `events`
  kStallWatch,  // after `events` a watch says nothing more, bookmarks included
  kLateAnswer,  // does it, and answers after `delay`
};

struct Fault {
  FaultKind kind = FaultKind::kAnswer;
  // Whom it meets: "get", "list", "watch", "create", "update", "patch", "apply", "delete"; empty:
  // all. kCutWatch and so on meet watches only, kHang and the like before they have begun.
  std::string verb = {};
  std::string path = {};  // is part of the request's path: "/pods/a/binding", "/leases"; empty: all
  std::string body = {};  // is part of the request's body; empty: all
  uint32_t skip = 0;      // so many pass first
  uint32_t times = 1;     // then it meets so many; 0: all
  uint32_t one_in = 1;    // by chance
  int status = 500;
  std::string reason = {};   // empty: by status
  std::string message = {};  // of the Status
  uint32_t retry_after_s = 0;
  Duration delay{0};    // kSlow, kLateAnswer
  uint32_t events = 0;  // of a watch that come through first
};

class ApiServer {
 public:
  explicit ApiServer(ApiServerOptions options = {});
  // Ends its watches and answers.
  ~ApiServer();

  std::string url() const;  // "http://127.0.0.1:12345"
  // With the authority of its certificate, and its token.
  ClusterConfig config() const;

  // Faults are tried in the order in which they were added; the first that meets a request is it.
  void AddFault(Fault fault);
  void ClearFaults();
  uint64_t faults_met() const;
  // From now on a PodDisruptionBudget keeps that pod from being evicted, or no more.
  void SetBudget(const ObjectName& pod, bool kept);
  // 410 to everything older than now.
  void Compact();
  void CutConnections();
  void SetToken(const std::string& token);
  // Everything hangs, until it does no more: an API server behind a network that swallows packets.
  void Stall(bool stalled);

  // Kinds beside those that it knows. Unserve: 404, as before its definition was made.
  void Serve(const Resource& resource, bool status = true);
  void Unserve(const Resource& resource);
  // From now on fields of these names are dropped where such an object is written, without a word,
  // as by an API server whose feature gate for them is off.
  void DropFields(const Resource& resource, std::set<std::string> fields);

  // Past the API: no checks, no faults, status and all; watches see it. Put() creates or replaces,
  // and fills in what is missing (kind, namespace, uid).
  Json Put(const Resource& resource, Json object);
  bool Remove(const Resource& resource, const ObjectName& name);
  std::optional<Json> Get(const Resource& resource, const ObjectName& name) const;
  std::vector<Json> List(const Resource& resource) const;
  uint64_t version() const;

  // Requests by verb and plural, and subresource: "list pods", "create pods/binding". Lists that
  // may come from the watch cache (with a resourceVersion) also as "cached list pods".
  std::map<std::string, uint64_t> counts() const;
  uint64_t count(const std::string& verb_plural) const;

  // Whether `predicate` (which may call all of these) comes true within `timeout`.
  bool WaitFor(const std::function<bool()>& predicate,
               Duration timeout = std::chrono::seconds(20)) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_STAND_IN_API_SERVER_H_
