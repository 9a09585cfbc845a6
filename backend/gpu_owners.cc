#include "backend/gpu_owners.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/state_versions.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/nesting.h"

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr size_t kOwnersDepthMax = 32;
constexpr size_t kOwnersFileMax = 16 << 20;
constexpr std::string_view kOwnersFormat = "baton gpu nodes ";
constexpr uint64_t kOwnersVersion = 1;

}  // namespace

bool IsNewerOwners(std::string_view text) {
  return IsOfNewerVersion(text, kOwnersFormat, kOwnersVersion);
}

Result<std::string> GpuOwners::Load() {
  const auto text = ReadFile(path_, kOwnersFileMax);
  if (!text && text.error().code == ErrorCode::kNotFound) return "";
  if (!text) {
    return Fail(ErrorCode::kInternal, text.error().message +
                                          "; make it readable, or move it away: then each GPU "
                                          "belongs to the node that names it first");
  }
  const auto read = Read(*text);
  if (read) return "";
  if (read.error().code == ErrorCode::kDenied) {
    return Fail(ErrorCode::kDenied,
                fmt::format("{}: {}. Install that version again, or move the file away: then each "
                            "GPU belongs to the node that names it first",
                            path_, read.error().message));
  }
  const auto aside = MoveAside(path_);
  if (!aside) return tl::unexpected(aside.error());
  return fmt::format(
      "{} was damaged ({}); it was moved to {}, and each GPU belongs to the node "
      "that names it first",
      path_, read.error().message, *aside);
}

Result<void> GpuOwners::Read(const std::string& text) {
  if (IsNewerOwners(text)) {
    return Fail(ErrorCode::kDenied, "a newer version of Baton wrote it");
  }
  const size_t line = text.find('\n');
  const std::string body = line == std::string::npos ? "" : text.substr(line + 1);
  if (text.substr(0, line) !=
      fmt::format("{}{} {:016x}", kOwnersFormat, kOwnersVersion, HashOf(body))) {
    return Fail(ErrorCode::kInvalid, "its checksum does not match");
  }
  if (!JsonNestsWithin(body, kOwnersDepthMax)) {
    return Fail(ErrorCode::kInvalid, "its values lie too deep in each other");
  }
  const json root = json::parse(body, nullptr, false);
  if (!root.is_object()) return Fail(ErrorCode::kInvalid, "it is not JSON");
  for (const auto& [gpu, node] : root.items()) {
    if (node.is_string()) owners_[gpu].node = node.get<std::string>();
  }
  return {};
}

const std::string* GpuOwners::Find(const std::string& gpu) const {
  const auto it = owners_.find(gpu);
  return it == owners_.end() ? nullptr : &it->second.node;
}

void GpuOwners::Set(const std::string& gpu, const std::string& node) {
  Owner& owner = owners_[gpu];
  owner.named = true;
  if (owner.node == node) return;
  owner.node = node;
  size_t of_node = 0;
  auto oldest = owners_.end();
  for (auto it = owners_.begin(); it != owners_.end(); ++it) {
    if (it->second.node != node) continue;
    ++of_node;
    if (it->first == gpu) continue;
    if (oldest == owners_.end() || (oldest->second.named && !it->second.named)) oldest = it;
  }
  if (of_node > kGpusOfNodeMax) owners_.erase(oldest);
  Save();
}

bool GpuOwners::Release(const std::string& gpu) {
  if (owners_.erase(gpu) == 0) return false;
  Save();
  return true;
}

void GpuOwners::Save() {
  json root = json::object();
  for (const auto& [gpu, owner] : owners_) root[gpu] = owner.node;
  const std::string body = root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  const auto saved = ReplaceFile(
      path_, fmt::format("{}{} {:016x}\n{}", kOwnersFormat, kOwnersVersion, HashOf(body), body),
      0600, false);
  degraded_ = saved
                  ? ""
                  : "which node each GPU belongs to could not be saved: " + saved.error().message +
                        "; after a restart another node could name the newest first";
}

}  // namespace baton::backend
