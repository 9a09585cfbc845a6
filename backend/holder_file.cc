#include "backend/holder_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "backend/state_versions.h"
#include "base/hash.h"

namespace baton::backend {
namespace {

struct Header {
  char magic[16];
  uint64_t checksum;  // of everything behind it
  uint64_t sequence;
  uint64_t epoch;
  uint64_t granted_ns;
  uint64_t count;
  char boot_id[40];
};
constexpr char kMagic[16] = "baton holder 2\n";
constexpr std::string_view kHolderFormat = "baton holder ";
constexpr uint64_t kHolderVersion = 2;
constexpr size_t kChecked = offsetof(Header, sequence);
constexpr size_t kSlot =
    (sizeof(Header) + HolderFile::kMembersMax * sizeof(HolderFile::Member) + 4095) / 4096 * 4096;

}  // namespace

bool IsNewerHolder(std::string_view text) {
  for (const size_t slot : {size_t{0}, kSlot}) {
    if (text.size() < slot + sizeof Header::magic) return false;
    if (IsOfNewerVersion(text.substr(slot, sizeof Header::magic), kHolderFormat, kHolderVersion)) {
      return true;
    }
  }
  return false;
}

Result<std::string> HolderFile::Open(const std::string& path, const std::string& boot_id,
                                     bool local) {
  path_ = path;
  boot_id_ = boot_id;
  buffer_.reserve(kSlot);
  fd_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd_) {
    return "cannot open " + path + ": " + strerror(errno) +
           "; after a restart the last holder of this GPU will not be known";
  }
  struct stat st;
  if (fstat(fd_.get(), &st) == 0 && st.st_size == 0) return "";
  bool found = false;
  bool same_boot = true;
  std::vector<char> slot(kSlot);
  for (int i = 0; i < 2; ++i) {
    const ssize_t size = pread(fd_.get(), slot.data(), kSlot, static_cast<off_t>(i * kSlot));
    Header header;
    if (size < static_cast<ssize_t>(sizeof header)) continue;
    memcpy(&header, slot.data(), sizeof header);
    if (IsOfNewerVersion({header.magic, sizeof header.magic}, kHolderFormat, kHolderVersion)) {
      fd_.Close();
      return Fail(ErrorCode::kDenied,
                  path +
                      ": a newer version of Baton wrote it, with who holds this GPU. Install "
                      "that version again, or end the pods on the GPU and move the file away");
    }
    if (memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.count > kMembersMax) continue;
    const size_t used = sizeof header + header.count * sizeof(Member);
    if (static_cast<size_t>(size) < used) continue;
    if (HashOf({slot.data() + kChecked, used - kChecked}) != header.checksum) continue;
    if (found && header.sequence < sequence_) continue;
    found = true;
    sequence_ = header.sequence;
    epoch_ = header.epoch;
    granted_ns_ = header.granted_ns;
    header.boot_id[sizeof header.boot_id - 1] = '\0';
    same_boot = boot_id == header.boot_id;
    members_.resize(header.count);
    if (header.count != 0) {
      memcpy(static_cast<void*>(members_.data()), slot.data() + sizeof header,
             header.count * sizeof(Member));
    }
  }
  if (found) {
    if (!same_boot && local) members_.clear();
    if (!same_boot) {
      for (Member& member : members_) member.joined_ns = 0;
    }
    return "";
  }
  const auto aside = MoveAside(path);
  if (!aside) return tl::unexpected(aside.error());
  fd_ = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  return path + " is damaged; it was moved to " + *aside +
         "; batond does not wait for the last holder of this GPU";
}

bool HolderFile::Store(uint64_t epoch, const Member& member) {
  if (epoch != epoch_) members_.clear();
  granted_ns_ = members_.empty() ? member.joined_ns : std::min(granted_ns_, member.joined_ns);
  epoch_ = epoch;
  const auto known = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& m) { return m.SameProcess(member); });
  if (known != members_.end()) {
    *known = member;
  } else if (members_.size() < kMembersMax) {
    members_.push_back(member);
  } else {
    return false;
  }
  return Write();
}

void HolderFile::Keep(const std::function<bool(const Member&)>& keep) {
  std::erase_if(members_, [&](const Member& member) { return !keep(member); });
}

bool HolderFile::Clear() {
  members_.clear();
  return Write();
}

bool HolderFile::Write() {
  if (!fd_) return false;
  Header header{};
  memcpy(header.magic, kMagic, sizeof kMagic);
  header.sequence = ++sequence_;
  header.epoch = epoch_;
  header.granted_ns = granted_ns_;
  header.count = members_.size();
  memcpy(header.boot_id, boot_id_.data(), std::min(boot_id_.size(), sizeof header.boot_id - 1));
  const size_t used = sizeof header + members_.size() * sizeof(Member);
  buffer_.resize(used);
  memcpy(buffer_.data(), &header, sizeof header);
  if (!members_.empty()) {
    memcpy(buffer_.data() + sizeof header, members_.data(), members_.size() * sizeof(Member));
  }
  header.checksum = HashOf({buffer_.data() + kChecked, used - kChecked});
  memcpy(buffer_.data(), &header, sizeof header);
  return WriteSlot();
}

bool HolderFile::WriteSlot() {
  const size_t at = sequence_ % 2 * kSlot;
  if (map_.mapped()) {
    memcpy(map_.data() + at, buffer_.data(), buffer_.size());
    std::atomic_signal_fence(std::memory_order_seq_cst);  // it may be torn by that
    if (!map_.torn()) return true;
    map_ = {};
  }
  const auto size = static_cast<ssize_t>(buffer_.size());
  if (pwrite(fd_.get(), buffer_.data(), buffer_.size(), static_cast<off_t>(at)) != size) {
    return false;
  }
  // After the first write: a file of zeros alone would pass for a damaged one. Room on the disk
  // comes first, and a file that was torn once is not trusted again.
  if (std::exchange(may_map_, false) && posix_fallocate(fd_.get(), 0, 2 * kSlot) == 0) {
    map_.Map(fd_.get(), 2 * kSlot);
  }
  return true;
}

}  // namespace baton::backend
