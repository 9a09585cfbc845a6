#include "k8s/device_plugin/hook_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "k8s/types/annotations.h"

namespace baton::k8s {
namespace {

constexpr std::streamsize kHookMax = 64 << 20;

// Nothing where it cannot be read, or is longer than any hook.
std::optional<std::string> Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamsize size = file ? static_cast<std::streamsize>(file.tellg()) : -1;
  if (size < 0 || size > kHookMax) return std::nullopt;
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) return std::nullopt;
  return text;
}

// Puts a file there, at once, where its contents differ. False: they do not.
Result<bool> Install(const std::string& path, const std::string& contents, mode_t mode) {
  if (Contents(path) == contents) return false;
  const std::string fresh = path + ".new-" + std::to_string(getpid());
  const auto fail = [&](const char* what) {
    const int why = errno;
    unlink(fresh.c_str());
    return Fail(ErrorCode::kInternal, std::string("cannot ") + what + " " + fresh + ": " +
                                          strerror(why) + "; check --hook-dest and its mount");
  };
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return fail("create");
  bool written = fchmod(fd, mode) == 0;
  for (size_t done = 0; written && done < contents.size();) {
    const ssize_t n = write(fd, contents.data() + done, contents.size() - done);
    if (n < 0 && errno == EINTR) continue;
    written = n > 0;
    if (written) done += static_cast<size_t>(n);
  }
  written = written && fsync(fd) == 0;
  if (!written) {
    const int why = errno;
    close(fd);
    errno = why;
    return fail("write");
  }
  close(fd);
  // A kubelet makes a folder of a file that is not there yet when a pod mounts it.
  rmdir(path.c_str());
  if (rename(fresh.c_str(), path.c_str()) != 0) return fail("rename");
  return true;
}

}  // namespace

Result<bool> InstallHook(const std::string& source, const std::string& folder) {
  const auto hook = Contents(source);
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
