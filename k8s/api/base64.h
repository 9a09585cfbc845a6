// Base64 (RFC 4648, 4), as patches and certificates are written. Thread safe.
#ifndef BATON_K8S_API_BASE64_H_
#define BATON_K8S_API_BASE64_H_

#include <string>

namespace baton::k8s {

std::string Base64(const std::string& bytes);
// Empty where it is none.
std::string FromBase64(const std::string& text);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_BASE64_H_
