// baton explain: why things are as they are; baton defrag: what would make room.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/utf8.h"
#include "cli/command.h"
#include "cli/pod_request.h"
#include "cli/reading.h"
#include "cli/text_table.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

using nlohmann::json;

int Explain(const std::string& what, const std::string& name, bool as_json,
            const Invocation& invocation) {
  Result<json> answer = Read(invocation, {{"command", "explain"}, {what, name}}, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (as_json) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  for (const json& sentence : answer->at("sentences")) {
    std::puts(ToPrintable(sentence.get<std::string>()).c_str());
  }
  return 0;
}

// "GPU 1 (GPU-1f2e3d4c, NVIDIA H200)", as told by batond.
std::string CardText(const json& gpu) {
  std::string text = "GPU";
  if (gpu.contains("index")) text += " " + std::to_string(gpu.at("index").get<uint64_t>());
  text += " (" + gpu.at("uuid").get<std::string>().substr(0, 12);
  const std::string model = gpu.value("model", "");
  return ToPrintable(text + (model.empty() ? "" : ", " + model) + ")");
}

std::string PlaceText(const json& place) {
  std::string text = ToPrintable(place.at("node").get<std::string>()) + ", ";
  bool first = true;
  for (const json& gpu : place.at("gpus")) {
    text += (first ? "" : " and ") + CardText(gpu);
    first = false;
  }
  return text;
}

void PrintRefusals(const json& nodes) {
  TextTable table{{{"NODE", true}, {"GPU", true}, {"UUID", true}, {"MODEL", true}, {"WHY", true}},
                  {}};
  for (const json& node : nodes) {
    const std::string name = ToPrintable(node.at("node").get<std::string>());
    const std::string why = ToPrintable(node.value("why", ""));
    if (!why.empty()) table.rows.push_back({name, "", "", "", why});
    for (const json& card : node.at("cards")) {
      const std::string of_card = ToPrintable(card.value("why", ""));
      table.rows.push_back(
          {name, card.contains("index") ? std::to_string(card.at("index").get<uint64_t>()) : "",
           ToPrintable(card.at("uuid").get<std::string>()).substr(0, 12),
           ToPrintable(card.value("model", "")),
           of_card.empty() ? "has room, but too few GPUs of this node do" : of_card});
    }
  }
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
}

int ExplainPlacement(const PodFlags& options, bool as_json, const Invocation& invocation) {
  Result<json> request = PodRequestFields(options);
  if (!request) return Complain(request.error());
  (*request)["command"] = "explain_placement";
  Result<json> answer = wire::Ask(invocation.socket_dir, *request, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  const bool fits = answer->at("fits");
  if (as_json) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return fits ? 0 : kFailed;
  }
  if (fits) {
    const json& where = answer->at("where");
    std::printf("The pod would be placed on %s, in mode %s.\n", PlaceText(where).c_str(),
                ToPrintable(where.at("gpus").at(0).at("mode").get<std::string>()).c_str());
    if (const std::string use = answer->value("use", ""); !use.empty()) {
      std::printf("%s\n", ToPrintable(use).c_str());
    }
    if (!answer->at("nodes").empty()) std::puts("\nIt does not fit on:\n");
  } else {
    std::printf("The pod fits nowhere: %s.\n\n",
                ToPrintable(answer->at("error").get<std::string>()).c_str());
  }
  if (!answer->at("nodes").empty()) PrintRefusals(answer->at("nodes"));
  return fits ? 0 : kFailed;
}

// Quoted where a shell would read more into it, for users name their pods as they like.
std::string ShellWord(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./:").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

int Defrag(const PodFlags& options, uint32_t moves, bool as_json, const Invocation& invocation) {
  Result<json> request = PodRequestFields(options);
  if (!request) return Complain(request.error());
  (*request)["command"] = "defrag";
  (*request)["moves"] = moves;
  Result<json> answer = wire::Ask(invocation.socket_dir, *request, kAnswerPatience);
  if (!answer) return Complain(answer.error());
  if (as_json) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  if (answer->at("moves").empty()) {
    std::printf("The pod fits without a move: %s.\n", PlaceText(answer->at("where")).c_str());
    return 0;
  }
  for (const json& move : answer->at("moves")) {
    std::string gpus;
    for (const json& gpu : move.at("to").at("gpus")) {
      gpus += " --gpu " + ToPrintable(gpu.at("uuid").get<std::string>());
    }
    std::printf("baton vgpu move %s%s%s\n",
                ShellWord(ToPrintable(move.at("pod").get<std::string>())).c_str(), gpus.c_str(),
                move.at("running").get<bool>() ? "      # running: end its programs first" : "");
  }
  std::printf(
      "\nThen the pod fits: %s.%s\n", PlaceText(answer->at("where")).c_str(),
      answer->at("exact").get<bool>() ? "" : " Fewer moves may suffice; not all were tried.");
  return 0;
}

}  // namespace

void AddExplain(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("explain", "Explain a share, or why a pod finds no GPU");
  command->footer(R"(Examples:
  baton explain pod trainer
  baton explain team research/vision
  baton explain placement --request 50 --memory 20GiB)");
  command->require_subcommand(0, 1);
  for (const std::string what : {"pod", "team"}) {
    CLI::App* inner = command->add_subcommand(
        what, what == "pod" ? "Why a pod gets what it gets" : "What a team is due and has used");
    auto name = std::make_shared<std::string>();
    inner->add_option("NAME", *name, what == "pod" ? "The pod's name" : "The team's path")
        ->required()
        ->type_name("");
    auto as_json = std::make_shared<bool>(false);
    inner->add_flag("--json", *as_json, "Print one JSON object");
    AddReading(*inner, invocation);
    inner->footer(what == "pod" ? "Examples:\n  baton explain pod trainer"
                                : "Examples:\n  baton explain team research/vision");
    inner->callback([=, &invocation] {
      invocation.action = [=, &invocation] { return Explain(what, *name, *as_json, invocation); };
    });
  }
  CLI::App* placement = command->add_subcommand(
      "placement", "Where such a pod would go now, and why not on each other GPU");
  auto options = std::make_shared<PodFlags>();
  auto as_json = std::make_shared<bool>(false);
  AddPodFlags(*placement, *options);
  placement->add_flag("--json", *as_json, "Print one JSON object");
  AddSocketDir(*placement, invocation);
  placement->footer(R"(Examples:
  baton explain placement --request 50 --memory 20GiB
  baton explain placement --request 100 --count 4 --model h100

Exit status 1: it fits nowhere now.)");
  placement->callback([=, &invocation] {
    invocation.action = [=, &invocation] {
      return ExplainPlacement(*options, *as_json, invocation);
    };
  });
}

void AddDefrag(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("defrag", "The fewest moves of pods that make room for one more");
  auto options = std::make_shared<PodFlags>();
  auto moves = std::make_shared<uint32_t>(4);
  auto dry = std::make_shared<bool>(false);
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--dry-run", *dry, "Only print the moves; required");
  command->add_option("--moves", *moves, "Maximum number of moves")
      ->type_name("N")
      ->check(CLI::Range(1, 16).description(""))
      ->capture_default_str();
  AddPodFlags(*command, *options);
  command->add_flag("--json", *as_json, "Print one JSON object");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton defrag --dry-run --request 100
  baton defrag --dry-run --request 50 --count 2 --memory 30GiB

Pods that named their GPUs stay there. A pod moves while it does not run: 'baton vgpu move'.)");
  command->callback([=, &invocation] {
    invocation.action = [=, &invocation] {
      if (!*dry) {
        return Complain({ErrorCode::kInvalid,
                         "batond moves no pod by itself; add --dry-run to print the moves"});
      }
      return Defrag(*options, *moves, *as_json, invocation);
    };
  });
}

}  // namespace baton::cli
