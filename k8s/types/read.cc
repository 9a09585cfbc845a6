#include "k8s/types/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "base/utf8.h"
#include "k8s/types/annotations.h"

namespace baton::k8s {

const std::array<WishField, 12> kWishFields{{
    {&PodWishes::priority, keys::kPriority, "priority", 16, true},
    {&PodWishes::team, keys::kTeam, "team", 256, true},
    {&PodWishes::user, keys::kUser, "user", 256, true},
    {&PodWishes::model, keys::kModel, "model", 512, false},
    {&PodWishes::not_model, keys::kNotModel, "notModel", 512, false},
    {&PodWishes::mode, keys::kMode, "mode", 16, false},
    {&PodWishes::affinity, keys::kAffinity, "affinity", 128, false},
    {&PodWishes::anti_affinity, keys::kAntiAffinity, "antiAffinity", 128, false},
    {&PodWishes::exclusion, keys::kExclusion, "exclusion", 128, false},
    {&PodWishes::gang, keys::kGang, "gang/name", 128, false},
    {&PodWishes::gang_size, keys::kGangSize, "gang/size", 8, false},
    {&PodWishes::away, keys::kAway, "away", 16, false},
}};

std::string Quoted(std::string_view text) {
  constexpr size_t kShownMax = 64;
  std::string shown = ToUtf8(text.substr(0, kShownMax));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return "'" + shown + (text.size() > kShownMax ? "...'" : "'");
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
  const auto name_of = [&](std::string PodWishes::*text) {
    const auto field = std::find_if(kWishFields.begin(), kWishFields.end(),
                                    [&](const WishField& f) { return f.text == text; });
    return name(*field);
  };
  for (const WishField& field : kWishFields) {
    const std::string& text = wishes.*field.text;
    if (text.size() > field.bytes) {
      return Refuse(name(field), fmt::format("{} has {} bytes; at most {}", Quoted(text),
                                             text.size(), field.bytes));
    }
    const bool line = std::none_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    if (!line || !IsUtf8(text)) {
      return Refuse(name(field), Quoted(text) + "; write one line of UTF-8");
    }
  }
  const auto one_of = [&](std::string PodWishes::*text,
                          const std::vector<std::string>& words) -> Result<void> {
    const std::string& said = wishes.*text;
    if (said.empty() || std::find(words.begin(), words.end(), said) != words.end()) return {};
    const std::string near = Nearest(said, words);
    return Refuse(name_of(text),
                  fmt::format("{}; write {}{}", Quoted(said), fmt::join(words, " or "),
                              near.empty() ? "" : "; did you mean '" + near + "'?"));
  };
  if (auto ok = one_of(&PodWishes::priority, {"low", "high"}); !ok) return ok;
  if (auto ok = one_of(&PodWishes::away, {"wait", "open"}); !ok) return ok;
  if (wishes.mode == "mps" || wishes.mode == "mig") {
    return Refuse(name_of(&PodWishes::mode),
                  Quoted(wishes.mode) +
                      " is not offered on Kubernetes; write time-slice or "
                      "exclusive");
  }
  if (auto ok = one_of(&PodWishes::mode, {"time-slice", "exclusive"}); !ok) return ok;
  for (const auto text : {&PodWishes::model, &PodWishes::not_model}) {
    const std::string& said = wishes.*text;
    const std::vector<std::string> words = Words(said);
    const bool models = std::all_of(words.begin(), words.end(), [](const std::string& word) {
      return std::any_of(word.begin(), word.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      });
    });
    if (!said.empty() && (words.empty() || !models)) {
      return Refuse(name_of(text), Quoted(said) +
                                       "; write words of the card's model, several of "
                                       "them with commas between: H100, A100 80GB");
    }
  }
  if (!wishes.gang_size.empty()) {
    const std::string field = name_of(&PodWishes::gang_size);
    if (auto size = ReadCount(field, wishes.gang_size, kGangSizeMax); !size) {
      return tl::unexpected(size.error());
    }
    if (wishes.gang.empty()) {
      return Refuse(field, "it says how many pods a gang has, but " + name_of(&PodWishes::gang) +
                               " does not say which");
    }
  }
  if (!wishes.gang.empty() && wishes.gang_size.empty()) {
    return Refuse(name_of(&PodWishes::gang), "a gang needs its size; say in " +
                                                 name_of(&PodWishes::gang_size) +
                                                 " how many pods it has");
  }
  return {};
}

}  // namespace baton::k8s
