#include "tests/fuzz/target.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/nesting.h"
#include "base/random.h"

namespace baton::fuzz {
namespace {

using Json = nlohmann::json;

struct Dice : Random {
  using Random::Random;
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>(Between(0, static_cast<int64_t>(n) - 1));
  }
};

constexpr std::array<const char*, 28> kTexts{"",
                                             "30",
                                             "130",
                                             "-1",
                                             "12.5%",
                                             "4Gi",
                                             "1e999",
                                             "0",
                                             "main",
                                             "high",
                                             "idle",
                                             "exclusive",
                                             "time-slice",
                                             "mig",
                                             "nvidia.com/gpu",
                                             "baton.dev/gpu-share",
                                             "name",
                                             "{}",
                                             "GPU-a",
                                             "99999999999999999999",
                                             "\u00e4",
                                             "\u202e",
                                             "\u009b31m",
                                             "a,b",
                                             "Always",
                                             "1",
                                             "16",
                                             "UPDATE"};

// What fields have, and what they have not.
Json Anything(Dice& dice, int depth = 0) {
  switch (dice.Below(depth > 3 ? 7 : 9)) {
    case 0:
      return nullptr;
    case 1:
      return dice.OneIn(2);
    case 2:
      return static_cast<int64_t>(dice.Below(200)) - 20;
    case 3:
      return dice.OneIn(2) ? Json(UINT64_MAX) : Json(INT64_MIN);
    case 4:
      return 1e300;
    case 5:
    case 6:
      return kTexts[dice.Below(kTexts.size())];
    case 7: {
      Json list = Json::array();
      for (uint64_t i = dice.Below(4); i > 0; --i) list.push_back(Anything(dice, depth + 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (uint64_t i = dice.Below(4); i > 0; --i) {
        object[kTexts[dice.Below(kTexts.size())]] = Anything(dice, depth + 1);
      }
      return object;
    }
  }
}

// Replaces, takes out or adds something anywhere in `json`.
void Change(Dice& dice, Json& json) {
  if (json.is_structured() && !json.empty() && !dice.OneIn(8)) {
    auto at = json.begin();
    std::advance(at, static_cast<int64_t>(dice.Below(json.size())));
    if (dice.OneIn(20)) {
      json.erase(at);
    } else {
      Change(dice, *at);
    }
    return;
  }
  if (json.is_object() && dice.OneIn(2)) {
    json[kTexts[dice.Below(kTexts.size())]] = Anything(dice);
    return;
  }
  json = Anything(dice);
}

std::string MutatedBytes(std::string_view input, Dice& dice) {
  std::string text(input);
  for (uint64_t changes = 1 + dice.Below(4); changes > 0; --changes) {
    const uint64_t at = dice.Below(text.size() + 1);
    const uint64_t length = dice.Below(std::min<uint64_t>(16, text.size() - at) + 1);
    switch (dice.Below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(dice.Below(256));
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(dice.Below(256)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(dice.Below(text.size() + 1), std::string(text, at, length));
        break;
      default:
        text.insert(at, kTexts[dice.Below(kTexts.size())]);
    }
  }
  return text;
}

}  // namespace

std::vector<Target>& Targets() {
  static std::vector<Target>& targets = *new std::vector<Target>();
  return targets;
}

std::string MutatedJson(std::string_view input, uint64_t seed) {
  if (input.empty() || (input.front() != '{' && input.front() != '[')) return {};
  Json json = Json::parse(input, nullptr, false);
  // What is printed recurses: of an input that is deep the bytes are changed.
  if (json.is_discarded() || !JsonNestsWithin(input, 100)) return {};
  Dice dice(seed);
  for (uint64_t i = 1 + dice.Below(3); i > 0; --i) Change(dice, json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Mutated(std::string_view input, uint64_t seed) {
  Dice dice(seed);
  std::string json = dice.OneIn(4) ? "" : MutatedJson(input, seed);
  return json.empty() ? MutatedBytes(input, dice) : json;
}

std::vector<std::string_view> Parts(std::string_view input) {
  constexpr std::string_view kBetween = "\n---\n";
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = input.find(kBetween);
    parts.push_back(input.substr(0, end));
    if (end == std::string_view::npos) return parts;
    input.remove_prefix(end + kBetween.size());
  }
}

}  // namespace baton::fuzz
