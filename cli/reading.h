// What batond only tells, asked for by its sockets or, with --url, by its HTTP API.
#ifndef BATON_CLI_READING_H_
#define BATON_CLI_READING_H_

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "base/time.h"
#include "cli/command.h"

namespace baton::cli {

// Declares --socket-dir, --url, --token-file and --ca-file; the last three may come by BATON_URL,
// BATON_TOKEN_FILE and BATON_CA_FILE. A given --socket-dir goes before BATON_URL.
void AddReading(CLI::App& command, Invocation& invocation);

// The answer to `question`, whose "command" is one that changes nothing and whose other fields are
// text. Where the sockets of this machine's batond may not be opened and nobody said where to ask,
// its page's own address is tried too. Errors as wire::Ask() has them.
Result<nlohmann::json> Read(const Invocation& invocation, const nlohmann::json& question,
                            Duration timeout = std::chrono::seconds(5));

}  // namespace baton::cli

#endif  // BATON_CLI_READING_H_
