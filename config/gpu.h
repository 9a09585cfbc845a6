// What holds of a [[gpu]] of the file.
#ifndef BATON_CONFIG_GPU_H_
#define BATON_CONFIG_GPU_H_

#include "base/result.h"
#include "devmgr/inventory.h"

namespace baton::config {

// kInvalid with a sentence: what is wrong with it and what is accepted. NVIDIA's need a uuid; those
// of other vendors also a name, by which pods ask for them, and an environment, by which programs
// find them.
Result<void> CheckGpu(const devmgr::GpuInfo& gpu);

}  // namespace baton::config

#endif  // BATON_CONFIG_GPU_H_
