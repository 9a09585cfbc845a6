// The cache that finds a launch's stream and its kind of work.
#include "hook/recent.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace baton::hook {
namespace {

TEST(Recent, HasWhatCameInLast) {
  Recent<int, 1> recent;
  int values[6];
  EXPECT_EQ(recent.Find(1), nullptr);
  for (uint64_t key = 1; key <= 5; ++key) recent.Put(key, &values[key]);
  EXPECT_EQ(recent.Find(1), nullptr);  // four others came
  for (uint64_t key = 2; key <= 5; ++key) EXPECT_EQ(recent.Find(key), &values[key]) << key;
  recent.Put(2, &values[0]);  // again, and elsewhere
  recent.Put(6, &values[1]);
  EXPECT_EQ(recent.Find(2), &values[0]);
  EXPECT_EQ(recent.Find(3), nullptr);
  recent.Forget(2);
  EXPECT_EQ(recent.Find(2), nullptr);
  EXPECT_EQ(recent.Find(5), &values[5]);
  recent.ForgetAll();
  for (uint64_t key = 1; key <= 6; ++key) EXPECT_EQ(recent.Find(key), nullptr) << key;
}

// A key is in one place, or it would be found with what it had before.
TEST(Recent, KeyThatComesAgainAfterAnotherWasForgottenHasItsNewValue) {
  Recent<int, 1> recent;
  int values[6];
  for (uint64_t key = 1; key <= 4; ++key) recent.Put(key, &values[key]);
  recent.Forget(4);
  recent.Put(2, &values[0]);
  recent.Put(5, &values[5]);
  EXPECT_EQ(recent.Find(2), &values[0]);
  EXPECT_EQ(recent.Find(3), &values[3]);
  EXPECT_EQ(recent.Find(4), nullptr);
}

// What a launch asks for by an address of the heap, as functions and streams have.
TEST(Recent, HasAThousandKindsOfWorkAndSixtyFourStreamsAtOnce) {
  std::mt19937_64 random(1);
  const auto missing = [&](auto& recent, size_t count, uint64_t spacing) {
    static int value;
    std::set<uint64_t> keys;
    const uint64_t base = 0x5555'0000'0000 + random() % (1 << 30) / 16 * 16;
    while (keys.size() < count) keys.insert(base + random() % (4 * count) * spacing);
    for (uint64_t key : keys) recent.Put(key, &value);
    size_t lost = 0;
    for (uint64_t key : keys) lost += recent.Find(key) == nullptr;
    return lost;
  };
  for (const uint64_t spacing : {16, 64, 160, 1216, 4096}) {
    Recent<int, 1024> kinds;
    Recent<int, 128> streams;
    EXPECT_LE(missing(kinds, 1000, spacing), 20u) << spacing;
    EXPECT_LE(missing(streams, 64, spacing), 2u) << spacing;
  }
  // Kernels that are launched in ten sizes each: KernelKey().
  Recent<int, 1024> sizes;
  int value = 0;
  const auto key_of = [](uint64_t function, uint64_t size) {
    return (0x5555'1234'0000 + 64 * function) | (size + 1) << 56;
  };
  size_t lost = 0;
  for (uint64_t i = 0; i < 1000; ++i) sizes.Put(key_of(i / 10, i % 10), &value);
  for (uint64_t i = 0; i < 1000; ++i) lost += sizes.Find(key_of(i / 10, i % 10)) == nullptr;
  EXPECT_LE(lost, 20u);
}

}  // namespace
}  // namespace baton::hook
