// What the control socket's commands mean: JSON requests in, JSON answers out (docs/protocol.md).
// Every field is checked; an answer to a bad one is {"ok": false, "error": sentence, "code": ...}.
// Not thread safe.
#ifndef BATON_BACKEND_CONTROL_H_
#define BATON_BACKEND_CONTROL_H_

#include <functional>
#include <string>
#include <vector>

#include "backend/arbiter.h"

namespace baton::backend {

// What status tells beside the arbiter's.
struct NodeStatus {
  std::string name;
  bool connected = false;
  uint64_t clients = 0;
  int64_t silent_ms = 0;  // since it was last heard of
};
struct DaemonStatus {
  std::string version;
  std::string started;  // RFC 3339, UTC
  config::Mode mode = config::Mode::kEnforce;
  std::vector<std::string> degraded;
  std::vector<NodeStatus> nodes;
};

class Books;

class Control {
 public:
  // Called once, at once or later.
  using Respond = std::function<void(std::string)>;

  // `books`: null where there are none.
  Control(Arbiter& arbiter, node::EventLog& log, Books* books, std::function<DaemonStatus()> daemon)
      : arbiter_(arbiter), log_(log), books_(books), daemon_(std::move(daemon)) {}

  // One request. `node`: whose pods and GPUs it may see and change; "*": all (batond's own socket).
  void Handle(const std::string& line, const std::string& node, const Respond& respond);

 private:
  Arbiter& arbiter_;
  node::EventLog& log_;
  Books* books_;
  std::function<DaemonStatus()> daemon_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_CONTROL_H_
