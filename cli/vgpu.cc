// baton vgpu: virtual GPUs that outlive programs. baton cordon, uncordon: which GPUs get none.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/command.h"
#include "cli/pod_request.h"
#include "cli/text_table.h"
#include "spec/modes.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// "12.3s", "4.5m", "6.78h": people compare these, they do not add them up.
std::string Time(uint64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 100) return Fixed(seconds) + "s";
  if (seconds < 6'000) return Fixed(seconds / 60) + "m";
  return Fixed(seconds / 3'600, 2) + "h";
}

int List(bool as_json, const Invocation& invocation) {
  Result<json> answer = wire::Ask(invocation.socket_dir, {{"command", "vgpus"}});
  if (!answer) return Complain(answer.error());
  if (as_json) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  TextTable table{{{"POD", true},
                   {"#"},
                   {"NODE", true},
                   {"GPU", true},
                   {"MODEL", true},
                   {"MODE", true},
                   {"REQUEST"},
                   {"LIMIT"},
                   {"MEMORY"},
                   {"USED"},
                   {"PEAK"},
                   {"HELD"},
                   {"BUSY"},
                   {"STATE", true}},
                  {}};
  for (const json& row : answer->at("vgpus")) {
    const auto text = [&](const char* key) { return ToPrintable(row.value(key, "")); };
    const auto number = [&](const char* key) { return row.value(key, uint64_t{0}); };
    const std::string mode = text("mode");
    // Without tokens nothing is measured.
    const bool allocated = row.value("allocated", false);  // held all the time: that is
    const bool metered = spec::ByToken(mode) && !allocated;
    const std::string why = text("why");
    std::string model = text("model");
    if (model.starts_with("NVIDIA ")) model.erase(0, 7);
    const bool booked = row.value("booked", true);
    table.rows.push_back(
        {text("pod"), std::to_string(number("index")), text("node"), text("gpu").substr(0, 12),
         model, mode, Fixed(row.value("request", 0.0)), Fixed(row.value("limit", 0.0)),
         number("memory") == 0 ? "-" : Bytes(number("memory")),
         metered ? Bytes(number("memory_used")) : "-", metered ? Bytes(number("memory_peak")) : "-",
         metered || allocated ? Time(number("held_ns")) : "-",
         metered ? Time(number("busy_ns")) : "-",
         !booked                       ? "no room: " + why
         : !why.empty()                ? why
         : allocated                   ? "held"
         : !metered                    ? "present"
         : row.value("running", false) ? "running"
                                       : "idle"});
  }
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
  return 0;
}

int Create(const std::string& name, const PodFlags& options, const Invocation& invocation) {
  Result<json> request = PodRequestFields(options);
  if (!request) return Complain(request.error());
  (*request)["command"] = "create_pod";
  (*request)["name"] = name;
  // The administrator makes them for others.
  (*request)["uid"] = getuid() == 0 ? int64_t{-1} : int64_t{getuid()};
  const Result<json> pod = wire::Ask(invocation.socket_dir, *request, kDevicePatience);
  if (!pod) return Complain(pod.error());
  for (const json& gpu : pod->at("gpus")) {
    std::puts(ToPrintable(gpu.get<std::string>()).c_str());
  }
  return 0;
}

int ForEach(const std::vector<std::string>& names, const char* command,
            const Invocation& invocation) {
  int status = 0;
  for (const std::string& name : names) {
    const Result<json> answer =
        wire::Ask(invocation.socket_dir, {{"command", command}, {"name", name}}, kDevicePatience);
    if (!answer) status = Complain(answer.error());
  }
  return status;
}

void AddCordonOf(CLI::App& baton, const std::string& name, const std::string& description,
                 const std::string& footer, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand(name, description);
  auto gpus = std::make_shared<std::vector<std::string>>();
  command->add_option("GPU", *gpus, "Uuids or indexes")->required()->type_name("");
  AddSocketDir(*command, invocation);
  command->footer(footer);
  command->callback([gpus, name, &invocation] {
    invocation.action = [gpus, name, &invocation] {
      int status = 0;
      for (const std::string& gpu : *gpus) {
        const Result<json> answer =
            wire::Ask(invocation.socket_dir, {{"command", name}, {"gpus", {gpu}}});
        if (!answer) status = Complain(answer.error());
      }
      return status;
    };
  });
}

}  // namespace

void AddVgpu(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("vgpu", "Virtual GPUs that outlive programs: list, create, delete, ...");
  command->require_subcommand(0, 1);
  command->footer(R"(Examples:
  baton vgpu create train --request 30 --memory 4GiB --count 2
  baton run --vgpu train -- python train.py
  baton vgpu list
  baton vgpu delete train)");

  CLI::App* list = command->add_subcommand("list", "List virtual GPUs: place, share, use");
  auto as_json = std::make_shared<bool>(false);
  list->add_flag("--json", *as_json, "Print one JSON object");
  AddSocketDir(*list, invocation);
  list->footer(R"(Examples:
  baton vgpu list
  baton vgpu list --json

HELD and BUSY: the time that the pod had the GPU, and in which the GPU worked, so far. PEAK: the
most memory that it was seen to use at once. In modes mig and mps nothing is measured.)");
  list->callback([as_json, &invocation] {
    invocation.action = [as_json, &invocation] { return List(*as_json, invocation); };
  });

  CLI::App* create =
      command->add_subcommand("create", "Create virtual GPUs, and print where they are");
  auto name = std::make_shared<std::string>();
  auto options = std::make_shared<PodFlags>();
  create->add_option("NAME", *name, "The pod's name")->required()->type_name("");
  AddPodFlags(*create, *options);
  AddSocketDir(*create, invocation);
  create->footer(R"(Examples:
  baton vgpu create train --request 30 --memory 4GiB --count 2
  baton vgpu create notebook --limit 25 --memory 25% --model h100
  baton vgpu create serve --request 40 --mode mig

All of a pod's virtual GPUs are alike, each on a GPU of its own. A pod whose containers differ is
several: pod/container.)");
  create->callback([=, &invocation] {
    invocation.action = [=, &invocation] { return Create(*name, *options, invocation); };
  });

  CLI::App* remove = command->add_subcommand("delete", "Delete virtual GPUs");
  auto names = std::make_shared<std::vector<std::string>>();
  remove->add_option("NAME", *names, "The pods' names")->required()->type_name("");
  AddSocketDir(*remove, invocation);
  remove->footer("Examples:\n  baton vgpu delete train");
  remove->callback([names, &invocation] {
    invocation.action = [names, &invocation] { return ForEach(*names, "delete_pod", invocation); };
  });

  CLI::App* move = command->add_subcommand(
      "move", "Move virtual GPUs to other GPUs, while their pod does not run");
  auto moved = std::make_shared<std::string>();
  auto gpus = std::make_shared<std::vector<std::string>>();
  move->add_option("NAME", *moved, "The pod's name")->required()->type_name("");
  move->add_option("--gpu", *gpus, "Target GPU, repeatable: as many as the pod has")
      ->required()
      ->type_name("UUID|INDEX")
      ->allow_extra_args(false);
  AddSocketDir(*move, invocation);
  move->footer("Examples:\n  baton vgpu move train --gpu 2 --gpu 3");
  move->callback([moved, gpus, &invocation] {
    invocation.action = [moved, gpus, &invocation] {
      const Result<json> answer =
          wire::Ask(invocation.socket_dir,
                    {{"command", "move_pod"}, {"name", *moved}, {"gpus", *gpus}}, kDevicePatience);
      return answer ? 0 : Complain(answer.error());
    };
  });

  AddSetAs(*command, "resize", invocation);
}

void AddCordon(CLI::App& baton, Invocation& invocation) {
  AddCordonOf(baton, "cordon", "Keep new pods away from a GPU; those on it stay",
              R"(Examples:
  baton cordon 2
  baton cordon GPU-1f2e3d4c-0000-0000-0000-000000000000

Kept over restarts, until 'baton uncordon'.)",
              invocation);
}

void AddUncordon(CLI::App& baton, Invocation& invocation) {
  AddCordonOf(baton, "uncordon", "Allow new pods on a GPU again",
              R"(Examples:
  baton uncordon 2

Also after a GPU's failure was seen to: an XID of before does not count any more.)",
              invocation);
}

void AddRelease(CLI::App& baton, Invocation& invocation) {
  AddCordonOf(baton, "release", "Let another node have a GPU that was put into it",
              R"(Examples:
  baton release GPU-1f2e3d4c-0000-0000-0000-000000000000

On a central batond a GPU belongs to the node that named it first, over restarts. A node that is
no longer in [zmq.nodes] has none. Where the old node has named the GPU since batond started,
restart batond.)",
              invocation);
}

}  // namespace baton::cli
