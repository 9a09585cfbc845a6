#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

namespace baton {

void UniqueFd::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Result<void> ReplaceFile(const std::string& path, const std::string& text, mode_t mode, bool sync) {
  const std::string fresh = path + ".new";
  auto fail = [&](const char* what) {
    const int error = errno;
    unlink(fresh.c_str());
    return Fail(ErrorCode::kInternal, std::string(what) + " " + fresh + ": " + strerror(error));
  };
  UniqueFd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail("cannot create");
  fchmod(fd.get(), mode);
  if (!WriteAll(fd.get(), text)) return fail("cannot write");
  if (sync && fsync(fd.get()) != 0) return fail("cannot write");
  fd.Close();
  if (rename(fresh.c_str(), path.c_str()) != 0) return fail("cannot rename");
  return {};
}

Result<std::string> ReadFile(const std::string& path, size_t max, int flags) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!fd) {
    return Fail(errno == ENOENT || errno == ESRCH ? ErrorCode::kNotFound : ErrorCode::kInternal,
                "cannot open " + path + ": " + strerror(errno));
  }
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return Fail(errno == ESRCH    ? ErrorCode::kNotFound
                  : errno == EISDIR ? ErrorCode::kInvalid
                                    : ErrorCode::kInternal,
                  "cannot read " + path + ": " + strerror(errno));
    }
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > max) return Fail(ErrorCode::kInvalid, path + " is too long");
  }
}

bool IsOfNewerVersion(std::string_view text, std::string_view format, uint64_t version) {
  if (!text.starts_with(format)) return false;
  text.remove_prefix(format.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end != text.data() && number > version;
}

Result<std::string> MoveAside(const std::string& path) {
  constexpr int kMost = 1000;
  for (int n = 1; n <= kMost; ++n) {
    const std::string aside = path + ".damaged" + (n == 1 ? "" : "-" + std::to_string(n));
    if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, aside.c_str(), RENAME_NOREPLACE) == 0) {
      return aside;
    }
    if (errno == EEXIST) continue;
    return Fail(ErrorCode::kInternal, "cannot move " + path + " aside: " + strerror(errno));
  }
  return Fail(ErrorCode::kExhausted,
              "cannot move " + path + " aside: delete some of the files " + path + ".damaged*");
}

Result<void> MakeFolders(const std::string& path, mode_t mode) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at);
    const std::string part = path.substr(0, at);
    if (at != std::string::npos) ++at;
    if (mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      const int error = errno;
      struct stat st;
      if (stat(part.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) continue;
      return Fail(ErrorCode::kInternal, "cannot create folder " + part + ": " + strerror(error));
    }
  }
  return {};
}

}  // namespace baton
