// Everything that can be configured, for batond and for baton-frontend: one TOML file, of which
// each reads what concerns it. The defaults below hold where the file says nothing. Unknown keys
// and values out of range are errors that name file and line.
//
// Pods in the file ([[pod]]) are created at start. When both the file and `baton set` speak about
// a pod, the later word wins: what `baton set` changed stays, over restarts too, until the file's
// entry for that pod changes; from then on the file's entry holds. A pod that leaves the file is
// deleted. What a reload (SIGHUP) applies: pods, gpus that are new, log_level, zmq.nodes, and the
// contents of teams.file. The rest needs a restart, and the log says so.
#ifndef BATON_CONFIG_OPTIONS_H_
#define BATON_CONFIG_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"
#include "devmgr/placement/policy.h"
#include "ledger/ledger.h"
#include "net/options.h"
#include "scheduler/token_scheduler.h"
#include "spec/pod_request.h"

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

struct Options {
  struct {
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
  } server;

  // Where pods go that do not name their GPUs (devmgr/placement/policy.h).
  struct {
    devmgr::PlacementPolicy policy;
    // TOML that says how models are divided by MIG, beside what is built in
    // (devmgr/modes/mig_templates.h); empty: none.
    std::string mig_templates;
  } placement;

  struct {
    // Idle time after which a hook gives its token back, or sooner where its program's pauses are
    // longer. Shorter frees the GPU earlier, longer spares programs with small gaps a hand-off.
    Duration idle = std::chrono::microseconds(350);
    // Hooks report at least this often.
    Duration heartbeat = std::chrono::milliseconds(200);
    // A hook whose mode is "open" launches without a token after this long without a backend.
    Duration open_after = std::chrono::seconds(5);
  } hook;

  struct {
    // Requests on one GPU may add up to this many millionths (1.0 GPUs), where it is shared by
    // turns.
    uint32_t overcommit = policy::kWhole;
    scheduler::SchedulerOptions scheduler;  // its `backlog` is [hook] backlog of the file
  } scheduler;

  struct {
    // batond: where nodes' frontends connect; empty: nowhere. Without a secret key only loopback
    // addresses may be listened on.
    std::string listen;
    // This program's key pair; made by `baton keygen`.
    std::string secret_key_file;
    // batond: node name → the node's public key. Others are refused.
    std::map<std::string, std::string> nodes;
    // baton-frontend: where batond listens, and its public key (empty: loopback without keys).
    std::string connect = "tcp://127.0.0.1:7411";
    std::string server_public_key;
    Duration heartbeat = std::chrono::milliseconds(200);
    // Silence of the other side after which the link counts as cut.
    Duration lost_after = std::chrono::seconds(1);
  } zmq;

  struct {
    // Where the books are: "sqlite:PATH", or what libpq takes ("postgresql://..."). Empty: SQLite
    // in state_dir. "none": no books.
    std::string database;
    // How often what was used is booked. What a crash interrupts is booked after it.
    Duration every = std::chrono::seconds(10);
    ledger::Retention retention;
    // Price of a GPU-hour by model, as NVML names it; "" for all others.
    std::map<std::string, double> prices;
    std::string currency = "EUR";
  } ledger;

  struct {
    std::string file;  // TOML (teams/tree.h); empty: teams do not matter
    // Pods of a team that the file does not name, nor one below it: "warn" or "refuse".
    std::string unknown = "warn";
  } teams;

  // Where the web page, the API and /metrics are served, all of them read-only.
  struct {
    std::string listen = "127.0.0.1:7412";  // empty: nowhere
    // All three are needed where others than this machine can connect.
    std::string token_file;
    std::string certificate_file;
    std::string key_file;
    // On loopback: names of a proxy in front of it, by which browsers may call it too.
    std::vector<std::string> hosts;
  } http;

  // Another batond that keeps the books of the whole cluster and has the teams' file. This one goes
  // on granting its own tokens, whatever becomes of it.
  struct {
    std::string connect;            // such as "tcp://central:7411"; empty: none
    std::string server_public_key;  // its; ours is zmq.secret_key_file
  } upstream;

  // Of this machine, for baton-frontend and for a batond with an upstream.
  struct {
    std::string name;        // empty: the host's name
    std::string socket_dir;  // empty: server.socket_dir
  } node;

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
net::HttpOptions HttpOptionsOf(const Options& options);
// node.name, or the host's.
std::string NodeName(const Options& options);

}  // namespace baton::config

#endif  // BATON_CONFIG_OPTIONS_H_
