#include "devmgr/machine/device_marks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace baton::devmgr {
namespace {

constexpr size_t kTextMax = 512;
constexpr size_t kFileMax = 4 * kTextMax;
constexpr size_t kMarksMax = 4096;  // on a GPU
constexpr std::string_view kKind = "baton mark 1";

std::string Errno(int error) { return std::strerror(error); }

// Ids are anybody's words; a hash of them is a name. The id itself is in the file.
std::string NameOf(const std::string& id) {
  char name[24];
  std::snprintf(name, sizeof(name), "%016llx.mark", static_cast<unsigned long long>(HashOf(id)));
  return name;
}

struct Mark {
  std::string boot, id, text;
};

bool Parse(const std::string& file, Mark* mark) {
  std::vector<std::string> lines;
  size_t from = 0;
  for (size_t end; (end = file.find('\n', from)) != std::string::npos; from = end + 1) {
    lines.push_back(file.substr(from, end - from));
  }
  if (lines.size() != 4 || from != file.size() || lines[0] != kKind) return false;
  *mark = {lines[1], lines[2], lines[3]};
  return true;
}

bool Fits(const std::string& text) {
  return text.size() <= kTextMax && text.find('\n') == std::string::npos;
}

}  // namespace

bool IsFileName(const std::string& uuid) {
  return !uuid.empty() && uuid.size() <= 96 && uuid[0] != '.' &&
         std::all_of(uuid.begin(), uuid.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

FileMarks::FileMarks(std::string folder) : folder_(std::move(folder)) {
  boot_ = ReadFile("/proc/sys/kernel/random/boot_id", 64).value_or("");
  while (!boot_.empty() && boot_.back() == '\n') boot_.pop_back();
  if (!Fits(boot_)) boot_.clear();
}

Result<std::string> FileMarks::FolderOf(const std::string& card) const {
  if (!IsFileName(card)) {
    return Fail(ErrorCode::kInvalid, "'" + card + "' cannot be a GPU's uuid");
  }
  return folder_ + "/" + card;
}

Result<std::map<std::string, std::string>> FileMarks::Of(const std::string& card) {
  const auto folder = FolderOf(card);
  if (!folder) return tl::unexpected<Error>(folder.error());
  std::map<std::string, std::string> marks;
  std::error_code error;
  std::filesystem::directory_iterator at(*folder, error);
  if (error == std::errc::no_such_file_or_directory) return marks;
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    if (!path.ends_with(".mark")) continue;  // one that was being written
    const auto file = ReadFile(path, kFileMax, O_NOFOLLOW);
    if (!file && file.error().code == ErrorCode::kNotFound) continue;
    if (!file && file.error().code == ErrorCode::kInternal) return tl::unexpected(file.error());
    Mark mark;
    if (!file || !Parse(*file, &mark)) {
      return Fail(ErrorCode::kInternal,
                  path + " is damaged; see what there is on the GPU, then delete the file");
    }
    if (mark.boot != boot_) {
      unlink(path.c_str());
      continue;
    }
    if (marks.size() == kMarksMax) {
      return Fail(ErrorCode::kInternal, *folder + " has more than 4096 marks");
    }
    marks.emplace(std::move(mark.id), std::move(mark.text));
  }
  if (error) return Fail(ErrorCode::kInternal, "cannot read " + *folder + ": " + error.message());
  return marks;
}

Result<void> FileMarks::Put(const std::string& card, const std::string& id,
                            const std::string& text) {
  const auto folder = FolderOf(card);
  if (!folder) return tl::unexpected<Error>(folder.error());
  if (id.empty() || !Fits(id) || !Fits(text)) {
    return Fail(ErrorCode::kInvalid, "a virtual GPU's id is 1 to 512 bytes in one line");
  }
  std::error_code error;
  std::filesystem::create_directories(*folder, error);
  if (error) return Fail(ErrorCode::kInternal, "cannot make " + *folder + ": " + error.message());
  const std::string path = *folder + "/" + NameOf(id);
  return ReplaceFile(path, std::string(kKind) + "\n" + boot_ + "\n" + id + "\n" + text + "\n", 0600,
                     false);
}

Result<void> FileMarks::Remove(const std::string& card, const std::string& id) {
  const auto folder = FolderOf(card);
  if (!folder) return tl::unexpected<Error>(folder.error());
  const std::string path = *folder + "/" + NameOf(id);
  if (unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return Fail(ErrorCode::kInternal, "cannot delete " + path + ": " + Errno(errno));
  }
  rmdir(folder->c_str());  // goes if that was the last
  return {};
}

}  // namespace baton::devmgr
