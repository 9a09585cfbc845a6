#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "base/help_command.h"
#include "base/help_formatter.h"
#include "base/standard_files.h"
#include "base/suggest.h"
#include "base/utf8.h"

namespace baton::cli {
namespace {

constexpr std::string_view kOverview =
    R"(baton shares a GPU among pods by time.

  baton run --request 30 --limit 60 -- python train.py   start a program with a share of a GPU
  baton top                                              watch who gets what
  baton report --last 7d                                 see who used what
  baton doctor                                           find out what is missing here

All commands: )";
constexpr std::string_view kOverviewEnd = "'baton COMMAND --help' explains one, with examples.\n";
constexpr size_t kLineMax = 100;

std::string Overview(CLI::App& baton) {
  std::string text(kOverview);
  size_t column = text.size() - text.rfind('\n') - 1;
  const auto commands = baton.get_subcommands({});
  for (const CLI::App* command : commands) {
    const std::string word = command->get_name() + (command == commands.back() ? ".\n" : ",");
    const bool first = command == commands.front();
    if (!first && column + 1 + word.size() > kLineMax) {
      text += '\n';
      column = 0;
    } else if (!first) {
      text += ' ';
      ++column;
    }
    text += word;
    column += word.size();
  }
  return text.append(kOverviewEnd);
}

// The subcommand that was named last on the command line: `baton bench token` is `token`.
CLI::App* Innermost(CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

bool StartsPrograms(const CLI::App& command) {
  const std::string& name = command.get_name();
  return name == "run" || name == "lease" || name == "doctor";
}

// Whether these words are a command for which names may stand after "--".
bool TakesNames(const CLI::App& baton, const std::vector<std::string>& words) {
  const CLI::App* command = &baton;
  for (const std::string& word : words) {
    const auto inner =
        command->get_subcommands([&word](const CLI::App* one) { return one->get_name() == word; });
    if (!inner.empty()) command = inner.front();
  }
  const auto names = command->get_options([](const CLI::Option* o) { return o->get_positional(); });
  return !StartsPrograms(*command) && !names.empty();
}

// CLI11 knows nothing of what stands after "--".
class Help : public HelpFormatter {
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, name);
    const std::string& command = app->get_name();
    const char* program = command == "run"      ? " -- PROGRAM [ARGS...]"
                          : command == "lease"  ? " [-- PROGRAM [ARGS...]]"
                          : command == "doctor" ? " [-- PROGRAM]"
                                                : "";
    usage.insert(usage.find_last_not_of('\n') + 1, program);
    return usage;
  }
};

// The one line for a word that no option and no command is.
std::string Unexpected(CLI::App& app, const std::vector<std::string>& extras) {
  std::string word = extras.front();
  for (auto extra = extras.rbegin(); extra != extras.rend(); ++extra) {
    if (extra->starts_with("-")) word = *extra;  // the first flag explains what follows it
  }
  const bool flag = word.starts_with("-");
  word = word.substr(0, word.find('='));
  std::vector<std::string> known;
  if (flag) {
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else {
    for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  }
  const bool takes_commands = !flag && !known.empty();
  std::string line = flag             ? "unknown flag " + word
                     : takes_commands ? "unknown command '" + word + "'"
                                      : "unexpected '" + word + "'";
  if (const std::string nearest = Nearest(word, known); !nearest.empty()) {
    return line + "; did you mean " + nearest + "?";
  }
  if (!flag && app.get_name() == "run") return line + "; write the program after --";
  return line + "; see '" + CommandPath(app) + " --help'";
}

// `baton help [COMMAND...]`: what its --help prints.
void AddHelp(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("help", "Explain a command, as its --help does");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *words, "The command, such as run or vgpu create")->type_name("");
  command->footer(R"(Examples:
  baton help
  baton help run
  baton help vgpu create)");
  command->callback([words, &baton, &invocation] {
    invocation.action = [words, &baton] {
      CLI::App* about = &baton;
      for (const std::string& word : *words) {
        const auto inner = about->get_subcommands(
            [&](const CLI::App* command) { return command->get_name() == word; });
        if (inner.empty()) return Complain({ErrorCode::kInvalid, Unexpected(*about, {word})});
        about = inner.front();
      }
      PrintHelp(*about);
      return 0;
    };
  });
}

}  // namespace

CLI::Option* AddSocketDir(CLI::App& command, Invocation& invocation) {
  return command
      .add_option(
          "--socket-dir", invocation.socket_dir,
          "Folder of batond's (or baton-frontend's) sockets; default: $BATON_SOCKET_DIR, else "
          "/run/baton")
      ->type_name("DIR");
}

std::string RefuseNan(const std::string& number) {
  return std::isnan(std::strtod(number.c_str(), nullptr)) ? number + " is not a number" : "";
}

int Complain(const Error& error) {
  std::fprintf(stderr, "baton: %s\n", ToPrintable(error.message).c_str());
  return error.code == ErrorCode::kInvalid ? kMisused : kFailed;
}

// Parses and acts.
int Run(int argc, char** argv) {
  Invocation invocation;
  // Not by CLI11's envname: with one variable for all commands it would win over the flag.
  if (const char* dir = std::getenv("BATON_SOCKET_DIR"); dir != nullptr && *dir != '\0') {
    invocation.socket_dir = dir;
  }
  for (const auto& [variable, field] :
       {std::pair("BATON_URL", &invocation.remote.url),
        std::pair("BATON_TOKEN_FILE", &invocation.remote.token_file),
        std::pair("BATON_CA_FILE", &invocation.remote.ca_file)}) {
    if (const char* value = std::getenv(variable); value != nullptr) *field = value;
  }
  CLI::App baton("Shares a GPU among pods by time.", "baton");
  baton.set_version_flag("--version", "baton " BATON_VERSION);
  baton.require_subcommand(0, 1);
  baton.formatter(std::make_shared<Help>());
  baton.footer(R"(Examples:
  baton run --request 30 --limit 60 -- python train.py
  baton top
  baton set train --request 40
  baton doctor -- ./train

'baton COMMAND --help' explains one, with more examples.)");
  for (auto add : {AddRun,    AddLease,   AddTop,        AddStatus,  AddSet,      AddRm,
                   AddPing,   AddVgpu,    AddFlavors,    AddCordon,  AddUncordon, AddRelease,
                   AddDefrag, AddReports, AddReceipt,    AddExplain, AddSimulate, AddBench,
                   AddDoctor, AddKeygen,  AddCompletion, AddHelp}) {
    add(baton, invocation);
  }
  // Unknown words are collected instead of thrown, so that one place words the complaint.
  baton.allow_extras();
  for (CLI::App* command : baton.get_subcommands({})) {
    command->allow_extras();
    for (CLI::App* inner : command->get_subcommands({})) inner->allow_extras();
  }

  // Everything after "--" is somebody else's command line and not to be interpreted; or, of a
  // command that starts nobody, names, of which one may begin with a dash.
  std::vector<std::string> words;
  bool own = true, names = false;
  for (int i = 1; i < argc; ++i) {
    if (own && std::string_view(argv[i]) == "--") {
      own = false;
      names = TakesNames(baton, words);
      if (names) words.emplace_back("--");
    } else {
      (own || names ? words : invocation.program).emplace_back(argv[i]);
    }
  }
  if (words.empty()) {
    std::fputs(Overview(baton).c_str(), own ? stdout : stderr);
    return own ? 0 : kMisused;
  }

  std::string complaint;
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    baton.parse(reversed);
  } catch (const CLI::Success& help) {  // --help, --version
    return baton.exit(help);
  } catch (const CLI::ParseError& error) {
    complaint = error.what();
  }
  CLI::App& command = *Innermost(&baton);
  std::vector<std::string> extras = baton.remaining(true);
  std::erase(extras, "--");
  if (!extras.empty()) {
    complaint = Unexpected(command, extras);
  } else if (!complaint.empty()) {
    complaint += "; see '" + CommandPath(command) + " --help'";
  } else if (!own && !names && !StartsPrograms(command)) {
    complaint = "'" + CommandPath(command) + "' takes no program after --";
  } else if (!invocation.action) {
    complaint =
        "'" + CommandPath(command) + "' needs a command; see '" + CommandPath(command) + " --help'";
  }
  if (!complaint.empty()) return Complain({ErrorCode::kInvalid, complaint});
  try {
    return invocation.action();
  } catch (const std::exception& error) {  // a daemon whose answer has another shape
    return Complain({ErrorCode::kInternal, std::string("unexpected answer: ") + error.what() +
                                               "; do 'baton --version' and batond's agree?"});
  }
}

int Main(int argc, char** argv) {
  OpenStandardFiles();
  return AfterOutput("baton", Run(argc, argv));
}

}  // namespace baton::cli
