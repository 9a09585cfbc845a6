#include "k8s/dra/claim_store.h"

#include <errno.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/entropy.h"
#include "base/file.h"
#include "base/time.h"
#include "k8s/dra/slices.h"
#include "k8s/types/read.h"
#include "wire/control_client.h"

namespace baton::k8s {
namespace {

constexpr Duration kClaimPatience = std::chrono::seconds(5);  // with batond
constexpr size_t kClaimFileMax = size_t{1} << 20;
constexpr std::string_view kStateEnd = ".json";

Error ErrorOf(const ApiError& error) {
  return {error.not_found() ? ErrorCode::kNotFound : ErrorCode::kUnavailable, error.message};
}

// The names of the files in the folder that begin and end so.
std::vector<std::string> FilesIn(const std::string& folder, std::string_view begin,
                                 std::string_view end) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), last; !error && it != last;
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.starts_with(begin) && name.ends_with(end)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Fail(ErrorCode::kInternal, fmt::format("cannot remove {}: {}", path, strerror(errno)));
}

// It is the same allocation: shares and GPUs cannot change within one.
bool IsSameAllocation(const DraClaim& a, const DraClaim& b) {
  return a.name == b.name &&
         std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
                    [](const ClaimRequest& x, const ClaimRequest& y) {
                      return x.name == y.name && x.devices == y.devices &&
                             x.pod.share.request == y.pod.share.request &&
                             x.pod.memory_cap == y.pod.memory_cap;
                    });
}

}  // namespace

ClaimStore::ClaimStore(Client& client, ClaimStoreOptions options)
    : client_(client), options_(std::move(options)) {
  for (const std::string& folder : {options_.state_dir, options_.cdi_dir}) {
    if (auto made = MakeFolders(folder, 0755); !made) {
      spdlog::error("dra: {}", made.error().message);
    }
  }
  for (const std::string& file : FilesIn(options_.state_dir, "", kStateEnd)) {
    const std::string path = options_.state_dir + "/" + file;
    const auto text = ReadFile(path, kClaimFileMax);
    auto claim = text ? ParseDraClaim(*text) : tl::unexpected(text.error());
    if (claim && claim->uid + std::string(kStateEnd) != file) {
      claim = Fail(ErrorCode::kInvalid, "it is of another claim");
    }
    if (!claim) {
      const auto aside = MoveAside(path);
      spdlog::error("dra: {}: {}; it is put aside as {}", path, claim.error().message,
                    aside ? *aside : aside.error().message);
      continue;
    }
    const std::string uid = claim->uid;
    claims_.emplace(uid, *std::move(claim));
  }
  // Of claims that are not prepared.
  const std::string begin = CdiFileOf("");
  const std::string head = begin.substr(0, begin.size() - kStateEnd.size());
  for (const std::string& file : FilesIn(options_.cdi_dir, head, kStateEnd)) {
    const std::string uid = file.substr(head.size(), file.size() - head.size() - kStateEnd.size());
    if (!claims_.contains(uid)) (void)RemoveFile(options_.cdi_dir + "/" + file);
  }
}

std::string ClaimStore::StatePath(const std::string& uid) const {
  return options_.state_dir + "/" + uid + std::string(kStateEnd);
}
std::string ClaimStore::CdiPath(const std::string& uid) const {
  return options_.cdi_dir + "/" + CdiFileOf(uid);
}

// Tickets are in both, and are for root alone.
Result<void> ClaimStore::Save(const DraClaim& claim) const {
  return ReplaceFile(StatePath(claim.uid), DraClaimText(claim), 0600, true);
}

Result<void> ClaimStore::WriteCdi(const DraClaim& claim) const {
  const std::string text = CdiSpecOf(claim, options_.mounts).dump(1) + "\n";
  const std::string path = CdiPath(claim.uid);
  if (const auto there = ReadFile(path, kClaimFileMax); there && *there == text) return {};
  return ReplaceFile(path, text, 0600, false);
}

bool ClaimStore::IsNameTaken(const std::string& name) const {
  return std::any_of(claims_.begin(), claims_.end(), [&](const auto& entry) {
    const std::vector<ClaimRequest>& requests = entry.second.requests;
    return std::any_of(requests.begin(), requests.end(),
                       [&](const ClaimRequest& request) { return request.pod.name == name; });
  });
}

// Well too where batond has it already, by its ticket.
Result<void> ClaimStore::CreateAtBatond(const BatondPod& pod) const {
  auto made = wire::Ask(options_.socket_dir, RequestFor({BatondCommand::Kind::kCreate, pod}, false),
                        kClaimPatience);
  if (made) return {};
  if (made.error().code == ErrorCode::kExists) {
    const auto there =
        wire::Ask(options_.socket_dir, {{"command", "pod"}, {"name", pod.name}}, kClaimPatience);
    if (there && TextAt(*there, "ticket") == pod.ticket) return {};
  }
  return tl::unexpected(made.error());
}

// Not another's of that name.
Result<void> ClaimStore::DeleteAtBatond(const BatondPod& pod) const {
  const auto there =
      wire::Ask(options_.socket_dir, {{"command", "pod"}, {"name", pod.name}}, kClaimPatience);
  if (!there && there.error().code == ErrorCode::kNotFound) return {};
  if (!there) return tl::unexpected(there.error());
  if (TextAt(*there, "ticket") != pod.ticket) return {};
  auto done = wire::Ask(options_.socket_dir, RequestFor({BatondCommand::Kind::kDelete, pod}, false),
                        kClaimPatience);
  if (!done && done.error().code != ErrorCode::kNotFound) return tl::unexpected(done.error());
  return {};
}

Result<void> ClaimStore::MakePods(DraClaim& claim) const {
  for (ClaimRequest& request : claim.requests) {
    auto made = CreateAtBatond(request.pod);
    const std::string own = NamesFor(claim, request).back();
    if (!made && made.error().code == ErrorCode::kExists && request.pod.name != own) {
      // A pod that is no claim's has that name.
      request.pod.name = own;
      if (auto saved = Save(claim); !saved) return saved;
      made = CreateAtBatond(request.pod);
    }
    if (!made) return made;
  }
  return {};
}

Result<DraClaim> ClaimStore::Prepare(const ObjectName& name, const std::string& uid) {
  if (!IsClaimUid(uid)) return Fail(ErrorCode::kInvalid, Quoted(uid) + " is no uid of a claim");
  if (access(options_.hook_file.c_str(), R_OK) != 0) {
    return Fail(ErrorCode::kNotFound, "Baton's hook is not at " + options_.hook_file + ": " +
                                          strerror(errno) + "; restart Baton's agent on the node");
  }
  const auto object = client_.Get(resources::kResourceClaims, name);
  if (!object && (object.error().not_found() || object.error().status != 0)) {
    return tl::unexpected(ErrorOf(object.error()));
  }
  ClaimReader reader{options_.node, {}, options_.tenancy};
  if (object) {
    if (UidOf(*object) != uid) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("ResourceClaim {} has uid {}, not {}: it was made anew", name.Text(),
                              UidOf(*object), uid));
    }
    auto name_space = client_.Get(resources::kNamespaces, {"", name.name_space});
    if (!name_space) return tl::unexpected(ErrorOf(name_space.error()));
    reader.name_space = *std::move(name_space);
  }
  const std::lock_guard lock(mutex_);
  auto known = claims_.find(uid);
  bool is_new = false;
  // While the API server is away, what was prepared is answered again.
  if (!object && (known == claims_.end() || known->second.name != name)) {
    return tl::unexpected(ErrorOf(object.error()));
  }
  if (object) {
    reader.gpus = gpus_;
    auto read = reader.Read(*object);
    if (!read) return tl::unexpected(read.error());
    if (known != claims_.end() && !IsSameAllocation(known->second, *read)) {
      if (auto removed = Remove(uid); !removed) return tl::unexpected(removed.error());
      known = claims_.end();
    }
    is_new = known == claims_.end();
    if (is_new) {
      for (ClaimRequest& request : read->requests) {
        request.pod.ticket = RandomTicket();
        for (const std::string& one : NamesFor(*read, request)) {
          request.pod.name = one;
          if (!IsNameTaken(one)) break;
        }
      }
      // Before anything of it is elsewhere.
      if (auto saved = Save(*read); !saved) return tl::unexpected(saved.error());
      known = claims_.emplace(uid, *std::move(read)).first;
    }
  }
  DraClaim& claim = known->second;
  if (auto made = MakePods(claim); !made) {
    // No container has it: the next try chooses its name anew. The pod may have been made anew
    // before the claim of the one before was unprepared.
    if (is_new) (void)Remove(uid);
    return tl::unexpected(made.error());
  }
  if (auto written = WriteCdi(claim); !written) return tl::unexpected(written.error());
  return claim;
}

Result<void> ClaimStore::Unprepare(const std::string& uid) {
  if (!IsClaimUid(uid)) return {};
  const std::lock_guard lock(mutex_);
  return Remove(uid);
}

Result<void> ClaimStore::Remove(const std::string& uid) {
  // No container starts with it any more.
  if (auto removed = RemoveFile(CdiPath(uid)); !removed) return removed;
  const auto known = claims_.find(uid);
  if (known == claims_.end()) return {};
  for (const ClaimRequest& request : known->second.requests) {
    if (auto removed = DeleteAtBatond(request.pod); !removed) return removed;
  }
  if (auto removed = RemoveFile(StatePath(uid)); !removed) return removed;
  claims_.erase(known);
  return {};
}

std::optional<std::set<std::string>> ClaimStore::Look(const devmgr::Node& node,
                                                      const std::vector<PresentPod>& present) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::nullopt;
  gpus_.clear();
  for (const devmgr::Card& card : node.cards) gpus_[DeviceNameOf(card.uuid)] = card.uuid;
  std::set<std::string> there, claimed;  // names of pods
  for (const PresentPod& pod : present) there.insert(pod.pod.name);
  std::string wrong;
  for (auto& [uid, claim] : claims_) {
    Result<void> done;
    const bool whole =
        std::all_of(claim.requests.begin(), claim.requests.end(),
                    [&](const ClaimRequest& request) { return there.contains(request.pod.name); });
    if (!whole) done = MakePods(claim);
    if (done) done = WriteCdi(claim);
    if (!done) wrong = claim.name.Text() + ": " + done.error().message;
    for (const ClaimRequest& request : claim.requests) claimed.insert(request.pod.name);
  }
  if (std::exchange(complaint_, wrong) != wrong && !wrong.empty()) {
    spdlog::warn("dra: ResourceClaim {}", wrong);
  }
  std::set<std::string> taken;
  for (const PresentPod& pod : present) {
    if (claimed.contains(pod.pod.name)) continue;
    taken.insert(pod.pod.wishes.gpus.begin(), pod.pod.wishes.gpus.end());
  }
  return taken;
}

void ClaimStore::RemoveGone() {
  std::map<std::string, ObjectName> all;  // by uid
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [uid, claim] : claims_) all[uid] = claim.name;
  }
  for (const auto& [uid, name] : all) {
    const auto object = client_.Get(resources::kResourceClaims, name);
    const bool stays = object
                           ? UidOf(*object) == uid && Find(*object, "status/allocation") != nullptr
                           : !object.error().not_found();
    if (stays) continue;
    auto removed = Unprepare(uid);
    spdlog::info("dra: ResourceClaim {} is gone: {}", name.Text(),
                 removed ? "its share is free" : removed.error().message);
  }
}

}  // namespace baton::k8s
