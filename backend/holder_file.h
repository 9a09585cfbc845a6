// Who holds a GPU, on disk: one small file per GPU, written before a grant is sent, so that a
// daemon killed at any instant and started again knows whom to wait for.
//
// The file has two slots that are written in turn, each with a sequence number and a checksum: a
// write that was cut short leaves the slot before it. The file is mapped, so a write costs some ten
// nanoseconds; where it cannot be, it is one pwrite (a microsecond). Either way it is in the page
// cache: it survives the daemon, and after a crash of the machine there are no holders anyway
// (boot_id).
// Not thread safe.
#ifndef BATON_BACKEND_HOLDER_FILE_H_
#define BATON_BACKEND_HOLDER_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/mapped_file.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/result.h"
#include "node/process.h"

namespace baton::backend {

class HolderFile {
 public:
  struct Member {
    uint64_t pod = 0;
    uint64_t pid = 0;
    uint64_t start_time = 0;
    uint64_t incarnation = 0;
    // When it was (last) sent the token, MonotonicNow() in ns; 0 when that was in another boot.
    uint64_t joined_ns = 0;
    bool SameProcess(const Member& other) const {
      return pid == other.pid && start_time == other.start_time && incarnation == other.incarnation;
    }
  };
  static constexpr size_t kMembersMax = 1024;

  // `path` is made when absent. `boot_id`: of this machine's boot. `local`: the GPU is of this
  // machine, so nobody holds it after a reboot; else somebody on the other machine must tell
  // whether the members still live. Returns what went wrong, for the
  // operator: a file that is no holder file is moved aside; where none can be written the daemon
  // goes on without. Empty when all is well. An error: it is not for this daemon to touch, since a
  // newer version wrote it or it cannot be moved aside.
  Result<std::string> Open(const std::string& path, const std::string& boot_id, bool local);

  // Whether there is a file to write to.
  bool writable() const { return static_cast<bool>(fd_); }
  // As found by Open(): the newest epoch ever stored, and who held it. Without members when nobody
  // did, or when that was in another boot of the GPU's machine.
  uint64_t epoch() const { return epoch_; }
  const std::vector<Member>& members() const { return members_; }
  // When the first of them was sent the token.
  uint64_t granted_ns() const { return granted_ns_; }

  // `member` is about to be sent the token of `epoch`. Adds to the members of the same epoch, or
  // replaces those of an older one; a process that is there already keeps its place. False when it
  // could not be written, or kMembersMax are there.
  bool Store(uint64_t epoch, const Member& member);
  // Whether the next new member of `epoch` finds no room.
  bool Full(uint64_t epoch) const { return epoch == epoch_ && members_.size() >= kMembersMax; }
  // Forgets the members that are not to be kept; on disk with the next Store().
  void Keep(const std::function<bool(const Member&)>& keep);
  // Nobody holds any more. The epoch stays. On disk with the next Store() or Clear().
  void Forget() { members_.clear(); }
  bool Clear();

 private:
  bool Write();
  // What is in buffer_, to the slot of sequence_.
  bool WriteSlot();

  std::string path_;
  std::string boot_id_;
  UniqueFd fd_;
  MappedFile map_;
  bool may_map_ = true;
  uint64_t sequence_ = 0;
  uint64_t epoch_ = 0;
  uint64_t granted_ns_ = 0;
  std::vector<Member> members_;
  std::vector<char> buffer_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_HOLDER_FILE_H_
