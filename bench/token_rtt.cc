// The token's round trip, from State{waiting} sent until Token received, against the real batond,
// over each way there is to it. Beside each: a raw echo between two processes over the same
// transport with frames of the same size, in the same run, in alternating blocks. Central goes over
// two transports, so its echo is the sum of both, one after the other.
#include <nlohmann/json.hpp>

#include "bench/cluster.h"
#include "bench/lanes.h"
#include "bench/lone_batond.h"
#include "bench/zmq_lane.h"
#include "cli/measure.h"
#include "wire/control_client.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr size_t kSamples = 20'000;

// A tenant of a throw-away pod, by the control socket in `socket_dir`, attaches over `transport`.
Result<Measured> Measure(std::unique_ptr<cli::Transport> transport, const std::string& socket_dir,
                         cli::Echo& echo) {
  const Result<json> ticket = wire::Ask(socket_dir, {{"command", "bench_ticket"}});
  if (!ticket) return tl::unexpected(ticket.error());
  Result<cli::Tenant> tenant =
      cli::Tenant::Attach(std::move(transport), ticket->at("ticket"), ticket->at("gpus").at(0));
  if (!tenant) return tl::unexpected(tenant.error());
  Result<cli::Compared> compared = cli::CompareRoundTrips(*tenant, echo, kSamples);
  if (!compared) return tl::unexpected(compared.error());
  return Measured{std::move(*compared), {}};
}

// The unix socket in `socket_dir`, of a batond or a baton-frontend.
Result<Measured> MeasureUnix(const std::string& socket_dir, cli::Echo& echo) {
  auto transport = cli::ConnectTenant(wire::TenantSocket(socket_dir));
  if (!transport) return tl::unexpected(transport.error());
  return Measure(std::move(*transport), socket_dir, echo);
}

Result<Measured> UnixLane(cli::Echo& echo) {
  const auto batond = LoneBatond::Start("");
  if (!batond) return tl::unexpected(batond.error());
  return MeasureUnix((*batond)->socket_dir(), echo);
}

Result<Measured> ZmqLane(cli::Echo& echo) {
  const Result<std::string> address = FreeAddress();
  if (!address) return tl::unexpected(address.error());
  const auto batond = LoneBatond::Start("[zmq]\nlisten = \"" + *address + "\"\n");
  if (!batond) return tl::unexpected(batond.error());
  return Measure(ConnectDealer(*address), (*batond)->socket_dir(), echo);
}

Result<Measured> CentralLane(cli::Echo& echo) {
  ClusterOptions options;
  options.transport = Transport::kCentral;
  const auto cluster = Cluster::Start(options);
  if (!cluster) return tl::unexpected(cluster.error());
  return MeasureUnix((*cluster)->SocketDir(0), echo);
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  using namespace baton::bench;
  return RunLanes(
      argc, argv, {Placement::kFree, Placement::kOneCpu},
      {{"token_rtt/unix", [](Echoes& echoes) { return UnixLane(*echoes.unix_socket); }},
       {"token_rtt/zmq", [](Echoes& echoes) { return ZmqLane(*echoes.zmq); }},
       {"token_rtt/central", [](Echoes& echoes) { return CentralLane(*echoes.central); }}});
}
