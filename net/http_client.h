// An HTTP client of one server, over http (of this machine only) or https. Calls block, until their
// deadline at most; connections are kept and used again, at most so many at once. What runs or
// waits ends soon after Stop().
//
// What is sent again: any request once with the token read again, after a 401; and one that is safe
// to repeat once, at once, where a kept connection turns out to have been closed by the server.
//
// Thread safe.
#ifndef BATON_NET_HTTP_CLIENT_H_
#define BATON_NET_HTTP_CLIENT_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "net/bearer_token.h"
#include "net/client_connection.h"
#include "net/tls.h"
#include "net/url.h"

namespace baton::net {

struct HttpClientOptions {
  std::string url;                // "https://10.96.0.1:443/prefix"
  std::string server;             // what errors call it: "the API server"
  std::string user_agent;         // printable
  ClientTlsOptions tls = {};      // of https
  std::string token = {};         // a bearer token, until one is read from the file; or none
  std::string token_file = {};    // is read again once a minute and after each 401; or none
  uint32_t connections_max = 16;  // beside those of Follow(); further calls wait
};

struct HttpCall {
  const char* method = "GET";
  std::string target;  // with its query; begins with "/"
  std::string body = {};
  const char* content_type = nullptr;  // of the body; null: there is none
  bool repeatable = true;              // doing it twice is as good as once
};

class HttpClient {
 public:
  // Reads certificates. kInvalid, kNotFound, kInternal: what is wrong with the options.
  static Result<std::unique_ptr<HttpClient>> Make(HttpClientOptions options);
  // Nothing of this runs any more.
  ~HttpClient() = default;

  // A whole answer, of any status, whose body is `body_max` bytes at most. `stop` ends it as Stop()
  // does, with kAborted.
  HttpResult<HttpAnswer> Ask(const HttpCall& call, size_t body_max, Instant deadline,
                             const std::stop_token& stop = {});

  // An answer that goes on, on a connection of its own. Its header must come within `opening`. Of
  // one of status 200 `on_piece` gets the body as it comes, and returns whether to go on; silence
  // longer than `silence` is a kTimeout. Any other answer is whole, but for what is beyond 1 MiB.
  HttpResult<HttpAnswer> Follow(const HttpCall& call, Duration opening, Duration silence,
                                const std::stop_token& stop,
                                const std::function<bool(std::string_view)>& on_piece);

  // Waits. False: the deadline, Stop() or `stop` comes before.
  bool Pause(Duration duration, Instant deadline, const std::stop_token& stop);

  // Every call, now and later, ends soon with kAborted. From any thread.
  void Stop();
  bool stopped() const { return stop_.stop_requested(); }

 private:
  struct Kept {
    std::unique_ptr<ClientConnection> connection;
    Instant since{};
  };

  HttpClient(HttpClientOptions options, HttpUrl url, std::unique_ptr<ClientTls> tls);
  std::string TextOf(const HttpCall& call);
  // Runs `talk` on the connection, which is opened first where it is new.
  template <class Talk>
  HttpResult<HttpAnswer> On(ClientConnection& connection, bool open, Instant deadline,
                            const std::stop_token& stop, const Talk& talk);
  // A kept connection, or one that is to be opened. Null: all were busy until the deadline, or
  // Stop() or `stop` came before.
  std::unique_ptr<ClientConnection> Take(Instant deadline, const std::stop_token& stop, bool& kept);
  void GiveBack(std::unique_ptr<ClientConnection> connection, bool others_are_stale);

  const HttpClientOptions options_;
  const HttpUrl url_;
  const std::unique_ptr<ClientTls> tls_;  // null: plain
  BearerToken token_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Kept> idle_;  // under mutex_, as what follows
  size_t taken_ = 0;
};

}  // namespace baton::net

#endif  // BATON_NET_HTTP_CLIENT_H_
