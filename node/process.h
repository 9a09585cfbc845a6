// What the kernel tells about processes: the facts that a tenant cannot forge. A process is named
// by its pid and its start time, so a pid that was given out again is somebody else.
// Thread safe: no state.
#ifndef BATON_NODE_PROCESS_H_
#define BATON_NODE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace baton::node {

// The peer of a unix socket, as the kernel knows it.
struct Peer {
  pid_t pid = 0;
  uint64_t start_time = 0;  // clock ticks since boot, /proc/PID/stat field 22
  uid_t uid = 0;
  uint64_t image = 0;          // see ImageOf()
  std::string kubernetes_pod;  // uid, by its cgroup (node/pod_cgroup.h); empty: of none
  std::string group;           // of its container, see ContainerGroupIn(); empty: none
  UniqueFd pidfd;              // readable once the whole process is gone
};

// Credentials of the process that connected `socket`. The pidfd names that very process: from the
// kernel where it can tell (SO_PEERPIDFD), else opened by pid and checked against the start time.
// kDenied when the process is not visible from here (another pid namespace) or gone already.
Result<Peer> PeerOf(int socket);

// Field 22 of /proc/PID/stat. kNotFound when there is no such process.
Result<uint64_t> StartTime(pid_t pid);
// Something that changes when the process calls exec: where its code and its stack lie. 0 when the
// kernel does not tell.
uint64_t ImageOf(pid_t pid);
// A pidfd of that very process; none when it is gone. A zombie is.
UniqueFd OpenPidfd(pid_t pid, uint64_t start_time);
// SIGKILL for the process behind `pidfd`.
void Kill(int pidfd);

// A process as an operator may want to know it. Its own words are bounded, and not to be believed:
// the command and the ticket.
struct ProcessFacts {
  uint64_t start_time = 0;
  uid_t uid = 0;
  std::string user;            // the uid's name here; empty: it has none
  std::string command;         // /proc/PID/comm
  std::string container;       // see ContainerIn(); empty: in none
  std::string kubernetes_pod;  // uid; empty: of none
  std::string ticket;          // BATON_TICKET of its environment at exec; empty: none, or not ours
                               // to read
};
// kNotFound when there is no such process.
Result<ProcessFacts> FactsOf(pid_t pid);

// The kernel's id of this boot, 36 characters. Pids and start times mean nothing across boots.
std::string BootId();

}  // namespace baton::node

#endif  // BATON_NODE_PROCESS_H_
