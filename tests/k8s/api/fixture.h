// What the tests of the API client share.
#ifndef BATON_TESTS_K8S_API_FIXTURE_H_
#define BATON_TESTS_K8S_API_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/api/client.h"
#include "tests/k8s/stand_in/api_server.h"
#include "tests/temp_folder.h"

namespace baton::k8s::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Short waits, so that faults are over soon.
inline ClientOptions Quick() {
  ClientOptions options;
  options.timeout = seconds(10);
  options.attempt_timeout = seconds(3);
  options.backoff_min = milliseconds(5);
  options.backoff_max = milliseconds(100);
  options.seed = 1;
  return options;
}

inline std::unique_ptr<Client> ClientOf(const ClusterConfig& config,
                                        const ClientOptions& options = Quick()) {
  auto client = Client::Make(config, options);
  EXPECT_TRUE(client) << (client ? "" : client.error().message);
  return client ? std::move(*client) : nullptr;
}

inline Json AnnotatedPod(const std::string& name, const Json& annotations = Json::object()) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", "default"}, {"annotations", annotations}}},
          {"spec", {{"containers", Json::array({{{"name", "main"}, {"image", "i"}}})}}}};
}

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_API_FIXTURE_H_
