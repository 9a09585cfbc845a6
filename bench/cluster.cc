#include "bench/cluster.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/file.h"
#include "sim/card.h"
#include "sim/device.h"
#include "wire/control_client.h"

namespace baton::bench {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr size_t kTextMax = 1u << 30;
constexpr Duration kStopGrace = std::chrono::seconds(5);

// Empty where there is none.
std::string TextOf(const std::string& path) { return ReadFile(path, kTextMax).value_or(""); }

Result<bool> WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return Fail(ErrorCode::kInternal, "cannot write " + path + ": " + strerror(errno));
  return true;
}

std::string Trimmed(std::string text) {
  while (!text.empty() && isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

// A TCP port of the loopback that is free now.
Result<int> FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = fd &&
                     bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!found) return Fail(ErrorCode::kInternal, std::string("no free port: ") + strerror(errno));
  return ntohs(address.sin_port);
}

// The socket on which a daemon says that it is ready, as systemd would give it one.
class NotifySocket {
 public:
  explicit NotifySocket(std::string path) : path_(std::move(path)) {
    fd_ = UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path_.c_str());
    unlink(path_.c_str());
    if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd_.Close();
  }
  ~NotifySocket() { unlink(path_.c_str()); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // False: the process ended, or the time is over.
  bool WaitForReady(Process& process, Duration timeout) {
    const Instant deadline = MonotonicNow() + timeout;
    while (MonotonicNow() < deadline) {
      pollfd readable{fd_.get(), POLLIN, 0};
      if (poll(&readable, 1, 20) > 0) {
        char text[4096];
        const ssize_t n = recv(fd_.get(), text, sizeof text - 1, 0);
        if (n > 0) {
          text[n] = '\0';
          if (strstr(text, "READY=1") != nullptr) return true;
        }
      } else if (!process.running()) {
        return false;
      }
    }
    return false;
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace

bool WaitUntil(const std::function<bool()>& condition, Duration timeout) {
  const Instant deadline = MonotonicNow() + timeout;
  for (;;) {
    if (condition()) return true;
    if (MonotonicNow() >= deadline) return false;
    const timespec pause{0, 5'000'000};
    nanosleep(&pause, nullptr);
  }
}

Pod::~Pod() {
  if (!run_) return;
  // The program is not a child of ours: without `baton run` it would live on.
  const std::vector<pid_t> pids = Pids();
  if (!pids.empty()) Stop(std::chrono::seconds(1));
}

std::vector<pid_t> Pod::Pids() const {
  std::vector<pid_t> pids = Descendants(run_->pid());
  if (bare_) pids.insert(std::lower_bound(pids.begin(), pids.end(), run_->pid()), run_->pid());
  return pids;
}

ExitStatus Pod::Stop(Duration grace) {
  const std::vector<pid_t> pids = Pids();
  run_->Signal(SIGTERM);
  if (const auto status = run_->Wait(grace)) return *status;
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  if (const auto status = run_->Wait(grace)) return *status;
  return run_->Stop(Duration::zero());
}

json Pod::Report() const {
  std::istringstream lines(TextOf(stdout_path_));
  json last;
  for (std::string line; std::getline(lines, line);) {
    json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object() && !parsed.contains("progress")) last = std::move(parsed);
  }
  return last;
}

std::string Pod::Stderr() const { return TextOf(stderr_path_); }

void PodPids::Note(int64_t group, const Pod& pod) {
  for (const pid_t pid : pod.Pids()) groups_[static_cast<uint64_t>(pid)] = group;
}

int64_t PodPids::operator()(uint64_t pid) const {
  const auto found = groups_.find(pid);
  return found == groups_.end() ? -static_cast<int64_t>(pid) : found->second;
}

Result<std::unique_ptr<Cluster>> Cluster::Start(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  if (auto prepared = cluster->Prepare(); !prepared) return tl::unexpected(prepared.error());
  if (options.federated) {
    if (auto started = cluster->StartBatond(kUpstream); !started) {
      return tl::unexpected(started.error());
    }
  }
  const int batonds = cluster->central() ? 1 : options.nodes;
  for (int i = 0; i < batonds; ++i) {
    if (auto started = cluster->StartBatond(i); !started) return tl::unexpected(started.error());
  }
  if (cluster->central()) {
    for (int node = 0; node < options.nodes; ++node) {
      if (auto started = cluster->StartFrontend(node); !started) {
        return tl::unexpected(started.error());
      }
    }
  }
  if (auto ready = cluster->WaitUntilReady(); !ready) return tl::unexpected(ready.error());
  return cluster;
}

Cluster::~Cluster() {
  for (auto& [node, frontend] : frontends_) frontend->Stop(kStopGrace);
  for (auto& [node, batond] : batonds_) batond->Stop(kStopGrace);
  if (folder_.empty()) return;
  if (options_.keep) {
    fprintf(stderr, "kept %s\n", folder_.c_str());
    return;
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Result<bool> Cluster::Prepare() {
  if (options_.programs.empty()) {
    options_.programs = fs::read_symlink("/proc/self/exe").parent_path().string();
  }
  if (options_.simulator.empty()) {
    // Beside the programs as they are built, or as they are installed.
    const std::string lib = fs::path(options_.programs).parent_path().string() + "/lib/";
    options_.simulator = lib + (fs::exists(lib + "sim") ? "sim" : "baton/sim");
  }
  std::vector<std::string> needed = {Program("baton"), Program("batond")};
  if (central()) needed.push_back(Program("baton-frontend"));
  if (!options_.real) needed.push_back(options_.simulator + "/libcuda.so.1");
  for (const std::string& path : needed) {
    if (!fs::exists(path)) {
      return Fail(ErrorCode::kNotFound,
                  path + " is not there; build the whole project first (cmake --build)");
    }
  }
  // On tmpfs where there is one: device files are mapped shared, and must not wait for a disk.
  std::string pattern =
      std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/baton-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return Fail(ErrorCode::kInternal,
                "cannot make a folder like " + pattern + ": " + strerror(errno));
  }
  folder_ = pattern;

  if (!options_.real) {
    for (int node = 0; node < options_.nodes; ++node) {
      for (int gpu = 0; gpu < options_.gpus; ++gpu) {
        Device device;
        device.node = node;
        device.gpu = gpu;
        device.path = File("gpu" + std::to_string(node) + "-" + std::to_string(gpu));
        sim::DeviceOptions shape;
        if (const sim::Model* model = sim::FindModel(options_.model)) {
          shape = sim::OptionsFor(*model);
          shape.mig = options_.mig;
        }
        if (options_.records > 0) shape.records = options_.records;
        if (options_.host_bytes_per_s > 0) shape.host_bytes_per_s = options_.host_bytes_per_s;
        if (options_.memory_bytes > 0) shape.memory_bytes = options_.memory_bytes;
        const uint64_t unique = static_cast<uint64_t>(Nanos(MonotonicNow()));
        memcpy(shape.uuid, &unique, sizeof unique);
        shape.uuid[14] = static_cast<unsigned char>(node);
        shape.uuid[15] = static_cast<unsigned char>(gpu);
        if (auto made = sim::CreateDeviceFile(device.path, shape); !made) {
          return tl::unexpected(made.error());
        }
        device.uuid = sim::FormatUuid(shape.uuid);
        devices_.push_back(device);
      }
    }
  }

  const std::string scheduler =
      options_.scheduler.empty() ? "" : "\n[scheduler]\n" + options_.scheduler + "\n";
  const auto server = [this](const std::string& name) {
    const bool serves = name == BatondName(options_.federated ? kUpstream : 0);
    return "[http]\nlisten = \"" + (serves ? options_.http : "") + "\"\n[server]\nsocket_dir = \"" +
           File(name) + "\"\nstate_dir = \"" + File(name + "-state") + "\"\nlock_dir = \"" +
           File("locks") + "\"\n" + options_.server + "\n";
  };
  std::string address, server_key, listens;
  std::string nodes = "\n[zmq.nodes]\n";
  if (central() || options_.federated) {
    auto port = FreePort();
    if (!port) return tl::unexpected(port.error());
    address = "tcp://127.0.0.1:" + std::to_string(*port);
    const std::string name = BatondName(central() ? 0 : kUpstream);
    auto key = MakeKey(name);
    if (!key) return tl::unexpected(key.error());
    server_key = *key;
    listens = "local_gpus = \"no\"\n\n[zmq]\nlisten = \"" + address + "\"\nsecret_key_file = \"" +
              File(name + ".key") + "\"\n";
  }
  if (!central()) {
    for (int node = 0; node < options_.nodes; ++node) {
      std::string text = server(BatondName(node)) + scheduler + options_.tables;
      if (options_.federated) {
        const std::string name = "node" + std::to_string(node);
        auto key = MakeKey(name);
        if (!key) return tl::unexpected(key.error());
        nodes += fmt::format("{} = \"{}\"\n", name, *key);
        text += fmt::format(
            "\n[node]\nname = \"{}\"\n[zmq]\nsecret_key_file = \"{}\"\n"
            "[upstream]\nconnect = \"{}\"\nserver_public_key = \"{}\"\n",
            name, File(name + ".key"), address, server_key);
      }
      if (auto written = WriteFile(BatondConfig(node), text); !written) return written;
    }
    if (!options_.federated) return true;
    return WriteFile(BatondConfig(kUpstream),
                     server(BatondName(kUpstream)) + listens + nodes + options_.tables);
  }

  for (int node = 0; node < options_.nodes; ++node) {
    const std::string name = "node" + std::to_string(node);
    auto key = MakeKey(name);
    if (!key) return tl::unexpected(key.error());
    nodes += fmt::format("{} = \"{}\"\n", name, *key);
    auto written = WriteFile(
        File(name + ".toml"),
        server(name) + fmt::format("\n[node]\nname = \"{}\"\n\n[zmq]\nconnect = \"{}\"\n"
                                   "server_public_key = \"{}\"\nsecret_key_file = \"{}\"\n",
                                   name, address, server_key, File(name + ".key")));
    if (!written) return written;
  }
  return WriteFile(BatondConfig(),
                   server("batond0") + listens + nodes + scheduler + options_.tables);
}

Result<std::string> Cluster::MakeKey(const std::string& name) {
  SpawnOptions spawn;
  spawn.command = {Program("baton"), "keygen", File(name + ".key")};
  spawn.stdout_path = spawn.stderr_path = File("keygen.log");
  auto keygen = Process::Spawn(spawn);
  if (!keygen) return tl::unexpected(keygen.error());
  if (keygen->Wait(std::chrono::seconds(10)) != 0) {
    return Fail(ErrorCode::kInternal, "baton keygen: " + Log("keygen"));
  }
  return Trimmed(TextOf(File(name + ".key.pub")));
}

std::string Cluster::BatondConfig(int node) const { return File(BatondName(node) + ".toml"); }

std::string Cluster::BatondName(int node) const {
  return node == kUpstream ? "upstream" : "batond" + std::to_string(node);
}

std::string Cluster::SocketDir(int node) const {
  return File(central() ? "node" + std::to_string(node) : BatondName(node));
}

const Device& Cluster::device(int node, int gpu) const {
  for (const Device& device : devices_) {
    if (device.node == node && device.gpu == gpu) return device;
  }
  fprintf(stderr, "no GPU %d on node %d\n", gpu, node);
  abort();
}

std::vector<std::pair<std::string, std::string>> Cluster::GpuEnvironment(int node) const {
  if (options_.real) return {};
  std::string paths;
  for (const Device& device : devices_) {
    if (device.node == node) paths += (paths.empty() ? "" : ":") + device.path;
  }
  const char* present = getenv("LD_LIBRARY_PATH");
  std::string libraries = options_.simulator;
  if (present != nullptr && *present != '\0') libraries += std::string(":") + present;
  // Beside them is what stands in for nvidia-cuda-mps-control.
  const char* path = getenv("PATH");
  return {{"LD_LIBRARY_PATH", libraries},
          {"BATON_SIM_DEVICES", paths},
          {"PATH", options_.simulator + ":" + (path != nullptr ? path : "/usr/bin:/bin")}};
}

Result<bool> Cluster::StartDaemon(const std::string& name, const std::string& program,
                                  const std::string& config, int gpu_node,
                                  std::unique_ptr<Process>* process) {
  NotifySocket notify(File(name + ".notify"));
  SpawnOptions spawn;
  spawn.command = {Program(program), "--config", config};
  if (gpu_node >= 0) spawn.environment = GpuEnvironment(gpu_node);
  spawn.environment.emplace_back("NOTIFY_SOCKET", File(name + ".notify"));
  spawn.stdout_path = spawn.stderr_path = File(name + ".log");
  auto started = Process::Spawn(spawn);
  if (!started) return tl::unexpected(started.error());
  *process = std::make_unique<Process>(std::move(*started));
  if (!notify.WaitForReady(**process, options_.ready_timeout)) {
    return Fail(ErrorCode::kUnavailable,
                program + " did not become ready; its log ends:\n" + Log(name));
  }
  return true;
}

Result<bool> Cluster::StartBatond(int node) {
  // The central one needs no GPU of its own: its nodes tell it what they have.
  return StartDaemon(BatondName(node), "batond", BatondConfig(node),
                     central() || node == kUpstream ? -1 : node, &batonds_[node]);
}

Result<bool> Cluster::StartFrontend(int node) {
  const std::string name = "node" + std::to_string(node);
  return StartDaemon(name, "baton-frontend", File(name + ".toml"), node, &frontends_[node]);
}

Process& Cluster::batond(int node) { return *batonds_.at(central() ? 0 : node); }
Process& Cluster::frontend(int node) { return *frontends_.at(node); }

Result<json> Cluster::Status(int node) {
  auto status = wire::Ask(SocketDir(node), {{"command", "status"}});
  if (status) return status;
  const std::string name = central() ? "node" + std::to_string(node) : BatondName(node);
  return Fail(status.error().code, status.error().message + "; its log ends:\n" + Log(name));
}

Result<bool> Cluster::WaitForStatus(int node, const std::function<bool(const json&)>& condition,
                                    const std::string& what, Duration timeout) {
  std::string last = "no answer";
  const bool held = WaitUntil(
      [&] {
        const auto status = Status(node);
        last = status ? status->dump() : status.error().message;
        return status && condition(*status);
      },
      timeout);
  if (held) return true;
  return Fail(ErrorCode::kUnavailable, what + "; the last status was: " + last);
}

Result<bool> Cluster::WaitUntilReady() {
  for (int node = 0; node < options_.nodes; ++node) {
    std::set<std::string> expected;
    for (const Device& device : devices_) {
      if (device.node == node) expected.insert(device.uuid);
    }
    auto ready = WaitForStatus(
        node,
        [&](const json& status) {
          std::set<std::string> seen;
          for (const json& gpu : status.value("gpus", json::array())) {
            seen.insert(gpu.value("uuid", ""));
          }
          return options_.real
                     ? !seen.empty()
                     : std::includes(seen.begin(), seen.end(), expected.begin(), expected.end());
        },
        "node " + std::to_string(node) + " does not show its GPUs", options_.ready_timeout);
    if (!ready) return ready;
  }
  if (options_.real) {
    const auto status = Status(0);
    if (!status) return tl::unexpected(status.error());
    int index = 0;
    for (const json& gpu : status->at("gpus")) {
      if (index == options_.gpus) break;
      devices_.push_back({0, index++, "", gpu.at("uuid")});
    }
    if (index < options_.gpus) {
      return Fail(ErrorCode::kNotFound, "this machine has " + std::to_string(index) + " GPU(s), " +
                                            std::to_string(options_.gpus) + " were asked for");
    }
  }
  return true;
}

Result<Pod> Cluster::Launch(const PodOptions& options, std::vector<std::string> command,
                            std::vector<std::pair<std::string, std::string>> environment) {
  Pod pod;
  pod.options_ = options;
  const std::string base = File("pod" + std::to_string(runs_++) + "-" + options.name);
  pod.stdout_path_ = base + ".out";
  pod.stderr_path_ = base + ".err";
  SpawnOptions spawn;
  spawn.command = std::move(command);
  spawn.environment = GpuEnvironment(options.node);
  // A sanitizer's runtime wants to be first; a preloaded hook is by design.
  spawn.environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
  spawn.environment.insert(spawn.environment.end(), environment.begin(), environment.end());
  spawn.environment.insert(spawn.environment.end(), options.environment.begin(),
                           options.environment.end());
  spawn.stdout_path = pod.stdout_path_;
  spawn.stderr_path = pod.stderr_path_;
  auto run = Process::Spawn(spawn);
  if (!run) return tl::unexpected(run.error());
  pod.run_ = std::make_unique<Process>(std::move(*run));
  return pod;
}

Result<Pod> Cluster::Run(const PodOptions& options) {
  std::vector<std::string> command = {Program("baton"), "run",
                                      "--socket-dir",   SocketDir(options.node),
                                      "--name",         options.name,
                                      "--limit",        options.limit,
                                      "--gpu",          device(options.node, options.gpu).uuid};
  if (!options.request.empty()) command.insert(command.end(), {"--request", options.request});
  command.insert(command.end(), options.run_flags.begin(), options.run_flags.end());
  command.push_back("--");
  command.insert(command.end(), options.command.begin(), options.command.end());
  return Launch(options, std::move(command), {});
}

Result<Pod> Cluster::RunBare(const PodOptions& options) {
  auto pod = Launch(options, options.command,
                    {{"CUDA_VISIBLE_DEVICES", device(options.node, options.gpu).uuid}});
  if (pod) pod->bare_ = true;
  return pod;
}

Result<ExitStatus> Cluster::Baton(int node, const std::vector<std::string>& arguments,
                                  std::string* out, std::string* err) {
  SpawnOptions spawn;
  spawn.command = {Program("baton")};
  spawn.command.insert(spawn.command.end(), arguments.begin(), arguments.end());
  spawn.environment = GpuEnvironment(node);
  spawn.environment.emplace_back("BATON_SOCKET_DIR", SocketDir(node));
  const std::string base = File("baton" + std::to_string(runs_++));
  spawn.stdout_path = base + ".out";
  spawn.stderr_path = base + ".err";
  auto process = Process::Spawn(spawn);
  if (!process) return tl::unexpected(process.error());
  const auto status = process->Wait(std::chrono::seconds(60));
  if (!status) return Fail(ErrorCode::kUnavailable, "baton " + arguments[0] + " does not end");
  if (out != nullptr) *out = TextOf(spawn.stdout_path);
  if (err != nullptr) *err = TextOf(spawn.stderr_path);
  return *status;
}

Result<bool> Cluster::WaitForKernels(const Device& device, const Pod& pod, uint64_t first,
                                     Duration timeout) {
  const bool ran = WaitUntil(
      [&] {
        const std::vector<pid_t> pids = pod.Pids();
        const auto records = sim::ReadRecords(device.path, first);
        return records && std::any_of(records->begin(), records->end(), [&](const auto& record) {
                 return std::binary_search(pids.begin(), pids.end(),
                                           static_cast<pid_t>(record.pid));
               });
      },
      timeout);
  if (ran) return true;
  return Fail(ErrorCode::kUnavailable, "pod " + pod.name() + " launched nothing; it said: " +
                                           pod.Stderr() + "\n" + Log("batond0"));
}

std::string Cluster::Log(const std::string& name, size_t bytes_max) const {
  const std::string text = TextOf(File(name + ".log"));
  return text.size() > bytes_max ? text.substr(text.size() - bytes_max) : text;
}

}  // namespace baton::bench
