// The inside of the API server stand-in: api_server.cc has connections and faults, api_answers.cc
// what it answers, api_watch.cc its watches.
#ifndef BATON_TESTS_K8S_STAND_IN_API_SERVER_IMPL_H_
#define BATON_TESTS_K8S_STAND_IN_API_SERVER_IMPL_H_

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/random.h"
#include "net/tls.h"
#include "tests/k8s/stand_in/api_server.h"
#include "tests/k8s/stand_in/certificates.h"
#include "tests/k8s/stand_in/server_end.h"
#include "tests/k8s/stand_in/store.h"

namespace baton::k8s::testing {

inline constexpr Duration kForEver = std::chrono::hours(24);

// With percent escapes resolved; `plus`: '+' is a space.
std::string Decoded(std::string_view text, bool plus);

// A request, understood.
struct Asked {
  std::string method;
  std::string path;
  std::map<std::string, std::string> query;
  std::string type;  // of its body
  std::string body;
  std::string token;
  bool keep = true;

  std::string group;
  Kind* kind = nullptr;  // null: see path
  std::string name_space;
  std::string name;
  std::string subresource;
  std::string verb;

  std::string Query(const std::string& key) const {
    const auto at = query.find(key);
    return at == query.end() ? std::string() : at->second;
  }
  bool dry_run() const { return Query("dryRun") == "All"; }
};

class ApiServer::Impl {
 public:
  explicit Impl(ApiServerOptions options);
  ~Impl();

  struct Connection {
    explicit Connection(int fd) : stream(fd) {}
    ServerEnd stream;
    std::thread thread;
    std::atomic<bool> done{false};
    std::string in;
  };

  void Accept();
  void Serve(Connection& connection);
  bool ReadRequest(Connection& connection, Asked& asked);
  // False: the connection is over.
  bool Answer(Connection& connection, Asked& asked);
  bool Send(Connection& connection, const Asked& asked, const Reply& reply);
  void Understand(Asked& asked);
  Reply Do(const Asked& asked);
  Reply ListOf(const Asked& asked);
  Reply Discover(const Asked& asked);
  bool Watch(Connection& connection, const Asked& asked, const std::optional<Fault>& fault);
  std::optional<Fault> Meet(const Asked& asked);
  // Until then, or until the server ends or faults are cleared. Needs the lock.
  void Sleep(std::unique_lock<std::mutex>& lock, Duration duration);
  void WakeAll() {
    changed_.notify_all();
    for (auto& [name, kind] : store_.kinds()) kind->changed.notify_all();
  }

  const ApiServerOptions options_;
  KeyPair authority_;
  net::TlsIdentity tls_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread accepting_;
  std::list<Connection> connections_;  // of the accepting thread, but for CutConnections()

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ending_ = false;
  bool stalled_ = false;
  uint64_t cleared_ = 0;  // how often ClearFaults() was called
  std::string token_;
  Store store_;
  struct Pages {
    uint64_t version = 0;
    std::vector<StoredPtr> objects;
    size_t next = 0;
  };
  std::map<std::string, Pages> pages_;
  uint64_t page_serial_ = 0;
  Random random_;
  std::vector<Fault> faults_;
  uint64_t faults_met_ = 0;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_STAND_IN_API_SERVER_IMPL_H_
