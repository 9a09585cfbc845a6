// baton flavors: the sizes that the operator offers, and how many of each there is room for.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/text_table.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

int PrintFlavors(bool as_json, const Invocation& invocation) {
  auto answer = wire::Ask(invocation.socket_dir, {{"command", "flavors"}});
  if (!answer) return Complain(answer.error());
  if (as_json) {
    answer->erase("ok");
    std::puts(answer->dump().c_str());
    return 0;
  }
  TextTable table{{{"FLAVOR", true}, {"REQUEST"}, {"LIMIT"}, {"MEMORY"}, {"FIT NOW"}}, {}};
  for (const nlohmann::json& flavor : answer->at("flavors")) {
    const auto percent = [&](const char* key) { return Fixed(flavor.at(key).get<double>()) + "%"; };
    const nlohmann::json memory = flavor.value("memory", nlohmann::json());
    table.rows.push_back({ToPrintable(flavor.at("name").get<std::string>()), percent("request"),
                          percent("limit"),
                          memory.is_null()     ? "-"
                          : memory.is_string() ? ToPrintable(memory.get<std::string>())
                                               : FormatBytes(memory.get<uint64_t>()),
                          std::to_string(flavor.at("fit").get<uint64_t>())});
  }
  if (table.rows.empty()) {
    std::puts("The operator offers none: [flavors] of batond's configuration is empty.");
    return 0;
  }
  for (const std::string& line : table.Lines()) std::puts(line.c_str());
  return 0;
}

}  // namespace

void AddFlavors(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("flavors", "The sizes that the operator offers, and how many fit now");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print everything as one JSON object");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton flavors
  baton flavors --json
  baton run --flavor small -- python train.py
  baton set trainer --flavor medium

FIT NOW: so many pods of one GPU of this flavor, and of no other, would find room beside those that
are there. What is said beside --flavor counts: --flavor small --memory 8GiB.)");
  command->callback([as_json, &invocation] {
    invocation.action = [as_json, &invocation] { return PrintFlavors(*as_json, invocation); };
  });
}

}  // namespace baton::cli
