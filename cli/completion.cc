// baton completion: a shell's completion script, made from the commands and flags themselves.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"

namespace baton::cli {
namespace {

struct Entry {
  std::string name;
  std::string description;
  std::string words;  // its flags and inner commands, separated by spaces
};

std::vector<Entry> Entries(const CLI::App& baton) {
  std::vector<Entry> entries;
  for (const CLI::App* command : baton.get_subcommands({})) {
    Entry entry{command->get_name(), command->get_description(), ""};
    for (const CLI::App* inner : command->get_subcommands({}))
      entry.words += inner->get_name() + " ";
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& flag : option->get_lnames()) entry.words += "--" + flag + " ";
    }
    for (const CLI::App* inner : command->get_subcommands({})) {
      for (const CLI::Option* option : inner->get_options()) {
        for (const std::string& flag : option->get_lnames()) {
          if (flag != "help") entry.words += "--" + flag + " ";
        }
      }
    }
    entry.words.pop_back();
    entries.push_back(entry);
  }
  return entries;
}

void PrintBash(const std::vector<Entry>& entries, const char* prologue) {
  std::string names;
  for (const Entry& entry : entries) names += entry.name + " ";
  std::printf(R"(%s_baton() {
  local word="${COMP_WORDS[COMP_CWORD]}" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    # After -- stands another program's command line.
    if [[ "${COMP_WORDS[i]}" == -- ]]; then
      COMPREPLY=($(compgen -A file -- "$word"))
      [[ $((i + 1)) == "$COMP_CWORD" ]] && COMPREPLY+=($(compgen -c -- "$word"))
      return
    fi
  done
  if [[ "$COMP_CWORD" == 1 ]]; then
    COMPREPLY=($(compgen -W "%s--help --version" -- "$word"))
    return
  fi
  case "${COMP_WORDS[1]}" in
)",
              prologue, names.c_str());
  for (const Entry& entry : entries) {
    std::printf("    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")) ;;\n", entry.name.c_str(),
                entry.words.c_str());
  }
  std::puts("  esac\n}\ncomplete -o default -F _baton baton");
}

void PrintFish(const std::vector<Entry>& entries) {
  std::puts(
      "complete -c baton -f -n __fish_use_subcommand -l help\n"
      "complete -c baton -f -n __fish_use_subcommand -l version");
  for (const Entry& entry : entries) {
    std::string description;
    for (const char c : entry.description) description += c == '\'' ? "\\'" : std::string(1, c);
    std::printf("complete -c baton -f -n __fish_use_subcommand -a %s -d '%s'\n", entry.name.c_str(),
                description.c_str());
    std::istringstream words(entry.words);
    for (std::string word; words >> word;) {
      const bool flag = word.starts_with("--");
      std::printf("complete -c baton -n '__fish_seen_subcommand_from %s' %s %s\n",
                  entry.name.c_str(), flag ? "-l" : "-f -a", word.c_str() + (flag ? 2 : 0));
    }
  }
}

}  // namespace

void AddCompletion(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("completion", "Print a shell's completion script");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->type_name("");
  command->footer(R"(Examples:
  source <(baton completion bash)                      for this shell
  baton completion bash > /etc/bash_completion.d/baton
  baton completion zsh > ~/.zfunc/_baton.zsh           and source it from ~/.zshrc
  baton completion fish > ~/.config/fish/completions/baton.fish)");
  command->callback([shell, &baton, &invocation] {
    invocation.action = [shell, &baton] {
      const std::vector<Entry> entries = Entries(baton);
      if (*shell == "bash") {
        PrintBash(entries, "");
      } else if (*shell == "zsh") {
        PrintBash(entries, "autoload -U +X bashcompinit && bashcompinit\n");
      } else if (*shell == "fish") {
        PrintFish(entries);
      } else {
        return Complain(
            {ErrorCode::kInvalid, "no completion for '" + *shell + "'; choose bash, zsh or fish"});
      }
      return 0;
    };
  });
}

}  // namespace baton::cli
