// Waits while another daemon has what this one needs, and takes its place as soon as that ends: the
// successor in a rollout has started before the old one goes.
#ifndef BATON_NODE_STANDBY_H_
#define BATON_NODE_STANDBY_H_

#include <functional>
#include <string>

#include "base/result.h"

namespace baton::node {

// Calls `take` until it gives something else than kExists, which means that another daemon still
// has the locks; then returns what it gave. Meanwhile `ping` at control_dir/control.sock, unless a
// daemon listens there, is answered with mode "standby", and any other command with kUnavailable;
// systemd is told that the service is ready. False: SIGTERM or SIGINT came.
//
// Called before any thread is started, or with these two signals blocked in all of them.
Result<bool> AwaitTurn(const std::string& control_dir, const std::function<Result<void>()>& take);

}  // namespace baton::node

#endif  // BATON_NODE_STANDBY_H_
