// Prometheus' own programs, in tests.
#ifndef BATON_TESTS_NET_PROMETHEUS_H_
#define BATON_TESTS_NET_PROMETHEUS_H_

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tests/temp_folder.h"

// For the paths that CMake found, PROMTOOL and PROMETHEUS.
#define SKIP_WITHOUT(program)                                                             \
  if (std::string(program).find("NOTFOUND") != std::string::npos) {                       \
    GTEST_SKIP() << "Prometheus' programs are not installed; scripts/setup fetches them"; \
  }

namespace baton::net {

struct Ran {
  int status;
  std::string output;
};
// Runs a command of the shell, and keeps what it says in the folder.
Ran Shell(const TempFolder& folder, const std::string& command);

// A TCP port of the loopback that is free now.
uint16_t FreePort();

// One that runs, and scrapes five times a second. Ended when it is destroyed.
class Prometheus {
 public:
  // `scrape`: lines of YAML, four spaces before each: targets and how to reach them.
  Prometheus(const std::string& program, const std::string& scrape);
  ~Prometheus();
  Prometheus(const Prometheus&) = delete;

  // The results of a query; null where it has none or is not there yet.
  nlohmann::json Query(const std::string& query) const;
  // Asks until there are results, or none; what came last. A failure of the test after 20 s.
  nlohmann::json Await(const std::string& query, bool there) const;

 private:
  TempFolder folder_;
  uint16_t port_;
  pid_t pid_ = -1;
};

// For the query of a URL: all but letters and digits is escaped.
std::string Escaped(const std::string& text);

}  // namespace baton::net

#endif  // BATON_TESTS_NET_PROMETHEUS_H_
