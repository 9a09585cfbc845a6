// Batches of usage: from a node's batond, and from the spool.
#include "ledger/ledger.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(batch) {
  const auto batch = ledger::DecodeBatch(input);
  if (!batch) return;
  const std::string bytes = ledger::EncodeBatch(*batch);
  const auto again = ledger::DecodeBatch(bytes);
  BATON_CHECK(again);
  BATON_CHECK(ledger::EncodeBatch(*again) == bytes);
}

}  // namespace
}  // namespace baton::fuzz
