#include "cli/share_options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/parse.h"

namespace baton::cli {
namespace {

Error Named(const char* flag, const Error& error) {
  return {error.code, std::string(flag) + ": " + error.message};
}

}  // namespace

void AddShareOptions(CLI::App& command, ShareOptions& options) {
  command
      .add_option("--request", options.request,
                  "Share of the GPU that is guaranteed while there is work, 0.1 to 100")
      ->type_name("PERCENT");
  command.add_option("--limit", options.limit, "Share that is never exceeded, request to 100")
      ->type_name("PERCENT");
  command
      .add_option("--memory", options.memory,
                  "Cap on device memory, in bytes or in percent of each GPU's; 0: none")
      ->type_name("BYTES|PERCENT%");
  command.add_option("--priority", options.priority, "high goes before low")->type_name("low|high");
  command.add_option("--team", options.team, "Who pays, such as research/vision")
      ->type_name("PATH");
}

Result<nlohmann::json> ShareFields(const ShareOptions& options) {
  nlohmann::json fields = nlohmann::json::object();
  uint32_t request = 0, limit = 0;
  if (!options.request.empty()) {
    const Result<uint32_t> share = ParsePercent(options.request);
    if (!share) return tl::unexpected(Named("--request", share.error()));
    request = *share;
    fields["request"] = request / 1e4;
  }
  if (!options.limit.empty()) {
    const Result<uint32_t> share = ParsePercent(options.limit);
    if (!share) return tl::unexpected(Named("--limit", share.error()));
    limit = *share;
    fields["limit"] = limit / 1e4;
  }
  if (request != 0 && limit != 0 && limit < request) {
    return Fail(ErrorCode::kInvalid, "--limit " + options.limit + " is below --request " +
                                         options.request +
                                         "; a limit is at least the request, or left out");
  }
  if (options.memory.ends_with('%')) {
    const Result<uint32_t> part = ParsePercent(options.memory);
    if (!part) return tl::unexpected(Named("--memory", part.error()));
    fields["memory"] = options.memory;
  } else if (!options.memory.empty()) {
    const Result<uint64_t> memory = ParseBytes(options.memory);
    if (!memory) return tl::unexpected(Named("--memory", memory.error()));
    fields["memory"] = *memory;
  }
  if (!options.priority.empty()) {
    if (options.priority != "low" && options.priority != "high") {
      return Fail(ErrorCode::kInvalid,
                  "--priority: '" + options.priority + "' is neither low nor high");
    }
    fields["priority"] = options.priority;
  }
  if (!options.team.empty()) fields["team"] = options.team;
  return fields;
}

Result<nlohmann::json> NewShareFields(const ShareOptions& options) {
  Result<nlohmann::json> fields = ShareFields(options);
  if (!fields) return fields;
  if (!fields->contains("request") && !fields->contains("limit")) {
    return Fail(ErrorCode::kInvalid,
                "say how much of the GPU: --request 30 guarantees 30 % and lends idle time, "
                "--limit 30 is 30 % and never more");
  }
  if (!fields->contains("request")) (*fields)["request"] = (*fields)["limit"];
  if (!fields->contains("limit")) (*fields)["limit"] = 100.0;
  return fields;
}

}  // namespace baton::cli
