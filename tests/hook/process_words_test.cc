// Tokens that are sent ahead, as the hook takes them: with the words of a holder that is the test.
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <thread>

#include "tests/hook/process_fixture.h"
#include "tests/wire/sealed_words.h"

namespace baton::hook {
namespace {

class HookWords : public HookProcess {
 protected:
  // A child that waits with a launch, and has a token that waits for (3, 2) of the holder's word.
  void StartNext() {
    ASSERT_NO_FATAL_FAILURE(StartWaiter());
    auto words = backend_->TakeWords();
    if (words.empty()) GTEST_SKIP() << "this kernel has no words";
    own_ = std::move(words.front());
    backend_->SendAhead(ahead_, holder_.file());
  }
  static wire::Token Ahead() {
    wire::Token token;
    token.epoch = 7;
    token.rev = 1;
    token.quota_ns = 60'000 * kMs;
    token.contended = true;
    token.after_client = 5;
    token.after_epoch = 3;
    token.after_rev = 2;
    return token;
  }
  // The child's launch is done by the token that was sent ahead.
  void ExpectItBegins() {
    EXPECT_EQ(child_->Read(), "0");
    const auto holding = backend_->WaitPhase(Phase::kHolding);
    ASSERT_TRUE(holding);
    EXPECT_EQ(holding->epoch, 7u);
    EXPECT_EQ(OwnWord().began_epoch, 7u);
    EXPECT_LE(OwnWord().began_ns, static_cast<uint64_t>(Nanos(MonotonicNow())));
    handoff_ns_ = holding->handoff_ns;
  }
  // Processor time of the child so far.
  double CpuSeconds() const {
    clockid_t clock;
    timespec time = {};
    EXPECT_EQ(clock_getcpuclockid(child_->pid(), &clock), 0);
    EXPECT_EQ(clock_gettime(clock, &time), 0);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }
  const wire::Word& OwnWord() {
    if (own_words_ == nullptr) {
      own_words_ = mmap(nullptr, wire::kWordsBytes, PROT_READ, MAP_SHARED, own_.get(), 0);
    }
    return static_cast<const wire::Words*>(own_words_)->of[0];
  }

  const wire::Token ahead_ = Ahead();
  const Instant begin_ = MonotonicNow();
  wire::SealedWords holder_;
  UniqueFd own_;
  void* own_words_ = nullptr;
  uint64_t handoff_ns_ = 0;  // as the child says
};

TEST_F(HookWords, ATokenThatWaitsForAWordBeginsByIt) {
  StartNext();
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_TRUE(child_->Silent(30));
  holder_.Say(3, 1);  // not all of it
  EXPECT_TRUE(child_->Silent(30));
  EXPECT_NE(OwnWord().began_epoch, 7u);
  holder_.Say(3, 2);
  ExpectItBegins();
  EXPECT_EQ(handoff_ns_, 0u) << "the holder has not said when it drained";
}

TEST_F(HookWords, TheNextOneSaysHowLongTheHandOffTook) {
  StartNext();
  if (IsSkipped() || HasFatalFailure()) return;
  const Instant drained = MonotonicNow() - std::chrono::milliseconds(3);
  holder_.word().drained_ns = static_cast<uint64_t>(Nanos(drained));
  holder_.Say(3, 2);
  ExpectItBegins();
  EXPECT_EQ(handoff_ns_, OwnWord().began_ns - static_cast<uint64_t>(Nanos(drained)));
}

TEST_F(HookWords, ADrainThatIsYetToComeTellsNothingOfTheHandOff) {
  for (const uint64_t lie : {UINT64_MAX, uint64_t{1} << 62, uint64_t{1} << 61}) {
    holder_.Say(0, 0);
    StartNext();
    if (IsSkipped() || HasFatalFailure()) return;
    holder_.word().drained_ns = lie;
    holder_.Say(3, 2);
    ExpectItBegins();
    EXPECT_EQ(handoff_ns_, 0u) << lie;
    munmap(std::exchange(own_words_, nullptr), wire::kWordsBytes);
  }
}

TEST_F(HookWords, AWordOfBeforeOrALaterOneCounts) {
  for (const uint64_t epoch : {3, 4}) {
    holder_.Say(epoch, epoch == 3 ? 2 : 0);
    StartNext();
    if (IsSkipped() || HasFatalFailure()) return;
    ExpectItBegins();
    munmap(std::exchange(own_words_, nullptr), wire::kWordsBytes);
  }
}

TEST_F(HookWords, AWakeUpMayBeLost) {
  StartNext();
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_TRUE(child_->Silent(30));
  holder_.Say(3, 2, false);
  ExpectItBegins();
}

TEST_F(HookWords, TheSameTokenWithoutAWordBeginsAtOnce) {
  StartNext();
  if (IsSkipped() || HasFatalFailure()) return;
  backend_->SendToken(7, 1, 60'000 * kMs);
  ExpectItBegins();
}

TEST_F(HookWords, OneThatWasTakenBackDoesNotBegin) {
  StartNext();
  if (IsSkipped() || HasFatalFailure()) return;
  backend_->SendToken(7, 2, 0);
  ASSERT_TRUE(backend_->WaitState(
      [](const State& s) { return s.phase == Phase::kWaiting && s.epoch == 7 && s.rev == 2; }));
  holder_.Say(3, 2);
  EXPECT_TRUE(child_->Silent(100));
  backend_->SendToken(8, 1, 60'000 * kMs);
  EXPECT_EQ(child_->Read(), "0");
}

// What a holder expects is a hint: whatever it says, the next one begins by its word, and looking
// for that takes little of its processor.
TEST_F(HookWords, AHolderThatLiesAboutItsEndCostsTheNextLittle) {
  const auto now = [] { return static_cast<uint64_t>(Nanos(MonotonicNow())); };
  const std::function<uint64_t()> lies[] = {
      [] { return UINT64_MAX; },         [] { return uint64_t{1} << 63; },
      [] { return uint64_t{1}; },        [&] { return now(); },
      [&] { return now() + 61'000; },    [&] { return now() + 160'000; },
      [&] { return now() + 1'000'000; },
  };
  for (const auto& lie : lies) {
    holder_.Say(0, 0);
    StartNext();
    if (IsSkipped() || HasFatalFailure()) return;
    std::atomic<bool> stop{false};
    std::thread liar([&] {
      while (!stop) holder_.word().expected_ns = lie();
    });
    const double before = CpuSeconds();
    const Instant begin = MonotonicNow();
    EXPECT_TRUE(child_->Silent(400));
    const double took = CpuSeconds() - before;
    const double passed = static_cast<double>(Nanos(MonotonicNow() - begin)) / 1e9;
    stop = true;
    liar.join();
    // The client thread's look every 2 ms is in it. Sanitizers make all of it longer.
#ifdef NDEBUG
    constexpr double kMost = 0.1;
#else
    constexpr double kMost = 0.5;
#endif
    EXPECT_LT(took, kMost * passed) << "expected " << lie() << " at " << now();
    holder_.Say(3, 2);
    ExpectItBegins();
    munmap(std::exchange(own_words_, nullptr), wire::kWordsBytes);
  }
}

TEST_F(HookWords, SayWhatHasDrainedAndWhenThatIsExpected) {
  StartHolder(60'000 * kMs, "loop 20000000 1");
  auto words = backend_->TakeWords();
  if (words.empty()) GTEST_SKIP() << "this kernel has no words";
  own_ = std::move(words.front());
  EXPECT_EQ(OwnWord().began_epoch, 1u);
  // A drain that is over when it is first looked at was not expected.
  for (uint64_t epoch = 1; epoch <= 20 && OwnWord().expected_ns == 0; ++epoch) {
    if (epoch > 1) backend_->SendToken(epoch, 1, 60'000 * kMs);
    ASSERT_TRUE(backend_->WaitState([&](const State& s) {
      return s.phase == Phase::kHolding && s.epoch == epoch && s.launches > 2 * epoch;
    }));
    backend_->SendToken(epoch, 2, 0);
    ASSERT_TRUE(backend_->WaitState([&](const State& s) {
      return s.phase == Phase::kWaiting && s.epoch == epoch && s.rev == 2;
    }));
    EXPECT_TRUE(OwnWord().Says(epoch, 2));
    EXPECT_GT(OwnWord().drained_ns, OwnWord().began_ns);
    EXPECT_LE(OwnWord().drained_ns, static_cast<uint64_t>(Nanos(MonotonicNow())));
    EXPECT_FALSE(OwnWord().Says(epoch, 3));
  }
  EXPECT_GT(OwnWord().expected_ns, static_cast<uint64_t>(Nanos(begin_)));
  EXPECT_LT(OwnWord().expected_ns,
            static_cast<uint64_t>(Nanos(MonotonicNow() + std::chrono::seconds(10))));
}

// What the program paused before its token ended is no part of the hand-off.
TEST_F(HookWords, ADrainIsNotOverBeforeItBegins) {
  ASSERT_NO_FATAL_FAILURE(StartWaiter());
  auto words = backend_->TakeWords();
  if (words.empty()) GTEST_SKIP() << "this kernel has no words";
  own_ = std::move(words.front());
  backend_->SendToken(1, 1, 60'000 * kMs);
  ASSERT_EQ(child_->Read(), "0");
  EXPECT_TRUE(child_->Silent(30));
  const Instant ends = MonotonicNow();
  backend_->SendToken(1, 2, 0);
  ASSERT_TRUE(
      backend_->WaitState([](const State& s) { return s.rev == 2 && s.phase == Phase::kIdle; }));
  EXPECT_TRUE(OwnWord().Says(1, 2));
  EXPECT_GE(OwnWord().drained_ns, static_cast<uint64_t>(Nanos(ends)));
}

// A GPU needs a while to come from another process. What is behind that is expected to end so much
// later, and how long it takes is said.
TEST_F(HookWords, TheGpuThatComesLateIsReckonedWith) {
  constexpr uint64_t kLate = 20 * kMs;
  StartBackend();
  backend_->SetIdle(60'000 * kMs);
  backend_->SetBacklog(5 * kLate);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_EQ(child_->Ask("burst 1000000 100000"), "ok");
  wire::Token token = ahead_;
  auto words = std::vector<UniqueFd>();
  holder_.Say(3, 2);
  // Busy processors may keep the child from looking when it would tell something.
  uint64_t switch_ns = 0;
  for (int i = 0; i < 100 && switch_ns == 0; ++i, ++token.epoch) {
    ASSERT_TRUE(backend_->WaitPhase(Phase::kWaiting));
    if (i == 0) {
      words = backend_->TakeWords();
      if (words.empty()) GTEST_SKIP() << "this kernel has no words";
      own_ = std::move(words.front());
    }
    ASSERT_EQ(child_->Ask("come-late " + std::to_string(kLate)), "ok");
    backend_->SendAhead(token, holder_.file());
    ASSERT_TRUE(backend_->WaitPhase(Phase::kHolding));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    backend_->SendToken(token.epoch, 2, 0);
    // What was expected a while before the end.
    std::vector<std::pair<uint64_t, uint64_t>> expected;
    while (!OwnWord().Says(token.epoch, 2)) {
      expected.emplace_back(Nanos(MonotonicNow()), OwnWord().expected_ns);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const auto drained = backend_->WaitState(
        [&](const State& s) { return s.epoch == token.epoch && s.rev == 2 && s.drained_ns > 0; });
    ASSERT_TRUE(drained);
    switch_ns = drained->switch_ns;
    std::istringstream kernels(child_->Ask("kernels"));
    uint64_t begin = 0, end = 0;
    while (kernels >> begin >> end) {
    }
    std::erase_if(expected, [&](const auto& e) { return e.second == 0 || e.first + kMs > end; });
    if (switch_ns == 0 || expected.empty()) continue;
    EXPECT_NEAR(static_cast<double>(expected.back().second), static_cast<double>(end), kLate / 4.0);
    EXPECT_NEAR(static_cast<double>(OwnWord().drained_ns), static_cast<double>(end), kLate / 4.0);
  }
  EXPECT_NEAR(static_cast<double>(switch_ns), kLate, kLate / 10.0);
}

// A child after fork says nothing for its parent: its words are its own.
TEST_F(HookWords, AForkedChildHasItsOwn) {
  StartBackend();
  backend_->SetAutoQuota(50 * kMs);
  StartChild();
  ASSERT_EQ(child_->Ask("init"), "0");
  ASSERT_TRUE(backend_->WaitHellos(1));
  ASSERT_EQ(child_->Ask("fork-launch"), "0");
  std::vector<ino_t> files;
  for (const UniqueFd& file : backend_->TakeWords()) {
    struct stat about = {};
    ASSERT_EQ(fstat(file.get(), &about), 0);
    if (std::find(files.begin(), files.end(), about.st_ino) == files.end()) {
      files.push_back(about.st_ino);
    }
  }
  if (files.empty()) GTEST_SKIP() << "this kernel has no words";
  EXPECT_EQ(files.size(), backend_->incarnations());
  EXPECT_EQ(files.size(), 2u);
}

}  // namespace
}  // namespace baton::hook
