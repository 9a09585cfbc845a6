// The options that say on which cards a pod may go, and how: the same wherever a pod is asked for
// or asked about.
#ifndef BATON_CLI_CARD_OPTIONS_H_
#define BATON_CLI_CARD_OPTIONS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace baton::cli {

// As written by the user; empty when not given.
struct CardOptions {
  std::vector<std::string> gpus;
  uint32_t count = 0;  // 0: as many as are named, or one
  std::string mode;
  std::vector<std::string> models;
  std::vector<std::string> not_models;
  std::string affinity;
  std::string anti_affinity;
  std::string exclusion;

  friend bool operator==(const CardOptions&, const CardOptions&) = default;
};

void AddCardOptions(CLI::App& command, CardOptions& options);

// Adds what was given to the fields of create_pod.
void AddCardFields(const CardOptions& options, nlohmann::json& fields);

}  // namespace baton::cli

#endif  // BATON_CLI_CARD_OPTIONS_H_
