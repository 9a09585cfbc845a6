// HTTP as text, for sockets that read and write for themselves: a request at the beginning of what
// came, and an answer as it is sent.
#ifndef BATON_NET_HTTP_TEXT_H_
#define BATON_NET_HTTP_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "net/message.h"

namespace baton::net {

// Whether a line, without its "\n", begins a request of HTTP/1.
bool BeginsRequest(std::string_view line);

struct RequestText {
  size_t size = 0;   // bytes of `text` that it takes; 0: it is not complete, and more may come
  size_t needs = 1;  // bytes before which another look is in vain, where it is not complete
  // Path and query decoded, as by ParseTarget().
  HttpRequest request;
  bool keep_alive = true;                 // whether another may follow on the connection
  std::optional<HttpResponse> refusal{};  // it is none that can be read, and the connection is over
};
// The request at the beginning of `text`: its header has at most 8 KiB, and its body a length. One
// that is longer than `bytes_max` as a whole is refused.
RequestText ReadRequest(std::string_view text, size_t bytes_max);

// `response` with its header fields. `produce` is not looked at.
std::string ResponseText(const HttpResponse& response, bool keep_alive);

}  // namespace baton::net

#endif  // BATON_NET_HTTP_TEXT_H_
