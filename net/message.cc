#include "net/message.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/utf8.h"

namespace baton::net {
namespace {

constexpr size_t kTargetMax = 4096;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Nothing where an escape is damaged, or the result is not printable.
std::optional<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    plain += c;
  }
  if (!IsPrintable(plain)) return std::nullopt;
  return plain;
}

bool HasDots(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part == "." || part == "..") return true;
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  return false;
}

}  // namespace

HttpResponse ErrorResponse(int status, ErrorCode code, std::string_view sentence) {
  return {status,
          nlohmann::json{{"error", ToUtf8(sentence)}, {"code", ErrorCodeName(code)}}.dump() + '\n'};
}

HttpResponse ErrorResponse(int status, std::string_view sentence) {
  return {status, nlohmann::json{{"error", ToUtf8(sentence)}}.dump() + '\n'};
}

HttpResponse ErrorResponse(const Error& error) {
  const auto status = [&] {
    switch (error.code) {
      case ErrorCode::kInvalid:
        return 400;
      case ErrorCode::kNotFound:
        return 404;
      case ErrorCode::kExists:
        return 409;
      case ErrorCode::kExhausted:
        return 429;
      case ErrorCode::kDenied:
        return 403;
      case ErrorCode::kUnavailable:
        return 503;
      case ErrorCode::kInternal:
        return 500;
    }
    return 500;
  };
  return ErrorResponse(status(), error.code, error.message);
}

Result<HttpRequest> ParseTarget(std::string_view target) {
  if (target.size() > kTargetMax) return Fail(ErrorCode::kInvalid, "the address is too long");
  if (target.empty() || target[0] != '/') {
    return Fail(ErrorCode::kInvalid, "the address must begin with /");
  }
  HttpRequest request;
  const size_t question = target.find('?');
  auto path = Decode(target.substr(0, question), false);
  if (!path || HasDots(*path)) {
    return Fail(ErrorCode::kInvalid, "the path is not well formed; see docs/api/openapi.json");
  }
  request.path = std::move(*path);
  if (question == std::string_view::npos) return request;
  std::string_view query = target.substr(question + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const auto name = Decode(pair.substr(0, equals), true);
    const auto value =
        Decode(equals == std::string_view::npos ? "" : pair.substr(equals + 1), true);
    if (!name || !value) {
      return Fail(ErrorCode::kInvalid, "the query is not well formed; write ?name=value&...");
    }
    if (request.query.size() == HttpRequest::kQueryMax) {
      return Fail(ErrorCode::kInvalid, "the query has too many parameters");
    }
    if (!request.query.emplace(*name, *value).second) {
      return Fail(ErrorCode::kInvalid, "the parameter " + *name + " is given twice");
    }
  }
  return request;
}

}  // namespace baton::net
