// The bearer token of a client. One from a file is read again when the file changes, once a minute,
// and when the server has refused it: kubelets replace tokens before they expire.
//
// Thread safe.
#ifndef BATON_NET_BEARER_TOKEN_H_
#define BATON_NET_BEARER_TOKEN_H_

#include <sys/stat.h>

#include <mutex>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/time.h"

namespace baton::net {

class BearerToken {
 public:
  // `file` empty: always `text`, which may be empty.
  BearerToken(std::string text, std::string file)
      : text_(std::move(text)), file_(std::move(file)) {}

  // Whether there is such a file, of a size that a token has.
  static Result<void> Check(const std::string& file);

  std::string Get();
  void Refused();

 private:
  void Read();

  std::mutex mutex_;
  std::string text_;
  const std::string file_;
  struct stat seen_ {};
  Instant read_at_{};
};

}  // namespace baton::net

#endif  // BATON_NET_BEARER_TOKEN_H_
