// What `baton run`, `vgpu create`, `explain placement` and `defrag` ask for alike: a pod.
#ifndef BATON_CLI_POD_REQUEST_H_
#define BATON_CLI_POD_REQUEST_H_

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "cli/card_options.h"
#include "cli/share_options.h"

namespace baton::cli {

// How long a driver may take to make MIG instances or start MPS, before batond's answer.
inline constexpr Duration kDevicePatience = std::chrono::seconds(120);

struct PodRequestOptions {
  ShareOptions share;
  CardOptions cards;
  bool independent = false;
  std::string user;
  std::string name_space;
};

void AddPodRequestOptions(CLI::App& command, PodRequestOptions& options);
// The fields of create_pod but for command, name and uid.
Result<nlohmann::json> PodRequestFields(const PodRequestOptions& options);

}  // namespace baton::cli

#endif  // BATON_CLI_POD_REQUEST_H_
