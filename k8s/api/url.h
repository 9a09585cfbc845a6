// Where a server is, by its URL, and how text is put into one. Thread safe.
#ifndef BATON_K8S_API_URL_H_
#define BATON_K8S_API_URL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::k8s {

struct ServerUrl {
  bool tls = true;
  std::string host;  // without brackets
  uint16_t port = 443;
  std::string path;       // before every path of the API: empty, or "/k8s/clusters/c-1"
  std::string authority;  // for the Host field
};

// "https://10.96.0.1:443", "https://[fd00::1]/prefix". kInvalid says what is wrong with it.
Result<ServerUrl> ParseServerUrl(const std::string& url);

// All but letters, digits and "-._~" as %XX (RFC 3986, 2.1).
std::string PercentEncode(std::string_view text);

// Whether `host` is an address, not a name; whether it is this machine's own.
bool IsAddress(const std::string& host);
bool IsLoopback(const std::string& host);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_URL_H_
