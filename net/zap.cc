#include "net/zap.h"

#include <zmq.h>

#include "base/check.h"

namespace baton::net {

Zap::Zap(boost::asio::io_context& io, ZmqContext& context,
         const std::map<std::string, std::string>& nodes,
         std::function<void(const std::string&, const std::string&)> refused)
    : refused_(std::move(refused)),
      socket_(
          io, context, ZMQ_REP,
          [this](const std::vector<std::string_view>& parts, std::string_view) { Answer(parts); }) {
  SetNodes(nodes);
  BATON_CHECK(socket_.Bind("inproc://zeromq.zap.01").has_value());
  socket_.Start();
}

void Zap::SetNodes(const std::map<std::string, std::string>& nodes) {
  names_.clear();
  for (const auto& [name, key] : nodes) names_[key].insert(name);
}

bool Zap::IsOf(std::string_view key, std::string_view node) const {
  const auto names = names_.find(key);
  return names != names_.end() && names->second.contains(node);
}

std::string Zap::NodeOf(std::string_view key) const {
  const auto names = names_.find(key);
  return names == names_.end() ? "" : *names->second.begin();
}

void Zap::Answer(const std::vector<std::string_view>& request) {
  // version, request id, domain, address, identity, mechanism, credentials
  const std::string_view id = request.size() > 1 ? request[1] : std::string_view();
  if (request.size() == 7 && request[0] == "1.0" && request[5] == "CURVE" &&
      request[6].size() == 32) {
    char key[41];
    zmq_z85_encode(key, reinterpret_cast<const uint8_t*>(request[6].data()), 32);
    if (names_.contains(std::string_view(key))) {
      socket_.Send({"1.0", id, "200", "OK", key, ""});
      return;
    }
    refused_(key, std::string(request[3]));
  }
  socket_.Send({"1.0", id, "400", "this key is not listed", "", ""});
}

}  // namespace baton::net
