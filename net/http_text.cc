#include "net/http_text.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

namespace baton::net {
namespace {

namespace bhttp = boost::beast::http;

constexpr uint32_t kHeaderMax = 8 << 10;

RequestText Refused(int status, std::string_view why) {
  RequestText read;
  read.keep_alive = false;
  read.refusal = ErrorResponse(status, ErrorCode::kInvalid, why);
  return read;
}

}  // namespace

bool BeginsRequest(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line.ends_with(" HTTP/1.1") || line.ends_with(" HTTP/1.0");
}

RequestText ReadRequest(std::string_view text, size_t bytes_max) {
  // Who sends byte for byte is not parsed byte for byte.
  const size_t end = text.substr(0, kHeaderMax).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (text.size() >= kHeaderMax) return Refused(431, "the header is too long");
    RequestText read;
    read.needs = text.size() + 1;
    return read;
  }
  bhttp::request_parser<bhttp::string_body> parser;
  parser.eager(true);
  parser.body_limit(bytes_max);
  boost::system::error_code error;
  size_t size = 0;
  // One part of the message at a time.
  while (!parser.is_done() && size < text.size()) {
    size += parser.put(boost::asio::const_buffer(text.data() + size, text.size() - size), error);
    if (error == bhttp::error::need_more) break;
    if (error == bhttp::error::body_limit) return Refused(413, "the request is too long");
    if (error) return Refused(400, "this is no request of HTTP/1.1");
  }
  if (!parser.is_done()) {
    const auto left = parser.content_length_remaining();
    if (!left) return Refused(411, "the body needs a Content-Length");
    RequestText read;
    read.needs = size + static_cast<size_t>(*left);
    return read.needs <= bytes_max ? read : Refused(413, "the request is too long");
  }
  auto message = parser.release();
  const auto target = message.target();
  auto request = ParseTarget({target.data(), target.size()});
  if (!request) return Refused(400, request.error().message);
  RequestText read;
  read.size = size;
  read.request = *std::move(request);
  const auto method = message.method_string();
  read.request.method.assign(method.data(), method.size());
  read.request.body = std::move(message.body());
  read.keep_alive = message.keep_alive();
  return read;
}

std::string ResponseText(const HttpResponse& response, bool keep_alive) {
  const auto reason = bhttp::obsolete_reason(static_cast<bhttp::status>(response.status));
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n",
      response.status, std::string_view(reason.data(), reason.size()), response.content_type,
      response.body.size());
  for (const auto& [name, value] : response.fields) text += fmt::format("{}: {}\r\n", name, value);
  if (!keep_alive) text += "Connection: close\r\n";
  return text + "\r\n" + response.body;
}

}  // namespace baton::net
