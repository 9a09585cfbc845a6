#include "tests/net/prometheus.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/net/client.h"

extern char** environ;

namespace baton::net {

Ran Shell(const TempFolder& folder, const std::string& command) {
  const std::string output = folder / "output";
  const int status = system(("(" + command + ") >" + output + " 2>&1").c_str());
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  return {WEXITSTATUS(status), text.str()};
}

uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

Prometheus::Prometheus(const std::string& program, const std::string& scrape) : port_(FreePort()) {
  const std::string config = folder_.Write("prometheus.yaml",
                                           "scrape_configs:\n"
                                           "  - job_name: baton\n"
                                           "    scrape_interval: 200ms\n"
                                           "    scrape_timeout: 200ms\n"
                                           "    honor_labels: true\n" +
                                               scrape);
  const std::string command = "exec " + program + " --config.file=" + config +
                              " --storage.tsdb.path=" + (folder_ / "data") +
                              " --web.listen-address=127.0.0.1:" + std::to_string(port_) + " >" +
                              (folder_ / "log") + " 2>&1";
  const char* argv[] = {"sh", "-c", command.c_str(), nullptr};
  EXPECT_EQ(posix_spawn(&pid_, "/bin/sh", nullptr, nullptr, const_cast<char**>(argv), environ), 0);
}

Prometheus::~Prometheus() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

nlohmann::json Prometheus::Query(const std::string& query) const {
  Client client(port_);
  if (!client.connected()) return {};
  client.Send("GET /api/v1/query?query=" + Escaped(query) + " HTTP/1.0\r\nHost: localhost\r\n\r\n");
  client.ReadUntil("\r\n\r\n");
  client.AwaitEnd();
  const auto answer = nlohmann::json::parse(client.rest, nullptr, false);
  if (!answer.is_object() || !answer.contains("data") || answer["data"]["result"].empty()) {
    return {};
  }
  return answer["data"]["result"];
}

nlohmann::json Prometheus::Await(const std::string& query, bool there) const {
  nlohmann::json result;
  for (int i = 0; i < 1000; ++i) {
    result = Query(query);
    if (result.is_null() != there) return result;
    usleep(20'000);
  }
  ADD_FAILURE() << query << ": " << result << "\n"
                << Shell(folder_, "cat " + (folder_ / "log")).output;
  return result;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      char escaped[4];
      snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned char>(c));
      out += escaped;
    }
  }
  return out;
}

}  // namespace baton::net
