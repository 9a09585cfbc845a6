// baton run: starts a program as a pod.
//
// The pod lives as long as this process: it is deleted when the program ends, however it ends. When
// `baton run` itself is killed with SIGKILL the program is not: work that took days must not die of
// a closed terminal's helper. The pod then stays until `baton rm`.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/caller.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/hook_path.h"
#include "cli/pod_environment.h"
#include "cli/pod_request.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

struct RunOptions {
  std::string name;
  std::string vgpu;
  PodFlags pod;
  std::string away = "wait";
  bool as_root = false;
  bool quiet = false;
};

bool SaysMore(const RunOptions& options) { return !options.name.empty() || !options.pod.empty(); }

// Makes the pod under the program's name, or NAME-2, NAME-3, ... where that is taken: a name that
// the next run has too, or reports would have a row for each run. `request` keeps the name.
Result<nlohmann::json> CreateNamed(const std::string& program, nlohmann::json& request,
                                   const Invocation& invocation) {
  constexpr int kNumberMax = 10'000;
  std::string refusal;
  for (int number = 1;; ++number) {
    request["name"] = number == 1 ? program : program + "-" + std::to_string(number);
    Result<nlohmann::json> pod = wire::Ask(invocation.socket_dir, request, kDevicePatience);
    if (pod || pod.error().code != ErrorCode::kExists || number == kNumberMax) return pod;
    // A refusal for the name names it. One that stays the same is for something else.
    if (std::exchange(refusal, pod.error().message) == pod.error().message) return pod;
  }
}

int Run(const RunOptions& options, const Invocation& invocation) {
  if (invocation.program.empty()) {
    return Complain({ErrorCode::kInvalid,
                     "no program to run; write it after --, as in "
                     "'baton run --request 30 -- python train.py'"});
  }
  if (auto away = CheckAway(options.away); !away) return Complain(away.error());
  const std::optional<Account> account = options.as_root ? std::nullopt : SudoCaller();
  const bool lasting = !options.vgpu.empty();
  if (lasting && SaysMore(options)) {
    return Complain({ErrorCode::kInvalid,
                     "--vgpu " + options.vgpu +
                         " has its share and its GPUs; leave the others out, or change it with "
                         "'baton set " +
                         options.vgpu + "'"});
  }
  nlohmann::json request = {{"command", "pod"}, {"name", options.vgpu}};
  if (!lasting) {
    const Result<nlohmann::json> fields = PodRequestFields(options.pod);
    if (!fields) return Complain(fields.error());
    request = *fields;
    request["command"] = "create_pod";
    request["name"] = options.name;
    request["uid"] = account ? account->uid : getuid();
  }
  const Result<std::string> hook = FindHook();
  if (!hook) return Complain(hook.error());
  const HeldSignals signals;  // from here on there is a pod to delete
  const Result<nlohmann::json> pod =
      lasting || !options.name.empty()
          ? wire::Ask(invocation.socket_dir, request, kDevicePatience)
          : CreateNamed(std::filesystem::path(invocation.program[0]).filename(), request,
                        invocation);
  if (!pod) return Complain(pod.error());
  if (!options.quiet) std::fprintf(stderr, "baton: %s\n", PodLine(*pod, request).c_str());

  const Result<int> status =
      RunChild(signals, invocation.program,
               EnvironmentOf(*pod, *hook, options.away, invocation.socket_dir), account);
  if (lasting) {
    if (status) return *status;
    Complain(status.error());
    return status.error().code == ErrorCode::kNotFound ? kNoProgram : kCannotRun;
  }

  const Result<nlohmann::json> deleted =
      wire::Ask(invocation.socket_dir, {{"command", "delete_pod"}, {"name", request["name"]}},
                kDevicePatience);
  if (!status) {
    Complain(status.error());
    return status.error().code == ErrorCode::kNotFound ? kNoProgram : kCannotRun;
  }
  if (!deleted && deleted.error().code != ErrorCode::kNotFound) {
    std::fprintf(stderr, "baton: pod %s could not be deleted: %s\n",
                 request["name"].get<std::string>().c_str(), deleted.error().message.c_str());
  }
  return *status;
}

}  // namespace

void AddRun(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("run", "Run a program with a share of a GPU");
  auto options = std::make_shared<RunOptions>();
  command
      ->add_option("--name", options->name,
                   "The pod's name; default: the program's, with a number if taken")
      ->type_name("NAME");
  command
      ->add_option("--vgpu", options->vgpu,
                   "Run on existing virtual GPUs ('baton vgpu create'), which stay")
      ->type_name("NAME");
  AddPodFlags(*command, options->pod);
  AddAway(*command, options->away);
  command->add_flag("--as-root", options->as_root,
                    "Behind sudo: run the program as root, not as the user who called sudo");
  command->add_flag("--quiet", options->quiet, "Do not say on stderr where the pod is");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton run --request 30 -- python train.py            30 % guaranteed, idle time is lent
  baton run --limit 30 -- ./solver                     30 %, never more
  baton run --request 30 --limit 60 --memory 4GiB --priority high --team research/vision \
            -- python serve.py --port 8000
  baton run --request 10 --latency 20ms -- python serve.py   begins so soon, within its request
  baton run --priority idle -- python night.py         only while nobody else has work
  baton run --gpu 0 --gpu 1 --request 50 -- torchrun --nproc-per-node 2 train.py
  baton run --count 4 --independent --request 25 -- ./sweep.sh     four GPUs, used separately
  baton run --gang job --gang-size 2 --request 50 -- python rank.py    one of two pods that have
                                       their tokens at the same time, each on a GPU of its own
  baton run --vgpu train -- python train.py            on what 'baton vgpu create train' made

Behind sudo the program is run as the user who called sudo, and the books have that user's name.
The exit status is the program's, or 128 + the signal that killed it; 127: no such program.
Signals are passed on. Killing 'baton run' with SIGKILL leaves the program and its pod alive;
'baton rm' removes such a pod.)");
  command->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return Run(*options, invocation); };
  });
}

}  // namespace baton::cli
