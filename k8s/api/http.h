// HTTP/1.1 as a client over a Stream: one exchange after the other. Not thread safe.
#ifndef BATON_K8S_API_HTTP_H_
#define BATON_K8S_API_HTTP_H_

#include <memory>
#include <string>
#include <string_view>

#include "k8s/api/stream.h"

namespace baton::k8s {

struct HttpAnswer {
  int status = 0;
  Duration retry_after{0};  // of the field Retry-After in seconds; dates are ignored
  std::string body;
};

class HttpExchange {
 public:
  explicit HttpExchange(Stream& stream);
  ~HttpExchange();

  // A whole request, and the whole of its answer, whose body is `body_max` bytes at most.
  StreamResult<HttpAnswer> Ask(std::string_view request, size_t body_max, Instant deadline);

  // The same in pieces: the answer's header, then its body as it comes. An empty piece is its end.
  StreamResult<HttpAnswer> Begin(std::string_view request, Instant deadline);
  StreamResult<std::string> Next(Instant deadline);

  // After the end of an answer: whether another request may follow.
  bool reusable() const { return reusable_; }
  // Whether anything of the answer to the last request has come.
  bool heard() const { return heard_; }

 private:
  struct Parser;
  StreamResult<void> Step(Instant deadline);
  StreamResult<void> ReadHeader(std::string_view request, Instant deadline);

  Stream& stream_;
  std::unique_ptr<Parser> parser_;
  std::string in_;  // read and not parsed
  bool reusable_ = false;
  bool heard_ = false;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_HTTP_H_
