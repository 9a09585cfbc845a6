#include "net/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "base/utf8.h"

namespace baton::net {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr size_t kLabelBytesMax = 256;

double Seconds(Duration length) { return std::chrono::duration<double>(length).count(); }

// What users write ends in labels: bounded, and never bytes that the whole scrape would fail by.
std::string LabelValue(const std::string& text) { return CutUtf8(text, kLabelBytesMax); }

// Families in the order in which they are begun.
class Families {
 public:
  // Begins one; what is added next belongs to it.
  void Counter(const char* name, const char* help) { Begin(name, help, MetricType::Counter); }
  void Gauge(const char* name, const char* help) { Begin(name, help, MetricType::Gauge); }
  void HistogramOf(const char* name, const char* help) { Begin(name, help, MetricType::Histogram); }

  void Add(const Labels& labels, double value) {
    ClientMetric metric;
    metric.label = labels;
    MetricFamily& family = families_.back();
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  void Add(const Labels& labels, const Histogram& histogram) {
    ClientMetric metric;
    metric.label = labels;
    uint64_t count = 0;
    metric.histogram.bucket.reserve(Histogram::kBounds);
    for (size_t i = 0; i < Histogram::kBounds; ++i) {
      count += histogram.counts()[i];
      metric.histogram.bucket.push_back({count, Seconds(Histogram::Bound(i))});
    }
    metric.histogram.sample_count = count + histogram.counts().back();
    metric.histogram.sample_sum = Seconds(histogram.sum());
    families_.back().metric.push_back(std::move(metric));
  }

  std::string Text() {
    // Without a sample the header would be about nothing.
    std::erase_if(families_, [](const MetricFamily& family) { return family.metric.empty(); });
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return std::move(out).str();
  }

 private:
  void Begin(const char* name, const char* help, MetricType type) {
    families_.push_back({name, help, type, {}});
  }
  std::vector<MetricFamily> families_;
};

// Entries with their labels; of several with the same labels only the first, since two samples of
// one series make a scrape invalid.
template <class Entry>
using Labelled = std::vector<std::pair<const Entry*, Labels>>;

template <class Entry, class LabelsOf>
Labelled<Entry> Label(const std::vector<Entry>& entries, size_t max, LabelsOf labels_of,
                      size_t& dropped) {
  Labelled<Entry> labelled;
  labelled.reserve(std::min(entries.size(), max));
  std::set<Labels> seen;
  for (const Entry& entry : entries) {
    if (labelled.size() < max) {
      Labels labels = labels_of(entry);
      for (auto& label : labels) label.value = LabelValue(label.value);
      if (seen.insert(labels).second) {
        labelled.emplace_back(&entry, std::move(labels));
        continue;
      }
    }
    ++dropped;
  }
  return labelled;
}

// One value of each entry, where it has one.
template <class Entry, class Value>
void AddAll(Families& families, const Labelled<Entry>& entries, Value value) {
  for (const auto& [entry, labels] : entries) {
    if (const std::optional<double> v = value(*entry)) families.Add(labels, *v);
  }
}

void AddGpus(Families& f, const Labelled<GpuMetrics>& gpus) {
  const auto all = [&](auto value) { AddAll(f, gpus, value); };
  f.Gauge("baton_gpu_allocated_ratio",
          "Sum of the requests of the pods on a GPU; 1 is the whole GPU.");
  all([](const GpuMetrics& g) { return g.allocated_ratio; });
  f.Gauge("baton_gpu_allocated_memory_bytes", "Sum of the memory caps of the pods on a GPU.");
  all([](const GpuMetrics& g) { return double(g.allocated_memory_bytes); });
  f.Gauge("baton_gpu_memory_bytes", "Memory of a GPU.");
  all([](const GpuMetrics& g) { return double(g.memory_bytes); });
  f.Gauge("baton_gpu_memory_used_bytes", "GPU memory allocated by attached pods.");
  all([](const GpuMetrics& g) { return double(g.memory_used_bytes); });
  f.Counter("baton_gpu_held_seconds_total", "Time in which a pod held the GPU's token.");
  all([](const GpuMetrics& g) { return Seconds(g.held); });
  f.Counter("baton_gpu_busy_seconds_total", "Held time in which the GPU executed.");
  all([](const GpuMetrics& g) { return Seconds(g.busy); });
  f.Counter("baton_gpu_idle_seconds_total",
            "Time in which no pod held the GPU's token or waited for it.");
  all([](const GpuMetrics& g) { return Seconds(g.idle); });
  f.Gauge("baton_gpu_held_ratio", "Fraction of the last 10 s in which the GPU's token was held.");
  all([](const GpuMetrics& g) { return g.held_ratio; });
  f.Gauge("baton_gpu_busy_ratio",
          "Fraction of the last 10 s in which the GPU executed for its holder.");
  all([](const GpuMetrics& g) { return g.busy_ratio; });
  f.Gauge("baton_gpu_sm_utilization_ratio", "Fraction of time in which kernels ran, from NVML.");
  all([](const GpuMetrics& g) { return g.sm_utilization_ratio; });
  f.Gauge("baton_gpu_memory_utilization_ratio",
          "Fraction of time in which memory was read or written, from NVML.");
  all([](const GpuMetrics& g) { return g.memory_utilization_ratio; });
  f.Counter("baton_gpu_energy_joules_total",
            "Energy that the GPU took, from NVML, since batond started.");
  all([](const GpuMetrics& g) { return g.energy_joules; });
  f.Counter("baton_gpu_idle_energy_joules_total",
            "The part of it taken while no pod held the token.");
  all([](const GpuMetrics& g) { return g.idle_energy_joules; });
  f.Gauge("baton_gpu_handoff_seconds", "Current cost of moving the GPU's token to another pod.");
  all([](const GpuMetrics& g) { return Seconds(g.handoff); });
  f.Counter("baton_gpu_handoffs_seconds_total",
            "Time in which the GPU stood still because its token moved, as hooks measured it.");
  all([](const GpuMetrics& g) { return Seconds(g.handoff_total); });
  f.Counter("baton_gpu_handoffs_total", "Number of moves of the GPU's token to another pod.");
  all([](const GpuMetrics& g) { return double(g.handoffs); });
  f.Counter("baton_gpu_tokens_sent_ahead_total",
            "Number of tokens that were sent while the holder before them drained.");
  all([](const GpuMetrics& g) { return double(g.sent_ahead); });
  f.Gauge("baton_gpu_waiting_pods",
          "Pods that wait for the GPU's token, below their limit and not paused.");
  all([](const GpuMetrics& g) { return double(g.waiting_pods); });
  f.Gauge("baton_gpu_unmanaged_processes", "Processes on the GPU that Baton does not manage.");
  all([](const GpuMetrics& g) { return double(g.unmanaged_processes); });
  f.Gauge("baton_gpu_hung", "1 if the holder of the GPU's token does not drain, else 0.");
  all([](const GpuMetrics& g) { return double(g.hung); });
  f.Gauge("baton_gpu_failed",
          "1 if the GPU has failed or is missing, and gets no more pods, else 0.");
  all([](const GpuMetrics& g) { return double(g.failed); });
  f.Gauge("baton_gpu_link_up",
          "0 if the link to the GPU's node is cut, else 1. No token moves without the link.");
  all([](const GpuMetrics& g) { return double(g.link_up); });
}

void AddPods(Families& f, const Labelled<PodMetrics>& pods, const Labelled<PodMetrics>& parts) {
  const auto all = [&](auto value) { AddAll(f, pods, value); };
  const auto all_and_parts = [&](auto value) {
    AddAll(f, pods, value);
    AddAll(f, parts, value);
  };
  f.Gauge("baton_pod_request_ratio", "Share of the GPU that the pod is guaranteed.");
  all([](const PodMetrics& p) { return p.request_ratio; });
  f.Gauge("baton_pod_limit_ratio", "Share of the GPU that the pod may not exceed.");
  all([](const PodMetrics& p) { return p.limit_ratio; });
  f.Gauge("baton_pod_achieved_ratio", "Share of the GPU that the pod had over the last 10 s.");
  all([](const PodMetrics& p) { return p.achieved_ratio; });
  f.Gauge("baton_pod_lag_seconds", "Held time that the pod is owed; negative if it is ahead.");
  all([](const PodMetrics& p) { return Seconds(p.lag); });
  f.Counter("baton_pod_gpu_held_seconds_total", "Time in which the pod held the GPU's token.");
  all([](const PodMetrics& p) { return Seconds(p.held); });
  f.Counter("baton_pod_gpu_busy_seconds_total", "Held time in which the GPU executed for the pod.");
  all([](const PodMetrics& p) { return Seconds(p.busy); });
  f.Counter("baton_pod_waited_seconds_total",
            "Time in which the pod waited for the GPU's token and did not hold it.");
  all([](const PodMetrics& p) { return Seconds(p.waited); });
  f.Counter("baton_pod_unmanaged_seconds_total",
            "Time in which the pod used the GPU without a token while no daemon answered.");
  all([](const PodMetrics& p) { return Seconds(p.unmanaged); });
  f.Gauge("baton_pod_memory_used_bytes", "GPU memory that the pod has allocated.");
  all([](const PodMetrics& p) { return double(p.memory_used_bytes); });
  f.Gauge("baton_pod_memory_cap_bytes",
          "GPU memory that the pod may allocate; absent without a cap.");
  all([](const PodMetrics& p) {
    return p.memory_cap_bytes != 0 ? std::optional(double(p.memory_cap_bytes)) : std::nullopt;
  });
  f.Counter("baton_pod_launches_total", "Number of kernels and copies that the pod launched.");
  all([](const PodMetrics& p) { return double(p.launches); });
  f.Counter("baton_pod_grants_total", "Number of times the pod was granted the GPU's token.");
  all([](const PodMetrics& p) { return double(p.grants); });
  f.Counter("baton_pod_revocations_total",
            "Number of times the GPU's token was revoked before its quota ended.");
  all([](const PodMetrics& p) { return double(p.revocations); });
  f.Counter("baton_pod_latency_waits_total",
            "Number of waits of a pod with a latency that ended with the GPU's token, since batond "
            "started; absent without a latency.");
  all([](const PodMetrics& p) {
    return p.latency ? std::optional(double(p.latency->waits)) : std::nullopt;
  });
  f.Counter("baton_pod_latency_late_total", "Number of those that were longer than the latency.");
  all([](const PodMetrics& p) {
    return p.latency ? std::optional(double(p.latency->late)) : std::nullopt;
  });
  f.Counter(
      "baton_pod_energy_joules_total",
      "Energy that the GPU took while the pod held it, by a fitted model, since batond started.");
  all([](const PodMetrics& p) { return p.energy_joules; });
  f.Counter("baton_pod_sm_busy_seconds_total",
            "Time in which SMs were busy with the pod's kernels, as NVML samples it, since batond "
            "started; absent where NVML does not tell.");
  all_and_parts([](const PodMetrics& p) { return p.sm_busy_seconds; });
  f.Counter("baton_pod_memory_busy_seconds_total",
            "Time in which the pod's kernels read or wrote device memory, as NVML samples it, "
            "since batond started; absent where NVML does not tell.");
  all_and_parts([](const PodMetrics& p) { return p.memory_busy_seconds; });
  f.HistogramOf("baton_pod_wait_seconds", "Length of each wait of the pod for the GPU's token.");
  for (const auto& [pod, labels] : pods) f.Add(labels, pod->waits);
  f.HistogramOf("baton_pod_hold_seconds", "Length of each hold of the GPU's token by the pod.");
  for (const auto& [pod, labels] : pods) f.Add(labels, pod->holds);
}

void AddTeams(Families& f, const Labelled<TeamMetrics>& teams) {
  const auto all = [&](auto value) { AddAll(f, teams, value); };
  f.Gauge("baton_team_fair_share_factor",
          "2^(-usage/shares) of the team; 0.5 if usage and shares agree.");
  all([](const TeamMetrics& t) { return t.fair_share_factor; });
  f.Gauge("baton_team_normalized_usage_ratio", "The team's fraction of all decayed usage.");
  all([](const TeamMetrics& t) { return t.normalized_usage_ratio; });
  f.Gauge("baton_team_normalized_shares_ratio", "The team's fraction of all shares.");
  all([](const TeamMetrics& t) { return t.normalized_shares_ratio; });
  f.Gauge("baton_team_budget_used_ratio",
          "GPU-hours that the team held in its last budget_period, of its budget.");
  all([](const TeamMetrics& t) { return t.budget_used_ratio; });
}

// A pod of Kubernetes is called "namespace/pod", or "namespace/pod/container" where several of its
// containers have shares. As labels these are what other exporters call them, so that metrics join.
Labels LabelsOf(const PodMetrics& p) {
  std::string pod = p.pod;
  std::string container;
  if (!p.name_space.empty() && pod.starts_with(p.name_space + "/")) {
    pod.erase(0, p.name_space.size() + 1);
    if (const size_t slash = pod.find('/'); slash != std::string::npos) {
      container = pod.substr(slash + 1);
      pod.resize(slash);
    }
  }
  Labels labels{
      {"device_uuid", p.gpu}, {"pod", pod}, {"namespace", p.name_space}, {"team", p.team}};
  if (!container.empty()) labels.push_back({"container", container});
  return labels;
}

}  // namespace

std::string MetricsText(const MetricsSnapshot& snapshot, const MetricsOptions& options) {
  size_t dropped = 0;
  const auto gpus = Label(
      snapshot.gpus, SIZE_MAX,
      [](const GpuMetrics& g) {
        return Labels{{"device_uuid", g.uuid}, {"model", g.model}, {"node", g.node}};
      },
      dropped);
  const auto pods = Label(snapshot.pods, options.pods_max, LabelsOf, dropped);
  const auto parts = Label(snapshot.parts, options.pods_max, LabelsOf, dropped);
  const auto teams = Label(
      snapshot.teams, options.teams_max,
      [](const TeamMetrics& t) {
        return Labels{{"team", t.team}};
      },
      dropped);

  Families f;
  f.Gauge("baton_build_info", "Always 1; the label is the version of batond.");
  f.Add({{"version", LabelValue(snapshot.version)}}, 1);
  f.Gauge("process_start_time_seconds", "Unix time at which batond started.");
  f.Add({}, snapshot.start_time_seconds);
  f.Gauge("baton_ledger_up", "1 if the ledger takes entries, else 0.");
  if (snapshot.ledger_up) f.Add({}, *snapshot.ledger_up ? 1 : 0);
  f.Gauge("baton_upstream_up", "1 if the central daemon takes this node's usage, else 0.");
  if (snapshot.upstream_up) f.Add({}, *snapshot.upstream_up ? 1 : 0);
  f.Gauge("baton_certificate_expiry_timestamp_seconds",
          "Unix time until which the certificate of page and API is good.");
  if (snapshot.certificate_expires) f.Add({}, double(*snapshot.certificate_expires));
  f.Gauge("baton_metrics_dropped_series",
          "Entries of pods and teams left out because there are too many.");
  f.Add({}, double(dropped));
  AddGpus(f, gpus);
  AddPods(f, pods, parts);
  AddTeams(f, teams);
  return f.Text();
}

}  // namespace baton::net
