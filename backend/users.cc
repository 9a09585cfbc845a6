#include "backend/users.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <sys/types.h>

#include <vector>

namespace baton::backend {
namespace {

constexpr size_t kEntryBytes = 64 << 10;
constexpr size_t kEntryBytesMax = 64 << 20;  // a group's entry names all of its members
constexpr int kGroupsMax = 1 << 16;

// `look` is getpwuid_r() or one of its kin; the entry's texts are put into `text`. False: there is
// no such entry.
template <class Entry, class Key>
bool FindEntry(int (*look)(Key, Entry*, char*, size_t, Entry**), Key key, Entry& entry,
               std::vector<char>& text) {
  Entry* found = nullptr;
  int error = ERANGE;
  for (size_t bytes = kEntryBytes; error == ERANGE && bytes <= kEntryBytesMax; bytes *= 4) {
    text.resize(bytes);
    error = look(key, &entry, text.data(), text.size(), &found);
  }
  return error == 0 && found != nullptr;
}

}  // namespace

spec::User LookUpUser(uint32_t uid) {
  spec::User user{.uid = uid, .name = std::to_string(uid), .groups = {}};
  std::vector<char> text;
  passwd entry{};
  if (!FindEntry(getpwuid_r, uid_t{uid}, entry, text)) return user;
  user.name = entry.pw_name;
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    if (count > kGroupsMax) return user;
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(count));
  std::vector<char> names;
  for (const gid_t gid : groups) {
    group of{};
    if (FindEntry(getgrgid_r, gid, of, names)) user.groups.emplace_back(of.gr_name);
  }
  return user;
}

Result<uint32_t> LookUpGroup(const std::string& name) {
  std::vector<char> text;
  group entry{};
  if (!FindEntry(getgrnam_r, name.c_str(), entry, text)) {
    return Fail(ErrorCode::kNotFound,
                "users.allow: there is no group " + name + " on this machine");
  }
  return entry.gr_gid;
}

spec::UserPods PodsOfUser(const Pods& pods, uint32_t uid, const Pod* apart) {
  spec::UserPods has;
  for (const auto& [id, pod] : pods.all()) {
    if (&pod == apart) continue;
    if (pod.uid == uid) {
      ++has.count;
      has.requests += policy::ShareSum(pod.share.request) * pod.gpus.size();
      continue;
    }
    for (const std::string& word : {pod.gang, pod.wishes.affinity, pod.wishes.anti_affinity}) {
      if (!word.empty()) has.words_of_others.push_back(word);
    }
  }
  return has;
}

}  // namespace baton::backend
