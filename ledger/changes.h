// Who changed what: shares, weights, prices, GPUs that are cordoned. Kept beside the books, for
// `baton log`.
#ifndef BATON_LEDGER_CHANGES_H_
#define BATON_LEDGER_CHANGES_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ledger/wall_time.h"

namespace baton::ledger {

// Who a change of a file is of.
inline constexpr const char* kConfiguration = "configuration";

// Texts are cut at 512 bytes and stored as UTF-8, `was` and `is` at 16 KiB.
struct Change {
  WallTime at;
  std::string node;    // of the daemon that did it
  std::string who;     // a user of the machine; "node N", of a node's operator; kConfiguration
  std::string action;  // "create", "set", "move", "delete", "cordon", "uncordon", "release" ...
  std::string kind;    // of the object: "pod", "gpu", "team", "price" ...
  std::string object;  // NAMESPACE/NAME of a pod, or its NAME; a GPU's uuid; a team's path ...
  // What was so before and what is so after, as JSON objects; empty: it was, or is, not there.
  std::string was;
  std::string is;
};

// What is configured: by kind and object, as Change::is.
using Settings = std::map<std::pair<std::string, std::string>, std::string>;

struct ChangesQuestion {
  WallTime from;
  WallTime to;  // exclusive
  // Only these; empty: all.
  std::string who = {}, kind = {}, object = {};
  // Of a pod's name without a namespace that in each, of a team those below it too.
  bool wide = false;
  size_t most = 1'000;  // the newest ones
};

// So many are kept; the oldest go first.
inline constexpr int64_t kChangesMax = 200'000;

}  // namespace baton::ledger

#endif  // BATON_LEDGER_CHANGES_H_
