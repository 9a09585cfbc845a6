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

constexpr size_t kSamples = 20'000;

// A tenant of a throw-away pod. `transport` may be null: then it is the unix socket's.
Result<cli::Tenant> NewTenant(const std::string& socket_dir,
                              std::unique_ptr<cli::Transport> transport) {
  const Result<nlohmann::json> pod = cli::Ask(socket_dir, {{"command", "bench_ticket"}});
  if (!pod) return tl::unexpected(pod.error());
  if (transport == nullptr) {
    Result<std::unique_ptr<cli::Transport>> connected =
        cli::ConnectTenant(cli::TenantSocket(socket_dir));
    if (!connected) return tl::unexpected(connected.error());
    transport = std::move(*connected);
  }
  return cli::Tenant::Attach(std::move(transport), pod->at("ticket"), pod->at("gpus").at(0));
}

Result<cli::Compared> UnixLane(cli::Echo& echo) {
  const auto batond = LoneBatond::Start("");
  if (!batond) return tl::unexpected(batond.error());
  Result<cli::Tenant> tenant = NewTenant((*batond)->socket_dir(), nullptr);
  if (!tenant) return tl::unexpected(tenant.error());
  return cli::CompareRoundTrips(*tenant, echo, kSamples);
}

Result<cli::Compared> ZmqLane(cli::Echo& echo) {
  const Result<std::string> address = FreeAddress();
  if (!address) return tl::unexpected(address.error());
  const auto batond = LoneBatond::Start("[zmq]\nlisten = \"" + *address + "\"\n");
  if (!batond) return tl::unexpected(batond.error());
  Result<std::unique_ptr<cli::Transport>> relay = ConnectRelay(*address, "bench");
  if (!relay) return tl::unexpected(relay.error());
  Result<cli::Tenant> tenant = NewTenant((*batond)->socket_dir(), std::move(*relay));
  if (!tenant) return tl::unexpected(tenant.error());
  return cli::CompareRoundTrips(*tenant, echo, kSamples);
}

Result<cli::Compared> CentralLane(cli::Echo& echo) {
  const auto cluster = Cluster::Start({.transport = Transport::kCentral});
  if (!cluster) return tl::unexpected(cluster.error());
  Result<cli::Tenant> tenant = NewTenant((*cluster)->SocketDir(0), nullptr);
  if (!tenant) return tl::unexpected(tenant.error());
  return cli::CompareRoundTrips(*tenant, echo, kSamples);
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
