// `PROGRAM help [COMMAND...]`, as people try it first. Not thread safe.
#ifndef BATON_BASE_HELP_COMMAND_H_
#define BATON_BASE_HELP_COMMAND_H_

#include <string>

namespace CLI {
class App;
}

namespace baton {

// "baton vgpu create": the command with those that it is in.
std::string CommandPath(const CLI::App& command);
// Writes to stdout what the command's --help prints.
void PrintHelp(const CLI::App& command);
// Adds the command help to a program with a name. It ends App::parse() by a CLI::ParseError, as
// --help does: one whose exit status is 0, or that says which word names no command.
void AddHelpCommand(CLI::App& program);

}  // namespace baton

#endif  // BATON_BASE_HELP_COMMAND_H_
