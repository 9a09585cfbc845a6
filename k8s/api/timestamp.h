// Times as the API writes them. Thread safe.
#ifndef BATON_K8S_API_TIMESTAMP_H_
#define BATON_K8S_API_TIMESTAMP_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton::k8s {

// RFC 3339, UTC: "2026-01-31T09:30:00Z" (metav1.Time), and with microseconds
// "2026-01-31T09:30:00.000000Z" (metav1.MicroTime).
std::string Timestamp(std::chrono::system_clock::time_point time);
std::string MicroTimestamp(std::chrono::system_clock::time_point time);
// Seconds since 1970 of what Timestamp() writes; nothing: it is something else.
std::optional<int64_t> SecondsIn(std::string_view timestamp);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_TIMESTAMP_H_
