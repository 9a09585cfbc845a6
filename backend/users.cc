#include "backend/users.h"

#include <grp.h>
#include <pwd.h>
#include <sys/types.h>

#include <vector>

namespace baton::backend {
namespace {

constexpr size_t kEntryBytes = 64 << 10;
constexpr int kGroupsMax = 1 << 16;

std::string NameOfGroup(gid_t gid) {
  std::vector<char> text(kEntryBytes);
  group entry{}, *found = nullptr;
  if (getgrgid_r(gid, &entry, text.data(), text.size(), &found) != 0 || found == nullptr) return {};
  return found->gr_name;
}

}  // namespace

spec::User LookUpUser(uint32_t uid) {
  spec::User user{.uid = uid, .name = std::to_string(uid), .groups = {}};
  std::vector<char> text(kEntryBytes);
  passwd entry{}, *found = nullptr;
  if (getpwuid_r(uid, &entry, text.data(), text.size(), &found) != 0 || found == nullptr) {
    return user;
  }
  user.name = found->pw_name;
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) {
    if (count > kGroupsMax) return user;
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(count));
  for (const gid_t gid : groups) {
    if (std::string name = NameOfGroup(gid); !name.empty()) user.groups.push_back(std::move(name));
  }
  return user;
}

Result<uint32_t> LookUpGroup(const std::string& name) {
  std::vector<char> text(kEntryBytes);
  group entry{}, *found = nullptr;
  if (getgrnam_r(name.c_str(), &entry, text.data(), text.size(), &found) != 0 || found == nullptr) {
    return Fail(ErrorCode::kNotFound,
                "users.allow: there is no group " + name + " on this machine");
  }
  return found->gr_gid;
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
