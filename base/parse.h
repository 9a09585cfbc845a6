// The quantities that users write on command lines and in files, and how they are printed again.
// Every error is one sentence that names the input and says what is accepted. Thread safe.
#ifndef BATON_BASE_PARSE_H_
#define BATON_BASE_PARSE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace baton {

// "20ms", "1.5s", "250us", "10m", "2h", "7d", "2w"; a unit is required except for "0". Range 0 to
// 100 000 h.
Result<Duration> ParseDuration(std::string_view text);
// Bytes: "4GiB", "512MiB", "1.5GB", "4Gi" (Kubernetes' spelling), "1024". Range 0 to 2^60.
Result<uint64_t> ParseBytes(std::string_view text);

// "20ms", "1.5s": to four digits, or to the second. As ParseDuration() reads it.
std::string FormatDuration(Duration d);
// "4GiB", "1.5GiB", "17B": to four digits. As ParseBytes() reads it.
std::string FormatBytes(uint64_t bytes);

// Hours or a cost, for sentences: to a tenth, or to as many more decimals (nine at most, which are
// microseconds of an hour) as it takes to show three digits and to tell it from `beside`, which
// stands in the same sentence: "512.3", "0.00103", and "500.0001" beside 500.
std::string FormatHours(double hours, double beside = 0);
// As many decimals, from `least` to six, as it takes to show two digits of `value`: of a column it
// is the largest of its values'.
int DecimalsFor(double value, int least);

}  // namespace baton

#endif  // BATON_BASE_PARSE_H_
