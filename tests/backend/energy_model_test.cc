// Energy by pod, against pods whose powers are known, through a counter as coarse as NVML's.
#include "backend/energy_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"

namespace baton::backend {
namespace {

EnergyModel::Parts LearnAndDivide(EnergyModel& model, const EnergyModel::Window& window,
                                  bool exact) {
  model.Learn(window, exact);
  return model.Divide(window);
}

// A GPU on which pods take turns, and somebody who reads its counter: each change of it, which
// comes every 100 ms and is known to 5 ms, for a minute, and then for a second of every five.
class HotGpu {
 public:
  struct Turns {  // of a pod
    double watts;
    double share;    // of 1; what is left is idle
    double token_s;  // about how long it holds at a time
  };
  static constexpr double kIdleWatts = 75;

  HotGpu(std::vector<Turns> pods, uint64_t seed) : pods_(std::move(pods)), random_(seed) {}

  // Lets it run, and says what was booked of what each pod really took since `from_s`: the worst
  // error of a pod's energy, and that of the sum, in parts.
  struct Errors {
    double pod = 0, sum = 0;
  };
  Errors Run(double seconds, double from_s) {
    std::map<uint64_t, double> booked, truth_then;
    double booked_all = 0, truth_all_then = 0, counted_then = 0;
    double read_j = 0, read_s = 0, read_within = 0;
    std::map<uint64_t, double> read_held;
    bool first = true;
    for (int step = 1; step * 0.1 <= seconds; ++step) {
      // When the counter moved is taken to be in the middle of the two looks before and after.
      const double within = busy ? Uniform(0, 1) < 0.7 ? 0.012 : 0.001 : 0.005;
      const double off = Uniform(-within / 2, within / 2);
      RunUntil(step * 0.1 + std::min(off, 0.0));
      std::map<uint64_t, double> held = held_;
      RunUntil(step * 0.1);
      const double counted = joules_, at_s = now_s_ + off;
      if (off > 0) RunUntil(at_s), held = held_;
      if (step > 600 && step % 50 >= 11) continue;  // nobody reads
      EnergyModel::Window window{at_s - read_s, counted - read_j, {}};
      for (const auto& [pod, seconds_held] : held) {
        window.held[pod] = seconds_held - read_held[pod];
      }
      window.blur_s = std::sqrt((within * within + read_within * read_within) / 12);
      read_s = at_s, read_j = counted, read_held = held, read_within = within;
      if (std::exchange(first, false)) continue;
      const auto parts = LearnAndDivide(model, window, step <= 600 || step % 50 > 0);
      double sum = parts.idle;
      for (const auto& [pod, joules] : parts.joules) sum += joules;
      EXPECT_NEAR(sum, window.joules, 1e-9 * window.joules);
      if (now_s_ < from_s) {
        truth_then = truth_;
        truth_all_then = joules_;
        counted_then = counted;
        continue;
      }
      for (const auto& [pod, joules] : parts.joules) booked[pod] += joules;
      booked_all += sum;
    }
    Errors errors;
    for (const auto& [pod, joules] : truth_) {
      const double real = joules - truth_then[pod];
      errors.pod = std::max(errors.pod, std::abs(booked[pod] - real) / real);
    }
    errors.sum = std::abs(booked_all - (read_j - counted_then)) / (joules_ - truth_all_then);
    return errors;
  }

  EnergyModel model;
  bool busy = false;    // the reader often wakes up late
  bool evenly = false;  // one pod after the other

 private:
  double Uniform(double from, double to) {
    return from + (to - from) * static_cast<double>(random_.Next() >> 11) * 0x1p-53;
  }
  // Whose turn it is, and until when. Turns of each pod come as often as its share and their length
  // make it.
  void Turn() {
    if (evenly) {
      holder_ = (holder_ + 1) % static_cast<int>(pods_.size());
      until_s_ = now_s_ + Uniform(0.8, 1.2) * pods_[static_cast<size_t>(holder_)].token_s;
      return;
    }
    double all = 0, idle = 1;
    for (const Turns& pod : pods_) all += pod.share / pod.token_s, idle -= pod.share;
    constexpr double kPause = 0.02;
    all += std::max(idle, 0.0) / kPause;
    double at = Uniform(0, all), length = kPause;
    holder_ = -1;
    for (size_t i = 0; i < pods_.size() && holder_ < 0; ++i) {
      if ((at -= pods_[i].share / pods_[i].token_s) >= 0) continue;
      holder_ = static_cast<int>(i);
      length = pods_[i].token_s;
    }
    until_s_ = now_s_ + Uniform(0.5, 1.5) * length;
  }
  void RunUntil(double end_s) {
    while (now_s_ < end_s) {
      if (now_s_ >= until_s_) Turn();
      const double part = std::min(until_s_, end_s) - now_s_;
      const double watts = holder_ < 0 ? kIdleWatts : pods_[static_cast<size_t>(holder_)].watts;
      joules_ += watts * part;
      if (holder_ >= 0) {
        truth_[static_cast<uint64_t>(holder_)] += watts * part;
        held_[static_cast<uint64_t>(holder_)] += part;
      }
      now_s_ = std::min(until_s_, end_s);
    }
  }

  const std::vector<Turns> pods_;
  Random random_;
  int holder_ = -1;
  double now_s_ = 0, until_s_ = 0, joules_ = 0;
  std::map<uint64_t, double> truth_, held_;
};

TEST(EnergyModel, PodsThatTakeTurnsHaveWhatTheyTook) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    HotGpu gpu({{650, 0.6, 0.018}, {300, 0.3, 0.017}, {150, 0.1, 0.017}}, seed);
    const auto [pod, sum] = gpu.Run(600, 60);
    EXPECT_LT(pod, 0.05) << seed;
    EXPECT_LT(sum, 0.01) << seed;
    EXPECT_NEAR(gpu.model.PowerOf(0), 650, 60) << seed;
    EXPECT_NEAR(gpu.model.PowerOf(2), 150, 60) << seed;
  }
}

// Two pods take turns so evenly that a window hardly differs from the next, and beside busy
// processors two of three are blurred. By the mean the cool one would be told for 2.5 times its
// watts.
TEST(EnergyModel, TwentySecondsTellPodsApart) {
  for (const bool busy : {false, true}) {
    double off = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      HotGpu gpu({{600, 0.5, 0.006}, {150, 0.5, 0.006}}, seed);
      gpu.busy = busy;
      gpu.evenly = true;
      gpu.Run(20, 19);
      off += std::abs(gpu.model.PowerOf(1) / 150 - 1) / 20;
    }
    EXPECT_LT(off, busy ? 0.45 : 0.25);
  }
}

TEST(EnergyModel, TheIdleGpuHasItsOwn) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    HotGpu gpu({{600, 0.2, 0.03}, {200, 0.3, 0.02}}, seed);
    const auto [pod, sum] = gpu.Run(600, 60);
    EXPECT_LT(pod, 0.05) << seed;
    EXPECT_LT(sum, 0.01) << seed;
    EXPECT_NEAR(gpu.model.idle_power(), HotGpu::kIdleWatts, 20) << seed;
  }
}

// A daemon that is killed every few seconds learns as much as one that is not.
TEST(EnergyModel, GoesOnWithWhatWasLearntBefore) {
  HotGpu gpu({{650, 0.6, 0.018}, {300, 0.3, 0.017}, {150, 0.1, 0.017}}, 1);
  gpu.Run(120, 60);
  auto again = EnergyModel::FromBytes(gpu.model.Bytes());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->Pods(), std::vector<uint64_t>({0, 1, 2}));
  for (const uint64_t pod : {0, 1, 2}) {
    EXPECT_NEAR(again->PowerOf(pod), gpu.model.PowerOf(pod), 1) << pod;
  }
  EXPECT_NEAR(again->idle_power(), gpu.model.idle_power(), 1);
  again->Forget(1);
  EXPECT_TRUE(EnergyModel::FromBytes(again->Bytes()));
}

TEST(EnergyModel, BytesThatAreNoneAreRefused) {
  EnergyModel model;
  for (int i = 0; i < 20; ++i) LearnAndDivide(model, {0.1, 40, {{1, 0.06}, {2, 0.04}}}, true);
  const std::string good = model.Bytes();
  ASSERT_TRUE(EnergyModel::FromBytes(good));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(EnergyModel::FromBytes(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(EnergyModel::FromBytes(good + "x"));
  const size_t pods = good.find('\n') + 1;
  for (const auto& [at, byte] : std::vector<std::pair<size_t, char>>{
           {0, 'x'}, {pods, '\x7f'}, {pods + 7, '\x7f'}, {pods + 8, '\2'}}) {
    std::string bad = good;
    bad[at] = byte;
    EXPECT_FALSE(EnergyModel::FromBytes(bad)) << at;
  }
  for (size_t at = pods + 24; at + 8 <= good.size(); at += 8) {
    for (const double figure : {-1.0, std::nan(""), HUGE_VAL}) {
      std::string bad = good;
      memcpy(bad.data() + at, &figure, sizeof figure);
      EXPECT_FALSE(EnergyModel::FromBytes(bad)) << at;
    }
  }
}

// Pods that never left it idle, and then a time in which no daemon gave tokens.
TEST(EnergyModel, WhatTheIdleGpuTakesIsKnownFromBeforePodsCame) {
  EnergyModel model;
  for (int i = 0; i < 3; ++i)
    EXPECT_DOUBLE_EQ(LearnAndDivide(model, {4, 300, {}}, false).idle, 300);
  for (int i = 0; i < 200; ++i) LearnAndDivide(model, {0.1, 40, {{1, 0.05}, {2, 0.05}}}, true);
  EXPECT_NEAR(model.idle_power(), 75, 5);
  const auto parts = LearnAndDivide(model, {5, 550, {{1, 0.5}, {2, 0.0}}}, false);
  EXPECT_NEAR(parts.idle, 550 * 4.5 * 75 / (4.5 * 75 + 0.5 * 400), 20);
}

TEST(EnergyModel, WithoutAnythingLearntTimeCounts) {
  EnergyModel model;
  const auto parts = LearnAndDivide(model, {2, 300, {{1, 1}, {2, 0.5}}}, false);
  EXPECT_DOUBLE_EQ(parts.joules.at(1), 150);
  EXPECT_DOUBLE_EQ(parts.joules.at(2), 75);
  EXPECT_DOUBLE_EQ(parts.idle, 75);
}

// As with MIG and MPS, where nobody can tell what an instance takes.
TEST(EnergyModel, OfPodsOfWhomNothingIsLearntTimeCountsBeyondTheIdlePart) {
  EnergyModel model;
  model.Learn({4, 300, {}}, false);
  const auto parts = model.Divide({10, 1750, {{1, 2}, {2, 6}}});
  EXPECT_DOUBLE_EQ(parts.idle, 2 * 75);
  EXPECT_DOUBLE_EQ(parts.joules.at(1), 400);
  EXPECT_DOUBLE_EQ(parts.joules.at(2), 1200);
  // It took less than it does when idle.
  EXPECT_DOUBLE_EQ(model.Divide({10, 100, {{1, 2}}}).idle, 100);
}

// Nothing tells two pods apart that always hold for the same time; who is alone is known.
TEST(EnergyModel, WhereNothingTellsPodsApartEachHasTheMean) {
  EnergyModel model;
  for (int i = 0; i < 200; ++i) LearnAndDivide(model, {0.1, 40, {{1, 0.06}, {2, 0.04}}}, true);
  EXPECT_NEAR(model.PowerOf(1), 400, 10);
  EXPECT_NEAR(model.PowerOf(2), 400, 10);
  for (int i = 0; i < 200; ++i) LearnAndDivide(model, {0.1, 55, {{1, 0.1}}}, true);
  EXPECT_NEAR(model.PowerOf(1), 550, 10);
  model.Forget(1);
  EXPECT_GT(model.PowerOf(1), 0);  // the mean again
  EXPECT_NEAR(LearnAndDivide(model, {0.1, 10, {{2, 0.1}}}, false).joules.at(2), 10, 1e-9);
}

TEST(EnergyModel, ManyPodsCount) {
  EnergyModel model;
  EnergyModel::Window window{1, 500, {}};
  for (uint64_t pod = 0; pod < 200; ++pod) window.held[pod] = 0.005;
  for (int i = 0; i < 20; ++i) {
    const auto parts = LearnAndDivide(model, window, true);
    double sum = parts.idle;
    for (const auto& [pod, joules] : parts.joules) {
      EXPECT_GE(joules, 0);
      sum += joules;
    }
    EXPECT_NEAR(sum, 500, 1e-6);
  }
}

}  // namespace
}  // namespace baton::backend
