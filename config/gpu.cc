#include "config/gpu.h"

#include <algorithm>
#include <string_view>

namespace baton::config {
namespace {

constexpr size_t kUuidMax = 64;
constexpr size_t kVendorMax = 32;
constexpr size_t kVariableMax = 256;  // bytes of its name, and of its value
constexpr std::string_view kSmall = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view kVariable =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

// Of these characters alone, and some.
bool IsWord(std::string_view text, std::string_view characters, size_t max) {
  return !text.empty() && text.size() <= max &&
         text.find_first_not_of(characters) == std::string_view::npos;
}

}  // namespace

Result<void> CheckGpu(const devmgr::GpuInfo& gpu) {
  const auto wrong = [](const char* why) { return Fail(ErrorCode::kInvalid, why); };
  if (gpu.uuid.empty() || gpu.uuid.size() > kUuidMax ||
      gpu.uuid.find_first_of("/ \n") != std::string::npos) {
    return wrong(
        "a [[gpu]] needs uuid = \"GPU-...\" of at most 64 characters, without spaces and slashes");
  }
  if (!IsWord(gpu.vendor, kSmall, kVendorMax)) {
    return wrong("vendor is a word of small letters, such as \"amd\" or \"intel\"");
  }
  if (gpu.by_token() && !gpu.environment.empty()) {
    return wrong("environment is for GPUs of other vendors; set vendor, or leave it out");
  }
  if (!gpu.by_token() && (gpu.name.empty() || gpu.environment.empty())) {
    return wrong(
        "a [[gpu]] of another vendor needs a name, and an environment by which programs find it, "
        "such as environment = {ROCR_VISIBLE_DEVICES = \"0\"}");
  }
  const bool good =
      std::all_of(gpu.environment.begin(), gpu.environment.end(), [](const auto& variable) {
        return IsWord(variable.first, kVariable, kVariableMax) &&
               variable.second.size() <= kVariableMax &&
               variable.second.find('\0') == std::string::npos;
      });
  if (!good) {
    return wrong("an environment has names of variables, and texts of at most 256 characters");
  }
  return {};
}

}  // namespace baton::config
