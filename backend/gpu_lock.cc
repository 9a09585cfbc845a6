#include "backend/gpu_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

namespace baton::backend {

Result<UniqueFd> LockGpu(const std::string& lock_dir, const std::string& uuid) {
  if (auto made = MakeFolders(lock_dir, 0755); !made) return tl::unexpected(made.error());
  const std::string path = lock_dir + "/gpu-" + uuid + ".lock";
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) {
    return Fail(ErrorCode::kInternal, "cannot create " + path + ": " + strerror(errno) +
                                          "; check the rights on server.lock_dir");
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    auto owner = ReadFile(path, 64);
    return Fail(ErrorCode::kExists,
                "another daemon" +
                    (owner && !owner->empty() ? " (pid " + *owner + ")" : std::string()) +
                    " already manages " + uuid + " on this machine; stop it first");
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // The lock counts; the pid in it is only for people.
  }
  return fd;
}

}  // namespace baton::backend
