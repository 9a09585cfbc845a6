// A small HTTP(S) server for the API server's and schedulers' questions: JSON in, JSON out. Each
// connection has a thread of its own, so a handler may block. Everything is bounded: connections,
// headers, bodies, and how long anything takes.
#ifndef BATON_K8S_SERVE_SERVER_H_
#define BATON_K8S_SERVE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

struct ssl_ctx_st;

namespace baton::k8s {

// What a server shows to its clients. May be exchanged at any time: each handshake takes what is
// there when it begins, and connections that are there keep what they have. Thread safe.
class TlsIdentity {
 public:
  // PEM: the certificate, then those between it and its authority; and its key. kInvalid: what is
  // wrong with them; what was there stays.
  Result<void> Set(const std::string& certificates, const std::string& key);
  // Null before the first Set().
  std::shared_ptr<ssl_ctx_st> context() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<ssl_ctx_st> context_;
};

struct ServeRequest {
  std::string method;  // "GET", "POST"
  std::string path;    // "/mutate"; without the query
  std::string body;
};

struct ServeAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
};
// {"error": sentence}
ServeAnswer ServeError(int status, std::string_view sentence);

// Called from many threads at once. Must not throw (what it throws anyway is a 500).
using ServeHandler = std::function<ServeAnswer(const ServeRequest&)>;

struct ServeOptions {
  std::string listen = "0.0.0.0:8443";  // a numeric address; port 0: a free one
  // When there are as many, the one that has been silent longest makes room.
  uint32_t connections_max = 256;
  size_t header_bytes_max = 16 << 10;
  size_t body_bytes_max = 4 << 20;  // an object and what it was, of 1.5 MiB each at most in etcd
  // Of all that are read or answered at once. Those of 64 KiB at most are not counted, so that many
  // large ones cannot keep out the usual ones; what is beyond is refused with 503.
  size_t bodies_bytes_max = 8 << 20;
  // From the first byte of a request (of a connection, for its handshake) to its last.
  Duration request_timeout = std::chrono::seconds(10);
  // Between two requests of a connection.
  Duration idle_timeout = std::chrono::seconds(120);
  Duration write_timeout = std::chrono::seconds(10);
  // What is being answered has so long when the server stops.
  Duration stop_timeout = std::chrono::seconds(5);
};

class Server {
 public:
  // Listens and serves. `tls`: null for plain HTTP; outlives the server. kInvalid: the address;
  // kUnavailable: it is taken or may not be used.
  static Result<std::unique_ptr<Server>> Start(ServeOptions options, const TlsIdentity* tls,
                                               ServeHandler handler);
  // Stop().
  ~Server();

  uint16_t port() const;
  // Takes no more connections, ends those that are silent, and lets the others finish their answer.
  void Stop();

  struct Counts {
    uint64_t connections = 0;  // accepted
    uint64_t open = 0;         // now
    uint64_t requests = 0;     // answered
    uint64_t refused = 0;      // that were no good HTTP, too large or too slow
    uint64_t handshakes_failed = 0;
  };
  Counts counts() const;

 private:
  class Core;
  explicit Server(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_SERVE_SERVER_H_
