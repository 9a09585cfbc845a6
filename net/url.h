// Where a server is, by its URL, and how text is put into one. Thread safe.
#ifndef BATON_NET_URL_H_
#define BATON_NET_URL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::net {

struct HttpUrl {
  std::string server;  // what errors call it: "the API server"
  bool tls = true;
  bool loopback = false;  // the host is this machine's own address, or "localhost"
  std::string host;       // without brackets
  uint16_t port = 443;
  std::string path;       // before every target: empty, or "/k8s/clusters/c-1"
  std::string authority;  // for the Host field
};

// "https://10.96.0.1:443", "https://[fd00::1]/prefix", "http://localhost:8080". kInvalid says what
// is wrong with it, and calls it `server_name`'s URL.
Result<HttpUrl> ParseHttpUrl(const std::string& url, std::string server_name);

// All but letters, digits and "-._~" as %XX (RFC 3986, 2.1).
std::string PercentEncode(std::string_view text);

}  // namespace baton::net

#endif  // BATON_NET_URL_H_
