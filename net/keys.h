// CURVE key pairs for the link between baton-frontend and batond, as ZeroMQ writes them: 40
// characters of Z85 for 32 bytes. A secret key's file holds both keys, `PATH.pub` only the public
// one, which is what [zmq.nodes] of the other side lists.
// Thread safe: no state.
#ifndef BATON_NET_KEYS_H_
#define BATON_NET_KEYS_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::net {

struct KeyPair {
  std::string public_key;  // 40 characters of Z85
  std::string secret_key;
};

// A fresh pair, in memory.
Result<KeyPair> MakeKeyPair();
// Writes a fresh pair: `path` (mode 0600) and `path`.pub (mode 0644). kExists when `path` is there
// already: a key is never overwritten.
Result<void> GenerateKeyPair(const std::string& path);
// Reads a file that GenerateKeyPair wrote. kDenied when others than its owner may read it.
Result<KeyPair> ReadKeyPair(const std::string& path);
// Whether `text` is 40 characters of Z85.
bool IsPublicKey(std::string_view text);

}  // namespace baton::net

#endif  // BATON_NET_KEYS_H_
