// baton-k8s: everything of Baton that speaks with Kubernetes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/help_command.h"
#include "base/help_formatter.h"
#include "base/standard_files.h"
#include "k8s/command.h"

namespace {

int Run(int argc, char** argv) {
  CLI::App program{"Shares GPUs among Kubernetes pods by time.", "baton-k8s"};
  program.formatter(std::make_shared<baton::HelpFormatter>());
  program.set_version_flag("--version", BATON_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Examples:\n"
      "  baton-k8s binder --kubeconfig ~/.kube/config\n"
      "  baton-k8s webhook --service baton-webhook.baton-system\n"
      "  baton-k8s extender --listen 0.0.0.0:8888\n"
      "  baton-k8s device-plugin --node \"$NODE_NAME\"\n\n"
      "Run 'baton-k8s help COMMAND' for the options of a command.");
  int exit_code = 0;
  baton::k8s::AddBinder(program, &exit_code);
  baton::k8s::AddWebhook(program, &exit_code);
  baton::k8s::AddExtender(program, &exit_code);
  baton::k8s::AddDevicePlugin(program, &exit_code);
  baton::k8s::AddKeys(program, &exit_code);
  baton::AddHelpCommand(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    fmt::print(stderr, "baton-k8s: {}; see baton-k8s --help\n", error.what());
    return 2;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  baton::OpenStandardFiles();
  return baton::AfterOutput("baton-k8s", Run(argc, argv));
}
