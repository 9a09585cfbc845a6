#include "k8s/types/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "base/utf8.h"
#include "k8s/types/annotations.h"
#include "spec/modes.h"

namespace baton::k8s {

namespace {

constexpr size_t kListBytesMax = 1024;  // 16 uuids and more

// Each container has these for itself.
bool IsOfContainer(std::string_view key) {
  return key == keys::kRequest || key == keys::kLimit || key == keys::kMemory ||
         key == keys::kCount || key == keys::kFlavor;
}

std::vector<WishField> MakeWishFields() {
  std::vector<WishField> all;
  for (const spec::PodField& field : spec::PodFields()) {
    if (field.share_pod.empty() || IsOfContainer(field.annotation)) continue;
    all.push_back({field.annotation, field.share_pod,
                   field.is_list()       ? kListBytesMax
                   : field.bytes_max > 0 ? field.bytes_max
                                         : 16,
                   !field.is_wish() && !field.is_flag(), &field});
  }
  all.push_back({keys::kGang, "gang/name", 128, false, nullptr});
  all.push_back({keys::kGangSize, "gang/size", 8, false, nullptr});
  all.push_back({keys::kAway, "away", 16, false, nullptr});
  return all;
}

Result<void> ReadWish(const spec::PodField& field, const std::string& text,
                      spec::PodRequest& request) {
  if (field.is_list()) return spec::ReadField(field, Words(text), request);
  return spec::ReadField(field, text, request);
}

}  // namespace

std::span<const WishField> WishFields() {
  static const std::vector<WishField>& all = *new std::vector<WishField>(MakeWishFields());
  return all;
}

const std::string& Wish(const PodWishes& wishes, std::string_view key) {
  static const std::string& none = *new std::string();
  const auto found = wishes.find(key);
  return found == wishes.end() ? none : found->second;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShownMax = 64;
  return "'" + ToPrintable(text.substr(0, kShownMax)) + (text.size() > kShownMax ? "...'" : "'");
}

tl::unexpected<Error> Refuse(std::string_view field, std::string_view sentence) {
  return Fail(ErrorCode::kInvalid, fmt::format("{}: {}", field, sentence));
}

const Json& ListAt(const Json& object, std::string_view pointer) {
  static const Json& none = *new Json(Json::array());
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_array() ? *found : none;
}

Result<uint32_t> ReadCount(std::string_view field, std::string_view text, uint64_t max) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > max) {
    return Refuse(field, fmt::format("{}; write a whole number from 1 to {}", Quoted(text), max));
  }
  return static_cast<uint32_t>(number);
}

Units UnitsOf(uint64_t value, uint64_t unit, uint32_t count) {
  return {std::max<uint64_t>(value / unit, 1) * count,
          (value / unit + (value % unit != 0)) * count};
}

uint64_t MibOf(uint64_t bytes) { return bytes / (1 << 20) + (bytes % (1 << 20) != 0 ? 1 : 0); }

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

Result<void> CheckWishes(const PodWishes& wishes,
                         const std::function<std::string(const WishField&)>& name) {
  const auto name_of = [&](std::string_view key) {
    const auto fields = WishFields();
    return name(*std::find_if(fields.begin(), fields.end(),
                              [&](const WishField& f) { return f.key == key; }));
  };
  for (const WishField& field : WishFields()) {
    const std::string& text = Wish(wishes, field.key);
    if (text.size() > field.bytes) {
      return Refuse(name(field), fmt::format("{} has {} bytes; at most {}", Quoted(text),
                                             text.size(), field.bytes));
    }
    if (!IsPrintable(text)) {
      return Refuse(name(field),
                    Quoted(text) + "; write one line of UTF-8 without control characters");
    }
  }
  const auto one_of = [&](std::string_view key,
                          const std::vector<std::string>& words) -> Result<void> {
    const std::string& said = Wish(wishes, key);
    if (said.empty() || std::find(words.begin(), words.end(), said) != words.end()) return {};
    const std::string near = Nearest(said, words);
    return Refuse(name_of(key),
                  fmt::format("{}; write {}{}", Quoted(said), fmt::join(words, " or "),
                              near.empty() ? "" : "; did you mean '" + near + "'?"));
  };
  if (auto ok = one_of(keys::kPriority, {"normal", "low", "high", "idle"}); !ok) return ok;
  if (auto ok = one_of(keys::kAway, {"wait", "open"}); !ok) return ok;
  std::vector<std::string> modes;
  modes.reserve(spec::kModes.size() + 1);
  for (const spec::Mode& mode : spec::kModes) modes.emplace_back(mode.name);
  modes.emplace_back(spec::kAuto);
  if (auto ok = one_of(keys::kMode, modes); !ok) return ok;
  for (const auto key : {keys::kModel, keys::kNotModel}) {
    const std::string& said = Wish(wishes, key);
    const std::vector<std::string> words = Words(said);
    const bool models = std::all_of(words.begin(), words.end(), [](const std::string& word) {
      return std::any_of(word.begin(), word.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      });
    });
    if (!said.empty() && (words.empty() || !models)) {
      return Refuse(name_of(key), Quoted(said) +
                                      "; write GPU models, separated by commas: H100, "
                                      "A100 80GB");
    }
  }
  for (const auto key : {keys::kGpuUuid, keys::kNotGpuUuid}) {
    const std::string& said = Wish(wishes, key);
    const std::vector<std::string> words = Words(said);
    const bool index = std::any_of(words.begin(), words.end(), [](const std::string& word) {
      return word.find_first_not_of("0123456789") == std::string::npos;
    });
    if (!said.empty() && (words.empty() || index)) {
      return Refuse(name_of(key), Quoted(said) +
                                      "; write uuids of GPUs, separated by commas, as "
                                      "kubectl get gpunode NODE -o yaml shows them");
    }
  }
  if (!Wish(wishes, keys::kGangSize).empty()) {
    const std::string field = name_of(keys::kGangSize);
    if (auto size = ReadCount(field, Wish(wishes, keys::kGangSize), kGangSizeMax); !size) {
      return tl::unexpected(size.error());
    }
    if (Wish(wishes, keys::kGang).empty()) {
      return Refuse(field, "a gang size requires the gang's name; set " + name_of(keys::kGang));
    }
  }
  if (!Wish(wishes, keys::kGang).empty() && Wish(wishes, keys::kGangSize).empty()) {
    return Refuse(name_of(keys::kGang),
                  "a gang requires its size; set " + name_of(keys::kGangSize));
  }
  spec::PodRequest request;
  for (const WishField& field : WishFields()) {
    const std::string& text = Wish(wishes, field.key);
    if (field.field == nullptr || text.empty()) continue;
    if (auto read = ReadWish(*field.field, text, request); !read) {
      return Refuse(name(field), read.error().message);
    }
  }
  return {};
}

spec::PodRequest AskedBy(const PodWishes& wishes) {
  spec::PodRequest request;
  for (const WishField& field : WishFields()) {
    const std::string& text = Wish(wishes, field.key);
    if (field.field != nullptr && !text.empty()) (void)ReadWish(*field.field, text, request);
  }
  return request;
}

}  // namespace baton::k8s
