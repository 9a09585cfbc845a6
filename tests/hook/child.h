// A probe under LD_PRELOAD, and the conversation with it.
#ifndef BATON_TESTS_HOOK_CHILD_H_
#define BATON_TESTS_HOOK_CHILD_H_

#include <sys/types.h>

#include <map>
#include <string>

namespace baton::hook {

class Child {
 public:
  // Starts the probe with the hook preloaded and `environment` on top of this process's.
  explicit Child(const std::map<std::string, std::string>& environment);
  ~Child();  // kills it; a sanitizer's report fails the test
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Send(const std::string& line);
  // The next line it says; "" after 20 s of silence or at its end.
  std::string Read();
  // Send, then Read.
  std::string Ask(const std::string& line);
  // True when nothing was said within `ms`.
  bool Silent(int ms);
  void Kill();
  // What it wrote to stderr so far.
  std::string Errors();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string buffer_, errors_;
};

}  // namespace baton::hook

#endif  // BATON_TESTS_HOOK_CHILD_H_
