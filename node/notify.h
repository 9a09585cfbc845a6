// Tells systemd how the service is doing, by the datagram protocol of sd_notify(3), without its
// library. Does nothing where $NOTIFY_SOCKET is not set.
#ifndef BATON_NODE_NOTIFY_H_
#define BATON_NODE_NOTIFY_H_

#include <string>

namespace baton::node {

// `state` as sd_notify(3) spells it: "READY=1", "STOPPING=1", "STATUS=...".
void Notify(const std::string& state);
// "RELOADING=1" with the time stamp that Type=notify-reload wants.
void NotifyReloading();

}  // namespace baton::node

#endif  // BATON_NODE_NOTIFY_H_
