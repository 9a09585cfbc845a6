// baton status: the daemon, its GPUs and pods, once.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/pod_table.h"
#include "cli/reading.h"

namespace baton::cli {
namespace {

int Status(bool json, const Invocation& invocation) {
  Result<nlohmann::json> status = Read(invocation, {{"command", "status"}});
  if (!status) return Complain(status.error());
  if (json) {
    status->erase("ok");
    std::puts(status->dump().c_str());
    return 0;
  }
  for (const std::string& line : Summary(*status)) std::puts(line.c_str());
  std::vector<PodRow> rows = RowsFrom(*status);
  Sort(rows, SortBy::kGpu);
  std::puts("");
  for (const std::string& line : Table(rows, 0)) std::puts(line.c_str());
  return 0;
}

}  // namespace

void AddStatus(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("status", "Show the daemon, its GPUs and pods once");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print everything as one JSON object");
  AddReading(*command, invocation);
  command->footer(R"(Examples:
  baton status
  baton status --json | python3 -m json.tool
  baton status --socket-dir /run/baton-frontend        what this node's relay may see)");
  command->callback([json, &invocation] {
    invocation.action = [json, &invocation] { return Status(*json, invocation); };
  });
}

}  // namespace baton::cli
