#include "bench/lone_batond.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/cluster.h"
#include "wire/control_client.h"

namespace baton::bench {

namespace fs = std::filesystem;

Result<std::string> FreeAddress() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      fd >= 0 && bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!bound) return Fail(ErrorCode::kInternal, std::string("no free port: ") + strerror(error));
  return "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

Result<std::unique_ptr<LoneBatond>> LoneBatond::Start(const std::string& configuration,
                                                      const std::string& server) {
  std::unique_ptr<LoneBatond> batond(new LoneBatond);
  std::string pattern = fs::temp_directory_path() / "baton-bench-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return Fail(ErrorCode::kInternal,
                "cannot make a folder like " + pattern + ": " + strerror(errno));
  }
  batond->folder_ = pattern;
  const std::string config = pattern + "/batond.toml", log = pattern + "/log";
  std::ofstream(config) << "[server]\nsocket_dir = \"" << pattern << "\"\nstate_dir = \"" << pattern
                        << "/state\"\nlock_dir = \"" << pattern << "/lock\"\n"
                        << server << configuration;
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "batond";
  SpawnOptions spawn;
  spawn.command = {program, "--config", config};
  spawn.stdout_path = spawn.stderr_path = log;
  Result<Process> process = Process::Spawn(spawn);
  if (!process) return tl::unexpected(process.error());
  batond->process_ = std::move(*process);
  const bool ready = WaitUntil(
      [&] {
        return wire::Ask(pattern, {{"command", "ping"}}).has_value() ||
               !batond->process_->running();
      },
      std::chrono::seconds(10));
  if (!ready || !batond->process_->running()) {
    std::ostringstream said;
    said << std::ifstream(log).rdbuf();
    return Fail(ErrorCode::kUnavailable, "batond did not start; it said:\n" + said.str());
  }
  return batond;
}

LoneBatond::~LoneBatond() {
  if (process_) process_->Stop(std::chrono::seconds(5));
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace baton::bench
