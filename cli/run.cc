// baton run: starts a program as a pod.
//
// The pod lives as long as this process: it is deleted when the program ends, however it ends. When
// `baton run` itself is killed with SIGKILL the program is not: work that took days must not die of
// a closed terminal's helper. The pod then stays until `baton rm`.
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/child.h"
#include "cli/command.h"
#include "cli/control_client.h"
#include "cli/hook_path.h"
#include "cli/share_options.h"

namespace baton::cli {
namespace {

struct RunOptions {
  std::string name;
  ShareOptions share;
  std::vector<std::string> gpus;
  uint32_t count = 1;
  std::string away = "wait";
  bool independent = false;
  std::string user;
  std::string name_space;
};

// Who the books say used the GPU, where nobody else is named.
std::string LoginName() {
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_name : std::to_string(getuid());
}

std::string Joined(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : ",") + word;
  return joined;
}

int Run(const RunOptions& options, const Invocation& invocation) {
  if (invocation.program.empty()) {
    return Complain({ErrorCode::kInvalid,
                     "no program to run; write it after --, as in "
                     "'baton run --request 30 -- python train.py'"});
  }
  if (options.away != "wait" && options.away != "open") {
    return Complain(
        {ErrorCode::kInvalid, "--away: '" + options.away + "' is neither wait nor open"});
  }
  const Result<nlohmann::json> share = NewShareFields(options.share);
  if (!share) return Complain(share.error());
  const Result<std::string> hook = FindHook();
  if (!hook) return Complain(hook.error());

  nlohmann::json request = *share;
  request["command"] = "create_pod";
  const std::string program = std::filesystem::path(invocation.program[0]).filename();
  request["name"] = options.name.empty() ? program + "-" + std::to_string(getpid()) : options.name;
  request["gpus"] = options.gpus;
  request["count"] = options.gpus.empty() ? options.count : options.gpus.size();
  request["uid"] = getuid();
  request["independent"] = options.independent;
  request["user"] = options.user.empty() ? LoginName() : options.user;
  request["namespace"] = options.name_space;
  const HeldSignals signals;  // from here on there is a pod to delete
  const Result<nlohmann::json> pod = Ask(invocation.socket_dir, request);
  if (!pod) return Complain(pod.error());

  const char* preloaded = std::getenv("LD_PRELOAD");
  const Result<int> status = RunChild(
      signals, invocation.program,
      {{"BATON_SOCKET", TenantSocket(std::filesystem::absolute(invocation.socket_dir))},
       {"BATON_TICKET", pod->at("ticket")},
       {"BATON_AWAY", options.away},
       {"LD_PRELOAD", preloaded != nullptr && *preloaded != '\0' ? *hook + ":" + preloaded : *hook},
       {"CUDA_VISIBLE_DEVICES", Joined(pod->at("gpus"))}});

  const Result<nlohmann::json> deleted =
      Ask(invocation.socket_dir, {{"command", "delete_pod"}, {"name", request["name"]}});
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
      ->add_option("--name", options->name, "The pod's name; default: the program's and a number")
      ->type_name("NAME");
  AddShareOptions(*command, options->share);
  command->add_option("--user", options->user, "Whose work it is, for the books; default: yours")
      ->type_name("NAME");
  command->add_option("--namespace", options->name_space, "For the books")->type_name("NAME");
  command
      ->add_option("--gpu", options->gpus,
                   "A GPU to use, repeatable; default: the one with most room")
      ->type_name("UUID|INDEX")
      ->allow_extra_args(false);
  command->add_option("--count", options->count, "How many GPUs, where --gpu names none")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""))
      ->capture_default_str();
  command->add_flag("--independent", options->independent,
                    "Its processes never wait for each other across GPUs: each GPU's token by "
                    "itself; default: all of its GPUs' or none");
  command
      ->add_option("--away", options->away,
                   "While batond is away, launches wait, or pass (open) and are reported later")
      ->type_name("wait|open")
      ->capture_default_str();
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton run --request 30 -- python train.py            30 % guaranteed, idle time is lent
  baton run --limit 30 -- ./solver                     30 %, never more
  baton run --request 30 --limit 60 --memory 4GiB --priority high --team research/vision \
            -- python serve.py --port 8000
  baton run --gpu 0 --gpu 1 --request 50 -- torchrun --nproc-per-node 2 train.py
  baton run --count 4 --independent --request 25 -- ./sweep.sh     four GPUs, used separately

The exit status is the program's, or 128 + the signal that killed it; 127: no such program.
Signals are passed on. Killing 'baton run' with SIGKILL leaves the program and its pod alive;
'baton rm' removes such a pod.)");
  command->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return Run(*options, invocation); };
  });
}

}  // namespace baton::cli
