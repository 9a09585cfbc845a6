// What a device driver has made on this machine, or is about to make: written before it is made,
// struck out after it is gone. So after a crash at any moment it is known what is ours; neither MIG
// instances nor MPS daemons say whose they are.
#ifndef BATON_DEVMGR_MACHINE_DEVICE_MARKS_H_
#define BATON_DEVMGR_MACHINE_DEVICE_MARKS_H_

#include <map>
#include <string>

#include "base/result.h"

namespace baton::devmgr {

// Thread safe.
class DeviceMarks {
 public:
  virtual ~DeviceMarks() = default;

  // By the virtual GPU's id: what its driver wrote. kInternal: they cannot be read.
  virtual Result<std::map<std::string, std::string>> Of(const std::string& card) = 0;
  // In place of what was there. `id` and `text` are at most 512 bytes without a newline. Whole or
  // not at all, whatever ends the process.
  virtual Result<void> Put(const std::string& card, const std::string& id,
                           const std::string& text) = 0;
  // Success where there is none.
  virtual Result<void> Remove(const std::string& card, const std::string& id) = 0;
};

// A file for each, in a folder for each GPU below `folder`, which is made when it is needed. Meant
// for /run: nothing that a driver makes survives a reboot, and marks of before one are not
// believed.
class FileMarks final : public DeviceMarks {
 public:
  explicit FileMarks(std::string folder);

  Result<std::map<std::string, std::string>> Of(const std::string& card) override;
  Result<void> Put(const std::string& card, const std::string& id,
                   const std::string& text) override;
  Result<void> Remove(const std::string& card, const std::string& id) override;

 private:
  Result<std::string> FolderOf(const std::string& card) const;

  const std::string folder_;
  std::string boot_;  // this boot's id; empty: unknown
};

// Whether a GPU's uuid can be part of a file's name: 1 to 96 of [A-Za-z0-9._-], not beginning
// with a dot.
bool IsFileName(const std::string& uuid);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MACHINE_DEVICE_MARKS_H_
