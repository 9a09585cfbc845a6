// CURVE key pairs for the link between baton-frontend and batond, as ZeroMQ writes them: 40
// characters of Z85 for 32 bytes. A secret key's file holds both keys, `PATH.pub` only the public
// one, which is what [zmq.nodes] of the other side lists.
// Thread safe: no state.
#ifndef BATON_NET_KEYS_H_
#define BATON_NET_KEYS_H_

#include <map>
#include <string>

#include "base/result.h"
#include "net/public_key.h"

namespace baton::net {

struct KeyPair {
  std::string public_key;  // 40 characters of Z85
  std::string secret_key;
};

// A fresh pair, in memory.
Result<KeyPair> MakeKeyPair();
// Writes a fresh pair: `path` (mode 0600) and `path`.pub (mode 0644). kExists when `path` is there
// already: a key is never overwritten. A crash leaves the whole pair or none.
Result<void> GenerateKeyPair(const std::string& path);
// The same, where there is none yet: a pair that is there is kept, and its `path`.pub written anew
// where that differs. A file that holds no pair is moved aside (MoveAside()) before. Of several
// processes at once that find no file all end with the same pair. Whether it was made now.
Result<bool> KeepKeyPair(const std::string& path);
// Reads a file that GenerateKeyPair wrote. kDenied when others than its owner may read it.
Result<KeyPair> ReadKeyPair(const std::string& path);
// The other side's public key, as it is now: `key`, or where `file` is named, what that holds.
// Empty: there is none (yet).
std::string ServerKey(const std::string& key, const std::string& file);
// Reads a file of public keys by node, a line "NAME KEY" each; empty lines, and those that begin
// with #, are left out. kInvalid names the line.
Result<std::map<std::string, std::string>> ReadNodeKeys(const std::string& path);

}  // namespace baton::net

#endif  // BATON_NET_KEYS_H_
