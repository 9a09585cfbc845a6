#include "bench/sandbox.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace baton::bench {
namespace {

constexpr Duration kPodStart = std::chrono::seconds(30);

struct StayingPod {
  const char* name;
  const char* request;
  const char* limit;
  const char* team;
  std::vector<std::string> burn;
};

// Two that always have work, and a service: 5 ms of work, ten times a second.
const std::vector<StayingPod>& StayingPods() {
  static const std::vector<StayingPod> pods = {
      {"llm", "40", "100", "research", {"--kernel", "1ms", "--spread", "0.2"}},
      {"batch", "20", "100", "research", {"--kernel", "2ms", "--spread", "0.2"}},
      {"web", "10", "50", "product", {"--burst", "5", "--sync", "burst", "--period", "100ms"}},
  };
  return pods;
}

constexpr char kWelcome[] = R"(
Three pods share a simulated GPU: llm (request 40 %), batch (20 %) and web (10 %, at most 50).
Try:
  baton top                                        who gets what, live (q ends it)
  baton run --name mine --request 20 -- baton-burn --seconds 5
  baton set llm --request 50                       at once, while it runs
  baton explain pod web                            why it gets what it gets
  baton report                                     who used what
  exit                                             ends all of it
)";

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What Bash reads first.
std::string Profile(Cluster& cluster, const std::string& http) {
  std::string text =
      "[ -n \"${PS1-}\" ] && [ -r ~/.bashrc ] && . ~/.bashrc\n"
      "unset BASH_ENV\n"
      "sudo() { while [ \"${1#-}\" != \"$1\" ]; do shift; done; \"$@\"; }\n";
  for (const auto& [name, value] : cluster.GpuEnvironment(0)) {
    const std::string programs = cluster.Program("");
    const std::string all =
        name == "PATH" ? programs.substr(0, programs.size() - 1) + ":" + value : value;
    text += "export " + name + "=" + Quoted(all) + "\n";
  }
  text += "unset BATON_URL BATON_TOKEN_FILE BATON_CA_FILE\n";  // of another batond
  text += "export BATON_SOCKET_DIR=" + Quoted(cluster.SocketDir(0)) + "\n";
  text += "eval \"$(baton completion bash)\"\n";
  text += "if [ -n \"${PS1-}\" ]; then\n  PS1='(baton) \\w\\$ '\n  cat <<'TEXT'\n";
  text += kWelcome;
  if (!http.empty()) text += "The page: http://" + http + "/\n";
  text += "\nTEXT\nfi\n";
  return text;
}

// The terminal is the shell's meanwhile, so signals of its keys are not for this process.
int RunBash(const std::string& profile) {
  struct sigaction ignore = {}, interrupt, quit, output;
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGINT, &ignore, &interrupt);
  sigaction(SIGQUIT, &ignore, &quit);
  sigaction(SIGTTOU, &ignore, &output);
  const pid_t shell = fork();
  if (shell == 0) {
    for (const int signal : {SIGINT, SIGQUIT, SIGTTOU}) ::signal(signal, SIG_DFL);
    if (isatty(STDIN_FILENO) != 0) {
      execlp("bash", "bash", "--rcfile", profile.c_str(), "-i", nullptr);
    } else {
      setenv("BASH_ENV", profile.c_str(), 1);
      execlp("bash", "bash", "-s", nullptr);
    }
    _exit(127);
  }
  int status = 0;
  while (shell > 0 && waitpid(shell, &status, 0) < 0 && errno == EINTR) {
  }
  sigaction(SIGINT, &interrupt, nullptr);
  sigaction(SIGQUIT, &quit, nullptr);
  sigaction(SIGTTOU, &output, nullptr);
  return shell > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

Result<int> RunSandbox(Cluster& cluster, const std::string& http) {
  std::vector<Pod> pods;
  for (const StayingPod& staying : StayingPods()) {
    PodOptions pod;
    pod.name = staying.name;
    pod.request = staying.request;
    pod.limit = staying.limit;
    pod.run_flags = {"--team", staying.team};
    pod.command = {cluster.Program("baton-burn"), "--die-with-parent", "--seconds", "1000000"};
    pod.command.insert(pod.command.end(), staying.burn.begin(), staying.burn.end());
    auto started = cluster.Run(pod);
    if (!started) return tl::unexpected(started.error());
    pods.push_back(std::move(*started));
  }
  for (const Pod& pod : pods) {
    auto ran = cluster.WaitForKernels(cluster.device(0, 0), pod, 0, kPodStart);
    if (!ran) return tl::unexpected(ran.error());
  }
  const std::string profile = cluster.File("shell.rc");
  std::ofstream file(profile);
  file << Profile(cluster, http);
  file.close();
  if (!file) {
    return Fail(ErrorCode::kInternal, "cannot write " + profile + ": " + strerror(errno));
  }
  return RunBash(profile);
}

}  // namespace baton::bench
