// The simulated libraries by dlopen, as in real programs, and in a child: a driver is started once
// in a process.
#ifndef BATON_TESTS_SIM_IN_CHILD_H_
#define BATON_TESTS_SIM_IN_CHILD_H_

#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

namespace baton::sim {

inline void* Library(const char* name) {
  const char* directory = getenv("BATON_SIM_LIB");
  const std::string path = std::string(directory != nullptr ? directory : "lib/sim") + "/" + name;
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

#define STRING_(x) #x
#define STRING(x) STRING_(x)
// A function of the simulated driver, under the name that cuda.h means.
#define SIM(name) \
  (reinterpret_cast<decltype(&::name)>(dlsym(Library("libcuda.so.1"), STRING(name))))
#define NVML(type, name) (reinterpret_cast<type>(dlsym(Library("libnvidia-ml.so.1"), name)))

// Runs `body` in a child; its result is the child's exit code.
inline int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace baton::sim

#endif  // BATON_TESTS_SIM_IN_CHILD_H_
