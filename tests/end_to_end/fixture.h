// What the end-to-end tests share: a Cluster per test, pods that run baton-burn on it, and the
// devices' own records as the judge.
//
// Figures have tolerances that hold on a machine of two cores within seconds, in windows in which
// nobody else wants it (Windows()). They are printed too ("figure NAME VALUE UNIT");
// BATON_TEST_SCALE=10 measures ten times as long, and once, for exact ones.
#ifndef BATON_TESTS_END_TO_END_FIXTURE_H_
#define BATON_TESTS_END_TO_END_FIXTURE_H_

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cluster.h"

namespace baton::bench {

// Lets time go by, while the pods run.
void PassTime(Duration time);
// BATON_TEST_SCALE, by which measured windows are longer; at least 1.
int Scale();
// Prints a measured figure.
void Figure(const std::string& name, double value, const std::string& unit);

// Takes the value, or ends the test with the error's sentence.
template <class T>
T Must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

class EndToEnd : public ::testing::Test {
 protected:
  EndToEnd();
  ~EndToEnd() override;

  void StartCluster(ClusterOptions options = {});
  Cluster& cluster() { return *cluster_; }
  const Device& device(int node = 0, int gpu = 0) { return cluster_->device(node, gpu); }

  // A pod that runs baton-burn with these flags. It runs until it is stopped, unless they say
  // otherwise.
  PodOptions Burn(const std::string& name, const std::string& request, const std::string& limit,
                  const std::vector<std::string>& flags = {}) const;
  // Starts a pod, waits for its first kernel, and notes its processes as a group of that name.
  // Its owner is the fixture.
  Pod& Start(const PodOptions& options);
  // The same program without Baton's hook.
  Pod& StartBare(const PodOptions& options);
  void StopPods();
  const Pod& PodNamed(const std::string& name) const;

  // Judges what measure() returns by the EXPECT_s of judge(). Where they do not hold, somebody else
  // may have wanted the machine: then they must hold in three of the first five windows, so that
  // what is wrong with Baton now and then is not taken for that. What must never be, an overlap,
  // belongs into measure() or behind it.
  template <class Measure, class Judge>
  void Windows(Measure measure, Judge judge) {
    int held = 0, missed = 0;
    while (true) {
      const auto figures = measure();
      if (HasFatalFailure()) return;
      ::testing::TestPartResultArray wrong;
      {
        const ::testing::ScopedFakeTestPartResultReporter listener(
            ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &wrong);
        judge(figures);
      }
      ++(wrong.size() == 0 ? held : missed);
      if (missed == 0 || held == 3) return;
      const bool last = missed == 3 || Scale() > 1;
      for (int i = 0; i < wrong.size(); ++i) {
        const ::testing::TestPartResult& one = wrong.GetTestPartResult(i);
        if (last) {
          ADD_FAILURE_AT(one.file_name(), one.line_number()) << one.message();
        } else {
          printf("not in this window: %s\n", one.message());
        }
      }
      if (last) return;
    }
  }

  // Lets the pods run for `window` and returns what each got of the device, in percent of it.
  std::map<std::string, double> SharesOver(Duration window, const Device& device);
  // The same for a window that is over.
  std::map<std::string, double> SharesIn(Instant from, Instant to, const Device& device);
  double BusyIn(Instant from, Instant to, const Device& device);
  // Records of kernels of this pod, from record number `first` on.
  std::vector<sim::KernelRecord> RecordsOf(const Pod& pod, const Device& device,
                                           uint64_t first = 0);
  uint64_t Count(const Device& device) { return Must(sim::CountRecords(device.path)); }
  // Kernels that overlapped with another pod's, from record number `first` on.
  uint64_t Overlaps(const Device& device, uint64_t first = 0);
  // What the pod's kernels took, each counted less by its age at `now`, in nanoseconds.
  double DecayedUse(const std::string& pod, Instant now, Duration half_life);
  // Whether a kernel of the pod ends within `time`.
  bool MakesProgress(const Pod& pod, const Device& device, Duration time);

 private:
  Pod& Keep(Result<Pod> pod, const PodOptions& options);

  std::unique_ptr<Cluster> cluster_;
  std::list<Pod> pods_;  // destroyed before the cluster
  std::vector<std::string> group_names_;
  PodPids pids_;
};

}  // namespace baton::bench

#endif  // BATON_TESTS_END_TO_END_FIXTURE_H_
