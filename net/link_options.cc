#include "net/link_options.h"

#include <fmt/format.h>

#include <string_view>
#include <tuple>

#include "net/keys.h"
#include "net/options.h"

namespace baton::net {
namespace {

// Of an endpoint of ZeroMQ. What only begins like one of ours may be a name ("127.example"), or a
// source with another machine behind it ("tcp://127.0.0.1:0;other:7411").
bool IsLoopback(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://", kName = "localhost:";
  if (endpoint.starts_with("ipc://")) return true;
  if (!endpoint.starts_with(kTcp)) return false;
  std::string where(endpoint.substr(kTcp.size()));
  if (where.starts_with(kName)) where.replace(0, kName.size(), "127.0.0.1:");
  if (where.ends_with(":*")) where.back() = '0';  // any port
  const auto address = ParseListen(where);
  return address && address->loopback;
}

}  // namespace

Result<void> CheckLinks(const LinkOptions& link, const UpstreamOptions& upstream) {
  const auto wrong = [](std::string what) { return Fail(ErrorCode::kInvalid, std::move(what)); };
  if (link.lost_after < 2 * link.heartbeat) {
    return wrong("zmq.lost_after must be at least twice zmq.heartbeat");
  }
  if (!link.listen.empty() && link.secret_key_file.empty() && !IsLoopback(link.listen)) {
    return wrong(
        fmt::format("zmq.listen = \"{}\" is not a loopback address and there is no key; "
                    "make one with 'baton keygen PATH' and set zmq.secret_key_file, or "
                    "listen on tcp://127.0.0.1:7411",
                    link.listen));
  }
  if (!link.listen.empty() && !link.secret_key_file.empty() && link.nodes.empty() &&
      link.nodes_file.empty()) {
    return wrong(
        "zmq.secret_key_file is set but [zmq.nodes] lists nobody who may connect; add a "
        "line: NAME = \"PUBLIC KEY\"");
  }
  for (const auto& [key, file, name] :
       {std::tuple(link.server_public_key, link.server_public_key_file, "zmq.server_public_key"),
        std::tuple(upstream.server_public_key, upstream.server_public_key_file,
                   "upstream.server_public_key")}) {
    if (!key.empty() && !file.empty()) {
      return wrong(fmt::format("{0} and {0}_file are both set; remove one", name));
    }
    if (key.empty() && file.empty()) continue;
    if (!key.empty() && !IsPublicKey(key)) {
      return wrong(fmt::format("{} must be 40 characters of Z85", name));
    }
    if (link.secret_key_file.empty()) {
      return wrong(fmt::format("{} needs zmq.secret_key_file beside it", name));
    }
  }
  if (!upstream.connect.empty() && upstream.server_public_key.empty() &&
      upstream.server_public_key_file.empty() && !IsLoopback(upstream.connect)) {
    return wrong(
        fmt::format("upstream.connect = \"{}\" is not a loopback address and there is no "
                    "upstream.server_public_key; set it to that batond's public key",
                    upstream.connect));
  }
  return {};
}

}  // namespace baton::net
