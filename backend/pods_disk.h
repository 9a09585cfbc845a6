// The files of the pods in state_dir, as PodsFile uses them: a seam, so that tests can cut its
// writes short anywhere.
// Thread safe: no state.
#ifndef BATON_BACKEND_PODS_DISK_H_
#define BATON_BACKEND_PODS_DISK_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::backend {

class PodsDisk {
 public:
  virtual ~PodsDisk() = default;
  // The whole file. kNotFound: there is none.
  virtual Result<std::string> Read(const std::string& name) = 0;
  // A new file in place of any of this name, for its owner alone. On an error there may be a part
  // of it.
  virtual Result<void> Create(const std::string& name, std::string_view text) = 0;
  // kUnavailable: the file is as it was. kInternal: there is no such file, or a part of `text` may
  // be in it.
  virtual Result<void> Append(const std::string& name, std::string_view text) = 0;
  virtual Result<void> Rename(const std::string& from, const std::string& to) = 0;
  virtual void Remove(const std::string& name) = 0;
  // As baton::MoveAside(); its new name.
  virtual Result<std::string> MoveAside(const std::string& name) = 0;
  // Of the files that begin with `prefix`.
  virtual std::vector<std::string> Names(const std::string& prefix) = 0;
  // For people.
  virtual std::string PathOf(const std::string& name) const = 0;
};

// In a folder. As little of a machine's power cut is waited for as with every file of state_dir:
// nothing is.
class PodsFolder : public PodsDisk {
 public:
  static constexpr size_t kFileMax = 64 << 20;  // bytes

  explicit PodsFolder(std::string folder) : folder_(std::move(folder)) {}

  Result<std::string> Read(const std::string& name) override;
  Result<void> Create(const std::string& name, std::string_view text) override;
  Result<void> Append(const std::string& name, std::string_view text) override;
  Result<void> Rename(const std::string& from, const std::string& to) override;
  void Remove(const std::string& name) override;
  Result<std::string> MoveAside(const std::string& name) override;
  std::vector<std::string> Names(const std::string& prefix) override;
  std::string PathOf(const std::string& name) const override { return folder_ + "/" + name; }

 private:
  const std::string folder_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_PODS_DISK_H_
