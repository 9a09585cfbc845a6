// The token's round trip, from State{waiting} sent until Token received, against the real batond,
// over each way there is to it. Beside each: a raw echo between two processes over the same
// transport with frames of the same size, in the same run, in alternating blocks. Central goes over
// two transports, so its echo is the sum of both, one after the other.
#include <nlohmann/json.hpp>

#include "bench/cluster.h"
#include "bench/lanes.h"
#include "bench/lone_batond.h"
#include "bench/zmq_lane.h"
#include "cli/control_client.h"
#include "cli/measure.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr size_t kSamples = 20'000;
const json kBenchTicket = {{"command", "bench_ticket"}};

// A tenant of the throw-away pod that `ticket`, an answer to bench_ticket, is for.
Result<cli::Tenant> Attach(std::unique_ptr<cli::Transport> transport, const json& ticket) {
  if (!ticket.value("ok", false)) return Fail(ErrorCode::kUnavailable, ticket.dump());
  return cli::Tenant::Attach(std::move(transport), ticket.at("ticket"), ticket.at("gpus").at(0));
}

// Over the unix socket in `socket_dir`, of a batond or a baton-frontend.
Result<cli::Compared> OverUnix(const std::string& socket_dir, cli::Echo& echo) {
  const Result<json> ticket = cli::Ask(socket_dir, kBenchTicket);
  if (!ticket) return tl::unexpected(ticket.error());
  auto transport = cli::ConnectTenant(cli::TenantSocket(socket_dir));
  if (!transport) return tl::unexpected(transport.error());
  Result<cli::Tenant> tenant = Attach(std::move(*transport), *ticket);
  if (!tenant) return tl::unexpected(tenant.error());
  return cli::CompareRoundTrips(*tenant, echo, kSamples);
}

Result<cli::Compared> UnixLane(cli::Echo& echo) {
  const auto batond = LoneBatond::Start("");
  if (!batond) return tl::unexpected(batond.error());
  return OverUnix((*batond)->socket_dir(), echo);
}

Result<cli::Compared> ZmqLane(cli::Echo& echo) {
  const Result<std::string> address = FreeAddress();
  if (!address) return tl::unexpected(address.error());
  const auto batond = LoneBatond::Start("[zmq]\nlisten = \"" + *address + "\"\n");
  if (!batond) return tl::unexpected(batond.error());
  auto relay = Relay::Connect(*address, "bench");
  if (!relay) return tl::unexpected(relay.error());
  const Result<std::string> ticket = (*relay)->Ask(kBenchTicket.dump());
  if (!ticket) return tl::unexpected(ticket.error());
  Result<cli::Tenant> tenant = Attach(std::move(*relay), json::parse(*ticket));
  if (!tenant) return tl::unexpected(tenant.error());
  return cli::CompareRoundTrips(*tenant, echo, kSamples);
}

Result<cli::Compared> CentralLane(cli::Echo& echo) {
  ClusterOptions options;
  options.transport = Transport::kCentral;
  const auto cluster = Cluster::Start(options);
  if (!cluster) return tl::unexpected(cluster.error());
  return OverUnix((*cluster)->SocketDir(0), echo);
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  using namespace baton::bench;
  return RunLanes(
      argc, argv,
      {{"token_rtt/unix", [](Echoes& echoes) { return UnixLane(*echoes.unix_socket); }},
       {"token_rtt/zmq", [](Echoes& echoes) { return ZmqLane(*echoes.zmq); }},
       {"token_rtt/central", [](Echoes& echoes) { return CentralLane(*echoes.central); }}});
}
