#include "base/help_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/suggest.h"

namespace baton {

std::string CommandPath(const CLI::App& command) {
  const CLI::App* const outer = command.get_parent();
  return (outer == nullptr ? "" : CommandPath(*outer) + " ") + command.get_name();
}

void PrintHelp(const CLI::App& command) {
  // Not App::help(), which is of the command that was given: help.
  std::fputs(command.get_formatter()
                 ->make_help(&command, CommandPath(command), CLI::AppFormatMode::Normal)
                 .c_str(),
             stdout);
}

void AddHelpCommand(CLI::App& program) {
  CLI::App* help = program.add_subcommand("help", "Explain a command, as its --help does");
  auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("COMMAND", *words, "The command")->type_name("");
  help->callback([words, &program] {
    const CLI::App* about = &program;
    for (const std::string& word : *words) {
      std::vector<std::string> names;
      const CLI::App* named = nullptr;
      for (const CLI::App* command : about->get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
        if (command->get_name() == word) named = command;
      }
      if (named == nullptr) {
        const std::string nearest = Nearest(word, names);
        throw CLI::ParseError("unknown command '" + word + "'" +
                                  (nearest.empty() ? "" : "; did you mean " + nearest + "?"),
                              CLI::ExitCodes::ExtrasError);
      }
      about = named;
    }
    PrintHelp(*about);
    throw CLI::RuntimeError(0);
  });
}

}  // namespace baton
