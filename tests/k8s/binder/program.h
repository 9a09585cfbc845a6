// The program baton-k8s, started by tests of the binder.
#ifndef BATON_TESTS_K8S_BINDER_PROGRAM_H_
#define BATON_TESTS_K8S_BINDER_PROGRAM_H_

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern char** environ;

namespace baton::k8s::testing {

// A kubeconfig of an API server without credentials; the file goes with it.
class Kubeconfig {
 public:
  explicit Kubeconfig(const std::string& url)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("baton-kubeconfig-{}-{}.yaml", getpid(), ++made_)) {
    std::ofstream(path_) << fmt::format(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        "clusters: [{{name: c, cluster: {{server: \"{}\"}}}}]\n"
        "users: [{{name: u, user: {{}}}}]\n",
        url);
  }
  ~Kubeconfig() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  static inline int made_ = 0;
  const std::string path_;
};

class Program {
 public:
  explicit Program(std::vector<std::string> arguments, const std::string& log = "/dev/null") {
    arguments.insert(arguments.begin(), BATON_K8S);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {1, 2}) {
      posix_spawn_file_actions_addopen(&actions, fd, log.c_str(), 02001 /* O_WRONLY, O_APPEND */,
                                       0600);
    }
    EXPECT_EQ(posix_spawn(&pid_, BATON_K8S, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Program() { End(SIGKILL); }
  int End(int signal) {
    if (pid_ <= 0) return 0;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  // The most memory that it had at once so far, in KiB; 0: not known.
  uint64_t PeakKib() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    std::string word;
    uint64_t kib = 0;
    while (status >> word) {
      if (word == "VmHWM:") status >> kib;
    }
    return kib;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_BINDER_PROGRAM_H_
