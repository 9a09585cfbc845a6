// Which GPUs of its own machine a batond manages.
// Thread safe: no state.
#ifndef BATON_BACKEND_LOCAL_GPUS_H_
#define BATON_BACKEND_LOCAL_GPUS_H_

#include <vector>

#include "config/options.h"
#include "devmgr/machine/nvml.h"

namespace baton::backend {

// server.local_gpus.
bool ManagesLocalGpus(const config::Options& options);
// Whether the configuration says which of NVIDIA's are used.
bool NamesNvidias(const config::Options& options);
// Those of the configuration, and NVML's where it names none of NVIDIA's. One that is configured by
// its uuid alone has the name that NVML says: prices and weights go by it.
std::vector<devmgr::GpuInfo> LocalGpus(const config::Options& options, devmgr::Nvml& nvml);

}  // namespace baton::backend

#endif  // BATON_BACKEND_LOCAL_GPUS_H_
