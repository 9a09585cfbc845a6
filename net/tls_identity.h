// What a server shows to its clients: a certificate and its key. May be exchanged at any time: each
// handshake takes what is there when its connection begins, and connections that are there keep
// what they have. Thread safe.
#ifndef BATON_NET_TLS_IDENTITY_H_
#define BATON_NET_TLS_IDENTITY_H_

#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace baton::net {

class TlsIdentity {
 public:
  // PEM: the certificate, then those between it and its authority; and its key. kInvalid: what is
  // wrong with them; what was there stays.
  Result<void> Set(const std::string& certificates, const std::string& key);
  // Null before the first Set().
  std::shared_ptr<boost::asio::ssl::context> context() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace baton::net

#endif  // BATON_NET_TLS_IDENTITY_H_
