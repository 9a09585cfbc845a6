// baton completion: a shell's completion script, made from the commands and flags themselves. The
// script asks `baton completion --names KIND` for the names that the daemon knows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

// Nobody waits longer for a key.
constexpr Duration kNamesPatience = std::chrono::milliseconds(500);

// Whose names a flag or a positional argument takes: a KIND, or empty. `command` is the innermost.
std::string KindOf(const CLI::App& command, const CLI::Option& option) {
  const std::string& name =
      option.get_lnames().empty() ? option.get_single_name() : option.get_lnames().front();
  if (name == "vgpu" || name == "pod" || name == "POD") return "pods";
  if (name == "gpu" || name == "GPU") return "gpus";
  if (name == "team") return "teams";
  if (name == "LEASE") return "leases";
  if (name != "NAME" || command.get_name() == "create") return "";
  return command.get_name() == "team" ? "teams" : "pods";
}

std::string PositionalKind(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) return KindOf(command, *option);
  }
  return "";
}

// Without a word of more than these: bash would run what it finds in a word of its list, and a pod
// may have any name.
bool IsPlain(const std::string& name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-/+@").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), plain);
}

// One a line; none where no daemon answers, for a shell that completes has no place for complaints.
int PrintNames(const std::string& kind, const Invocation& invocation) {
  if (kind != "pods" && kind != "teams" && kind != "gpus" && kind != "flavors" &&
      kind != "leases") {
    return Complain({ErrorCode::kInvalid,
                     "--names: '" + kind + "' is not pods, teams, gpus, flavors or leases"});
  }
  std::set<std::string> names;
  const auto add = [&](const char* command, const char* list, const char* key) {
    const auto answer = wire::Ask(invocation.socket_dir, {{"command", command}}, kNamesPatience);
    if (!answer || !answer->contains(list)) return;
    for (const nlohmann::json& row : answer->at(list)) names.insert(row.value(key, ""));
  };
  if (kind == "teams") add("standing", "rows", "team");
  if (kind == "flavors") {
    add("flavors", "flavors", "name");
  } else if (kind == "leases") {
    add("leases", "leases", "lease");
  } else {
    add("status", kind == "gpus" ? "gpus" : "pods",
        kind == "pods"    ? "name"
        : kind == "teams" ? "team"
                          : "uuid");
  }
  for (const std::string& name : names) {
    if (IsPlain(name)) std::puts(name.c_str());
  }
  return 0;
}

struct Entry {
  std::string name;
  std::string description;
  std::string words;  // its flags and inner commands, separated by spaces
  std::string kind;   // of its positional argument
  std::vector<std::pair<std::string, std::string>> inner_kinds;  // by inner command
};

std::vector<Entry> Entries(const CLI::App& baton) {
  std::vector<Entry> entries;
  for (const CLI::App* command : baton.get_subcommands({})) {
    Entry entry{command->get_name(), command->get_description(), "", PositionalKind(*command), {}};
    for (const CLI::App* inner : command->get_subcommands({})) {
      entry.words += inner->get_name() + " ";
      if (std::string kind = PositionalKind(*inner); !kind.empty()) {
        entry.inner_kinds.emplace_back(inner->get_name(), std::move(kind));
      }
    }
    if (entry.name == "help") {
      for (const CLI::App* about : baton.get_subcommands({}))
        entry.words += about->get_name() + " ";
    }
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
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" i kind= words= where=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    # After -- stands another program's command line.
    if [[ "${COMP_WORDS[i]}" == -- ]]; then
      COMPREPLY=($(compgen -A file -- "$word"))
      [[ $((i + 1)) == "$COMP_CWORD" ]] && COMPREPLY+=($(compgen -c -- "$word"))
      return
    fi
    if [[ "${COMP_WORDS[i]}" == --socket-dir ]]; then
      where=(--socket-dir "${COMP_WORDS[i+1]}")
      [[ "${where[1]}" == = ]] && where[1]="${COMP_WORDS[i+2]}"
    fi
  done
  if [[ "$word" == = ]]; then
    word=
  elif [[ "$before" == = ]]; then
    before="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  if [[ "$COMP_CWORD" == 1 ]]; then
    COMPREPLY=($(compgen -W "%s--help --version" -- "$word"))
    return
  fi
  case "${COMP_WORDS[1]}" in
)",
              prologue, names.c_str());
  for (const Entry& entry : entries) {
    std::printf("    %s) words=\"%s\" kind=%s ;;\n", entry.name.c_str(), entry.words.c_str(),
                entry.kind.c_str());
  }
  std::puts(R"sh(  esac
  if [[ "$COMP_CWORD" -gt 2 ]]; then case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in)sh");
  for (const Entry& entry : entries) {
    for (const auto& [inner, kind] : entry.inner_kinds) {
      std::printf("    \"%s %s\") kind=%s ;;\n", entry.name.c_str(), inner.c_str(), kind.c_str());
    }
  }
  std::puts(R"sh(  esac; fi
  case "$before" in
    --pod | --vgpu) words= kind=pods ;;
    --team) words= kind=teams ;;
    --gpu) words= kind=gpus ;;
    --flavor) words= kind=flavors ;;
  esac
  if [[ -n "$kind" && "$word" != -* ]]; then
    words="$words $("${COMP_WORDS[0]}" completion --names $kind "${where[@]}" 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _baton baton)sh");
}

std::string FishNames(const std::string& kind, const char* how) {
  return std::string(how) + " -a '(baton completion --names " + kind + " 2>/dev/null)'";
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
      const char* kind = word == "--pod" || word == "--vgpu" ? "pods"
                         : word == "--team"                  ? "teams"
                         : word == "--gpu"                   ? "gpus"
                         : word == "--flavor"                ? "flavors"
                                                             : nullptr;
      std::printf("complete -c baton -n '__fish_seen_subcommand_from %s' %s %s%s\n",
                  entry.name.c_str(), flag ? "-l" : "-f -a", word.c_str() + (flag ? 2 : 0),
                  kind == nullptr ? "" : FishNames(kind, " -x").c_str());
    }
    if (!entry.kind.empty()) {
      std::printf("complete -c baton -n '__fish_seen_subcommand_from %s'%s\n", entry.name.c_str(),
                  FishNames(entry.kind, " -f").c_str());
    }
    for (const auto& [inner, kind] : entry.inner_kinds) {
      std::printf(
          "complete -c baton -n '__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from "
          "%s'%s\n",
          entry.name.c_str(), inner.c_str(), FishNames(kind, " -f").c_str());
    }
  }
}

}  // namespace

void AddCompletion(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("completion", "Print a shell's completion script");
  auto shell = std::make_shared<std::string>();
  auto names = std::make_shared<std::string>();
  CLI::Option* of = command->add_option("SHELL", *shell, "bash, zsh or fish")->type_name("");
  command
      ->add_option("--names", *names,
                   "Instead of a script: the names of pods, teams, gpus, flavors or leases that "
                   "batond knows, one a "
                   "line; what the scripts ask for")
      ->type_name("KIND")
      ->excludes(of);
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  source <(baton completion bash)                      for this shell
  baton completion bash > /etc/bash_completion.d/baton
  baton completion zsh > ~/.zfunc/_baton.zsh           and source it from ~/.zshrc
  baton completion fish > ~/.config/fish/completions/baton.fish)");
  command->callback([shell, names, &baton, &invocation] {
    invocation.action = [shell, names, &baton, &invocation] {
      if (!names->empty()) return PrintNames(*names, invocation);
      if (shell->empty()) {
        return Complain({ErrorCode::kInvalid, "SHELL is required; see 'baton completion --help'"});
      }
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
