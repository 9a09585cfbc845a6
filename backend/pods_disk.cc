#include "backend/pods_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/file.h"

namespace baton::backend {
namespace {

tl::unexpected<Error> Failed(ErrorCode code, const char* what, const std::string& path) {
  return Fail(code, std::string(what) + " " + path + ": " + strerror(errno));
}

}  // namespace

Result<std::string> PodsFolder::Read(const std::string& name) {
  return ReadFile(PathOf(name), kFileMax);
}

Result<void> PodsFolder::Create(const std::string& name, std::string_view text) {
  const std::string path = PathOf(name);
  unlink(path.c_str());  // never through a link
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return Failed(ErrorCode::kInternal, "cannot create", path);
  if (!WriteAll(fd.get(), text)) return Failed(ErrorCode::kInternal, "cannot write", path);
  return {};
}

Result<void> PodsFolder::Append(const std::string& name, std::string_view text) {
  const std::string path = PathOf(name);
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  struct stat before;
  if (!fd || fstat(fd.get(), &before) != 0) {
    const bool missing = errno == ENOENT || errno == ELOOP;
    return Failed(missing ? ErrorCode::kInternal : ErrorCode::kUnavailable, "cannot open", path);
  }
  if (WriteAll(fd.get(), text)) return {};
  const int error = errno;
  const bool as_it_was = ftruncate(fd.get(), before.st_size) == 0;
  errno = error;
  return Failed(as_it_was ? ErrorCode::kUnavailable : ErrorCode::kInternal, "cannot write", path);
}

Result<void> PodsFolder::Rename(const std::string& from, const std::string& to) {
  if (rename(PathOf(from).c_str(), PathOf(to).c_str()) == 0) return {};
  return Failed(ErrorCode::kInternal, "cannot rename", PathOf(from));
}

void PodsFolder::Remove(const std::string& name) { unlink(PathOf(name).c_str()); }

Result<std::string> PodsFolder::MoveAside(const std::string& name) {
  return baton::MoveAside(PathOf(name));
}

std::vector<std::string> PodsFolder::Names(const std::string& prefix) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder_.c_str()), closedir);
  while (const dirent* entry = dir != nullptr ? readdir(dir.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name.starts_with(prefix)) names.push_back(name);
  }
  return names;
}

}  // namespace baton::backend
