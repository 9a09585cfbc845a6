// Runs batond or baton-frontend as a process of its own, in a folder of the test, so that it can be
// killed at any instant, and asks its control socket.
#ifndef BATON_TESTS_BACKEND_DAEMON_PROCESS_H_
#define BATON_TESTS_BACKEND_DAEMON_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/temp_folder.h"

namespace baton::backend {

void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);

class DaemonProcess {
 public:
  // Its standard error goes to `log`. `flags`: beside --config.
  DaemonProcess(std::string program, std::string config, std::string log,
                std::vector<std::string> flags = {});
  // Kills it. What a sanitizer wrote to the log fails the test.
  ~DaemonProcess();

  // Starts it and waits until it says that it is ready. False when it ended instead.
  bool Start();
  void Signal(int signal);  // returns when it has stopped, if that is the signal
  // SIGKILL, and its end.
  void Crash();
  // SIGTERM, and its end. Its exit status, or 128 + signal.
  int Stop();
  int Wait();
  pid_t pid() const { return pid_; }
  // Empty where it goes into a pipe.
  std::string Log() const;

 private:
  const std::string program_;
  const std::string config_;
  const std::string log_;
  const std::vector<std::string> flags_;
  pid_t pid_ = -1;
};

// One request to a control socket. A null object when there is no answer.
nlohmann::json Ask(const std::string& socket, const nlohmann::json& request);
// Looks again and again until it holds. False when patience ends first.
bool Eventually(const std::function<bool()>& condition);
// Of this machine, on which nobody listened a moment ago.
int FreePort();

// A process that holds the token of a GPU until it is killed: for deaths that are real.
class HolderProcess {
 public:
  HolderProcess(const std::string& socket, const std::string& ticket, const std::string& uuid);
  ~HolderProcess();
  // Waits until it has the token.
  bool AwaitHolding();
  // It has said that it has drained.
  bool GiveBack() const;
  void Kill();
  pid_t pid() const { return pid_; }

 private:
  bool AwaitWord() const;
  pid_t pid_ = -1;
  int told_ = -1;
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_DAEMON_PROCESS_H_
