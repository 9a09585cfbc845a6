#include "k8s/command.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "base/async_log.h"
#include "base/random.h"

namespace baton::k8s {

void ClusterFlags::Add(CLI::App& command) {
  command
      .add_option("--kubeconfig", kubeconfig,
                  "Kubeconfig of the API server; default in a pod: its service account")
      ->type_name("FILE");
  command.add_option("--context", context,
                     "Context of the kubeconfig; default: its current context");
}

void PolicyFlag::Add(CLI::App& command) {
  command
      .add_option("--policy", name,
                  "Placement policy: scarcity, fgd, remainder, binpack, "
                  "spread, first-fit, random")
      ->capture_default_str();
  command.add_option("--gpu-policy", gpus,
                     "The policy for the GPUs of the node; default: that of --policy");
  command
      .add_option("--memory-weight", memory_weight,
                  "Weight of memory caps in how full a GPU is; that of requests is the rest to 1")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option(
          "--use-distance", use_distance,
          "Among places that cost at most this much of a GPU more by the policy, pods go "
          "where the expected use of GPUs is least above 1; 0: expected use decides nothing")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

Result<devmgr::PlacementPolicy> PolicyFlag::Parse() const {
  const auto rule = devmgr::ParseRule(name);
  if (!rule) return tl::unexpected(rule.error());
  devmgr::PlacementPolicy policy;
  policy.nodes = policy.cards = *rule;
  if (std::isnan(memory_weight) || std::isnan(use_distance)) {  // which is in any range
    return Fail(ErrorCode::kInvalid, "--memory-weight and --use-distance are numbers from 0 to 1");
  }
  policy.memory_weight = static_cast<uint32_t>(std::lround(memory_weight * 1'000));
  policy.share_weight = 1'000 - policy.memory_weight;
  policy.use_distance = static_cast<uint32_t>(std::lround(use_distance * 1'000));
  if (gpus.empty()) return policy;
  const auto of_gpus = devmgr::ParseRule(gpus);
  if (!of_gpus) return tl::unexpected(of_gpus.error());
  policy.cards = *of_gpus;
  return policy;
}

void AddMemoryUnit(CLI::App& command, uint32_t* mib) {
  command
      .add_option("--memory-unit", *mib,
                  "MiB per unit of baton.dev/gpu-memory; must be equal for all parts of baton-k8s")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
}

void AddPodFolders(CLI::App& command, std::string* socket_dir, std::string* hook_dir) {
  command
      .add_option("--socket-dir", *socket_dir,
                  "Folder of baton.sock on the nodes, which no pod may mount writable; must be "
                  "equal for binder and webhook, and be the device plugin's --pod-socket-dir")
      ->capture_default_str();
  command
      .add_option("--hook-dir", *hook_dir,
                  "Folder of libbaton.so on the nodes, which no pod may mount writable; must be "
                  "equal for binder and webhook, and be the device plugin's --hook-dest")
      ->capture_default_str();
}

void AddPodDefaults(CLI::App& command, InjectOptions* inject) {
  command.add_flag("--choose-mode", inject->choose_mode,
                   "Pods with a share that name no mode get mode auto: they take turns, or have a "
                   "MIG instance; must be equal for binder and webhook");
  command.add_option("--runtime-class", inject->runtime_class,
                     "runtimeClassName of pods that request GPUs and name none; must be equal for "
                     "binder and webhook");
  command.add_option(
      "--tolerate", inject->tolerate,
      "Taint KEY (NoSchedule) that pods which request GPUs tolerate; can be repeated; "
      "must be equal for binder and webhook");
}

void AddFlavors(CLI::App& command, std::vector<std::string>* flavors) {
  command
      .add_option("--flavor", *flavors,
                  "Size that pods and SharePods may name, such as small=request=10,memory=4Gi; can "
                  "be repeated; must be equal for binder and webhook")
      ->type_name("NAME=KEY=VALUE,...");
}

void TenancyFlags::Add(CLI::App& command) {
  command
      .add_option("--restrict", restricted,
                  "What only namespaces with label baton.dev/allow-WORD=true may ask for, "
                  "separated by commas: high-priority, exclusive, away-open, user (to name "
                  "another user than who asks), priority-class, gpu-uuid")
      ->type_name("WORDS");
  command
      .add_option(
          "--namespace-team", team_rules,
          "NAMESPACE=TEAM, with * for any text: pods of such namespaces are of that team or "
          "below it; the namespace's label baton.dev/team comes first. Can be repeated")
      ->type_name("RULE");
}

Result<TenancyOptions> TenancyFlags::Parse() const {
  TenancyOptions tenancy;
  auto words = ParseGrants(restricted);
  if (!words) return tl::unexpected(words.error());
  tenancy.restricted = *std::move(words);
  for (const std::string& text : team_rules) {
    auto rule = ParseTeamRule(text);
    if (!rule) return tl::unexpected(rule.error());
    tenancy.teams.push_back(*std::move(rule));
  }
  return tenancy;
}

CLI::Option* AddCentralKey(CLI::App& command, std::string* config_map) {
  return command
      .add_option("--central-key", *config_map,
                  "ConfigMap with the central batond's public key (data.public-key)")
      ->type_name("NAMESPACE/NAME");
}

Result<ObjectName> ParseObjectName(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == 0 || slash + 1 >= text.size() || text.find('/', slash + 1) != text.npos) {
    return Fail(ErrorCode::kInvalid, fmt::format("'{}' is not NAMESPACE/NAME", text));
  }
  return ObjectName{text.substr(0, slash), text.substr(slash + 1)};
}

std::string OwnIdentity() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  Random random(static_cast<uint64_t>(Nanos(MonotonicNow())) ^
                (static_cast<uint64_t>(getpid()) << 32));
  return fmt::format("{}_{:016x}", host, random.Next());
}

void AddListen(CLI::App& command, std::string* address) {
  command
      .add_option("--listen", *address,
                  "Address and port of /healthz, /readyz and /metrics; \"\": off")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
}

void OnCommand(CLI::App& command, int* exit_code, std::function<Result<void>()> run) {
  const auto log_format = std::make_shared<std::string>("text");
  command.add_option("--log-format", *log_format, "How the log is written: text or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}).description(""))
      ->capture_default_str();
  command.callback([name = command.get_name(), log_format, exit_code, run = std::move(run)] {
    const LogFormat format = ParseLogFormat(*log_format);
    Result<void> done;
    {
      const AsyncLog log(STDOUT_FILENO, "", format);
      done = run();
    }
    if (!done) {
      const std::string line = ComplaintLine(format, "baton-k8s " + name, done.error().message);
      WriteBefore(STDERR_FILENO, line.data(), line.size(), MonotonicNow() + AsyncLog::kPatience);
      *exit_code = done.error().code == ErrorCode::kInvalid ? 2 : 1;
    }
  });
}

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

void StopSignals::Await() const {
  int signal = 0;
  while (sigwait(&signals_, &signal) != 0) {
  }
}

bool StopSignals::Await(Duration at_most) const {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec wait{whole.count(), static_cast<long>(Nanos(at_most - whole))};
  int signal = 0;
  do {
    signal = sigtimedwait(&signals_, nullptr, &wait);
  } while (signal < 0 && errno == EINTR);
  return signal > 0;
}

}  // namespace baton::k8s
