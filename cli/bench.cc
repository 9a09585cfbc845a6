// baton bench token: what the token costs here, against the daemon that runs here.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/measure.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

struct BenchOptions {
  size_t count = 20'000;
  bool json = false;
};

// A client of a fresh throw-away pod on the virtual GPU.
Result<Tenant> NewTenant(const std::string& socket_dir) {
  const Result<nlohmann::json> pod = wire::Ask(socket_dir, {{"command", "bench_ticket"}});
  if (!pod) return tl::unexpected(pod.error());
  Result<std::unique_ptr<Transport>> transport = ConnectTenant(wire::TenantSocket(socket_dir));
  if (!transport) return tl::unexpected(transport.error());
  return Tenant::Attach(std::move(*transport), pod->at("ticket"), pod->at("gpus").at(0));
}

nlohmann::json ToJson(const Quantiles& q) {
  return {{"p50_us", q.p50}, {"p90_us", q.p90}, {"p99_us", q.p99}};
}

void PrintLine(const char* name, const Quantiles& q) {
  std::printf("%-22s %9.1f %9.1f %9.1f\n", name, q.p50, q.p90, q.p99);
}

int Bench(const BenchOptions& options, const Invocation& invocation) {
  const Result<std::unique_ptr<UnixEcho>> echo = UnixEcho::Start();
  if (!echo) return Complain(echo.error());
  Result<Tenant> first = NewTenant(invocation.socket_dir);
  if (!first) return Complain(first.error());
  Result<Tenant> second = NewTenant(invocation.socket_dir);
  if (!second) return Complain(second.error());

  const Result<Compared> trips = CompareRoundTrips(*first, **echo, options.count);
  if (!trips) return Complain(trips.error());
  const Result<Compared> hand_offs = CompareHandOffs(*first, *second, **echo, options.count);
  if (!hand_offs) return Complain(hand_offs.error());

  const Quantiles trip = Summarize(trips->token), hand_off = Summarize(hand_offs->token);
  const Quantiles trip_echo = Summarize(trips->echo), hand_off_echo = Summarize(hand_offs->echo);
  if (options.json) {
    const nlohmann::json report = {
        {"count", options.count},
        {"round_trip", ToJson(trip)},
        {"round_trip_echo", ToJson(trip_echo)},
        {"round_trip_ratio_p50", trip.p50 / trip_echo.p50},
        {"hand_off", ToJson(hand_off)},
        {"hand_off_echo", ToJson(hand_off_echo)},
        {"hand_off_ratio_p50", hand_off.p50 / hand_off_echo.p50},
    };
    std::puts(report.dump().c_str());
    return 0;
  }
  std::printf("%zu samples of each, in microseconds\n\n", options.count);
  std::printf("%-22s %9s %9s %9s\n", "", "p50", "p90", "p99");
  PrintLine("token round trip", trip);
  PrintLine("  raw unix echo", trip_echo);
  PrintLine("token hand-off", hand_off);
  PrintLine("  raw unix echo", hand_off_echo);
  std::printf("\nAt the median the token takes %.2f times a raw echo, a hand-off %.2f times.\n",
              trip.p50 / trip_echo.p50, hand_off.p50 / hand_off_echo.p50);
  return 0;
}

}  // namespace

void AddBench(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("bench", "Measure Baton's own cost on this machine");
  command->footer("Examples:\n  baton bench token\n  baton bench token --json");
  CLI::App* token = command->add_subcommand("token", "The token's round trip and hand-off");
  auto options = std::make_shared<BenchOptions>();
  token->add_option("--count", options->count, "Samples of each kind")
      ->type_name("N")
      ->check(CLI::Range(100, 10'000'000).description(""))
      ->capture_default_str();
  token->add_flag("--json", options->json, "One JSON object");
  AddSocketDir(*token, invocation);
  token->footer(R"(Examples:
  baton bench token
  baton bench token --count 100000 --json
  baton bench token --socket-dir /run/baton-frontend      through the node's relay

It runs against the daemon as it stands, on a virtual GPU that no device backs: pods are not
disturbed. Round trip: a client asks for the token until it has it. Hand-off: the holder gives the
token back until the pod that waits has it. The raw echo is the floor: two processes and a unix
socket.)");
  token->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return Bench(*options, invocation); };
  });
}

}  // namespace baton::cli
