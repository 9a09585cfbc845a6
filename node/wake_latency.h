// How long idle processors of this machine may take to wake up. A hand-off wakes threads on
// processors that may have nothing else to do; one in a deep sleep takes up to a hundred
// microseconds to come back (PM QoS, Documentation/power/pm_qos_interface.rst of Linux).
#ifndef BATON_NODE_WAKE_LATENCY_H_
#define BATON_NODE_WAKE_LATENCY_H_

#include <string>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"

namespace baton::node {

inline constexpr const char* kCpuDmaLatency = "/dev/cpu_dma_latency";

// No more than `most`, in whole microseconds, at least one, for as long as the file is open. Thread
// safe. kDenied, kNotFound, kInternal: it stays as it is.
Result<UniqueFd> LimitWakeLatency(Duration most, const std::string& device = kCpuDmaLatency);

}  // namespace baton::node

#endif  // BATON_NODE_WAKE_LATENCY_H_
