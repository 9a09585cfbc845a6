// Files and their descriptors.
// Thread safe: no state.
#ifndef BATON_BASE_FILE_H_
#define BATON_BASE_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton {

// Owns a file descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { Close(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Close();

 private:
  int fd_ = -1;
};

// All of `text`, however many calls that takes. False: errno says why not.
bool WriteAll(int fd, std::string_view text);
// Writes `text` to a new file beside `path` with `mode` and renames it over `path`, so that a
// crash leaves the old or the new contents. `sync` also waits for the disk.
Result<void> ReplaceFile(const std::string& path, const std::string& text, mode_t mode, bool sync);
// The whole file, at most `max` bytes. `flags`: more of open(2), such as O_NOFOLLOW. kNotFound when
// it does not exist, kInvalid when it is longer, or a folder.
Result<std::string> ReadFile(const std::string& path, size_t max, int flags = 0);
// Whether the file's text begins with `format` and a number above `version`: then a newer version
// of Baton wrote it.
bool IsOfNewerVersion(std::string_view text, std::string_view format, uint64_t version);
// Renames `path` to `path`.damaged, or .damaged-2 and so on where there is one already: what was
// put aside before stays. Its new name; an error when it stays where it was.
Result<std::string> MoveAside(const std::string& path);
// mkdir -p; an existing folder keeps its mode.
Result<void> MakeFolders(const std::string& path, mode_t mode);

}  // namespace baton

#endif  // BATON_BASE_FILE_H_
