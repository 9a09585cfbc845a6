// A token scheduler that is told events one by one, as tests drive it.
#ifndef BATON_TESTS_SCHEDULER_DRIVEN_H_
#define BATON_TESTS_SCHEDULER_DRIVEN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>

#include "scheduler/token_scheduler.h"

namespace baton::scheduler {

struct Driven {
  explicit Driven(uint64_t last_epoch) : scheduler(SchedulerOptions{}, last_epoch) {}
  void operator()(const Event& event) {
    const size_t before = effects.size();
    scheduler.Step(now, event, effects);
    EXPECT_EQ(scheduler.Invariants(), std::nullopt);
    for (size_t i = before; i < effects.size(); ++i) {
      const auto* sent = std::get_if<SendToken>(&effects[i]);
      if (sent != nullptr) revs[sent->client.value] = sent->rev;
    }
  }
  // After some time; the effects of what was before are forgotten.
  void operator()(Duration later, const Event& event) {
    now += later;
    effects.clear();
    operator()(event);
  }
  // The revision that the client was sent last.
  uint64_t Rev(uint64_t client) const { return revs.at(client); }

  TokenScheduler scheduler;
  Instant now{std::chrono::seconds(3)};
  Effects effects;
  std::map<uint64_t, uint64_t> revs;
};

}  // namespace baton::scheduler

#endif  // BATON_TESTS_SCHEDULER_DRIVEN_H_
