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

ApiError ErrorOf(const net::HttpError& error, const std::string& asked) {
  if (error.end == net::HttpEnd::kAborted) return StoppedError();
  const bool late = error.end == net::HttpEnd::kTimeout || error.end == net::HttpEnd::kBusy;
  return {0, late ? "Timeout" : "NoAnswer", asked + ": " + error.why, {}};
}

ApiError ErrorOf(const net::HttpAnswer& answer, const std::optional<Json>& body,
                 const std::string& asked) {
  ApiError error;
  error.status = answer.status;
  error.retry_after = answer.retry_after;
  std::string said;
  if (body) {
    error.reason = TextAt(*body, "reason");
    said = TextAt(*body, "message");
    const std::string name = TextAt(*body, "details/name");
    if (!name.empty()) error.about = TextAt(*body, "details/kind") + "/" + name;
    if (const Json* after = Find(*body, "details/retryAfterSeconds");
        after != nullptr && after->is_number_unsigned()) {
      const std::chrono::seconds wanted(std::min<uint64_t>(after->get<uint64_t>(), 86'400));
      error.retry_after = std::max<Duration>(error.retry_after, wanted);
    }
  } else {
    said = Excerpt(answer.body);
  }
  if (body && answer.status == 429) {
    const Json* causes = Find(*body, "details/causes");
    const bool budget = causes != nullptr && causes->is_array() &&
                        std::any_of(causes->begin(), causes->end(), [](const Json& cause) {
                          return TextAt(cause, "reason") == kDisruptionBudget;
                        });
    if (budget) error.reason = kDisruptionBudget;
  }
  if (error.reason.empty()) error.reason = ReasonOf(answer.status);
  error.message = fmt::format("{}: {} {}{}{}", asked, answer.status, error.reason,
                              said.empty() ? "" : ": ", said.substr(0, 4096));
  return error;
}

}  // namespace baton::k8s
