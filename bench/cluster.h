// A whole Baton on one machine, for the demo and for the end-to-end tests: batond, a frontend per
// node where the transport is central, pods started by `baton run`, and simulated GPUs. Everything
// lives in one temporary folder, and nothing is left when the Cluster is destroyed.
#ifndef BATON_BENCH_CLUSTER_H_
#define BATON_BENCH_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "bench/process.h"
#include "sim/record.h"

namespace baton::bench {

enum class Transport {
  kCentral,  // one batond for all nodes, a baton-frontend on each, ZeroMQ with CURVE between
  kUnix,     // a batond on each node
};

struct ClusterOptions {
  Transport transport = Transport::kCentral;
  int nodes = 1;
  int gpus = 1;                   // per node
  std::string model{};            // of all GPUs (sim/models.h); empty: one without MIG
  bool mig = false;               // MIG mode is on
  uint64_t memory_bytes = 0;      // of each simulated GPU; 0: as much as its model has
  uint64_t host_bytes_per_s = 0;  // between it and the host; 0: as usual
  uint64_t records = 0;           // kept by each simulated GPU; 0: as many as it keeps by itself
  bool real = false;              // the machine's own GPUs instead of simulated ones; one node
  std::string server{};           // lines for the daemons' [server] table
  std::string scheduler{};        // lines for batond's [scheduler] table
  std::string tables{};  // further tables for batond, and for the upstream where there is one
  std::string http{};    // where batond (the upstream) serves HTTP, such as "127.0.0.1:7412"
  // With kUnix: one more batond, number kUpstream, keeps the books of all nodes.
  bool federated = false;
  std::string programs{};   // folder with baton, batond, ...; empty: this program's own
  std::string simulator{};  // folder with libcuda.so.1; empty: beside `programs`
  bool keep = false;        // leave the folder, with all logs, behind
  Duration ready_timeout = std::chrono::seconds(20);
};

struct PodOptions {
  std::string name;
  std::string request = "10";  // percent
  std::string limit = "100";
  int node = 0;
  int gpu = 0;                         // of the node
  std::vector<std::string> command;    // the program and its arguments
  std::vector<std::string> run_flags;  // more flags of `baton run`
  std::vector<std::pair<std::string, std::string>> environment;
};

class Cluster;

// A pod that `baton run` started. Owned by the caller; killed with all its processes when
// destroyed.
class Pod {
 public:
  Pod(Pod&&) = default;
  Pod& operator=(Pod&&) = delete;
  ~Pod();

  const std::string& name() const { return options_.name; }
  const PodOptions& options() const { return options_; }
  // `baton run` itself; of a bare program, the program.
  Process& run() { return *run_; }
  // The program's processes that live now.
  std::vector<pid_t> Pids() const;
  // Waits for the end of the pod.
  std::optional<ExitStatus> Wait(Duration timeout) { return run_->Wait(timeout); }
  // SIGTERM, passed on to the program, then SIGKILL to all of it.
  ExitStatus Stop(Duration grace = std::chrono::seconds(5));
  // The last JSON object on its standard output; null when there is none.
  nlohmann::json Report() const;
  std::string Stderr() const;

 private:
  friend class Cluster;
  Pod() = default;
  PodOptions options_;
  std::unique_ptr<Process> run_;
  bool bare_ = false;
  std::string stdout_path_, stderr_path_;
};

// Whose kernel is it? Groups the kernels of a device's record by pod (sim::GroupOfPid). A process
// of no pod is a group of its own, with a negative number.
class PodPids {
 public:
  // Remembers the processes that the pod has now as group `group` (>= 0).
  void Note(int64_t group, const Pod& pod);
  int64_t operator()(uint64_t pid) const;

 private:
  std::map<uint64_t, int64_t> groups_;
};

// A GPU, as the tests see it.
struct Device {
  int node = 0;
  int gpu = 0;
  std::string path;  // of the device file; empty for a real GPU
  std::string uuid;
};

class Cluster {
 public:
  static constexpr int kUpstream = -1;

  // Starts the daemons and returns when every GPU can be given to pods.
  static Result<std::unique_ptr<Cluster>> Start(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const std::string& folder() const { return folder_; }
  const std::vector<Device>& devices() const { return devices_; }
  const Device& device(int node, int gpu) const;
  // The folder of the node's tenant and control sockets.
  // kUpstream: of that batond.
  std::string SocketDir(int node) const;

  // Starts a pod and returns at once.
  Result<Pod> Run(const PodOptions& options);
  // Starts a program that sees the same GPU without Baton.
  Result<Pod> RunBare(const PodOptions& options);
  // Runs `baton` with these arguments against the node, to its end. Output goes to `out` and
  // `err`, where they are not null.
  Result<ExitStatus> Baton(int node, const std::vector<std::string>& arguments,
                           std::string* out = nullptr, std::string* err = nullptr);
  // The answer of the node's control socket to {"command": "status"}.
  Result<nlohmann::json> Status(int node = 0);
  // Waits until `status` satisfies the condition; kUnavailable with `what` after the timeout.
  Result<bool> WaitForStatus(int node, const std::function<bool(const nlohmann::json&)>& condition,
                             const std::string& what, Duration timeout = std::chrono::seconds(10));
  // Waits until a kernel of the pod is among the records from number `first`.
  Result<bool> WaitForKernels(const Device& device, const Pod& pod, uint64_t first = 0,
                              Duration timeout = std::chrono::seconds(20));

  // Daemons, to be ended and started again by a test. Central: one batond, number 0. Federated:
  // kUpstream is the one that the others report to.
  Process& batond(int node = 0);
  Process& frontend(int node);
  Result<bool> StartBatond(int node = 0);
  Result<bool> StartFrontend(int node);
  // The path of a program of Baton.
  std::string Program(const std::string& name) const { return options_.programs + "/" + name; }
  // What a program needs to see this node's GPUs.
  std::vector<std::pair<std::string, std::string>> GpuEnvironment(int node) const;
  // The end of a daemon's log, for error messages.
  std::string Log(const std::string& name, size_t bytes_max = 2000) const;
  // A file's path in the temporary folder.
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  // The configuration that batond was started with.
  std::string BatondConfig(int node = 0) const;

 private:
  explicit Cluster(const ClusterOptions& options) : options_(options) {}
  Result<bool> Prepare();
  std::string BatondName(int node) const;
  // A fresh key pair in NAME.key and NAME.key.pub; the public key.
  Result<std::string> MakeKey(const std::string& name);
  Result<bool> StartDaemon(const std::string& name, const std::string& program,
                           const std::string& config, int gpu_node,
                           std::unique_ptr<Process>* process);
  Result<bool> WaitUntilReady();
  Result<Pod> Launch(const PodOptions& options, std::vector<std::string> command,
                     std::vector<std::pair<std::string, std::string>> environment);
  bool central() const { return options_.transport == Transport::kCentral; }

  ClusterOptions options_;
  std::string folder_;
  std::vector<Device> devices_;
  std::map<int, std::unique_ptr<Process>> batonds_;
  std::map<int, std::unique_ptr<Process>> frontends_;
  int runs_ = 0;
};

// Waits until `condition` holds, looking every few milliseconds. False: it did not in time.
bool WaitUntil(const std::function<bool()>& condition, Duration timeout);

}  // namespace baton::bench

#endif  // BATON_BENCH_CLUSTER_H_
