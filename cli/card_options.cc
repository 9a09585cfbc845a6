#include "cli/card_options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace baton::cli {

void AddCardOptions(CLI::App& command, CardOptions& options) {
  command
      .add_option("--gpu", options.gpus,
                  "A GPU to use, repeatable; default: where it fits best (baton explain placement)")
      ->type_name("UUID|INDEX")
      ->allow_extra_args(false);
  command
      .add_option("--count", options.count,
                  "How many GPUs; default: as many as --gpu names, or one")
      ->type_name("N")
      ->check(CLI::Range(1, 16).description(""));
  command
      .add_option(
          "--mode", options.mode,
          "How the GPU is shared: time-slice (by turns), exclusive (not at all), mig or mps; "
          "default: time-slice, or mig where it is on")
      ->type_name("MODE");
  command
      .add_option("--model", options.models,
                  "A GPU model that will do, by words of its name (\"a100 80gb\"), repeatable")
      ->type_name("MODEL")
      ->allow_extra_args(false);
  command.add_option("--not-model", options.not_models, "One that will not, repeatable")
      ->type_name("MODEL")
      ->allow_extra_args(false);
  command
      .add_option("--affinity", options.affinity,
                  "On GPUs that have a pod with the same word, once there is one")
      ->type_name("WORD");
  command
      .add_option("--anti-affinity", options.anti_affinity,
                  "On no GPU that has a pod with the same word")
      ->type_name("WORD");
  command
      .add_option("--exclusion", options.exclusion,
                  "On no GPU that has pods with another word, or none")
      ->type_name("WORD");
}

void AddCardFields(const CardOptions& options, nlohmann::json& fields) {
  fields["gpus"] = options.gpus;
  const size_t named = std::max<size_t>(1, options.gpus.size());
  fields["count"] = options.count != 0 ? options.count : named;
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) fields[key] = value;
  };
  text("mode", options.mode);
  text("affinity", options.affinity);
  text("anti_affinity", options.anti_affinity);
  text("exclusion", options.exclusion);
  if (!options.models.empty()) fields["models"] = options.models;
  if (!options.not_models.empty()) fields["not_models"] = options.not_models;
}

}  // namespace baton::cli
