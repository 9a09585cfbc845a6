#include "node/wake_latency.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace baton::node {

Result<UniqueFd> LimitWakeLatency(Duration most, const std::string& device) {
  const auto us = static_cast<int32_t>(std::max<int64_t>(1, Nanos(most) / 1'000));
  UniqueFd file(open(device.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() >= 0 && write(file.get(), &us, sizeof us) == sizeof us) return file;
  const ErrorCode code = errno == EACCES || errno == EPERM ? ErrorCode::kDenied
                         : errno == ENOENT                 ? ErrorCode::kNotFound
                                                           : ErrorCode::kInternal;
  return Fail(code, fmt::format("server.cpu_dma_latency has no effect: cannot write to {}: {}",
                                device, strerror(errno)));
}

}  // namespace baton::node
