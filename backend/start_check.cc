#include "backend/start_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "backend/local_gpus.h"
#include "backend/state_versions.h"
#include "base/file.h"
#include "devmgr/modes/mig_templates.h"
#include "ledger/database.h"
#include "ledger/ledger.h"
#include "net/keys.h"
#include "net/server.h"
#include "node/gpu_lock.h"
#include "node/start_check.h"
#include "spec/modes.h"
#include "teams/budget.h"
#include "teams/tree.h"

namespace baton::backend {
namespace {

using node::Complaints;

constexpr size_t kTemplatesMax = 1 << 20;

std::string KeyOf(const spec::PodRequest& pod) { return fmt::format("[[pod]] {}", pod.name); }

// Errors are values here.
template <class T>
Result<void> Without(const Result<T>& result) {
  if (!result) return tl::unexpected(result.error());
  return {};
}

Result<void> CheckTemplates(const std::string& file) {
  if (file.empty()) return {};
  const auto text = ReadFile(file, kTemplatesMax);
  if (!text) return tl::unexpected(text.error());
  return Without(devmgr::MigTemplates::BuiltIn().With(*text, file));
}

// The file of teams, and whether its teams may have the pods of the configuration.
void CheckTeams(const config::Options& options, Complaints& complaints) {
  if (options.teams.file.empty() || options.ledger.database == "none") return;
  const auto text = ReadFile(options.teams.file, teams::kFileMax);
  if (!text) return complaints.Add("teams.file", Without(text));
  const auto teams = teams::ParseTeams(*text, options.teams.file);
  if (!teams) return complaints.Add("teams.file", Without(teams));
  std::vector<teams::LimitPod> beside;
  for (const auto& [pod, fingerprint] : options.pods) {
    if (options.teams.unknown == "refuse") {
      complaints.Add(KeyOf(pod), teams::CheckKnown(*teams, pod.team));
    }
    const size_t gpus = std::max<size_t>({1, pod.count, pod.wishes.gpus.size()});
    const teams::LimitPod one{pod.name, pod.team, policy::ShareSum(pod.share.request) * gpus};
    const auto fits = teams::CheckLimits(*teams, beside, one);
    complaints.Add(KeyOf(pod), fits);
    if (fits) beside.push_back(one);
  }
}

// The uuid that a pod means by its index or uuid.
Result<std::string> GpuNamed(const std::vector<devmgr::GpuInfo>& gpus, const std::string& name) {
  const bool index = name.size() < 5 && name.find_first_not_of("0123456789") == std::string::npos;
  if (index && std::stoul(name) < gpus.size()) return gpus[std::stoul(name)].uuid;
  for (const devmgr::GpuInfo& gpu : gpus) {
    if (gpu.uuid == name) return name;
  }
  return Fail(ErrorCode::kNotFound, fmt::format("no GPU {} here; there are {}", name, gpus.size()));
}

// Pods that say which GPUs they want: that these are there, and that the requests fit.
void CheckPods(const config::Options& options, const std::vector<devmgr::GpuInfo>& gpus,
               Complaints& complaints) {
  std::map<std::string, policy::ShareSum> requested;
  for (const auto& [pod, fingerprint] : options.pods) {
    const spec::Mode* mode = spec::FindMode(pod.wishes.mode);
    for (const std::string& name : pod.wishes.gpus) {
      const auto uuid = GpuNamed(gpus, name);
      complaints.Add(KeyOf(pod), Without(uuid));
      if (!uuid || (mode != nullptr && !mode->by_token)) continue;
      policy::ShareSum& sum = requested[*uuid];
      const policy::ShareSum before = sum;
      sum += pod.share.request;
      if (before > options.overcommit || sum <= options.overcommit) continue;
      complaints.Add(
          KeyOf(pod),
          Fail(ErrorCode::kExhausted,
               fmt::format(
                   "with it the requests on GPU {} add up to {} %, and scheduler.overcommit "
                   "allows {} %",
                   *uuid, policy::PercentText(sum), policy::PercentText(options.overcommit))));
    }
  }
}

Result<void> CheckLedger(const config::Options& options, bool machine) {
  if (options.ledger.database == "none") return {};
  ledger::LedgerOptions ledger = options.ledger;
  if (ledger.database.empty()) ledger.database = "sqlite:" + options.server.state_dir + "/ledger";
  if (auto made = ledger::Ledger::Later(ledger); !made) return tl::unexpected(made.error());
  constexpr std::string_view kSqlite = "sqlite:";
  if (!ledger.database.starts_with(kSqlite)) return ledger::CheckPostgres(ledger.database);
  if (!machine || !options.ledger.database.starts_with(kSqlite)) return {};
  // The default is in state_dir. SQLite makes the file, not its folder.
  const std::string path = options.ledger.database.substr(kSqlite.size());
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), F_OK) != 0) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no folder {}", folder));
  }
  return node::CheckFolder(folder);
}

// The files in which batond keeps what it has: a newer version's it leaves alone.
void CheckState(const std::string& dir, Complaints& complaints) {
  using IsNewer = bool (*)(std::string_view);
  const auto test_of = [](const std::string& name) -> IsNewer {
    if (name == "pods.json" || name.starts_with("pods.journal-")) return IsNewerPods;
    if (name == "usage") return IsNewerUsage;
    if (name == "gpu-nodes.json") return IsNewerOwners;
    const bool of_gpu = name.starts_with("gpu-");
    return of_gpu && (name.ends_with(".holder") || name.ends_with(".next")) ? IsNewerHolder
                                                                            : nullptr;
  };
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(dir, none)) {
    const IsNewer is_newer = test_of(file.path().filename().string());
    if (is_newer == nullptr) continue;
    std::string text(kVersionsWithin, '\0');
    std::ifstream in(file.path(), std::ios::binary);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!in.is_open() || in.bad()) {
      complaints.Add("server.state_dir",
                     Fail(ErrorCode::kDenied, "cannot read " + file.path().string()));
      continue;
    }
    text.resize(static_cast<size_t>(in.gcount()));
    if (!is_newer(text)) continue;
    complaints.Add("server.state_dir",
                   Fail(ErrorCode::kDenied, file.path().string() +
                                                ": a newer version of Baton wrote it; install that "
                                                "version again, or move the file away"));
  }
}

Result<void> CheckKeys(const config::Options& options) {
  const bool used = !options.zmq.secret_key_file.empty() &&
                    (!options.zmq.listen.empty() || !options.upstream.server_public_key.empty() ||
                     !options.upstream.server_public_key_file.empty());
  return used ? Without(net::ReadKeyPair(options.zmq.secret_key_file)) : Result<void>();
}

// What only one daemon can have.
void CheckFree(const config::Options& options, const std::vector<devmgr::GpuInfo>& gpus,
               Complaints& complaints) {
  if (node::IsLocked(options.server.state_dir + "/lock")) {
    complaints.Add("server.state_dir",
                   Fail(ErrorCode::kExists, "another batond uses " + options.server.state_dir +
                                                "; stop it, or choose another server.state_dir"));
  }
  for (const devmgr::GpuInfo& gpu : gpus) {
    complaints.Add("server.lock_dir", node::CheckUnlocked(options.server.lock_dir, gpu.uuid));
  }
  if (!options.zmq.listen.empty()) {
    complaints.Add("zmq.listen", node::CheckListen(options.zmq.listen));
  }
  complaints.Add("http.listen", net::CheckHttpAddress(options.http));
}

}  // namespace

std::vector<Error> CheckStart(const config::Options& options, bool machine) {
  Complaints complaints;
  const config::ServerOptions& server = options.server;
  const std::string& control = config::ControlDir(options);
  complaints.Add("server.socket_dir", node::CheckSocketPath(server.socket_dir + "/baton.sock"));
  complaints.Add(server.control_dir.empty() ? "server.socket_dir" : "server.control_dir",
                 node::CheckSocketPath(control + "/control.sock"));
  complaints.Add("ledger.database", CheckLedger(options, machine));
  if (!machine) return complaints.Take();

  complaints.Add("server.state_dir", node::CheckFolder(server.state_dir));
  CheckState(server.state_dir, complaints);
  node::CheckSockets(options, server.socket_dir, complaints);
  complaints.Add("placement.mig_templates", CheckTemplates(options.placement.mig_templates));
  complaints.Add("zmq.secret_key_file", CheckKeys(options));
  complaints.Add("[http]", net::CheckHttpFiles(options.http));
  CheckTeams(options, complaints);
  if (!options.upstream.connect.empty()) {
    complaints.Add("upstream.connect", node::CheckConnect(options.upstream.connect));
  }
  std::vector<devmgr::GpuInfo> gpus;
  if (ManagesLocalGpus(options)) gpus = LocalGpus(options, *devmgr::Nvml::Load());
  // Nodes bring theirs later.
  if (options.zmq.listen.empty()) CheckPods(options, gpus, complaints);
  // Else ports and locks are those of what runs.
  if (!node::IsServed(control + "/control.sock")) CheckFree(options, gpus, complaints);
  return complaints.Take();
}

}  // namespace baton::backend
