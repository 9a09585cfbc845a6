// How an HTTP server is configured, and what must hold. Free of Asio, for configurations.
#ifndef BATON_NET_OPTIONS_H_
#define BATON_NET_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace baton::net {

struct HttpOptions {
  // "127.0.0.1:7412", "[::1]:7412", "0.0.0.0:7412"; port 0: a free one; empty: no server. Addresses
  // other than loopback need all three files below.
  std::string listen = "127.0.0.1:7412";
  // One line, at least 16 visible ASCII characters, which requests must bring ("Authorization:
  // Bearer ..."). Nobody but its owner may read the file.
  std::string token_file;
  // PEM: the certificate with its chain, and its key. A P-256 key makes a connection ten times
  // cheaper than an RSA one. Others must not be able to read the key.
  std::string certificate_file;
  std::string key_file;
  // On loopback, what a browser may call this server beside localhost, 127.x.x.x and [::1]: names
  // of a proxy in front of it. Others are refused, or a web page could point its own name here and
  // read everything (DNS rebinding).
  std::vector<std::string> hosts;

  // Serves programs, not people: requests of any method and with bodies, from all who can connect,
  // at any address, whatever Host they name and without a token.
  bool for_programs = false;

  // When there are as many connections, the one that has been silent longest makes room.
  uint32_t connections_max = 256;
  // Readers of server-sent events among them.
  uint32_t streams_max = 64;
  // A longer request is refused. Only programs' requests have bodies.
  uint32_t header_bytes_max = 16 << 10;
  uint32_t body_bytes_max = 4 << 20;
  // Of all bodies that are read or answered at once. Those of 64 KiB at most are not counted, so
  // that many large ones cannot keep out the usual ones; what is beyond is refused with 503.
  uint32_t bodies_bytes_max = 8 << 20;
  // Threads that make answers: HttpServer::Service, HttpResponse::produce.
  uint32_t workers = 1;
  // From the beginning of a connection, or its TLS handshake, to its first byte.
  Duration first_timeout = std::chrono::seconds(10);
  // From the first byte of a request to its last; and for a TLS handshake.
  Duration request_timeout = std::chrono::seconds(10);
  // Between two requests of a connection.
  Duration idle_timeout = std::chrono::seconds(60);
  // For a handler to respond.
  Duration answer_timeout = std::chrono::seconds(30);
  // For the client to read an answer.
  Duration write_timeout = std::chrono::seconds(60);
  // A comment in a stream of events that had none for so long.
  Duration heartbeat = std::chrono::seconds(15);
  // A reader of events that is further behind is dropped. It connects again.
  uint32_t stream_backlog = 16;
  // What is being answered has so long when the server stops.
  Duration stop_timeout{0};

  // Shows `v` each key of [http] (config/options.h): the ones up to `hosts`.
  template <class V>
  void Visit(V& v) {
    v.Text("listen", listen,
           "Address of page, API and /metrics, read-only; empty: none. Addresses other than "
           "loopback\nneed the three files.");
    v.Text("token_file", token_file, "File with the bearer token that every request needs.");
    v.Text("certificate_file", certificate_file, "TLS certificate: PEM, with the chain.");
    v.Text("key_file", key_file, "PEM, mode 0600.");
    v.Texts("hosts", hosts,
            "On loopback: names of a proxy in front of it, by which browsers may call it too.");
  }
};

// For the questions of API servers, schedulers, kubelets and Prometheus: `for_programs`, which keep
// their connections, may be answered slowly, and get their answer when the server stops.
HttpOptions ForPrograms(std::string listen);

struct ListenAddress {
  std::string host;  // numeric, without brackets
  uint16_t port = 0;
  bool loopback = false;
};

// kInvalid: a sentence that begins with the text and says what is accepted.
Result<ListenAddress> ParseListen(const std::string& text);
// Where people find such a server that listens on `port`, for a log. One that listens on all
// addresses is called by the name of its machine, `host`.
std::string UrlOf(const HttpOptions& options, uint16_t port, const std::string& host);
// What must hold between options; reads no files. kInvalid.
Result<void> CheckHttpOptions(const HttpOptions& options);
// The token in a file. kNotFound, kDenied (others can read it), kInvalid.
Result<std::string> ReadToken(const std::string& path);
// Whether the file is there, and only its owner (and, if so wished, its group) can read it.
Result<void> CheckSecretFile(const std::string& path, bool group_may_read);

}  // namespace baton::net

#endif  // BATON_NET_OPTIONS_H_
