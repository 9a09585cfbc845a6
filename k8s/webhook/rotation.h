// When the webhook's certificates are made, published, served and dropped. Pure: time is an
// argument, and publishing is the caller's. Clocks may be set: what is not good by the new time is
// replaced at once, and what was published stays so.
//
//   made ──▶ its authority is published ──▶ (propagation) ──▶ served ──▶ (propagation) ──▶ the old
//                                                                        authority is dropped
//
// So whoever knows any bundle of the last `propagation` trusts whatever is served.
#ifndef BATON_K8S_WEBHOOK_ROTATION_H_
#define BATON_K8S_WEBHOOK_ROTATION_H_

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/webhook/certificates.h"

namespace baton::k8s {

struct RotationOptions {
  std::vector<std::string> names;  // of the server
  // Its own, and no other's that runs. Who is started again by the same name takes the authorities
  // of the one before out of the bundles.
  std::string replica;
  Duration validity =
      std::chrono::hours(7 * 24);  // a certificate is replaced after two thirds of it
  // From a bundle being written until every API server goes by it. Less than a tenth of validity.
  Duration propagation = std::chrono::seconds(20);
};

class Rotation {
 public:
  explicit Rotation(RotationOptions options) : options_(std::move(options)) {}

  // To be called often, at the latest each quarter of `propagation`. kInternal: no certificate
  // could be made; what was served still is, and the next call tries again.
  Result<void> Step(WallTime now);
  // All bundles have wanted(), and no other of this replica, now.
  void Published(WallTime now);

  // This replica's authorities that must be in the bundles.
  std::vector<std::string> wanted() const;
  // Changes whenever they do.
  uint64_t version() const { return version_; }
  // What to show to clients; null before the first Step(). The first certificate is served at once.
  const ServingCertificate* serving() const { return serving_ ? &*serving_ : nullptr; }
  // Clients that know the bundle trust what is served.
  bool ready(WallTime now) const;

 private:
  RotationOptions options_;
  std::optional<ServingCertificate> serving_;
  std::optional<WallTime> serving_published_;
  std::optional<ServingCertificate> next_;
  std::optional<WallTime> next_published_;
  std::string old_authority_;  // of what was served before
  WallTime served_since_{0};
  WallTime stepped_{0};  // the last Step()
  uint64_t version_ = 0;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_ROTATION_H_
