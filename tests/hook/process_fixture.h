// libbaton.so in a process of its own, between a driver and a backend that the test controls.
#ifndef BATON_TESTS_HOOK_PROCESS_FIXTURE_H_
#define BATON_TESTS_HOOK_PROCESS_FIXTURE_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/time.h"
#include "tests/hook/child.h"
#include "tests/hook/fake_backend.h"

namespace baton::hook {

using wire::Phase;
using wire::State;

inline constexpr uint64_t kMs = 1'000'000;
inline constexpr char kCardTotal[] = "17179869184";  // bytes, as the driver says

inline std::string SocketPath() {
  static int number = 0;
  return "/tmp/baton-hook-test-" + std::to_string(getpid()) + "-" + std::to_string(++number);
}

class HookProcess : public testing::Test {
 protected:
  void StartBackend() {
    backend_.reset();  // it unlinks the socket
    backend_ = std::make_unique<FakeBackend>(socket_);
  }
  void StartChild(std::map<std::string, std::string> more = {}) {
    more.try_emplace("BATON_SOCKET", socket_);
    more.try_emplace("BATON_TICKET", "ticket");
    child_ = std::make_unique<Child>(more);
  }
  // A child that has been granted epoch 1 for `quota` and loops over kernels of 100 us.
  void StartHolder(uint64_t quota_ns, const std::string& loop = "loop 100000 1") {
    StartBackend();
    backend_->SetIdle(60'000 * kMs);  // a busy machine is not to look like an idle program
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    ASSERT_EQ(child_->Ask(loop), "ok");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    backend_->SendToken(1, 1, quota_ns);
    ASSERT_TRUE(backend_->WaitPhase(Phase::kHolding));
  }
  // A child that waits with a launch.
  void StartWaiter() {
    StartBackend();
    backend_->SetIdle(60'000 * kMs);
    StartChild();
    ASSERT_EQ(child_->Ask("init"), "0");
    child_->Send("launch 1000");
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
  }
  // A child that holds epoch 1 for long, and is left alone.
  void StartIdler() {
    ASSERT_NO_FATAL_FAILURE(StartWaiter());
    backend_->SendToken(1, 1, 60'000 * kMs);
    ASSERT_EQ(child_->Read(), "0");
  }
  // How long a drain takes from now on.
  int64_t Drain() {
    const Instant begin = MonotonicNow();
    backend_->SendToken(1, 2, 0);
    const bool drained =
        backend_
            ->WaitState([](const State& s) {
              return (s.phase == Phase::kIdle || s.phase == Phase::kWaiting) && s.rev == 2;
            })
            .has_value();
    EXPECT_TRUE(drained);
    return Nanos(MonotonicNow() - begin);
  }
  // Whether the child is charged so much, soon.
  bool Becomes(uint64_t memory_total) {
    for (int i = 0; i < 2000 && backend_->memory_total() != memory_total; ++i) usleep(1000);
    return backend_->memory_total() == memory_total;
  }
  uint64_t Count() { return std::stoull(child_->Ask("count")); }

  const std::string socket_ = SocketPath();
  std::unique_ptr<FakeBackend> backend_;
  std::unique_ptr<Child> child_;
};

}  // namespace baton::hook

#endif  // BATON_TESTS_HOOK_PROCESS_FIXTURE_H_
