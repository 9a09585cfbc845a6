#include "node/gpu_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "node/start_check.h"

namespace baton::node {
namespace {

std::string FileOf(const std::string& uuid) { return "gpu-" + uuid + ".lock"; }

// Root's or this daemon's own, and nobody else may do with it what `others` says.
bool IsOurs(const struct stat& st, mode_t others) {
  return (st.st_uid == 0 || st.st_uid == geteuid()) && (st.st_mode & others) == 0;
}

// `lock_dir`, which is there. Only root or this daemon may make files in it.
Result<UniqueFd> OpenLockDir(const std::string& lock_dir) {
  UniqueFd dir(open(lock_dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir) {
    const std::string why = errno == ELOOP || errno == ENOTDIR
                                ? "it is a link, or not a folder; remove it"
                                : strerror(errno);
    return Fail(ErrorCode::kDenied,
                "cannot keep locks in " + lock_dir + ": " + why + ", or set server.lock_dir");
  }
  struct stat st;
  if (fstat(dir.get(), &st) != 0 || !IsOurs(st, S_IWGRP | S_IWOTH)) {
    return Fail(ErrorCode::kDenied,
                "cannot keep locks in " + lock_dir +
                    ": other users own it or may write to it; remove it, or set server.lock_dir to "
                    "a folder that only root may write to");
  }
  return dir;
}

// Why the file cannot be a lock of Baton's; empty: it can. Who may open a file may lock it.
std::string WhyNotALock(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return strerror(errno);
  if (!S_ISREG(st.st_mode)) return "it is not a regular file";
  if (st.st_nlink != 1) return "it has other names (hard links)";
  if (!IsOurs(st, S_IRWXG | S_IRWXO)) return "other users own it or may open it";
  return "";
}

}  // namespace

Result<UniqueFd> LockGpu(const std::string& lock_dir, const std::string& uuid) {
  if (auto made = MakeFolders(lock_dir, 0755); !made) {
    return Fail(made.error().code, made.error().message + "; set server.lock_dir");
  }
  const Result<UniqueFd> dir = OpenLockDir(lock_dir);
  if (!dir) return tl::unexpected(dir.error());
  const std::string name = FileOf(uuid);
  const std::string path = lock_dir + "/" + name;
  // A fifo or a device that stands there is not waited for.
  UniqueFd fd(openat(dir->get(), name.c_str(),
                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  if (!fd && errno != ELOOP) {
    return Fail(ErrorCode::kInternal, "cannot create " + path + ": " + strerror(errno) +
                                          "; check the rights on server.lock_dir");
  }
  if (const std::string why = fd ? WhyNotALock(fd.get()) : "it is a link"; !why.empty()) {
    return Fail(ErrorCode::kDenied,
                path + " is not a lock of Baton: " + why + "; remove it and start again");
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    const ssize_t n = pread(fd.get(), owner, sizeof owner - 1, 0);
    return Fail(ErrorCode::kExists,
                "another daemon" + (n > 0 ? " (pid " + std::string(owner) + ")" : std::string()) +
                    " already manages " + uuid + " on this machine; stop it first");
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // The lock counts; the pid in it is only for people.
  }
  return fd;
}

Result<void> CheckLockDir(const std::string& lock_dir) {
  struct stat st;
  if (lstat(lock_dir.c_str(), &st) == 0) {
    if (auto dir = OpenLockDir(lock_dir); !dir) return tl::unexpected(dir.error());
  }
  return CheckFolder(lock_dir);
}

Result<void> CheckUnlocked(const std::string& lock_dir, const std::string& uuid) {
  if (!IsLocked(lock_dir + "/" + FileOf(uuid))) return {};
  return Fail(ErrorCode::kExists,
              "another daemon already manages " + uuid + " on this machine; stop it first");
}

}  // namespace baton::node
