#include "k8s/types/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "k8s/types/read.h"

namespace baton::k8s {

namespace {

constexpr size_t kTextMax = 64;
constexpr uint32_t kGpuMibMax = 1u << 24;

__extension__ using Wide = unsigned __int128;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

tl::unexpected<Error> NoQuantity(std::string_view text) {
  return Fail(ErrorCode::kInvalid,
              Quoted(text) + " is not a quantity; examples: 2, 500m, 4Gi, 1.5e3");
}

struct Suffix {
  std::string_view text;
  int tens = 0;       // a power of ten
  unsigned twos = 0;  // of two
};
constexpr std::array<Suffix, 16> kSuffixes{{{"", 0, 0},
                                            {"n", -9, 0},
                                            {"u", -6, 0},
                                            {"m", -3, 0},
                                            {"k", 3, 0},
                                            {"M", 6, 0},
                                            {"G", 9, 0},
                                            {"T", 12, 0},
                                            {"P", 15, 0},
                                            {"E", 18, 0},
                                            {"Ki", 0, 10},
                                            {"Mi", 0, 20},
                                            {"Gi", 0, 30},
                                            {"Ti", 0, 40},
                                            {"Pi", 0, 50},
                                            {"Ei", 0, 60}}};

// In units of 10^-`places`, rounded up.
Result<int64_t> Parsed(std::string_view whole_text, int places) {
  std::string_view text = whole_text;
  if (text.empty() || text.size() > kTextMax) return NoQuantity(whole_text);
  if (text.front() == '+') text.remove_prefix(1);
  if (!text.empty() && text.front() == '-') {
    return Fail(ErrorCode::kInvalid, Quoted(whole_text) + " is negative; the minimum is 0");
  }
  // Nineteen digits, what power of ten they stand for, and whether anything was left out.
  uint64_t digits = 0;
  int tens = 0;
  bool more = false;
  bool any = false;
  bool after_point = false;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c == '.' && !after_point) {
      after_point = true;
      continue;
    }
    if (!IsDigit(c)) break;
    any = true;
    if (digits < 1'000'000'000'000'000'000) {
      digits = digits * 10 + static_cast<uint64_t>(c - '0');
      if (after_point) --tens;
    } else {
      more |= c != '0';
      if (!after_point) ++tens;
    }
  }
  if (!any) return NoQuantity(whole_text);
  unsigned twos = 0;
  const auto suffix = std::find_if(kSuffixes.begin(), kSuffixes.end(),
                                   [&](const Suffix& s) { return s.text == text; });
  if (suffix != kSuffixes.end()) {
    tens += suffix->tens;
    twos = suffix->twos;
  } else if (text.front() == 'e' || text.front() == 'E') {
    text.remove_prefix(1);
    const bool down = !text.empty() && text.front() == '-';
    if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
    if (text.empty() || text.size() > 4 || !std::all_of(text.begin(), text.end(), IsDigit)) {
      return NoQuantity(whole_text);
    }
    int exponent = 0;
    for (const char c : text) exponent = exponent * 10 + (c - '0');
    tens += down ? -exponent : exponent;
  } else {
    return NoQuantity(whole_text);
  }
  if (digits == 0) return 0;
  // Below 2^64 * 2^60; then ten by ten, and never past what counts.
  constexpr Wide kMax = static_cast<Wide>(std::numeric_limits<int64_t>::max());
  Wide value = static_cast<Wide>(digits) << twos;
  for (tens += places; tens > 0 && value <= kMax; --tens) value *= 10;
  for (; tens < 0 && value > 0; ++tens) {
    more |= value % 10 != 0;
    value /= 10;
  }
  if (more) ++value;
  return static_cast<int64_t>(std::min(value, kMax));
}

Result<int64_t> Read(const nlohmann::json& value, int places) {
  if (value.is_string()) return Parsed(value.get_ref<const std::string&>(), places);
  if (value.is_number()) return Parsed(value.dump(), places);
  return Fail(ErrorCode::kInvalid, "a quantity must be a string or a number, such as \"4Gi\" or 2");
}

}  // namespace

Result<int64_t> MilliQuantity(std::string_view text) { return Parsed(text, 3); }
Result<int64_t> WholeQuantity(std::string_view text) { return Parsed(text, 0); }
Result<int64_t> MilliQuantity(const nlohmann::json& value) { return Read(value, 3); }
Result<int64_t> WholeQuantity(const nlohmann::json& value) { return Read(value, 0); }

Result<policy::Share> ParsePercent(std::string_view text) {
  const auto refuse = [&]() -> tl::unexpected<Error> {
    return Fail(ErrorCode::kInvalid,
                Quoted(text) +
                    " is not a percentage of a GPU; write 0.1 to 100 in steps of 0.1, such "
                    "as \"30\" or \"12.5\"");
  };
  std::string_view rest = text;
  if (!rest.empty() && rest.back() == '%') rest.remove_suffix(1);
  const size_t point = std::min(rest.find('.'), rest.size());
  const std::string_view whole = rest.substr(0, point);
  if (whole.empty() || whole.size() > 3 || (whole.size() > 1 && whole.front() == '0') ||
      !std::all_of(whole.begin(), whole.end(), IsDigit)) {
    return refuse();
  }
  uint32_t tenths = 0;
  for (const char c : whole) tenths = tenths * 10 + static_cast<uint32_t>(c - '0');
  tenths *= 10;
  if (point < rest.size()) {
    const std::string_view part = rest.substr(point + 1);
    if (part.empty() || part.size() > 4 || !IsDigit(part.front()) ||
        part.find_first_not_of('0', 1) != std::string_view::npos) {
      return refuse();
    }
    tenths += static_cast<uint32_t>(part.front() - '0');
  }
  if (tenths < 1 || tenths > 1'000) return refuse();
  return policy::kShareMin * tenths;
}

Result<GpuMemory> ParseGpuMemory(std::string_view text) {
  if (!text.empty() && text.back() == '%') {
    auto part = ParsePercent(text);
    if (!part) {
      return Fail(ErrorCode::kInvalid,
                  Quoted(text) +
                      " is not a part of a GPU's memory; write 0.1% to 100% in "
                      "steps of 0.1, or a size such as 4Gi");
    }
    return GpuMemory{0, *part};
  }
  const auto bytes = WholeQuantity(text);
  if (!bytes) {
    return Fail(ErrorCode::kInvalid,
                Quoted(text) +
                    " is not an amount of GPU memory; write a size such as 4Gi or "
                    "1500Mi, or a part of the GPU's memory such as \"25%\"");
  }
  if (*bytes < 1 << 20) {
    return Fail(ErrorCode::kInvalid,
                Quoted(text) +
                    " is less than 1Mi of GPU memory; write a size such as 4Gi, or leave "
                    "it out for no cap");
  }
  const int64_t mib = (*bytes - 1) / (1 << 20) + 1;
  if (mib > kGpuMibMax) {
    return Fail(ErrorCode::kInvalid,
                Quoted(text) + " is more memory than any GPU has; at most 16Ti");
  }
  return GpuMemory{static_cast<uint32_t>(mib), {}};
}

std::string GpuMemoryText(const GpuMemory& memory) {
  if (memory.part > policy::Share(0)) return policy::PercentText(memory.part) + "%";
  if (memory.mib == 0) return {};
  return memory.mib % 1'024 == 0 ? fmt::format("{}Gi", memory.mib / 1'024)
                                 : fmt::format("{}Mi", memory.mib);
}

}  // namespace baton::k8s
