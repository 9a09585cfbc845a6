// Stands in for nvidia-cuda-mps-control where there is no NVIDIA driver: the control daemon of the
// Multi-Process Service and its front end, after the man page and NVIDIA's guide to MPS ("Legacy
// MPS v2 Interface", "Environment Variables"). It keeps limits and lists of servers and clients as
// the real one does; its servers only wait, for there is no GPU behind them.
//
//   nvidia-cuda-mps-control -d     the daemon, in the background
//   nvidia-cuda-mps-control -f     the daemon, in the foreground
//   nvidia-cuda-mps-control        sends the commands on its stdin to the daemon
//   nvidia-cuda-mps-control --sim-client SECONDS
//                                  a process that uses MPS, as CUDA's library would: not in the
//                                  real one. Prints the limits that bind it
//
// Where: CUDA_MPS_PIPE_DIRECTORY, CUDA_MPS_LOG_DIRECTORY.
// Faults, in BATON_SIM_MPS_FAULT: "start", it refuses to start; "die", it starts and ends at once;
// "slow", it listens only after a while; "hang", it listens and never answers.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string Environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string PipeDirectory() { return Environment("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"); }
std::string Fault() { return Environment("BATON_SIM_MPS_FAULT", ""); }

bool AddressOf(sockaddr_un* address) {
  const std::string path = PipeDirectory() + "/control";
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return true;
}

// "8G" or "900M", in MiB.
std::optional<uint64_t> ParseLimit(const std::string& text) {
  if (text.size() < 2 || text.size() > 12) return std::nullopt;
  const char unit = text.back();
  const std::string digits = text.substr(0, text.size() - 1);
  if ((unit != 'G' && unit != 'M') || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::strtoull(digits.c_str(), nullptr, 10) * (unit == 'G' ? 1024 : 1);
}

std::optional<double> ParsePercentage(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 100) return std::nullopt;
  return value;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

struct Answer {
  bool fine = true;
  std::string text;
};

class Daemon {
 public:
  // Returns the exit status.
  int Run() {
    log_ = std::fopen(
        (Environment("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps") + "/control.log").c_str(),
        "ae");
    if (Fault() == "die") return 1;
    if (Fault() == "slow") usleep(300'000);
    sockaddr_un address;
    listen_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!AddressOf(&address)) {
      Log("the name of the pipe directory is too long for a socket");
      return 1;
    }
    unlink(address.sun_path);
    if (bind(listen_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(listen_, 64) != 0) {
      Log(std::string("cannot listen: ") + std::strerror(errno));
      return 1;
    }
    chmod(address.sun_path, 0666);
    const std::string pid_file = PipeDirectory() + "/nvidia-cuda-mps-control.pid";
    if (FILE* file = std::fopen(pid_file.c_str(), "we")) {
      std::fprintf(file, "%d", getpid());
      std::fclose(file);
    }
    Log("Start, devices: " + Environment("CUDA_VISIBLE_DEVICES", "all"));
    while (!ended_) Turn();
    for (const auto& [pid, server] : servers_) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    // As the real one: the pid's file goes, the socket stays and refuses.
    unlink(pid_file.c_str());
    Log("Exit");
    return 0;
  }

 private:
  struct Server {
    unsigned uid = 0;
    double percentage = 100;
    std::map<std::string, uint64_t> limits;  // MiB, by device
    std::vector<pid_t> clients;
  };
  struct Peer {
    int fd = -1;
    std::string input;
    pid_t client = 0;  // not 0: it is a client of `server`
    pid_t server = 0;
  };

  void Log(const std::string& text) {
    if (log_ == nullptr) return;
    std::fprintf(log_, "[Control %d] %s\n", getpid(), text.c_str());
    std::fflush(log_);
  }

  void Turn() {
    std::vector<pollfd> fds = {{quitting_ ? -1 : listen_, POLLIN, 0}};
    for (const Peer& peer : peers_) fds.push_back({peer.fd, POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) servers_.erase(pid);
    for (size_t i = peers_.size(); i-- > 0;) {
      if (fds[i + 1].revents != 0 && !Hear(peers_[i])) {
        close(peers_[i].fd);
        if (const auto at = servers_.find(peers_[i].server); at != servers_.end()) {
          std::erase(at->second.clients, peers_[i].client);
        }
        peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (fds[0].revents != 0) {
      const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) peers_.push_back({fd, "", 0, 0});
    }
    // It ends when its clients have.
    if (quitting_ &&
        std::none_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.client != 0; })) {
      ended_ = true;
    }
  }

  // False: the peer is gone.
  bool Hear(Peer& peer) {
    char bytes[4096];
    const ssize_t n = read(peer.fd, bytes, sizeof(bytes));
    if (n <= 0 || peer.input.size() > 65'536) return false;
    peer.input.append(bytes, static_cast<size_t>(n));
    for (size_t end; (end = peer.input.find('\n')) != std::string::npos;) {
      const std::string line = peer.input.substr(0, end);
      peer.input.erase(0, end + 1);
      if (Fault() == "hang") continue;
      Log("> " + line);
      const Answer answer = line.starts_with("sim_client ") ? Connect(peer, line) : Obey(line);
      const std::string reply = (answer.fine ? "0" : "1") + answer.text + '\0';
      if (write(peer.fd, reply.data(), reply.size()) < 0) return false;
    }
    return true;
  }

  // Starts a server for the user, if none is there.
  pid_t ServerOf(unsigned uid) {
    for (const auto& [pid, server] : servers_) {
      if (server.uid == uid) return pid;
    }
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_NAME, "mps-server");
      for (const Peer& peer : peers_) close(peer.fd);
      close(listen_);
      for (;;) pause();
    }
    servers_[pid] = {uid, default_percentage_, default_limits_, {}};
    Log("server " + std::to_string(pid) + " for user " + std::to_string(uid));
    return pid;
  }

  // What CUDA's library does when a program with these limits begins: "sim_client PERCENT DEVICE
  // MIB" (0: none).
  Answer Connect(Peer& peer, const std::string& line) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    getsockopt(peer.fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    std::istringstream words(line);
    std::string word, device;
    double percentage = 100;
    uint64_t limit = 0;
    words >> word >> percentage >> device >> limit;
    peer.server = ServerOf(credentials.uid);
    peer.client = credentials.pid;
    Server& server = servers_[peer.server];
    server.clients.push_back(peer.client);
    const auto own = server.limits.find(device);
    if (own != server.limits.end()) limit = limit == 0 ? own->second : std::min(limit, own->second);
    return {true, Number(std::min(percentage, server.percentage)) + " " + std::to_string(limit)};
  }

  Answer Obey(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) return {};
    const std::string& command = words[0];
    const size_t n = words.size() - 1;
    const auto server = [&]() -> Server* {
      const auto at = n > 0 ? servers_.find(std::atoi(words[1].c_str())) : servers_.end();
      return at != servers_.end() ? &at->second : nullptr;
    };
    const Answer unknown = {false, "Server " + (n > 0 ? words[1] : "") + " not found"};
    if (command == "get_server_list" && n == 0) {
      std::string list;
      for (const auto& [pid, s] : servers_) list += std::to_string(pid) + "\n";
      return {true, list};
    }
    if (command == "start_server" && n == 2 && words[1] == "-uid") {
      ServerOf(static_cast<unsigned>(std::atoi(words[2].c_str())));
      return {};
    }
    if (command == "get_client_list" && n == 1) {
      if (server() == nullptr) return unknown;
      std::string list;
      for (const pid_t pid : server()->clients) list += std::to_string(pid) + "\n";
      return {true, list};
    }
    if (command == "get_default_active_thread_percentage" && n == 0) {
      return {true, Number(default_percentage_)};
    }
    if (command == "set_default_active_thread_percentage" && n == 1) {
      const auto value = ParsePercentage(words[1]);
      if (!value) return {false, "Invalid percentage " + words[1]};
      default_percentage_ = *value;
      return {true, Number(*value)};
    }
    if (command == "get_active_thread_percentage" && n == 1) {
      return server() != nullptr ? Answer{true, Number(server()->percentage)} : unknown;
    }
    if (command == "set_active_thread_percentage" && n == 2) {
      const auto value = ParsePercentage(words[2]);
      if (!value) return {false, "Invalid percentage " + words[2]};
      if (server() == nullptr) return unknown;
      server()->percentage = *value;
      return {true, Number(*value)};
    }
    if (command == "get_default_device_pinned_mem_limit" && n == 1) {
      return LimitIn(default_limits_, words[1]);
    }
    if (command == "set_default_device_pinned_mem_limit" && n == 2) {
      const auto limit = ParseLimit(words[2]);
      if (!limit) return {false, "Invalid limit " + words[2]};
      default_limits_[words[1]] = *limit;
      return {};
    }
    if (command == "get_device_pinned_mem_limit" && n == 2) {
      return server() != nullptr ? LimitIn(server()->limits, words[2]) : unknown;
    }
    if (command == "set_device_pinned_mem_limit" && n == 3) {
      const auto limit = ParseLimit(words[3]);
      if (!limit) return {false, "Invalid limit " + words[3]};
      if (server() == nullptr) return unknown;
      server()->limits[words[2]] = *limit;
      return {};
    }
    if (command == "quit" && (n == 0 || (n == 2 && words[1] == "-t"))) {
      quitting_ = true;
      // With a time the servers end then, whoever uses them; here at once.
      ended_ = n == 2;
      return {};
    }
    return {false, "Invalid command: " + line};
  }

  static Answer LimitIn(const std::map<std::string, uint64_t>& limits, const std::string& device) {
    const auto at = limits.find(device);
    return {true, at != limits.end() ? std::to_string(at->second) + "M" : "none"};
  }

  FILE* log_ = nullptr;
  int listen_ = -1;
  bool quitting_ = false;
  bool ended_ = false;
  double default_percentage_ = 100;
  std::map<std::string, uint64_t> default_limits_;
  std::map<pid_t, Server> servers_;
  std::vector<Peer> peers_;
};

int StartDaemon(bool background) {
  if (Fault() == "start") {
    std::fprintf(stderr, "Failed to start: no CUDA-capable device\n");
    return 1;
  }
  mkdir(PipeDirectory().c_str(), 0755);
  // Held as long as the daemon lives.
  const int lock = open((PipeDirectory() + "/control_lock").c_str(), O_RDWR | O_CREAT, 0666);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (lock < 0) {
      std::fprintf(stderr, "Cannot use %s: %s\n", PipeDirectory().c_str(), std::strerror(errno));
    } else {
      std::fprintf(stderr, "An instance of this daemon is already running\n");
    }
    return 1;
  }
  if (background) {
    const pid_t pid = fork();
    if (pid != 0) return pid < 0;
    setsid();
  }
  signal(SIGPIPE, SIG_IGN);
  fcntl(lock, F_SETFD, FD_CLOEXEC);
  return Daemon().Run();
}

int Connected() {
  sockaddr_un address;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!AddressOf(&address) ||
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    std::fprintf(stderr, "Cannot find MPS control daemon process\n");
    return -1;
  }
  return fd;
}

// Nothing: the daemon has ended.
std::optional<Answer> Ask(int fd, const std::string& line) {
  const std::string out = line + "\n";
  if (write(fd, out.data(), out.size()) < 0) return std::nullopt;
  std::string reply;
  for (char c; read(fd, &c, 1) == 1;) {
    if (c == '\0') return Answer{reply[0] == '0', reply.substr(1)};
    reply += c;
  }
  return std::nullopt;
}

int FrontEnd() {
  const int fd = Connected();
  if (fd < 0) return 1;
  int status = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = Ask(fd, line);
    if (!answer) return line.starts_with("quit") ? 0 : 1;
    if (!answer->text.empty()) {
      std::printf("%s%s", answer->text.c_str(), answer->text.back() == '\n' ? "" : "\n");
    }
    std::fflush(stdout);
    if (!answer->fine) status = 1;
  }
  return status;
}

int Client(const char* seconds) {
  const int fd = Connected();
  if (fd < 0) return 1;
  const std::string limit = Environment("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "-=0M");
  const size_t equals = limit.find('=');
  const auto mib =
      equals != std::string::npos ? ParseLimit(limit.substr(equals + 1)) : std::nullopt;
  const std::string device = Environment("CUDA_VISIBLE_DEVICES", "0");
  const auto answer =
      Ask(fd, "sim_client " + Environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100") + " " +
                  device + " " + std::to_string(mib.value_or(0)));
  if (!answer) return 1;
  std::printf("%s\n", answer->text.c_str());
  std::fflush(stdout);
  // Until then, or until nobody reads from us any more.
  pollfd out{1, 0, 0};
  poll(&out, 1, static_cast<int>(std::strtod(seconds, nullptr) * 1000));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string option = argc > 1 ? argv[1] : "";
  if (option.empty()) return FrontEnd();
  if (option == "-d" || option == "-f") return StartDaemon(option == "-d");
  if (option == "--sim-client" && argc == 3) return Client(argv[2]);
  std::fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f]\n");
  return 1;
}
