// The webhook as it runs: a server that answers reviews, and a thread that keeps its certificate
// and the list of teams as they should be.
#ifndef BATON_K8S_WEBHOOK_WEBHOOK_H_
#define BATON_K8S_WEBHOOK_WEBHOOK_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/webhook/admission.h"
#include "k8s/webhook/rotation.h"
#include "net/options.h"

namespace baton::k8s {

class Client;

// Makes every bundle hold `wanted`, by MergedBundle(). An error is said once and tried again.
using PublishAuthorities = std::function<Result<void>(const std::vector<std::string>& wanted)>;
// Into caBundle of all webhooks in the MutatingWebhookConfiguration and the
// ValidatingWebhookConfiguration of that name, of which one at least is there. Replicas may do so
// at once: each write is of the version that was read. `client` outlives it.
PublishAuthorities PublishToConfigurations(Client& client, std::string configuration);

struct WebhookOptions {
  net::HttpOptions serve = net::ForPrograms("0.0.0.0:8443");
  // Plain HTTP for /metrics, /healthz and /readyz, which `serve` has too; empty: none.
  std::string metrics_listen;
  AdmissionOptions admission;
  std::string teams_file;  // as batond's; read again when it changes. Empty: any team
  // PEM files that somebody else renews (cert-manager); read again when they change. Empty: it
  // makes its own, as `rotation` says, and publishes them by `publish`.
  std::string certificate_file;
  std::string key_file;
  RotationOptions rotation;
  PublishAuthorities publish;
  // Between two looks at what was published, which others may have overwritten.
  Duration publish_every = std::chrono::seconds(10);
  Duration files_every = std::chrono::seconds(2);
};

class Webhook {
 public:
  // kInvalid, kNotFound: an option, or a file. kUnavailable: cannot listen.
  static Result<std::unique_ptr<Webhook>> Start(WebhookOptions options);
  ~Webhook();

  uint16_t port() const;
  uint16_t metrics_port() const;  // 0: none
  // API servers that know the bundle trust the certificate.
  bool ready() const;
  // What was served before is no more: how often.
  uint64_t rotations() const;
  // Not ready any more, and serves on: until API servers have heard that it goes.
  void Leave();
  // Lets what is being answered finish.
  void Stop();

 private:
  class Impl;
  explicit Webhook(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_WEBHOOK_H_
