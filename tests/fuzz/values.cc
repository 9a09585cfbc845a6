// What people write on command lines and in files: percentages, durations, sizes, times; and
// Kubernetes' quantities.
#include <cmath>

#include "base/parse.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "cli/text_table.h"
#include "devmgr/placement/policy.h"
#include "k8s/types/quantity.h"
#include "ledger/report.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

// Printed with four digits.
void IsNear(double printed, double value) {
  BATON_CHECK(std::abs(printed - value) <= std::abs(value) * 1e-3);
}

FUZZ_TARGET(value) {
  if (const auto duration = ParseDuration(input)) {
    BATON_CHECK(*duration >= Duration(0) && *duration <= std::chrono::hours(100'000));
    const auto again = ParseDuration(FormatDuration(*duration));
    BATON_CHECK(again);
    IsNear(static_cast<double>(again->count()), static_cast<double>(duration->count()));
  }
  if (const auto bytes = ParseBytes(input)) {
    BATON_CHECK(*bytes <= uint64_t{1} << 60);
    const auto again = ParseBytes(FormatBytes(*bytes));
    BATON_CHECK(again);
    IsNear(static_cast<double>(*again), static_cast<double>(*bytes));
  }
  if (const auto share = policy::ParsePercent(input)) {
    BATON_CHECK(*share >= policy::kShareMin && *share <= policy::kWhole);
    const auto again = policy::ParsePercent(policy::PercentText(*share));
    BATON_CHECK(again && *again == *share);
  }
  if (const auto time = ledger::ParseTime(input)) {
    const auto again = ledger::ParseTime(ledger::FormatTime(*time));
    BATON_CHECK(again && *again == *time);
  }
  const std::string text(input);
  (void)ledger::ParseWindow("", "", text, ledger::WallTime(std::chrono::hours(24 * 20'000)));
  if (const auto bys = ledger::ParseBys(input)) BATON_CHECK(ledger::BysName(*bys) == input);
  (void)ledger::FindTimeZone(std::string(input));
  (void)devmgr::ParseRule(input);
}

FUZZ_TARGET(quantity) {
  const auto whole = k8s::WholeQuantity(input);
  const auto milli = k8s::MilliQuantity(input);
  BATON_CHECK(whole.has_value() == milli.has_value());
  if (milli) {
    BATON_CHECK(*milli >= 0);
    if (*milli < INT64_MAX - 999) BATON_CHECK(*whole == (*milli + 999) / 1'000);
    const auto again = k8s::WholeQuantity(std::to_string(*whole));
    BATON_CHECK(again && *again == *whole);
  }
  if (const auto share = k8s::ParsePercent(input)) {
    BATON_CHECK(*share >= policy::kShareMin && *share <= policy::kWhole);
    BATON_CHECK(*k8s::ParsePercent(policy::PercentText(*share)) == *share);
    BATON_CHECK(*policy::ParsePercent(input) == *share);
  }
  if (const auto memory = k8s::ParseGpuMemory(input)) {
    BATON_CHECK((memory->mib == 0) != (memory->part == policy::Share(0)));
    BATON_CHECK(*k8s::ParseGpuMemory(k8s::GpuMemoryText(*memory)) == *memory);
  }
}

// Text from anywhere, as a terminal and a spreadsheet get it.
FUZZ_TARGET(text) {
  const std::string clean = ToUtf8(input);
  BATON_CHECK(IsUtf8(clean) && ToUtf8(clean) == clean);
  BATON_CHECK(IsUtf8(input) == (clean == input));
  const std::string printable = ToPrintable(input);
  BATON_CHECK(IsUtf8(printable) && IsPrintable(printable) && ToPrintable(printable) == printable);
  BATON_CHECK(IsPrintable(input) == (printable == input));
  for (const char* never : {"\x1b", "\x7f", "\u009b", "\u202e", "\u2066", "\u2028"}) {
    BATON_CHECK(printable.find(never) == std::string::npos);
  }
  const std::string quoted = TomlText(clean);
  if (clean.find('\0') == std::string::npos) {
    const auto read = ParseToml("x = " + quoted, "quoted");
    BATON_CHECK(read);
    BATON_CHECK((*read)["x"].value<std::string>() == clean);
  }
  cli::TextTable table;
  table.columns = {{"A", true}, {"B"}};
  table.rows = {{printable, "1"}, {"x", printable}};
  for (const size_t width : {size_t{0}, size_t{10}}) {
    for (const std::string& line : table.Lines(width)) BATON_CHECK(IsUtf8(line));
  }
  (void)table.Csv();
  (void)table.Parsable();
}

}  // namespace
}  // namespace baton::fuzz
