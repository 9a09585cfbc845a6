// What the subcommands of `baton` share. Each stands in cli/<name>.cc and has one Add function: it
// declares its options and examples, and sets Invocation::action when it is the one that was given.
#ifndef BATON_CLI_COMMAND_H_
#define BATON_CLI_COMMAND_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace baton::cli {

inline constexpr char kDefaultSocketDir[] = "/run/baton";

// A batond that is asked by its page's address.
struct Remote {
  std::string url;         // empty: none, the sockets are asked
  std::string token_file;  // empty: it has no token
  std::string ca_file;     // empty: the system's authorities
};

// One run of `baton`, as parsed.
struct Invocation {
  std::string socket_dir = kDefaultSocketDir;  // where batond (or baton-frontend) keeps its sockets
  Remote remote;
  std::vector<std::string> program;  // what stands after "--"
  std::function<int()> action;       // what to do; returns the exit status
};

// Exit statuses that mean the same in every subcommand.
inline constexpr int kFailed = 1;   // it was asked properly and did not work
inline constexpr int kMisused = 2;  // the command line is wrong
inline constexpr int kCannotRun = 126;
inline constexpr int kNoProgram = 127;

// How long batond may take over an answer for which it reads its books or searches.
inline constexpr Duration kAnswerPatience = std::chrono::seconds(60);

void AddRun(CLI::App& baton, Invocation& invocation);
void AddLease(CLI::App& baton, Invocation& invocation);
void AddTop(CLI::App& baton, Invocation& invocation);
void AddStatus(CLI::App& baton, Invocation& invocation);
void AddSet(CLI::App& baton, Invocation& invocation);
// The same under another name, for `baton vgpu`.
void AddSetAs(CLI::App& parent, const std::string& name, Invocation& invocation);
void AddRm(CLI::App& baton, Invocation& invocation);
void AddPing(CLI::App& baton, Invocation& invocation);
void AddVgpu(CLI::App& baton, Invocation& invocation);
void AddDefrag(CLI::App& baton, Invocation& invocation);
void AddFlavors(CLI::App& baton, Invocation& invocation);
void AddCordon(CLI::App& baton, Invocation& invocation);
void AddUncordon(CLI::App& baton, Invocation& invocation);
void AddRelease(CLI::App& baton, Invocation& invocation);
// One for each of batond's reports.
void AddReports(CLI::App& baton, Invocation& invocation);
void AddExplain(CLI::App& baton, Invocation& invocation);
void AddReceipt(CLI::App& baton, Invocation& invocation);
void AddBench(CLI::App& baton, Invocation& invocation);
void AddSimulate(CLI::App& baton, Invocation& invocation);
void AddDoctor(CLI::App& baton, Invocation& invocation);
void AddKeygen(CLI::App& baton, Invocation& invocation);
void AddCompletion(CLI::App& baton, Invocation& invocation);

// Declares --socket-dir, which BATON_SOCKET_DIR sets as well.
CLI::Option* AddSocketDir(CLI::App& command, Invocation& invocation);

// Of a number that is asked for: what is wrong with it; empty where nothing is. CLI::Range lets
// "nan" through, which no bound refuses.
std::string RefuseNan(const std::string& number);

// "baton: sentence" on stderr. Returns kMisused for ErrorCode::kInvalid, else kFailed.
int Complain(const Error& error);

// The whole program: parses, acts, returns the exit status. A command whose output could not be
// written has failed, and says so.
int Main(int argc, char** argv);

}  // namespace baton::cli

#endif  // BATON_CLI_COMMAND_H_
