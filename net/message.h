// What handlers get and give, and how a request's target is read.
#ifndef BATON_NET_MESSAGE_H_
#define BATON_NET_MESSAGE_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace baton::net {

// The server leaves out the body of an answer to HEAD.
struct HttpRequest {
  std::string method;  // "GET", "HEAD"; where programs ask (HttpOptions::for_programs), any
  // Decoded, printable (base/utf8.h); begins with "/", and no part of it is "." or
  // "..". Where programs ask, as it came, without the query.
  std::string path;
  std::string body;  // of a program's request
  // Decoded like the path; at most kQueryMax, no name twice.
  std::map<std::string, std::string, std::less<>> query{};

  static constexpr size_t kQueryMax = 16;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  // Where set, it makes the body, on a thread of the server's that may take its time, and
  // everything it captures is destroyed there. It must not throw.
  std::function<std::string()> produce{};
  // Further header fields.
  std::vector<std::pair<std::string, std::string>> fields{};
};

// {"error": sentence, "code": name}, with the status that fits the code.
HttpResponse ErrorResponse(const Error& error);
HttpResponse ErrorResponse(int status, ErrorCode code, std::string_view sentence);
// {"error": sentence}, which is all that programs are told.
HttpResponse ErrorResponse(int status, std::string_view sentence);

// Reads "/path?name=value&...". kInvalid says what is wrong.
Result<HttpRequest> ParseTarget(std::string_view target);

}  // namespace baton::net

#endif  // BATON_NET_MESSAGE_H_
