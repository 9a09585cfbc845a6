// What the end-to-end tests share: a Cluster per test, pods that run baton-burn on it, and the
// devices' own records as the judge.
//
// Figures have tolerances that hold on a machine of two cores within seconds, and that grow by what
// other work on it took from a window (Windows(), Excused()). They are printed too ("figure NAME
// VALUE UNIT"); BATON_TEST_SCALE=10 measures ten times as long, and once, for exact ones.
#ifndef BATON_TESTS_END_TO_END_FIXTURE_H_
#define BATON_TESTS_END_TO_END_FIXTURE_H_

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cluster.h"
#include "bench/denied_time.h"

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
  // Pods that launch nothing before all of them are there.
  std::vector<Pod*> StartTogether(const std::vector<PodOptions>& all);
  // The same program without Baton's hook.
  Pod& StartBare(const PodOptions& options);
  void StopPods();
  const Pod& PodNamed(const std::string& name) const;

  // Judges what measure() returns by the EXPECT_s of judge(), which may ask Excused(). Where they
  // do not hold, they must hold in three of the first five windows, so that what is wrong with
  // Baton now and then is not taken for the machine's fault. What must never be, an overlap,
  // belongs into measure() or behind it.
  //
  // A window for which judge() had to excuse more than kDisturbedPoints, or in which something is
  // wrong that knows no excuse and more than that was denied, says little: the next one is looked
  // at. After kDisturbedMax of them one must have been right with what was excused; otherwise the
  // test fails, and says that the machine is too busy to tell.
  static constexpr int kDisturbedMax = 5;
  template <class Measure, class Judge>
  void Windows(Measure measure, Judge judge) {
    int held = 0, missed = 0, disturbed = 0, right = 0;
    while (true) {
      const DeniedTime denied;
      const auto figures = measure();
      denied_points_ = denied.Percent();
      denied_ms_ = static_cast<double>(Nanos(denied.SoFar())) / 1e6;
      excused_.reset();
      Figure("denied_by_other_work", denied_points_, "points");
      if (HasFatalFailure()) return;
      ::testing::TestPartResultArray wrong;
      {
        const ::testing::ScopedFakeTestPartResultReporter listener(
            ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &wrong);
        judge(figures);
      }
      const bool wrong_without_excuse = wrong.size() > 0 && !excused_;
      if (excused_.value_or(wrong_without_excuse ? denied_points_ : 0) > kDisturbedPoints) {
        printf("this window says little; %s\n", WhatWasDenied().c_str());
        right += wrong.size() == 0;
        if (++disturbed < kDisturbedMax) continue;
        if (right > 0) return;
        ADD_FAILURE() << "machine too busy: " << disturbed << " of " << disturbed + held + missed
                      << " windows were disturbed, and none was right even so; of the last one: "
                      << wrong.GetTestPartResult(0).message() << "\n"
                      << WhatWasDenied();
        return;
      }
      ++(wrong.size() == 0 ? held : missed);
      if (missed == 0 || held == 3) return;
      const bool last = missed == 3 || Scale() > 1;
      for (int i = 0; i < wrong.size(); ++i) {
        const ::testing::TestPartResult& one = wrong.GetTestPartResult(i);
        if (last) {
          ADD_FAILURE_AT(one.file_name(), one.line_number())
              << one.message() << (excused_ ? "\nBaton lost this; " : "\n") << WhatWasDenied();
        } else {
          printf("not in this window: %s\n", one.message());
        }
      }
      if (last) return;
    }
  }

  // For judge(): the points by which a share may fall short, or that the device may stand idle,
  // because of other work on this machine, of the `idle` points that the device was in the window.
  double Excused(double idle) {
    const double excused = ExcusedPoints(idle, denied_points_);
    excused_ = std::max(excused_.value_or(0), excused);
    return excused;
  }
  // For judge(), about pods that always have work and are due all of the device: each got what it
  // is due within `points` and what is excused. Of what they got together each has its part within
  // `points`, whatever is excused: other work takes from all of them alike, so a pod that has less
  // of that than it is due was wronged by Baton. All in percent.
  void ExpectShares(const std::map<std::string, double>& shares,
                    const std::map<std::string, double>& due, double points);

  // For judge(): of these gaps, in order, one in a hundred may be later than the bound, and one of
  // fewer. With sanitizers half of them: the kernel needs 5 ms to take their memory from a process
  // that was killed.
  static void ExpectFewLate(const std::vector<double>& gaps_ms, double bound_ms);

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
  // A sentence about the window that is judged.
  std::string WhatWasDenied() const;
  Pod& Keep(Result<Pod> pod, const PodOptions& options);

  std::unique_ptr<Cluster> cluster_;
  std::list<Pod> pods_;  // destroyed before the cluster
  std::vector<std::string> group_names_;
  PodPids pids_;
  // Of the window that is judged: what it was denied, and the most points that were excused.
  double denied_points_ = 0, denied_ms_ = 0;
  std::optional<double> excused_;
};

}  // namespace baton::bench

#endif  // BATON_TESTS_END_TO_END_FIXTURE_H_
