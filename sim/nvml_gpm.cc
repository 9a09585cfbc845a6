// libnvidia-ml.so.1: GPU performance metrics (GPM). A sample has the counters of a GPU or a MIG
// instance; two of them make metrics, of which there are the use of SMs and of memory bandwidth.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/compute_engine.h"
#include "sim/models.h"
#include "sim/nvml.h"

namespace baton::sim {
namespace {

// Samples that are closer say nothing: the driver's counters move so often.
constexpr int64_t kRefreshNs = 100'000'000;
constexpr unsigned int kGraphicsUtil = 1, kSmUtil = 2, kMemoryUtil = 10;
constexpr unsigned int kMetricsMax = 333;

struct GpmSample {
  Device* device = nullptr;  // null: nothing was read yet
  unsigned int instance = 0;
  int64_t at = 0;
  InstanceUse use{};
};
struct NvmlGpmMetric {
  unsigned int id;
  int result;
  double value;
  const char *short_name, *long_name, *unit;
};
struct NvmlGpmMetrics {
  unsigned int version, count;
  GpmSample *one, *other;
  NvmlGpmMetric metrics[kMetricsMax];
};
struct NvmlGpmSupport {
  unsigned int version, supported;
};
static_assert(sizeof(NvmlGpmMetric) == 40 && sizeof(NvmlGpmMetrics) == 24 + 40 * kMetricsMax);

std::mutex samples_mutex;
std::vector<GpmSample*>& Samples() {
  static auto& samples = *new std::vector<GpmSample*>;
  return samples;
}
bool IsSample(const GpmSample* sample) {
  return std::find(Samples().begin(), Samples().end(), sample) != Samples().end();
}

bool HasGpm(Device* device) {
  const Model* model = FindModel(device->file().card.model);
  return model != nullptr && model->gpm;
}

}  // namespace
}  // namespace baton::sim

using namespace baton::sim;  // NOLINT: the entry points below are C

SIM_NVML(nvmlGpmQueryDeviceSupport, (void* handle, NvmlGpmSupport* support)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  if (support == nullptr) return kInvalidArgument;
  if (support->version != 1) return kArgumentVersionMismatch;
  support->supported = HasGpm(device) ? 1 : 0;
  return kSuccess;
}

SIM_NVML(nvmlGpmSampleAlloc, (GpmSample * *sample)) {
  if (NvmlReturn r = InjectedAnywhere(__func__)) return r;
  if (sample == nullptr) return kInvalidArgument;
  const std::lock_guard lock(samples_mutex);
  Samples().push_back(new GpmSample);
  *sample = Samples().back();
  return kSuccess;
}

SIM_NVML(nvmlGpmSampleFree, (GpmSample * sample)) {
  const std::lock_guard lock(samples_mutex);
  if (!IsSample(sample)) return kInvalidArgument;
  std::erase(Samples(), sample);
  delete sample;
  return kSuccess;
}

SIM_NVML(nvmlGpmMigSampleGet, (void* handle, unsigned int id, GpmSample* sample)) {
  Device* device;
  if (NvmlReturn r = Enter(__func__, handle, &device)) return r;
  const std::lock_guard lock(samples_mutex);
  if (!IsSample(sample)) return kInvalidArgument;
  if (!HasGpm(device) || device->file().card.mig_mode == 0) return kNotSupported;
  Device::Session session(device);
  const auto& slots = session.card().instances;
  const auto* slot = std::find_if(std::begin(slots), std::end(slots), [&](const auto& s) {
    return s.serial != 0 && GpuInstanceId(*device, s) == id;
  });
  if (slot == std::end(slots)) return kNotFound;
  *sample = {device, id, device->file().now.Signed(),
             UseOfInstance(device->file(), static_cast<uint32_t>(slot - std::begin(slots)))};
  return kSuccess;
}

SIM_NVML(nvmlGpmMetricsGet, (NvmlGpmMetrics * metrics)) {
  if (NvmlReturn r = InjectedAnywhere(__func__)) return r;
  if (metrics == nullptr || metrics->count > kMetricsMax) return kInvalidArgument;
  if (metrics->version != 1) return kArgumentVersionMismatch;
  const std::lock_guard lock(samples_mutex);
  if (!IsSample(metrics->one) || !IsSample(metrics->other)) return kInvalidArgument;
  const GpmSample &from = *metrics->one, &to = *metrics->other;
  if (from.device == nullptr || from.device != to.device || from.instance != to.instance) {
    return kInvalidArgument;
  }
  const auto percent = [&](uint64_t first, uint64_t last) {
    if (to.at - from.at < kRefreshNs) return std::numeric_limits<double>::quiet_NaN();
    return 100 * static_cast<double>(last - first) / static_cast<double>(to.at - from.at);
  };
  for (unsigned int i = 0; i < metrics->count; ++i) {
    NvmlGpmMetric& metric = metrics->metrics[i];
    const bool memory = metric.id == kMemoryUtil;
    if (!memory && metric.id != kSmUtil && metric.id != kGraphicsUtil) {
      metric.result = kNotSupported;
      continue;
    }
    metric.result = kSuccess;
    metric.value =
        memory ? percent(from.use.copying, to.use.copying) : percent(from.use.busy, to.use.busy);
    metric.short_name = metric.long_name = metric.unit = nullptr;
  }
  return kSuccess;
}
