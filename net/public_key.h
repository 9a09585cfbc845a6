// Public keys of CURVE as texts: 40 characters of Z85 (ZeroMQ's RFC 32) for 32 bytes.
// Thread safe.
#ifndef BATON_NET_PUBLIC_KEY_H_
#define BATON_NET_PUBLIC_KEY_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::net {

// Whether `text` is one: no longer, no shorter, and of bytes that there are.
bool IsPublicKey(std::string_view text);
// Reads a file that holds one alone, such as `baton keygen` writes as PATH.pub. kInvalid: it does
// not.
Result<std::string> ReadPublicKey(const std::string& path);

}  // namespace baton::net

#endif  // BATON_NET_PUBLIC_KEY_H_
