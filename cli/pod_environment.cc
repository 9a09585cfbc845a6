#include "cli/pod_environment.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : ",") + word;
  return joined;
}

}  // namespace

void AddAway(CLI::App& command, std::string& away) {
  command
      .add_option(
          "--away", away,
          "While batond does not answer, launches wait, or pass (open) and are recorded later")
      ->type_name("wait|open")
      ->capture_default_str();
}

Result<void> CheckAway(const std::string& away) {
  if (away == "wait" || away == "open") return {};
  return Fail(ErrorCode::kInvalid, "--away: '" + away + "' is neither wait nor open");
}

std::vector<std::pair<std::string, std::string>> EnvironmentOf(const nlohmann::json& pod,
                                                               const std::string& hook,
                                                               const std::string& away,
                                                               const std::string& socket_dir) {
  std::vector<std::pair<std::string, std::string>> environment;
  if (pod.value("hook", true)) {
    const char* preloaded = std::getenv("LD_PRELOAD");
    environment = {
        {"BATON_SOCKET", wire::TenantSocket(std::filesystem::absolute(socket_dir))},
        {"BATON_TICKET", pod.at("ticket")},
        {"BATON_AWAY", away},
        {"LD_PRELOAD", preloaded != nullptr && *preloaded != '\0' ? hook + ":" + preloaded : hook}};
  } else {
    // The hardware divides the GPU. A hook that is preloaded already is another pod's. By the
    // ticket batond knows whose process it is.
    environment = {{"BATON_DISABLE", "1"}, {"BATON_TICKET", pod.at("ticket")}};
  }
  const auto own = pod.find("environment");
  if (own == pod.end()) {
    environment.emplace_back("CUDA_VISIBLE_DEVICES", Joined(pod.at("gpus")));
    return environment;
  }
  for (const auto& [name, value] : own->items()) {
    // A relay's or a container's folder of sockets is not batond's: --socket-dir says it.
    if (name != "BATON_SOCKET") environment.emplace_back(name, value);
  }
  return environment;
}

std::string PodLine(const nlohmann::json& pod, const nlohmann::json& request) {
  std::string gpus;
  for (const std::string gpu : pod.at("gpus")) gpus += (gpus.empty() ? "" : ", ") + gpu;
  const std::string name = pod.value("name", request.value("name", ""));
  const double share = pod.value("request", request.value("request", 0.0));
  const double limit = pod.value("limit", request.value("limit", 100.0));
  return ToPrintable(fmt::format(
      "pod {} on {}: {}, limit {:.6g} %", name, gpus,
      share > 0 ? fmt::format("request {:.6g} %", share) : std::string("no request"), limit));
}

}  // namespace baton::cli
