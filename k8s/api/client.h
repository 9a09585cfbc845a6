// A client of the Kubernetes API. Calls block, for no longer than their timeout (a list: for each
// of its pages); connections are kept and used again.
//
// What is safe to repeat is repeated: after a connection that broke, 429 (after Retry-After), 500,
// 502, 503 and 504, with jittered exponential backoff, until the call's timeout is over. GET, PUT
// with a resourceVersion, apply and DELETE are (one that was done while its answer was lost says
// conflict() or not_found()); of POST and the other patches only 429 and a connection that could
// not be made. After 401 any call is repeated once, with the token read again. Every answer is
// bounded, and may be anything: one that is no JSON object is an ApiError (reason "BadAnswer"; of
// status 0, as if it had not come, where the server said that all was well). An eviction that a
// PodDisruptionBudget does not allow (429 too) is not repeated.
//
// Thread safe.
#ifndef BATON_K8S_API_CLIENT_H_
#define BATON_K8S_API_CLIENT_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/time.h"
#include "k8s/api/cluster_config.h"
#include "k8s/api/object.h"

namespace baton::k8s {

struct ClientOptions {
  std::string user_agent = "baton-k8s";
  std::string field_manager = "baton";          // owner of the fields that we write
  Duration timeout = std::chrono::seconds(30);  // of a call, or page, with all its repetitions
  Duration attempt_timeout = std::chrono::seconds(10);
  uint32_t connections_max = 16;  // beside those of watches; further calls wait
  Duration backoff_min = std::chrono::milliseconds(50);
  Duration backoff_max = std::chrono::seconds(10);
  size_t answer_bytes_max = size_t{64} << 20;
  uint64_t seed = 0;  // of the jitter; 0: random
};

enum class PatchKind : uint8_t { kJson, kMerge, kStrategic };

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  uint32_t page = 500;   // objects per request; the list is followed to its end
  std::stop_token stop;  // ends this list or watch soon, with status 0
  // From the API server's watch cache, which is indexed (pods by node) and spares etcd, and may be
  // a moment behind. Of lists; they are in one page then.
  bool from_cache = false;
  // With from_cache: no older than that version; empty: whatever is there.
  std::string not_older_than = {};
  // Each object is passed through it as it comes, before the next page is asked for; null: as it
  // is.
  std::function<void(Json& object)> project = {};
};

class Client {
 public:
  // Reads certificates. kInvalid, kNotFound: what is wrong with them.
  static Result<std::unique_ptr<Client>> Make(ClusterConfig config, ClientOptions options = {});
  ~Client();

  ApiResult<Json> Get(const Resource& resource, const ObjectName& name);
  // {"items": [...], "metadata": {"resourceVersion"}} of all pages; each item has kind and
  // apiVersion. `name_space` empty: all.
  ApiResult<Json> List(const Resource& resource, std::string_view name_space,
                       const ListOptions& options = {});
  // `subresource`: "binding", "eviction"; empty: the object itself.
  ApiResult<Json> Create(const Resource& resource, const ObjectName& name, const Json& object,
                         std::string_view subresource = {});
  // PUT: where the object has a resourceVersion that is no more current, conflict().
  ApiResult<Json> Update(const Resource& resource, const ObjectName& name, const Json& object,
                         std::string_view subresource = {});
  ApiResult<Json> Patch(const Resource& resource, const ObjectName& name, PatchKind kind,
                        const Json& patch, std::string_view subresource = {});
  // Server-side apply of the fields in `object`, which has apiVersion, kind and name. `manager`
  // empty: the options'. `force`: takes fields that others own.
  ApiResult<Json> Apply(const Resource& resource, const ObjectName& name, const Json& object,
                        std::string_view subresource = {}, bool force = true,
                        std::string_view manager = {});
  // What Apply() with force would answer; nothing is written.
  ApiResult<Json> DryApply(const Resource& resource, const ObjectName& name, const Json& object,
                           std::string_view manager = {});
  // `uid`, `version`: only if it is still that object, as it was then; empty: whichever. `grace` in
  // seconds, -1: the object's.
  ApiResult<Json> Delete(const Resource& resource, const ObjectName& name,
                         std::string_view uid = {}, int64_t grace = -1,
                         std::string_view version = {});
  // Any GET: "/version".
  ApiResult<Json> GetPath(std::string_view target);

  // A watch from `resource_version` on, on a connection of its own; blocks. `on_event` gets type
  // (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR) and object, and returns whether to go on. Returns
  // when the server ends the watch, on an error, on silence longer than `silence` (the server
  // sends bookmarks about once a minute), or soon after Stop(). Success, and status 0 but for
  // reason "BadAnswer": it may be resumed from the last version seen. An ERROR event is an
  // ApiError too, as its Status says: gone() where the version is too old.
  using OnEvent = std::function<bool(std::string_view type, Json object)>;
  ApiResult<void> Watch(const Resource& resource, std::string_view name_space,
                        const ListOptions& options, std::string_view resource_version,
                        Duration silence, const OnEvent& on_event);

  // Every call and watch, now and later, ends soon with status 0. From any thread.
  void Stop();
  bool stopped() const;

  const ClusterConfig& config() const;
  const ClientOptions& options() const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_CLIENT_H_
