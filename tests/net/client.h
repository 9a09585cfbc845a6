// A client of HTTP on a bare socket: sends what it is told, however wrong, and reads what comes.
#ifndef BATON_TESTS_NET_CLIENT_H_
#define BATON_TESTS_NET_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

struct ssl_st;
struct ssl_ctx_st;

namespace baton::net {

// How long anything may take before a test says that it did not happen.
inline constexpr int kPatienceMs = 20'000;

struct Answer {
  int status = 0;                             // 0: none came
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;
  const std::string& operator[](const std::string& name) { return fields[name]; }
};

class Client {
 public:
  // Connects to 127.0.0.1. `tls`: takes whatever certificate there is.
  explicit Client(uint16_t port, bool tls = false, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;

  bool connected() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // False when the server has closed the connection.
  bool Send(std::string_view bytes);
  // The next answer; of one to HEAD the header only.
  Answer Read(bool head = false);
  // Sends a GET and reads its answer. `fields`: lines with "\r\n".
  Answer Get(const std::string& target, const std::string& fields = "");
  // Reads until `text` has come, or the end. What was read.
  std::string ReadUntil(std::string_view text);
  // Whether the server closes the connection; what it still says is read.
  bool AwaitEnd();
  // What was read and not used.
  std::string rest;

 private:
  bool More();
  int fd_ = -1;
  ssl_ctx_st* context_ = nullptr;
  ssl_st* tls_ = nullptr;
};

// A request of its own connection.
Answer Get(uint16_t port, const std::string& target, const std::string& fields = "");

}  // namespace baton::net

#endif  // BATON_TESTS_NET_CLIENT_H_
