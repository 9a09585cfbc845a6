#include "node/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "node/pod_cgroup.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace baton::node {
namespace {

constexpr size_t kCgroupMax = 64 << 10;
constexpr size_t kEnvironmentMax = 4 << 20;
constexpr size_t kTicketMax = 128;

// pid_t → pidfd, by number: glibc 2.31 has no wrapper.
int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool HasExited(int pidfd) {
  pollfd p{pidfd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

std::string OfProcess(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

// Numbered as proc(5) does.
Result<uint64_t> StatField(pid_t pid, int number) {
  auto stat = ReadFile(OfProcess(pid, "stat"), 4096);
  if (!stat) return tl::unexpected(stat.error());
  // The command in parentheses may contain anything, parentheses too: count from the last one.
  const size_t end = stat->rfind(')');
  if (end == std::string::npos) return Fail(ErrorCode::kInternal, "/proc/PID/stat is malformed");
  const char* at = stat->c_str() + end + 1;
  for (int field = 3; field < number; ++field) {
    at = strchr(at + 1, ' ');
    if (at == nullptr) return Fail(ErrorCode::kInternal, "/proc/PID/stat is malformed");
  }
  return strtoull(at + 1, nullptr, 10);
}

std::string UserName(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(16 << 10);
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_name;
}

// `environment`: variables with a zero behind each.
std::string TicketIn(std::string_view environment) {
  constexpr std::string_view kName = "BATON_TICKET=";
  while (!environment.empty()) {
    const std::string_view variable = environment.substr(0, environment.find('\0'));
    environment.remove_prefix(std::min(environment.size(), variable.size() + 1));
    if (variable.substr(0, kName.size()) != kName) continue;
    return std::string(variable.substr(kName.size(), kTicketMax));
  }
  return "";
}

}  // namespace

Result<Peer> PeerOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Fail(ErrorCode::kInternal, std::string("SO_PEERCRED: ") + strerror(errno));
  }
  if (credentials.pid <= 0) {
    return Fail(ErrorCode::kDenied,
                "your process is not visible to the daemon; run the daemon in the host's pid "
                "namespace (hostPID: true)");
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  int pidfd = -1;
  size = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
    peer.pidfd = UniqueFd(pidfd);
  } else {
    // Older kernels: the pid may have been given out again between connect and here, but then the
    // first process is gone and with it the connection; the caller reads end-of-file at once.
    peer.pidfd = UniqueFd(PidfdOpen(peer.pid));
  }
  auto start_time = StartTime(peer.pid);
  const auto cgroup = ReadFile(OfProcess(peer.pid, "cgroup"), kCgroupMax);
  // Whoever still runs has kept its pid meanwhile: what was read was about it.
  if (!peer.pidfd || !start_time || HasExited(peer.pidfd.get())) {
    return Fail(ErrorCode::kDenied, "your process has ended");
  }
  peer.start_time = *start_time;
  peer.image = ImageOf(peer.pid);
  if (cgroup) peer.kubernetes_pod = KubernetesPodIn(*cgroup);
  if (cgroup) peer.group = ContainerGroupIn(*cgroup);
  return peer;
}

Result<uint64_t> StartTime(pid_t pid) { return StatField(pid, 22); }

uint64_t ImageOf(pid_t pid) {
  const auto code = StatField(pid, 26);
  const auto stack = StatField(pid, 28);
  // Without the right to know, the kernel says 0 or 1.
  return code && stack && *stack > 1 ? *code * 31 + *stack : 0;
}

UniqueFd OpenPidfd(pid_t pid, uint64_t start_time) {
  UniqueFd fd(PidfdOpen(pid));
  if (!fd) return fd;
  // The order matters: the start time is read while the pidfd pins the pid.
  auto now = StartTime(pid);
  if (!now || *now != start_time || HasExited(fd.get())) fd.Close();
  return fd;
}

void Kill(int pidfd) { syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0); }

Result<ProcessFacts> FactsOf(pid_t pid) {
  ProcessFacts facts;
  auto start_time = StartTime(pid);
  if (!start_time) return tl::unexpected(start_time.error());
  facts.start_time = *start_time;
  struct stat folder = {};
  if (stat(OfProcess(pid, "").c_str(), &folder) != 0) {
    return Fail(ErrorCode::kNotFound, "the process has ended");
  }
  facts.uid = folder.st_uid;
  facts.user = UserName(facts.uid);
  if (auto command = ReadFile(OfProcess(pid, "comm"), 4096)) {
    facts.command = command->substr(0, command->find('\n'));
  }
  if (const auto cgroup = ReadFile(OfProcess(pid, "cgroup"), kCgroupMax)) {
    facts.container = ContainerIn(*cgroup);
    facts.kubernetes_pod = KubernetesPodIn(*cgroup);
  }
  if (const auto environment = ReadFile(OfProcess(pid, "environ"), kEnvironmentMax)) {
    facts.ticket = TicketIn(*environment);
  }
  // The pid may have been given out again meanwhile.
  const auto still = StartTime(pid);
  if (!still || *still != facts.start_time) {
    return Fail(ErrorCode::kNotFound, "the process has ended");
  }
  return facts;
}

std::string BootId() {
  auto text = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  if (!text) return std::string(36, '0');
  return text->substr(0, 36);
}

}  // namespace baton::node
