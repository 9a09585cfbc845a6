#include "net/url.h"

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <cstring>

namespace baton::net {

Result<HttpUrl> ParseHttpUrl(const std::string& url, std::string server_name) {
  const auto invalid = [&](const std::string& why) {
    return Fail(ErrorCode::kInvalid, server_name + "'s URL '" + url.substr(0, 200) + "' " + why +
                                         "; it should be as https://10.96.0.1:443");
  };
  for (const char c : url) {
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7f) {
      return invalid("has a character that does not belong there");
    }
  }
  HttpUrl server;
  std::string_view rest = url;
  if (rest.substr(0, 8) == "https://") {
    rest.remove_prefix(8);
  } else if (rest.substr(0, 7) == "http://") {
    rest.remove_prefix(7);
    server.tls = false;
    server.port = 80;
  } else {
    return invalid("does not begin with https://");
  }
  const size_t slash = rest.find('/');
  server.authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) server.path = rest.substr(slash);
  while (!server.path.empty() && server.path.back() == '/') server.path.pop_back();
  if (server.path.find_first_of("?#") != std::string::npos) return invalid("has a query");

  std::string_view authority = server.authority;
  if (authority.find('@') != std::string_view::npos) return invalid("has a user in it");
  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return invalid("lacks a ']'");
    server.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
    if (!port.empty() && port.front() != ':') return invalid("has something after its ']'");
  } else {
    const size_t colon = authority.find(':');
    server.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  if (server.host.empty() || server.host.size() > 253) return invalid("names no host");
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, error] =
        std::from_chars(port.data(), port.data() + port.size(), server.port, 10);
    if (error != std::errc() || end != port.data() + port.size() || server.port == 0) {
      return invalid("has no port from 1 to 65535");
    }
  }
  boost::system::error_code no_address;
  const auto address = boost::asio::ip::make_address(server.host, no_address);
  server.loopback = no_address ? server.host == "localhost" : address.is_loopback();
  server.server = std::move(server_name);
  return server;
}

std::string PercentEncode(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
        (c != '\0' && std::strchr("-._~", c) != nullptr)) {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

}  // namespace baton::net
