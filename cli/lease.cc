// baton lease: a share of a GPU until a time, with or without a program that runs in it.
//
// With a program the lease is renewed while that runs and given back at its end. If this process is
// killed with SIGKILL nobody renews, and the lease ends by itself: that is what leases are for.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/caller.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/hook_path.h"
#include "cli/pod_environment.h"
#include "cli/pod_request.h"
#include "cli/text_table.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

// Seconds for which batond keeps a question about a queued lease, until there is news; and for
// which ^C may be kept.
constexpr int kQuestion = 1;
// A renewal must not keep signals from the program for longer.
constexpr Duration kRenewPatience = std::chrono::seconds(2);

struct LeaseOptions {
  std::string name;
  std::string term = "60s";
  PodFlags pod;
  std::string away = "wait";
  bool no_renew = false;
  bool no_wait = false;
  bool as_root = false;
  bool quiet = false;
  bool json = false;
};

Result<int64_t> SecondsOf(const std::string& text) {
  const auto term = ParseDuration(text);
  if (!term) return Fail(ErrorCode::kInvalid, "--for: " + term.error().message);
  const int64_t seconds = Nanos(*term) / 1'000'000'000;
  if (Nanos(*term) % 1'000'000'000 != 0 || seconds < 1 || seconds > 86'400) {
    return Fail(ErrorCode::kInvalid, "--for: '" + text + "' is not whole seconds from 1s to 24h");
  }
  return seconds;
}

std::string TextOf(const nlohmann::json& object, const char* key) {
  return ToPrintable(object.value(key, ""));
}

// Until it is granted. An error where it was dropped instead, or a signal asks for the end.
Result<nlohmann::json> AwaitGrant(nlohmann::json lease, const LeaseOptions& options,
                                  const Invocation& invocation, const HeldSignals& signals) {
  std::string said;
  const auto give_up = [&] {  // not for nobody, when room comes
    static_cast<void>(wire::Ask(invocation.socket_dir,
                                {{"command", "end_lease"}, {"lease", lease.at("lease")}},
                                kAnswerPatience));
  };
  while (lease.value("state", "") == "queued") {
    const std::string line =
        fmt::format("lease {} waits for room{}", TextOf(lease, "lease"),
                    lease.contains("until") ? ", expected " + TextOf(lease, "until") : "");
    if (!options.quiet && line != said) std::fprintf(stderr, "baton: %s\n", line.c_str());
    said = line;
    auto news = wire::Ask(invocation.socket_dir,
                          {{"command", "lease"}, {"lease", lease.at("lease")}, {"wait", kQuestion}},
                          std::chrono::seconds(kQuestion) + kAnswerPatience);
    if (!news || signals.Ending()) {
      give_up();
      if (!news) return news;
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("lease {} was given up", TextOf(lease, "lease")));
    }
    lease = std::move(*news);
    // A daemon that has many such questions answers at once.
    if (lease.value("state", "") == "queued") usleep(200'000);
  }
  if (lease.value("state", "") == "granted") return lease;
  return Fail(ErrorCode::kUnavailable, fmt::format("lease {} was not granted: {}",
                                                   TextOf(lease, "lease"), TextOf(lease, "why")));
}

std::string CostText(const nlohmann::json& lease) {
  if (!lease.contains("cost")) return "";
  return fmt::format(", cost {} {}", FormatHours(lease.at("cost").get<double>()),
                     TextOf(lease, "currency"));
}

// Nobody runs in it: whoever took it knows what to set.
int PrintLease(nlohmann::json lease, const LeaseOptions& options) {
  if (options.json) {
    lease.erase("ok");
    std::puts(lease.dump().c_str());
    return 0;
  }
  std::printf("lease %s until %s%s: %s\n", TextOf(lease, "lease").c_str(),
              TextOf(lease, "until").c_str(), CostText(lease).c_str(),
              PodLine(lease, nlohmann::json::object()).c_str());
  for (const auto& [name, value] : lease.at("environment").items()) {
    std::printf("  %s=%s\n", name.c_str(), ToPrintable(value.get<std::string>()).c_str());
  }
  return 0;
}

// Renews a lease now and then, until it has ended.
class Renewal {
 public:
  Renewal(std::string lease, std::string socket_dir, int64_t seconds)
      : lease_(std::move(lease)), socket_dir_(std::move(socket_dir)), seconds_(seconds) {}

  void Renew() {
    if (ended_) return;
    const auto renewed = wire::Ask(
        socket_dir_, {{"command", "renew_lease"}, {"lease", lease_}, {"seconds", seconds_}},
        kRenewPatience);
    // A daemon that is away is asked again.
    if (renewed || renewed.error().code != ErrorCode::kNotFound) return;
    ended_ = true;
    std::fprintf(stderr, "baton: %s; the program can launch nothing more\n",
                 ToPrintable(renewed.error().message).c_str());
  }

 private:
  const std::string lease_;
  const std::string socket_dir_;
  const int64_t seconds_;
  bool ended_ = false;
};

int RunInLease(const nlohmann::json& lease, int64_t seconds, const std::string& hook,
               const LeaseOptions& options, const Invocation& invocation,
               const std::optional<Account>& account, const HeldSignals& signals) {
  if (!options.quiet) {
    std::fprintf(stderr, "baton: lease %s until %s%s: %s\n", TextOf(lease, "lease").c_str(),
                 TextOf(lease, "until").c_str(), CostText(lease).c_str(),
                 PodLine(lease, nlohmann::json::object()).c_str());
  }
  Renewal renewal(lease.at("lease"), invocation.socket_dir, seconds);
  std::optional<Meanwhile> meanwhile;
  if (!options.no_renew) {
    meanwhile = Meanwhile{
        std::min<Duration>(std::chrono::milliseconds(seconds * 1000 / 3), std::chrono::seconds(20)),
        [&renewal] { renewal.Renew(); }};
  }
  const Result<int> status =
      RunChild(signals, invocation.program,
               EnvironmentOf(lease, hook, options.away, invocation.socket_dir), account, meanwhile);
  const auto ended =
      wire::Ask(invocation.socket_dir, {{"command", "end_lease"}, {"lease", lease.at("lease")}},
                kDevicePatience);
  if (!status) {
    Complain(status.error());
    return status.error().code == ErrorCode::kNotFound ? kNoProgram : kCannotRun;
  }
  if (!ended && ended.error().code != ErrorCode::kNotFound) {
    std::fprintf(stderr, "baton: lease %s could not be given back, and ends by itself: %s\n",
                 TextOf(lease, "lease").c_str(), ToPrintable(ended.error().message).c_str());
  }
  return *status;
}

int TakeLease(const LeaseOptions& options, const Invocation& invocation) {
  const auto seconds = SecondsOf(options.term);
  if (!seconds) return Complain(seconds.error());
  if (auto away = CheckAway(options.away); !away) return Complain(away.error());
  if (options.json && !invocation.program.empty()) {
    return Complain({ErrorCode::kInvalid, "--json is for a lease without a program"});
  }
  if (options.no_renew && invocation.program.empty()) {
    return Complain({ErrorCode::kInvalid,
                     "--no-renew needs a program: a lease without one is renewed by 'baton lease "
                     "renew' alone"});
  }
  const Result<nlohmann::json> fields = PodRequestFields(options.pod);
  if (!fields) return Complain(fields.error());
  const std::optional<Account> account = options.as_root ? std::nullopt : SudoCaller();
  nlohmann::json request = *fields;
  request["command"] = "create_lease";
  request["seconds"] = *seconds;
  request["queue"] = !options.no_wait;
  request["uid"] = account ? account->uid : getuid();
  if (!options.name.empty()) request["name"] = options.name;
  const Result<std::string> hook = FindHook();
  if (!hook) return Complain(hook.error());
  // Whoever asks this process to end gives up what is queued, or ends the program and so the lease.
  const HeldSignals signals;
  auto lease = wire::Ask(invocation.socket_dir, request, kDevicePatience);
  if (lease) lease = AwaitGrant(std::move(*lease), options, invocation, signals);
  if (!lease) return Complain(lease.error());
  if (!invocation.program.empty()) {
    return RunInLease(*lease, *seconds, *hook, options, invocation, account, signals);
  }
  nlohmann::json environment = nlohmann::json::object();
  for (const auto& [name, value] :
       EnvironmentOf(*lease, *hook, options.away, invocation.socket_dir)) {
    environment[name] = value;
  }
  (*lease)["environment"] = std::move(environment);
  return PrintLease(std::move(*lease), options);
}

int ListLeases(bool as_json, const Invocation& invocation) {
  auto answer = wire::Ask(invocation.socket_dir, {{"command", "leases"}});
  if (!answer) return Complain(answer.error());
  if (as_json) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  TextTable table{{{"LEASE", true},
                   {"STATE", true},
                   {"POD", true},
                   {"USER", true},
                   {"REQUEST"},
                   {"SECONDS"},
                   {"GPUS", true}},
                  {}};
  for (const nlohmann::json& lease : answer->at("leases")) {
    std::string gpus;
    for (const std::string gpu : lease.at("gpus")) gpus += (gpus.empty() ? "" : ", ") + gpu;
    table.rows.push_back(
        {TextOf(lease, "lease"), TextOf(lease, "state"), TextOf(lease, "pod"),
         TextOf(lease, "user"), Fixed(lease.at("request").get<double>()) + "%",
         lease.contains("seconds") ? Fixed(lease.at("seconds").get<double>()) : "-",
         ToPrintable(gpus)});
  }
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
  return 0;
}

void AddListLeases(CLI::App& lease, Invocation& invocation) {
  CLI::App* list = lease.add_subcommand("list", "The leases, and who waits for one");
  auto as_json = std::make_shared<bool>(false);
  list->add_flag("--json", *as_json, "Print everything as one JSON object");
  AddSocketDir(*list, invocation);
  list->footer(R"(Examples:
  baton lease list
  baton lease list --json

SECONDS: until it ends; of a queued one until it may be granted, if nobody renews.)");
  list->callback([as_json, &invocation] {
    invocation.action = [as_json, &invocation] { return ListLeases(*as_json, invocation); };
  });
}

void AddRenewLease(CLI::App& lease, Invocation& invocation) {
  CLI::App* renew = lease.add_subcommand("renew", "Let a lease end later: so long from now");
  auto id = std::make_shared<std::string>();
  auto term = std::make_shared<std::string>();
  renew->add_option("LEASE", *id, "As 'baton lease' and 'baton lease list' say it")
      ->required()
      ->type_name("");
  renew->add_option("--for", *term, "From now, 1s to 24h; default: as long as before")
      ->type_name("TIME");
  AddSocketDir(*renew, invocation);
  renew->footer(R"(Examples:
  baton lease renew 0123456789abcdef
  baton lease renew 0123456789abcdef --for 5m)");
  renew->callback([=, &invocation] {
    invocation.action = [=, &invocation] {
      nlohmann::json request{{"command", "renew_lease"}, {"lease", *id}};
      if (!term->empty()) {
        const auto seconds = SecondsOf(*term);
        if (!seconds) return Complain(seconds.error());
        request["seconds"] = *seconds;
      }
      const auto renewed = wire::Ask(invocation.socket_dir, request);
      return renewed ? 0 : Complain(renewed.error());
    };
  });
}

void AddEndLease(CLI::App& lease, Invocation& invocation) {
  CLI::App* end = lease.add_subcommand("end", "Give leases back, or stop waiting for them");
  auto ids = std::make_shared<std::vector<std::string>>();
  end->add_option("LEASE", *ids, "As 'baton lease' and 'baton lease list' say it")
      ->required()
      ->type_name("");
  AddSocketDir(*end, invocation);
  end->footer(R"(Examples:
  baton lease end 0123456789abcdef

The programs in it are not killed: their launches wait from now on, as after 'baton rm'.)");
  end->callback([ids, &invocation] {
    invocation.action = [ids, &invocation] {
      int status = 0;
      for (const std::string& id : *ids) {
        const auto ended = wire::Ask(invocation.socket_dir,
                                     {{"command", "end_lease"}, {"lease", id}}, kDevicePatience);
        if (!ended) status = Complain(ended.error());
      }
      return status;
    };
  });
}

}  // namespace

void AddLease(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("lease", "Take a share of a GPU for a while; it ends by itself");
  auto options = std::make_shared<LeaseOptions>();
  command->add_option("--for", options->term, "How long, 1s to 24h; renewed while the program runs")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_option("--name", options->name, "The pod's name; default: lease- and a number")
      ->type_name("NAME");
  AddPodFlags(*command, options->pod);
  AddAway(*command, options->away);
  command->add_flag("--no-renew", options->no_renew,
                    "End on time, though the program runs: it can launch nothing more then");
  command->add_flag("--no-wait", options->no_wait,
                    "Fail where there is no room now; default: wait for other leases to end");
  command->add_flag("--as-root", options->as_root,
                    "Behind sudo: run the program as root, not as the user who called sudo");
  command->add_flag("--quiet", options->quiet, "Do not say on stderr what was granted");
  command->add_flag("--json", options->json, "Without a program: print the lease as JSON");
  AddSocketDir(*command, invocation);
  command->require_subcommand(0, 1);
  command->footer(R"(Examples:
  baton lease --request 40 --for 60s -- python burst.py   40 % while it runs, a minute at most
                                                          should this command be killed
  baton lease --request 40 --for 60s --no-renew -- python burst.py    a minute and no longer
  baton lease --request 40 --for 60s --json               take it, and print what to set
  baton lease list
  baton lease renew 0123456789abcdef --for 5m
  baton lease end 0123456789abcdef

A lease is a pod with an end: its share is reserved until then, whoever forgets it. Where there is
no room now, but will be when other leases have ended, it waits. The exit status is the program's,
as of 'baton run'.)");
  command->callback([command, options, &invocation] {
    if (!command->get_subcommands().empty()) return;
    invocation.action = [options, &invocation] { return TakeLease(*options, invocation); };
  });
  AddListLeases(*command, invocation);
  AddRenewLease(*command, invocation);
  AddEndLease(*command, invocation);
}

}  // namespace baton::cli
