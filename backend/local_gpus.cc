#include "backend/local_gpus.h"

#include <algorithm>

namespace baton::backend {

bool ManagesLocalGpus(const config::Options& options) {
  const std::string& local = options.server.local_gpus;
  return local == "yes" || (local == "auto" && options.zmq.listen.empty());
}

bool NamesNvidias(const config::Options& options) {
  return std::any_of(options.gpus.begin(), options.gpus.end(),
                     [](const devmgr::GpuInfo& gpu) { return gpu.by_token(); });
}

std::vector<devmgr::GpuInfo> LocalGpus(const config::Options& options, devmgr::Nvml& nvml) {
  std::vector<devmgr::GpuInfo> gpus = options.gpus;
  if (!NamesNvidias(options)) {
    const std::vector<devmgr::GpuInfo> seen = nvml.Gpus();
    gpus.insert(gpus.begin(), seen.begin(), seen.end());
    return gpus;
  }
  const auto unnamed = [](const devmgr::GpuInfo& gpu) {
    return gpu.by_token() && gpu.name.empty();
  };
  if (std::none_of(gpus.begin(), gpus.end(), unnamed)) return gpus;
  for (const devmgr::GpuInfo& seen : nvml.Gpus()) {
    for (devmgr::GpuInfo& gpu : gpus) {
      if (unnamed(gpu) && gpu.uuid == seen.uuid) gpu.name = seen.name;
    }
  }
  return gpus;
}

}  // namespace baton::backend
