// Kubernetes' quantities ("500m", "4Gi", "1.5e3") and Baton's percentages.
#ifndef BATON_K8S_TYPES_QUANTITY_H_
#define BATON_K8S_TYPES_QUANTITY_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/share.h"

namespace baton::k8s {

// A quantity in thousandths, rounded up, at most INT64_MAX. kInvalid: no quantity, negative.
Result<int64_t> MilliQuantity(std::string_view text);
// In whole units, rounded up (bytes, where it is memory).
Result<int64_t> WholeQuantity(std::string_view text);
// So that texts are not taken for JSON.
inline Result<int64_t> MilliQuantity(const std::string& text) {
  return MilliQuantity(std::string_view(text));
}
inline Result<int64_t> WholeQuantity(const std::string& text) {
  return WholeQuantity(std::string_view(text));
}
inline Result<int64_t> MilliQuantity(const char* text) {
  return MilliQuantity(std::string_view(text));
}
inline Result<int64_t> WholeQuantity(const char* text) {
  return WholeQuantity(std::string_view(text));
}
// A JSON text or number.
Result<int64_t> MilliQuantity(const nlohmann::json& value);
Result<int64_t> WholeQuantity(const nlohmann::json& value);

// "30", "12.5", "30%": 0.1 to 100 in steps of 0.1, in millionths. kInvalid: a sentence that begins
// with the text and says what is accepted.
Result<policy::Share> ParsePercent(std::string_view text);
// GPU memory: a quantity in bytes, of which MiB are taken, rounded up; or a percentage of the GPU.
struct GpuMemory {
  uint32_t mib = 0;    // at most 2^24 (16 TiB)
  policy::Share part;  // one of both is 0; both: no cap
  friend bool operator==(const GpuMemory&, const GpuMemory&) = default;
};
Result<GpuMemory> ParseGpuMemory(std::string_view text);
// "4Gi", "1500Mi", "25%"; empty: no cap.
std::string GpuMemoryText(const GpuMemory& memory);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_QUANTITY_H_
