// What the control socket's commands mean: JSON requests in, JSON answers out (docs/protocol.md).
// Every field is checked; an answer to a bad one is {"ok": false, "error": sentence, "code": ...}.
// Not thread safe.
#ifndef BATON_BACKEND_CONTROL_H_
#define BATON_BACKEND_CONTROL_H_

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/arbiter.h"
#include "backend/caller.h"
#include "backend/leases.h"
#include "backend/slices.h"
#include "node/control_socket.h"
#include "spec/flavors.h"
#include "spec/users.h"

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
  config::PageOptions page;
  std::optional<bool> upstream_up;  // nothing where usage is sent nowhere
};

class Books;
class Request;

class Control {
 public:
  // Of the loop's time all that is made in steps takes at most one part in so many.
  static constexpr int kSlicesPart = 2;
  // Called once, at once or later.
  using Respond = node::ControlSocket::Respond;

  // `books`: null where there are none.
  Control(boost::asio::io_context& io, Arbiter& arbiter, Leases& leases, node::EventLog& log,
          Books* books, const spec::UsersOptions& users, const spec::Flavors& flavors,
          std::function<DaemonStatus()> daemon);

  // One request.
  void Handle(const std::string& line, const Caller& caller, const Respond& respond);
  // Those of the configuration file, and writes down which are made by it.
  void ApplyConfiguredPods(const std::vector<config::ConfiguredPod>& configured);
  // One of a user, as the kernel says.
  void HandleOfUser(const std::string& line, uint32_t uid, const Respond& respond);

 private:
  void TellStatus(const std::string& node, const Respond& respond);
  // Where the command changes something: `respond`, which first writes down what it has changed.
  Respond WriteDown(const std::string& command, const nlohmann::json& request, const Caller& caller,
                    Respond respond);

  // The commands about leases. False: it is none of them.
  bool HandleLease(const std::string& command, Request& request, const Caller& caller,
                   const Respond& respond);

  Arbiter& arbiter_;
  Leases& leases_;
  node::EventLog& log_;
  Books* books_;
  const spec::UsersOptions& users_;
  const spec::Flavors& flavors_;
  std::function<DaemonStatus()> daemon_;
  // Who asked for the status of a node of which the making has not begun: all are told the same.
  std::map<std::string, std::vector<Respond>> asked_;
  Slices slices_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_CONTROL_H_
