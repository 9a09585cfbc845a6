#include "k8s/api/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace baton::k8s {
namespace {

std::string ReasonOf(int status) {
  switch (status) {
    case 400:
      return "BadRequest";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "NotFound";
    case 405:
      return "MethodNotAllowed";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 413:
      return "RequestEntityTooLarge";
    case 415:
      return "UnsupportedMediaType";
    case 422:
      return "Invalid";
    case 429:
      return "TooManyRequests";
    case 500:
      return "InternalError";
    case 503:
      return "ServiceUnavailable";
    case 504:
      return "Timeout";
    default:
      return "Unknown";
  }
}

}  // namespace

std::string Excerpt(const std::string& body) {
  std::string text = ToUtf8(std::string_view(body).substr(0, 200));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.empty() ? "(nothing)" : text;
}

ApiError StoppedError() { return {0, "Stopped", "the client was stopped", {}}; }

ApiError BadAnswer(const std::string& what) { return {0, "BadAnswer", what, {}}; }

ApiError ErrorOf(const StreamError& error, const std::string& asked) {
  if (error.end == StreamEnd::kAborted) return StoppedError();
  return {
      0, error.end == StreamEnd::kTimeout ? "Timeout" : "NoAnswer", asked + ": " + error.why, {}};
}

ApiError ErrorOf(int status, const std::optional<Json>& body, const std::string& text,
                 const std::string& asked) {
  ApiError error;
  error.status = status;
  std::string said;
  if (body) {
    error.reason = TextAt(*body, "reason");
    said = TextAt(*body, "message");
    if (const Json* after = Find(*body, "details/retryAfterSeconds");
        after != nullptr && after->is_number_unsigned()) {
      error.retry_after = std::chrono::seconds(std::min<uint64_t>(after->get<uint64_t>(), 86'400));
    }
  } else {
    said = Excerpt(text);
  }
  if (error.reason.empty()) error.reason = ReasonOf(status);
  error.message = fmt::format("{}: {} {}{}{}", asked, status, error.reason,
                              said.empty() ? "" : ": ", said.substr(0, 4096));
  return error;
}

}  // namespace baton::k8s
