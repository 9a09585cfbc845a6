#include "tests/hook/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace baton::hook {

Child::Child(const std::map<std::string, std::string>& environment) {
  int in[2], out[2], err[2];
  BATON_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 &&
              pipe2(err, O_CLOEXEC) == 0);
  pid_ = fork();
  BATON_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    // scripts/aarch64 has those of another processor.
    const auto given = [](const char* name, const char* built) {
      const char* value = getenv(name);
      return value != nullptr ? value : built;
    };
    const char* probe = given("BATON_TEST_PROBE", BATON_PROBE);
    setenv("LD_PRELOAD", given("BATON_TEST_HOOK", BATON_HOOK_LIBRARY), 1);
    setenv("LD_LIBRARY_PATH", given("BATON_TEST_DRIVER", BATON_FAKE_DRIVER_FOLDER), 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (const char* emulator = getenv("BATON_TEST_EMULATOR")) {
      execlp(emulator, emulator, probe, nullptr);
    } else {
      execl(probe, probe, nullptr);
    }
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  in_ = in[1];
  out_ = out[0];
  err_ = err[0];
  fcntl(err_, F_SETFL, O_NONBLOCK);
  signal(SIGPIPE, SIG_IGN);
}

Child::~Child() {
  Kill();
  // It was killed, so its exit status does not tell of a sanitizer's report.
  if (Errors().find("Sanitizer: ") != std::string::npos) ADD_FAILURE() << Errors();
  close(in_);
  close(out_);
  close(err_);
}

void Child::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Child::Send(const std::string& line) {
  const std::string text = line + "\n";
  (void)!write(in_, text.data(), text.size());
}

std::string Child::Read() {
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd fd = {out_, POLLIN, 0};
    if (poll(&fd, 1, 20'000) <= 0) return "";
    char bytes[4096];
    const ssize_t n = read(out_, bytes, sizeof(bytes));
    if (n <= 0) return "";
    buffer_.append(bytes, static_cast<size_t>(n));
  }
}

std::string Child::Ask(const std::string& line) {
  Send(line);
  return Read();
}

bool Child::Silent(int ms) {
  pollfd fd = {out_, POLLIN, 0};
  return buffer_.empty() && poll(&fd, 1, ms) == 0;
}

std::string Child::Errors() {
  char bytes[4096];
  for (ssize_t n; (n = read(err_, bytes, sizeof(bytes))) > 0;) {
    errors_.append(bytes, static_cast<size_t>(n));
  }
  return errors_;
}

}  // namespace baton::hook
