#include "k8s/device_plugin/hook_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "k8s/types/annotations.h"

namespace baton::k8s {
namespace {

constexpr size_t kHookMax = 64 << 20;  // bytes; longer than any hook

// Puts a file there, at once, where its contents differ. False: they do not.
Result<bool> Install(const std::string& path, const std::string& contents, mode_t mode) {
  if (const auto there = ReadFile(path, kHookMax); there && *there == contents) return false;
  const std::string fresh = path + ".new-" + std::to_string(getpid());
  const auto fail = [&](const char* what) {
    const int why = errno;
    unlink(fresh.c_str());
    return Fail(ErrorCode::kInternal, std::string("cannot ") + what + " " + fresh + ": " +
                                          strerror(why) + "; check --hook-dest and its mount");
  };
  UniqueFd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd) return fail("create");
  if (fchmod(fd.get(), mode) != 0 || !WriteAll(fd.get(), contents) || fsync(fd.get()) != 0) {
    return fail("write");
  }
  fd.Close();
  // A kubelet makes a folder of a file that is not there yet when a pod mounts it.
  rmdir(path.c_str());
  if (rename(fresh.c_str(), path.c_str()) != 0) return fail("rename");
  return true;
}

}  // namespace

Result<bool> InstallHook(const std::string& source, const std::string& folder) {
  const auto hook = ReadFile(source, kHookMax);
  if (!hook || hook->empty()) {
    return Fail(ErrorCode::kNotFound, "cannot read the hook " + source + "; check --hook-source");
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Fail(ErrorCode::kInternal, "cannot make the folder " + folder + ": " + error.message());
  }
  const std::string name = std::filesystem::path(source).filename().string();
  auto installed = Install(folder + "/" + name, *hook, 0755);
  if (!installed) return installed;
  auto preload = Install(folder + "/" + std::string(kPreloadFile),
                         std::string(kHookDir) + "/" + name + "\n", 0644);
  if (!preload) return preload;
  return *installed || *preload;
}

}  // namespace baton::k8s
