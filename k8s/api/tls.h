// What a client needs for TLS: whom it trusts and what it shows. Thread safe once made.
#ifndef BATON_K8S_API_TLS_H_
#define BATON_K8S_API_TLS_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "k8s/api/cluster_config.h"

struct ssl_st;
struct ssl_ctx_st;

namespace baton::k8s {

class ClientTls {
 public:
  // Reads certificates and key of `config`. kNotFound, kInvalid: which, and what is wrong.
  static Result<std::unique_ptr<ClientTls>> Make(const ClusterConfig& config);
  ClientTls(const ClientTls&) = delete;
  ClientTls& operator=(const ClientTls&) = delete;
  ~ClientTls();

  ssl_ctx_st* context() const { return context_; }
  // Names to send and to verify, for a connection to `host`. False: OpenSSL refused.
  bool Prepare(ssl_st* tls, const std::string& host) const;

 private:
  ClientTls() = default;
  ssl_ctx_st* context_ = nullptr;
  std::string server_name_;
  bool verify_ = true;
};

// A file's text, at most `max` bytes. `what` names it in the error: "the certificate".
Result<std::string> ReadTextFile(const std::string& path, const std::string& what, size_t max);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_TLS_H_
