// Everything that can be configured, for batond and for baton-frontend: one TOML file, of which
// each reads what concerns it. Each part declares its own options; here they are put together. The
// defaults below hold where the file says nothing. Unknown keys and values out of range are errors
// that name file and line.
//
// Pods in the file ([[pod]]) are created at start. When both the file and `baton set` speak about
// a pod, the later word wins: what `baton set` changed stays, over restarts too, until the file's
// entry for that pod changes; from then on the file's entry holds. A pod that leaves the file is
// deleted. What a reload (SIGHUP) applies: pods, flavors, gpus that are new, log_level, zmq.nodes,
// and the contents of teams.file. The rest needs a restart, and the log says so.
#ifndef BATON_CONFIG_OPTIONS_H_
#define BATON_CONFIG_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/log_format.h"
#include "base/result.h"
#include "config/page_options.h"
#include "devmgr/inventory.h"
#include "devmgr/placement/options.h"
#include "ledger/options.h"
#include "net/link_options.h"
#include "net/options.h"
#include "policy/share.h"
#include "scheduler/options.h"
#include "spec/flavors.h"
#include "spec/pod_request.h"
#include "spec/users.h"
#include "teams/options.h"

namespace baton::config {

enum class Mode : uint8_t {
  kEnforce,  // launches wait for the token
  kObserve,  // everything is metered, nothing waits
};

// A [[pod]] of the file.
struct ConfiguredPod {
  spec::PodRequest request;  // complete
  // Changes where the file's entry says something else; kept in pods.json.
  std::string fingerprint;
};

// Of batond's and baton-frontend's own process.
struct ServerOptions {
  // Where baton.sock (for pods) and control.sock (for the operator) are. Its folder pods
  // holds baton.sock alone, for containers to mount.
  std::string socket_dir = "/run/baton";
  // Where control.sock is instead; empty: socket_dir. Where pods are containers that see all of
  // socket_dir, root in one of them could open it there.
  std::string control_dir;
  // Pods, accounts and the last holders, kept over restarts.
  std::string state_dir = "/var/lib/baton";
  // One lock file per GPU: no two daemons of a machine ever manage the same GPU, whatever their
  // state_dir. Share it (hostPath) between containers of one machine. Only root may write to it
  // and to what it is in: who can open a lock can keep a daemon from starting. So it is not in
  // /run/lock, where everybody makes folders, and not in socket_dir, which pods see.
  std::string lock_dir = "/run/baton-locks";
  // trace, debug, info, warn, error. A change is applied at once by SIGHUP.
  std::string log_level = "info";
  // observe: meter everything and gate nothing, to see what sharing would do.
  Mode mode = Mode::kEnforce;
  // Whether this batond manages the GPUs of its own machine: yes, no, or auto, which means yes
  // unless zmq.listen is set (central: every node has a baton-frontend, this machine too).
  std::string local_gpus = "auto";
  // Processes attached or watched at once: in all, per user, and per pod. A process in a pod of
  // Kubernetes counts for that, not for its user, whom all pods may have in common.
  uint32_t clients_max = 4096;
  uint32_t clients_per_uid = 1024;
  uint32_t clients_per_pod = 512;
  // Frames that are read of a pod's processes together, in the long run; twice as many at once.
  // The rest is read later. A process that takes turns a thousand times a second sends 2 000.
  uint32_t frames_per_second = 10'000;
  // How often a user's or a pod's processes may connect, in the long run; ten times as often at
  // once. More are refused, and try again by themselves.
  uint32_t connects_per_second = 100;
  // Idle processors of this machine may take so long to wake up, while the daemon runs; 0: as the
  // system has it (node/wake_latency.h).
  Duration cpu_dma_latency{0};
};

// Of the daemon's log, which goes to stderr. Its level is server.log_level.
struct LogOptions {
  LogFormat format = LogFormat::kText;
};

// What batond says to hooks; with the scheduler's backlog.
struct HookOptions {
  // Idle time after which a hook gives its token back, or sooner where its program's pauses are
  // longer. Shorter frees the GPU earlier, longer spares programs with small gaps a hand-off.
  Duration idle = std::chrono::microseconds(350);
  // Hooks report at least this often.
  Duration heartbeat = std::chrono::milliseconds(200);
  // A hook whose mode is "open" launches without a token after this long without a backend.
  Duration open_after = std::chrono::seconds(5);
};

// Of this machine, for baton-frontend and for a batond with an upstream.
struct NodeOptions {
  std::string name;        // empty: the host's name
  std::string socket_dir;  // empty: server.socket_dir
};

// Of pods with swap. Keys of [memory].
struct SwapOptions {
  // Memory of the host that the pods of a node may have pinned, in MiB; 0: half of this machine's.
  uint32_t budget_mib = 0;
  // The part of the time in which memory may move: who was given room keeps it for as long as the
  // moving is worth.
  policy::Share fraction{100'000};
  // A pod without work for so long has all of its memory moved to the host, its request too, though
  // nobody needs the room now; 0: never.
  Duration idle_release{0};
};

// Of memory caps that the driver holds too, for the processes of a container. Keys of [memory].
struct KernelCapOptions {
  // Where the unified hierarchy of cgroups is mounted; empty: none are set.
  std::string cgroup_root = "/sys/fs/cgroup";
  // The driver counts what contexts and code take as well: so many MiB more than the pod's cap for
  // each of its processes.
  uint32_t process_mib = 1024;
};

// By sections of the file. What a part of Baton is configured with it declares itself.
struct Options {
  ServerOptions server;
  LogOptions log;
  // Requests on one GPU may add up to this (1.0 GPUs), where it is shared by turns. A key of
  // [scheduler].
  policy::Share overcommit = policy::kWhole;
  // Memory cap of pods that ask for none, as a part of each of their GPUs; 0: none. A key of
  // [memory].
  policy::Share default_cap;
  // Of each GPU, kept from pods that share it. A key of [memory].
  uint32_t memory_reserve_mib = 0;
  SwapOptions swap;
  KernelCapOptions kernel_caps;
  scheduler::SchedulerOptions scheduler;
  devmgr::PlacementOptions placement;
  HookOptions hook;
  net::LinkOptions zmq;
  ledger::LedgerOptions ledger;
  teams::TeamsOptions teams;
  net::HttpOptions http;  // the web page, the API and /metrics, all of them read-only
  PageOptions page;
  net::UpstreamOptions upstream;
  NodeOptions node;
  spec::UsersOptions users;
  spec::Flavors flavors;

  // NVIDIA's where NVML does not list them, or only some are to be used (none: NVML's); and those
  // of other vendors, which are beside them.
  std::vector<devmgr::GpuInfo> gpus;
  std::vector<ConfiguredPod> pods;
};

// Reads and checks a file. Errors: "file:line: what is wrong; what is accepted".
Result<Options> LoadOptions(const std::string& path);
// The same for text; `name` stands for the file in errors.
Result<Options> ParseOptions(const std::string& text, const std::string& name);
// What must hold between options; after command-line flags were applied.
Result<void> CheckOptions(const Options& options);
// The effective options as a commented TOML file that LoadOptions() accepts.
std::string PrintOptions(const Options& options);
// node.name, or the host's.
std::string NodeName(const Options& options);
// Where the operator's socket is: server.control_dir, else server.socket_dir.
const std::string& ControlDir(const Options& options);

}  // namespace baton::config

#endif  // BATON_CONFIG_OPTIONS_H_
