// What pods asked for, and from when to when, by the log of changes (ledger/changes.h).
//
// Pure and thread safe.
#ifndef BATON_LEDGER_TERMS_H_
#define BATON_LEDGER_TERMS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ledger/changes.h"

namespace baton::ledger {

// A time in which nothing of what a pod asked for changed.
struct Term {
  std::string pod;   // NAMESPACE/NAME, or NAME
  std::string name;  // NAME, in which a slash may be too
  std::string team;  // TeamPath(), "" where it named none
  // Nothing: it was there already when the log began, or is gone, and the log does not say when.
  std::optional<WallTime> from;
  std::optional<WallTime> to;
  bool present = false;           // it is there still: `to` is nothing
  std::vector<std::string> gpus;  // uuids; empty: the log does not say
  int64_t request = 0;            // millionths of a GPU; 0: none, as with idle priority
  int64_t limit = 1'000'000;
  std::string priority = "normal";  // "high", "idle"
  std::string memory;               // its cap on each GPU: bytes, or "25%"; "": none
  std::string asked;                // all of it, as Change::is
  std::string who, action;          // of the change that it began with; "" where that is not known
};

// By pod, then time; pods of one name on several nodes one after the other. `changes`: those of
// kind "pod", in any order of different moments, of one moment the newest first. `present`: the
// pods that are there now by NAMESPACE/NAME, each as Change::is; all of one daemon, which writes
// its changes as those of `node`.
std::vector<Term> TermsOf(const std::vector<Change>& changes,
                          const std::map<std::string, std::string>& present,
                          const std::string& node);
// Change::was or is, which this daemon or one of another version wrote; null: it was not there.
nlohmann::json ObjectIn(const std::string& text);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_TERMS_H_
