// A folder for a test's files, which is removed with everything in it; kept where $BATON_TEST_KEEP
// is set.
#ifndef BATON_TESTS_TEMP_FOLDER_H_
#define BATON_TESTS_TEMP_FOLDER_H_

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace baton {

class TempFolder {
 public:
  // In `parent`; names are short, for sockets have room for 107 bytes.
  explicit TempFolder(const std::string& parent = "/tmp") : path_(parent + "/baton-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder in " + parent);
  }
  ~TempFolder() {
    std::error_code ignored;
    if (getenv("BATON_TEST_KEEP") == nullptr) std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file there, in whatever folders `name` says; its path.
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    chmod(path.c_str(), mode);
    return path;
  }

 private:
  std::string path_;
};

// The same in memory, where there is such a place: a disk's syncs would be most of a test's time.
struct MemoryFolder : TempFolder {
  MemoryFolder() : TempFolder(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") {}
};

}  // namespace baton

#endif  // BATON_TESTS_TEMP_FOLDER_H_
