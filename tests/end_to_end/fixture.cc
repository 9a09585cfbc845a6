#include "tests/end_to_end/fixture.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <sstream>

namespace baton::bench {

void PassTime(Duration time) {
  const Instant until = MonotonicNow() + time;
  const timespec at{static_cast<time_t>(Nanos(until) / 1'000'000'000),
                    Nanos(until) % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

int Scale() {
  const char* text = getenv("BATON_TEST_SCALE");
  return text != nullptr ? std::max(1, atoi(text)) : 1;
}

void Figure(const std::string& name, double value, const std::string& unit) {
  printf("figure %s %.3f %s\n", name.c_str(), value, unit.c_str());
  fflush(stdout);
}

EndToEnd::EndToEnd() { AdoptOrphans(); }

EndToEnd::~EndToEnd() {
  if (HasFailure() && cluster_ != nullptr) {
    for (const char* name : {"batond0", "batond1", "node0", "node1"}) {
      const std::string log = cluster_->Log(name);
      if (!log.empty()) fprintf(stderr, "--- %s\n%s\n", name, log.c_str());
    }
    for (const Pod& pod : pods_) {
      if (!pod.Stderr().empty()) {
        fprintf(stderr, "--- pod %s\n%s\n", pod.name().c_str(), pod.Stderr().c_str());
      }
    }
  }
  pods_.clear();
  cluster_.reset();
  KillDescendants();
}

void EndToEnd::StartCluster(ClusterOptions options) {
  options.programs = BATON_PROGRAMS;
  cluster_ = Must(Cluster::Start(options));
}

PodOptions EndToEnd::Burn(const std::string& name, const std::string& request,
                          const std::string& limit, const std::vector<std::string>& flags) const {
  PodOptions options;
  options.name = name;
  options.request = request;
  options.limit = limit;
  options.command = {cluster_->Program("baton-burn"), "--die-with-parent"};
  options.command.insert(options.command.end(), flags.begin(), flags.end());
  if (std::find(flags.begin(), flags.end(), "--seconds") == flags.end()) {
    options.command.insert(options.command.end(), {"--seconds", std::to_string(120 * Scale())});
  }
  return options;
}

Pod& EndToEnd::Keep(Result<Pod> started, const PodOptions& options) {
  const Device& where = device(options.node, options.gpu);
  Pod& pod = pods_.emplace_back(Must(std::move(started)));
  Must(cluster_->WaitForKernels(where, pod));
  pids_.Note(static_cast<int64_t>(group_names_.size()), pod);
  group_names_.push_back(options.name);
  return pod;
}

Pod& EndToEnd::Start(const PodOptions& options) { return Keep(cluster_->Run(options), options); }
std::vector<Pod*> EndToEnd::StartTogether(const std::vector<PodOptions>& all) {
  std::vector<Result<Pod>> started;
  for (const PodOptions& options : all) started.push_back(cluster_->Run(options));
  std::vector<Pod*> pods;
  for (size_t i = 0; i < all.size(); ++i) pods.push_back(&Keep(std::move(started[i]), all[i]));
  return pods;
}
Pod& EndToEnd::StartBare(const PodOptions& options) {
  return Keep(cluster_->RunBare(options), options);
}

void EndToEnd::StopPods() {
  for (Pod& pod : pods_) pod.run().Signal(SIGTERM);
  for (Pod& pod : pods_) {
    if (!pod.Wait(std::chrono::seconds(5))) pod.Stop();
  }
}

std::map<std::string, double> EndToEnd::SharesIn(Instant from, Instant to, const Device& device) {
  const auto records = Must(sim::ReadRecords(device.path));
  std::map<std::string, double> shares;
  for (const std::string& name : group_names_) shares[name] = 0;
  for (const auto& [group, busy_ns] : sim::BusyByGroup(records, pids_, Nanos(from), Nanos(to))) {
    const std::string name = group < 0 ? "unknown" : group_names_[static_cast<size_t>(group)];
    shares[name] += 100 * static_cast<double>(busy_ns) / static_cast<double>(Nanos(to - from));
  }
  return shares;
}

std::map<std::string, double> EndToEnd::SharesOver(Duration window, const Device& device) {
  const Instant from = MonotonicNow();
  PassTime(window);
  const Instant to = MonotonicNow();
  // A kernel that still runs is in no record yet: wait until the window's last one has ended.
  WaitUntil(
      [&] {
        const auto records = Must(sim::ReadRecords(device.path));
        return !records.empty() && records.back().end_ns >= Nanos(to);
      },
      std::chrono::milliseconds(100));
  return SharesIn(from, to, device);
}

double EndToEnd::BusyIn(Instant from, Instant to, const Device& device) {
  return 100 * sim::BusyFraction(Must(sim::ReadRecords(device.path)), Nanos(from), Nanos(to));
}

std::vector<sim::KernelRecord> EndToEnd::RecordsOf(const Pod& pod, const Device& device,
                                                   uint64_t first) {
  auto records = Must(sim::ReadRecords(device.path, first));
  std::erase_if(records, [&](const sim::KernelRecord& record) {
    const int64_t group = pids_(record.pid);
    return group < 0 || group_names_[static_cast<size_t>(group)] != pod.name();
  });
  return records;
}

const Pod& EndToEnd::PodNamed(const std::string& name) const {
  for (const Pod& pod : pods_) {
    if (pod.name() == name) return pod;
  }
  throw std::runtime_error("no pod " + name);
}

double EndToEnd::DecayedUse(const std::string& pod, Instant now, Duration half_life) {
  double sum = 0;
  const Pod& of = PodNamed(pod);
  for (const auto& record : RecordsOf(of, device(of.options().node, of.options().gpu))) {
    const auto age = static_cast<double>(Nanos(now) - record.end_ns);
    if (age > 0) {
      sum += static_cast<double>(record.busy_ns) *
             std::exp2(-age / static_cast<double>(half_life.count()));
    }
  }
  return sum;
}

void EndToEnd::ExpectShares(const std::map<std::string, double>& shares,
                            const std::map<std::string, double>& due, double points) {
  double together = 0;
  for (const auto& [pod, of_device] : due) together += shares.at(pod);
  const double allowed = points + Excused(100 - together);
  for (const auto& [pod, of_device] : due) {
    EXPECT_NEAR(shares.at(pod), of_device, allowed) << pod;
    EXPECT_NEAR(100 * shares.at(pod) / together, of_device, points)
        << pod << ", of the " << together << " % that the pods got together";
  }
}

void EndToEnd::ExpectFewLate(const std::vector<double>& gaps_ms, double bound_ms) {
  const ptrdiff_t late = gaps_ms.end() - std::upper_bound(gaps_ms.begin(), gaps_ms.end(), bound_ms);
  Figure("late", static_cast<double>(late), "");
#ifdef BATON_SANITIZED
  EXPECT_LE(late, std::ssize(gaps_ms) / 2) << "with sanitizers their median";
#else
  EXPECT_LE(late, std::max<ptrdiff_t>(1, std::ssize(gaps_ms) / 100));
#endif
}

std::string EndToEnd::WhatWasDenied() const {
  std::ostringstream text;
  text << std::setprecision(3) << "other work on this machine denied the window "
       << std::lround(denied_ms_) << " ms, " << denied_points_ << " points";
  if (excused_) text << ", and " << *excused_ << " points are allowed for it";
  return text.str();
}

uint64_t EndToEnd::Overlaps(const Device& device, uint64_t first) {
  return sim::CountOverlaps(Must(sim::ReadRecords(device.path, first)), pids_);
}

bool EndToEnd::MakesProgress(const Pod& pod, const Device& device, Duration time) {
  const uint64_t first = Count(device);
  return WaitUntil([&] { return !RecordsOf(pod, device, first).empty(); }, time);
}

}  // namespace baton::bench
