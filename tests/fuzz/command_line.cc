// The flags of `baton run`, `set` and so on that say what a pod asks for: an argument in each line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/pod_request.h"
#include "spec/pod_request.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(command_line) {
  std::vector<std::string> arguments;
  for (std::string_view rest = input; !rest.empty() && arguments.size() < 64;) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    arguments.emplace_back(line);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  CLI::App app;
  cli::PodFlags flags;
  cli::AddPodFlags(app, flags);
  try {
    app.parse(arguments);
  } catch (const CLI::Error&) {
    return;
  }
  (void)cli::ChangeFields(flags);
  const auto fields = cli::PodRequestFields(flags);
  if (!fields) return;
  // What is sent is what the daemon takes, and it means the same there.
  spec::PodRequest request;
  BATON_CHECK(spec::ReadFields(*fields, request));
  BATON_CHECK(spec::WriteFields(request) == *fields);
}

}  // namespace
}  // namespace baton::fuzz
