// Certificates for tests: an authority of one's own and what it signs. Keys are P-256.
#ifndef BATON_TESTS_K8S_STAND_IN_CERTIFICATES_H_
#define BATON_TESTS_K8S_STAND_IN_CERTIFICATES_H_

#include <string>

namespace baton::k8s::testing {

struct KeyPair {
  std::string certificate;  // PEM
  std::string key;          // PEM
};

KeyPair MakeAuthority(const std::string& name);
// `names`: "DNS:localhost,IP:127.0.0.1"; empty: none (a client's). It ends in `valid_s` seconds,
// which may be negative.
KeyPair MakeCertificate(const KeyPair& authority, const std::string& common_name,
                        const std::string& names, long valid_s = 86'400);

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_STAND_IN_CERTIFICATES_H_
