// A receipt's file, as somebody hands it over.
#include "receipt/envelope.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

// What is verified is no longer so with one bit changed.
FUZZ_TARGET(receipt) {
  const auto opened = receipt::Verify(input);
  if (!opened) return;
  std::string changed(input);
  changed[opened->payload.size() % changed.size()] ^= 1;
  BATON_CHECK(!receipt::Verify(changed));
}

}  // namespace
}  // namespace baton::fuzz
