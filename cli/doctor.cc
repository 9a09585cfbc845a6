// baton doctor: what stands between this machine and a shared GPU, each with what to do.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/short_slice.h"
#include "cli/command.h"
#include "cli/hook_path.h"
#include "cli/program_file.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

enum class Verdict { kGood, kBad, kSkipped };

struct Finding {
  std::string check;
  Verdict verdict = Verdict::kGood;
  std::string detail;  // what was seen
  std::string advice;  // what to do, when bad
};

Finding Good(std::string check, std::string detail) {
  return {std::move(check), Verdict::kGood, std::move(detail), ""};
}
Finding Bad(std::string check, std::string detail, std::string advice) {
  return {std::move(check), Verdict::kBad, std::move(detail), std::move(advice)};
}
Finding Skipped(std::string check, std::string why) {
  return {std::move(check), Verdict::kSkipped, std::move(why), ""};
}
// An error's sentence is "what; what to do".
Finding Bad(std::string check, const Error& error) {
  const size_t semicolon = error.message.find("; ");
  return Bad(std::move(check), error.message.substr(0, semicolon),
             semicolon == std::string::npos ? "" : error.message.substr(semicolon + 2));
}

std::string FormatUuid(const CUuuid& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    std::array<char, 4> hex;
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += (i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(hex.data());
  }
  return text;
}

// Loads the driver as a program would. `uuids` gets its devices.
Finding CheckDriver(std::vector<std::string>& uuids) {
  static const char* const kCheck = "driver";
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return Bad(kCheck, std::string("libcuda.so.1 does not load: ") + dlerror(),
               "install the NVIDIA driver, or start the container with --gpus or the NVIDIA "
               "runtime; for the simulated GPU, set LD_LIBRARY_PATH to its folder");
  }
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto version = reinterpret_cast<CUresult (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  const auto count = reinterpret_cast<CUresult (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  void* named = dlsym(driver, "cuDeviceGetUuid_v2");
  if (named == nullptr) named = dlsym(driver, "cuDeviceGetUuid");
  const auto uuid_of = reinterpret_cast<CUresult (*)(CUuuid*, CUdevice)>(named);
  if (init == nullptr || version == nullptr || count == nullptr || uuid_of == nullptr) {
    return Bad(kCheck, "libcuda.so.1 lacks functions that every driver has",
               "check which file is loaded: ldconfig -p | grep libcuda");
  }
  int number = 0, devices = 0;
  version(&number);
  const std::string release =
      "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  if (const CUresult result = init(0); result != CUDA_SUCCESS) {
    return Bad(kCheck, "cuInit fails with error " + std::to_string(result) + " (" + release + ")",
               result == CUDA_ERROR_NO_DEVICE
                   ? "no GPU is visible: check nvidia-smi, /dev/nvidia* and CUDA_VISIBLE_DEVICES"
                   : "run nvidia-smi; an updated driver needs a reboot");
  }
  count(&devices);
  for (int i = 0; i < devices; ++i) {
    CUuuid uuid{};
    if (uuid_of(&uuid, i) == CUDA_SUCCESS) uuids.push_back(FormatUuid(uuid));
  }
  if (devices == 0) {
    return Bad(kCheck, release + ", no devices", "check CUDA_VISIBLE_DEVICES");
  }
  if (number < 11'080) {
    return Bad(kCheck, release + ", older than 11.8", "install a driver of release 520 or later");
  }
  return Good(kCheck,
              release + ", " + std::to_string(devices) + (devices == 1 ? " device" : " devices"));
}

// Whether commands reach batond, by the operator's socket or, as a user without root, by theirs.
bool ReachesBatond(const std::string& socket_dir) {
  if (access(wire::ControlSocket(socket_dir).c_str(), R_OK | W_OK) == 0) return true;
  return errno == EACCES && access(wire::UserSocket(socket_dir).c_str(), R_OK | W_OK) == 0;
}

Finding CheckControl(const std::string& socket_dir) {
  static const char* const kCheck = "control socket";
  const std::string path = wire::ControlSocket(socket_dir);
  const Result<int> fd = wire::ConnectUnix(path, SOCK_STREAM);
  if (!fd && fd.error().code == ErrorCode::kDenied && ReachesBatond(socket_dir)) {
    const std::string users = wire::UserSocket(socket_dir);
    const Result<int> of_user = wire::ConnectUnix(users, SOCK_STREAM);
    if (!of_user) return Bad(kCheck, of_user.error());
    close(*of_user);
    return Good(kCheck, users + ", for pods of your own");
  }
  if (!fd) return Bad(kCheck, fd.error());
  close(*fd);
  struct stat st {};
  stat(path.c_str(), &st);
  if ((st.st_mode & 077) != 0) {
    return Bad(kCheck, path + " is accessible to other users",
               "whoever can open it can change shares: chmod 600 " + path);
  }
  return Good(kCheck, path);
}

Finding CheckTenantSocket(const std::string& socket_dir) {
  static const char* const kCheck = "tenant socket";
  const std::string path = wire::TenantSocket(socket_dir);
  const Result<int> fd = wire::ConnectUnix(path, SOCK_SEQPACKET);
  if (!fd) return Bad(kCheck, fd.error());
  close(*fd);
  return Good(kCheck, path);
}

Finding CheckDaemon(const std::string& socket_dir) {
  static const char* const kCheck = "daemon";
  const Result<nlohmann::json> answer = wire::Ask(socket_dir, {{"command", "ping"}});
  if (!answer) return Bad(kCheck, answer.error());
  const std::string version = answer->value("version", "unknown");
  const std::string detail = "batond " + version + ", mode " + answer->value("mode", "unknown");
  if (version != BATON_VERSION) {
    return Bad(kCheck, detail + ", but this is baton " BATON_VERSION,
               "install the same release of both; the hook and batond tolerate one step of "
               "protocol between them");
  }
  return Good(kCheck, detail);
}

// What the loader would load for `program` with the hook preloaded; the program does not run.
std::string Trace(const std::string& program, const std::string& hook) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    setenv("LD_PRELOAD", hook.c_str(), 1);
    setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer;
  for (ssize_t got; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return output;
}

Finding CheckHook(const std::string& program) {
  static const char* const kCheck = "hook";
  const Result<std::string> hook = FindHook();
  if (!hook) return Bad(kCheck, hook.error());
  const Result<ProgramFile> file = InspectProgram(program);
  if (!file) return Bad(kCheck, file.error());
  const std::string& path = file->path;
  if (file->foreign) {
    return Bad(kCheck, path + " is not a 64-bit program for this machine",
               "the hook works with 64-bit programs only");
  }
  if (file->interpreter.empty()) {
    return Bad(kCheck, path + " is linked statically",
               "the hook cannot be preloaded: link it dynamically; else it runs outside its share, "
               "and batond only names it as an unmanaged process");
  }
  if (file->interpreter.find("ld-musl") != std::string::npos) {
    return Bad(kCheck, path + " uses musl", "the hook needs glibc: use a glibc-based image");
  }
  if (file->privileged) {
    return Bad(kCheck, path + " is setuid or setgid",
               "the loader ignores LD_PRELOAD for it: run a copy without that bit");
  }
  const std::string trace = Trace(path, *hook);
  if (trace.find("cannot be preloaded") != std::string::npos ||
      trace.find(*hook + " (0x") == std::string::npos) {
    return Bad(kCheck,
               *hook + " does not load into " + path + ": " + trace.substr(0, trace.find('\n')),
               "its glibc may be older than the hook's, or this user cannot read the file");
  }
  return Good(kCheck, *hook + " loads into " + path);
}

Finding CheckGpus(const std::string& socket_dir, const std::vector<std::string>& driver) {
  static const char* const kCheck = "GPUs";
  const Result<nlohmann::json> status = wire::Ask(socket_dir, {{"command", "status"}});
  if (!status) return Skipped(kCheck, "no answer from batond");
  if (driver.empty()) return Skipped(kCheck, "the driver lists none");
  std::vector<std::string> known;
  for (const nlohmann::json& gpu : status->value("gpus", nlohmann::json::array())) {
    known.push_back(gpu.value("uuid", ""));
  }
  std::string strangers;
  size_t managed = 0;
  for (const std::string& uuid : driver) {
    if (std::find(known.begin(), known.end(), uuid) != known.end()) {
      ++managed;
    } else {
      strangers += (strangers.empty() ? "" : ", ") + uuid;
    }
  }
  if (!strangers.empty()) {
    return Bad(kCheck, "batond does not manage " + strangers,
               "add it to batond's configuration, or remove it from CUDA_VISIBLE_DEVICES");
  }
  return Good(kCheck,
              "batond manages all " + std::to_string(managed) + " GPUs that the driver lists");
}

// Who holds the pods' memory caps: the driver, or the hook alone.
Finding CheckMemoryCaps(const std::string& socket_dir) {
  static const char* const kCheck = "memory caps";
  const Result<nlohmann::json> status = wire::Ask(socket_dir, {{"command", "status"}});
  if (!status) return Skipped(kCheck, "no answer from batond");
  const nlohmann::json none = nlohmann::json::array();
  std::string why;
  size_t by_driver = 0, by_hook = 0;
  bool can = false;
  for (const nlohmann::json& gpu : status->value("gpus", none)) {
    can = can || gpu.value("kernel_caps", false);
    if (why.empty()) why = gpu.value("kernel_caps_why", "");
  }
  for (const nlohmann::json& pod : status->value("pods", none)) {
    for (const nlohmann::json& gpu : pod.value("gpus", none)) {
      if (!gpu.contains("kernel_cap")) continue;
      const bool held = gpu.value("kernel_cap", false);
      ++(held ? by_driver : by_hook);
      if (!held && can) why = gpu.value("kernel_cap_why", "");
    }
  }
  if (!can) {
    return Good(kCheck, "the hook holds them" + (why.empty() ? "" : ", for " + why));
  }
  if (by_driver + by_hook == 0) {
    return Good(kCheck, "the driver can hold them for pods in containers, beside the hook");
  }
  return Good(kCheck, fmt::format("the driver holds {}{}", by_driver,
                                  by_hook == 0 ? ", beside the hook"
                                               : fmt::format(", the hook alone {}{}", by_hook,
                                                             why.empty() ? "" : ": " + why)));
}

Finding CheckKernel() {
  static const char* const kCheck = "kernel";
  const long pidfd = syscall(SYS_pidfd_open, getpid(), 0);
  if (pidfd < 0) {
    return Bad(kCheck, std::string("pidfd_open fails: ") + std::strerror(errno),
               "Linux 5.3 or later is needed, and a seccomp profile that allows it");
  }
  close(static_cast<int>(pidfd));
  const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) {
    return Bad(kCheck, "membarrier has no expedited form",
               "Linux 4.14 or later is needed, and a seccomp profile that allows it");
  }
  return Good(kCheck, "pidfd and membarrier work");
}

Finding CheckProcessors() {
  static const char* const kCheck = "processors";
  if (UseShortSlice()) return Good(kCheck, "hand-offs are quick beside busy ones too");
  return {kCheck, Verdict::kSkipped,
          "beside busy ones a hand-off may take milliseconds: no short scheduler slices",
          "Linux 6.12 or later has them (sched_setattr)"};
}

// What words need (hook/words.h).
Finding CheckHandOffs() {
  static const char* const kCheck = "hand-offs";
  const std::string cost = "each hand-off goes by way of the daemon: ";
  if (syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC) != 0 && errno != EINVAL) {
    return {kCheck, Verdict::kSkipped, cost + "futex_waitv: " + std::strerror(errno),
            "Linux 5.16 or later has it; a seccomp profile may forbid it"};
  }
  const UniqueFd file(memfd_create("baton-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
    return {kCheck, Verdict::kSkipped, cost + "sealed memory files: " + std::strerror(errno),
            "Linux 5.1 or later has them; a seccomp profile may forbid them"};
  }
  return Good(kCheck, "tokens are sent ahead, so pods hand over without the daemon");
}

int Doctor(bool json, const Invocation& invocation) {
  const std::string program = invocation.program.empty() ? "/bin/true" : invocation.program[0];
  std::vector<std::string> uuids;
  std::vector<Finding> findings{
      CheckKernel(),
      CheckProcessors(),
      CheckHandOffs(),
      CheckDriver(uuids),
      CheckHook(program),
      CheckControl(invocation.socket_dir),
      CheckTenantSocket(invocation.socket_dir),
  };
  if (ReachesBatond(invocation.socket_dir)) {
    findings.push_back(CheckDaemon(invocation.socket_dir));
    findings.push_back(CheckGpus(invocation.socket_dir, uuids));
    findings.push_back(CheckMemoryCaps(invocation.socket_dir));
  } else {  // one cause, one complaint
    findings.push_back(Skipped("daemon", "its control socket cannot be reached"));
    findings.push_back(Skipped("GPUs", "its control socket cannot be reached"));
    findings.push_back(Skipped("memory caps", "its control socket cannot be reached"));
  }
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kBad;
  });
  if (json) {
    nlohmann::json checks = nlohmann::json::array();
    for (const Finding& finding : findings) {
      checks.push_back({{"check", finding.check},
                        {"ok", finding.verdict == Verdict::kSkipped
                                   ? nlohmann::json()
                                   : nlohmann::json(finding.verdict == Verdict::kGood)},
                        {"detail", finding.detail},
                        {"advice", finding.advice}});
    }
    std::puts(nlohmann::json{{"healthy", healthy}, {"checks", checks}}.dump().c_str());
    return healthy ? 0 : kFailed;
  }
  for (const Finding& finding : findings) {
    const char* mark = finding.verdict == Verdict::kGood  ? "✓"
                       : finding.verdict == Verdict::kBad ? "✗"
                                                          : "–";
    std::printf("%s %-15s %s\n", mark, finding.check.c_str(), finding.detail.c_str());
    if (!finding.advice.empty()) std::printf("  %-15s → %s\n", "", finding.advice.c_str());
  }
  return healthy ? 0 : kFailed;
}

}  // namespace

void AddDoctor(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("doctor", "Check driver, hook and daemon, and say what to do");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton doctor
  baton doctor -- python3                              does the hook load into this program?
  baton doctor --json

The exit status is 0 when nothing is broken. PROGRAM is looked at, not run.)");
  command->callback([json, &invocation] {
    invocation.action = [json, &invocation] { return Doctor(*json, invocation); };
  });
}

}  // namespace baton::cli
