// Images of modules, as the hook reads them in the programs of pods.
#include "hook/image.h"

#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(image) { hook::VariableBytes(input.data(), input.size()); }

}  // namespace
}  // namespace baton::fuzz
