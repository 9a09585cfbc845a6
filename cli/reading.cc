#include "cli/reading.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "net/http_client.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// Where batond serves its page unless it is told otherwise.
constexpr char kOwnUrl[] = "http://127.0.0.1:7412";
constexpr size_t kApiAnswerMax = 256 << 20;  // bytes; the status of 10 000 pods has some 10 MiB

std::string TargetOf(const json& question) {
  std::string target = "/api/v1/" + question.at("command").get<std::string>();
  char before = '?';
  for (const auto& [name, value] : question.items()) {
    if (name == "command" || value == "") continue;
    target +=
        before + net::PercentEncode(name) + "=" + net::PercentEncode(value.get<std::string>());
    before = '&';
  }
  return target;
}

Result<json> ReadByHttp(const Remote& remote, const json& question, Duration timeout) {
  net::HttpClientOptions options;
  options.url = remote.url;
  options.server = "batond";
  options.user_agent = "baton";
  options.tls.ca_file = remote.ca_file;
  options.token_file = remote.token_file;
  options.connections_max = 1;
  const auto client = net::HttpClient::Make(std::move(options));
  if (!client) return tl::unexpected(client.error());
  net::HttpCall call;
  call.target = TargetOf(question);
  const auto answer = (*client)->Ask(call, kApiAnswerMax, MonotonicNow() + timeout);
  if (!answer) return Fail(ErrorCode::kUnavailable, remote.url + ": " + answer.error().why);
  json body = json::parse(answer->body, nullptr, false);
  if (answer->status == 200 && body.is_object()) return body;
  if (answer->status == 401) {
    return Fail(ErrorCode::kDenied,
                remote.url +
                    " wants its token: --token-file FILE, the file that token_file names "
                    "in batond's [http]");
  }
  const bool explained = body.is_object() && body.contains("error") && body["error"].is_string();
  if (!explained) {
    return Fail(ErrorCode::kInternal, remote.url + " is no batond's page: " + call.target +
                                          " has HTTP status " + std::to_string(answer->status));
  }
  const json& code = body.contains("code") ? body["code"] : json();
  return Fail(code.is_string() ? ErrorCodeNamed(code.get<std::string>()) : ErrorCode::kInternal,
              body["error"].get<std::string>());
}

}  // namespace

void AddReading(CLI::App& command, Invocation& invocation) {
  CLI::Option* sockets = AddSocketDir(command, invocation);
  Remote& remote = invocation.remote;
  CLI::Option* url = command.add_option(
      "--url", remote.url,
      "Ask a batond by its page's address instead, such as https://gpu-node-1:7412; default: "
      "$BATON_URL");
  url->type_name("URL")->excludes(sockets);
  command
      .add_option("--token-file", remote.token_file,
                  "With --url: the file with that page's token; default: $BATON_TOKEN_FILE")
      ->type_name("FILE");
  command
      .add_option("--ca-file", remote.ca_file,
                  "With --url: whose certificates to trust, in PEM; default: $BATON_CA_FILE, else "
                  "the system's")
      ->type_name("FILE");
  // A --socket-dir goes before the variable.
  command.parse_complete_callback([sockets, &command, &remote] {
    if (sockets->count() > 0) remote.url.clear();
    for (const char* name : {"--token-file", "--ca-file"}) {
      if (remote.url.empty() && command.count(name) > 0) {
        throw CLI::ValidationError(name, "it is for --url, which is not given");
      }
    }
  });
}

Result<json> Read(const Invocation& invocation, const json& question, Duration timeout) {
  if (!invocation.remote.url.empty()) return ReadByHttp(invocation.remote, question, timeout);
  bool answered = false;
  auto answer = wire::Ask(invocation.socket_dir, question, timeout, &answered);
  if (answer || answered || answer.error().code != ErrorCode::kDenied ||
      invocation.socket_dir != kDefaultSocketDir) {
    return answer;
  }
  auto by_page = ReadByHttp({kOwnUrl, "", ""}, question, timeout);
  return by_page ? std::move(by_page) : std::move(answer);
}

}  // namespace baton::cli
