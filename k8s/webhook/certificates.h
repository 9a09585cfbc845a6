// The webhook's own certificates: made in memory, written nowhere. Thread safe.
#ifndef BATON_K8S_WEBHOOK_CERTIFICATES_H_
#define BATON_K8S_WEBHOOK_CERTIFICATES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace baton::k8s {

// Since 1970, UTC: what certificates speak of.
using WallTime = Duration;
WallTime WallNow();

// An authority that has signed this one certificate and nothing else: its key is gone.
struct ServingCertificate {
  std::string authority;    // PEM
  std::string certificate;  // PEM
  std::string key;          // PEM
  WallTime not_before{0};
  WallTime not_after{0};
};

// For a server of these names (DNS names, or addresses). P-256. Good from a minute before `now`,
// for clocks differ, until `now` + `validity`. `replica`: whose it is, as its authority says; ASCII
// without spaces, at most kReplicaMax bytes. kInvalid: a name. kInternal: OpenSSL has refused.
inline constexpr size_t kReplicaMax = 253;
Result<ServingCertificate> MakeServingCertificate(const std::vector<std::string>& names,
                                                  const std::string& replica, WallTime now,
                                                  Duration validity);

// A list of authorities (PEM) as it should be: what is in `bundle` and has not expired, and
// `wanted`. Of the replica whose these are there is no other in it: it has replaced that one, or
// was started again since, and the key is gone. At most kBundleMax, of which those go first that
// expire first and are not wanted. What is no certificate is left out. The same text comes back
// where nothing is to be done.
inline constexpr size_t kBundleMax = 64;
std::string MergedBundle(const std::string& bundle, const std::vector<std::string>& wanted,
                         WallTime now);
// How many certificates are in it.
size_t BundleSize(const std::string& bundle);

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_CERTIFICATES_H_
