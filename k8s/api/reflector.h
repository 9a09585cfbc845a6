// Keeps looking at one kind of objects: list, then watch from there with bookmarks, resume where a
// watch ends, list again after 410 or an error in the stream, with jittered backoff.
#ifndef BATON_K8S_API_REFLECTOR_H_
#define BATON_K8S_API_REFLECTOR_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/time.h"
#include "k8s/api/client.h"

namespace baton::k8s {

// What it calls, from its own thread, one after the other. After a list: for each object that is
// new or has another resourceVersion Changed(), for each that is gone Gone() with its name, uid and
// version (what else was known of it the sink knows); then Synced(). An object that was deleted and
// made again in between is Gone() and then Changed(): they have different uids. Objects come
// without their metadata.managedFields, and as `list.project` leaves them.
struct ReflectorSink {
  std::function<void(Json object)> changed;
  std::function<void(Json object)> gone;
  std::function<void()> synced;  // the whole list has been told
  std::function<void(const std::string& why)>
      trouble;  // a sentence, once for each kind in an outage
};

// Whether such a sentence says that the API server has no such kind, or keeps it from this program;
// else it may come back.
bool IsAbsent(const std::string& trouble);
// Logs such a sentence: as a warning, but of a watch of which nothing was heard.
void LogTrouble(std::string_view plural, const std::string& trouble);

struct ReflectorOptions {
  std::string name_space;  // empty: all
  ListOptions list;
  // list.from_cache: lists come from the API server's watch cache, never older than what was seen.
  Duration silence = std::chrono::seconds(90);  // of a watch, after which it counts as stalled
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(30);
};

class Reflector {
 public:
  // Starts a thread. `client` outlives it.
  Reflector(Client& client, Resource resource, ReflectorOptions options, ReflectorSink sink);
  // Ends its call, soon, and joins. Nothing is told any more.
  ~Reflector();

 private:
  void Run();
  struct State;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_REFLECTOR_H_
