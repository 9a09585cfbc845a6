// The arena against a model: a "device" in this process's memory, whose room the test decides.
#include "hook/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <random>
#include <vector>

namespace baton::hook {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Addresses are those of this process; what is not backed cannot be touched.
struct FakeDevice {
  uint64_t room = UINT64_MAX;  // bytes of physical memory
  uint64_t used = 0;
  uint64_t pinned = 0;
  uint64_t pinned_most = UINT64_MAX;  // what pin() may give
  std::map<CUdeviceptr, uint64_t> reserved;
  std::map<CUdeviceptr, uint64_t> backed;
  std::map<void*, uint64_t> hosts;
  uint64_t last_handle = 0;
};
FakeDevice* g_fake;

CUresult Reserve(CUdeviceptr* base, uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *base = reinterpret_cast<CUdeviceptr>(at);
  g_fake->reserved[*base] = bytes;
  return CUDA_SUCCESS;
}
void Unreserve(CUdeviceptr base, uint64_t bytes) {
  EXPECT_EQ(g_fake->reserved[base], bytes);
  for (const auto& [at, size] : g_fake->backed)
    EXPECT_TRUE(at + size <= base || base + bytes <= at);
  g_fake->reserved.erase(base);
  munmap(reinterpret_cast<void*>(base), bytes);
}
CUresult Back(CUdevice, CUdeviceptr at, uint64_t bytes, uint64_t* handle) {
  EXPECT_EQ(g_fake->backed.count(at), 0u) << "backed twice";
  if (g_fake->room - g_fake->used < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  g_fake->used += bytes;
  g_fake->backed[at] = bytes;
  *handle = ++g_fake->last_handle;
  // What is there at first is nobody's.
  (void)!mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}
CUresult Unback(CUdeviceptr at, uint64_t bytes, uint64_t handle) {
  EXPECT_NE(handle, 0u);
  EXPECT_EQ(g_fake->backed[at], bytes);
  g_fake->backed.erase(at);
  g_fake->used -= bytes;
  (void)!mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}
CUresult Pin(CUcontext, uint64_t bytes, void** host) {
  if (g_fake->pinned_most - g_fake->pinned < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  *host = malloc(bytes);
  g_fake->hosts[*host] = bytes;
  g_fake->pinned += bytes;
  return CUDA_SUCCESS;
}
void Unpin(CUcontext, void* host) {
  EXPECT_EQ(g_fake->hosts.count(host), 1u);
  g_fake->pinned -= g_fake->hosts[host];
  g_fake->hosts.erase(host);
  free(host);
}
CUresult CopyOut(CUcontext, void* host, CUdeviceptr from, uint64_t bytes) {
  memcpy(host, reinterpret_cast<void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult CopyIn(CUcontext, CUdeviceptr to, const void* host, uint64_t bytes) {
  memcpy(reinterpret_cast<void*>(to), host, bytes);
  return CUDA_SUCCESS;
}
CUresult Finish(CUcontext) { return CUDA_SUCCESS; }
constexpr ArenaDriver kFake = {Reserve, Unreserve, Back,   Unback, Pin,
                               Unpin,   CopyOut,   CopyIn, Finish};

CUcontext Context(uintptr_t number) { return reinterpret_cast<CUcontext>(number); }

class ArenaTest : public ::testing::Test {
 protected:
  ArenaTest() {
    g_fake = &fake_;
    arena_.Init(&kFake, 0);
  }
  ~ArenaTest() override {
    for (const auto& [host, bytes] : fake_.hosts) free(host);
  }
  CUdeviceptr Take(uint64_t bytes, CUcontext context = Context(1)) {
    CUdeviceptr p = 0;
    if (!arena_.Share(context, bytes, &p)) {
      EXPECT_EQ(arena_.Add(context, bytes, &p), CUDA_SUCCESS);
    }
    return p;
  }
  void MoveAllIn() {
    while (arena_.missing() > 0) ASSERT_EQ(arena_.MoveIn(), CUDA_SUCCESS);
  }
  void MoveOutTo(uint64_t keep) {
    while (arena_.in() > keep) ASSERT_TRUE(arena_.MoveOut(keep));
  }
  // As in a process, an arena stays until the end.
  static Arena& Kept() {
    static auto& all = *new std::list<Arena>;
    return all.emplace_back();
  }
  FakeDevice fake_;
  Arena& arena_ = Kept();
};

TEST_F(ArenaTest, SmallAllocationsShareABlockAndDoNotOverlap) {
  const CUdeviceptr a = Take(100), b = Take(5000), c = Take(1);
  EXPECT_EQ(arena_.bytes(), Arena::kGranule);
  EXPECT_EQ(a % 256, 0u);
  EXPECT_GE(b, a + 100);
  EXPECT_GE(c, b + 5000);
  uint64_t freed = 1;
  EXPECT_FALSE(arena_.Free(b + 4096, &freed)) << "the middle of an allocation";
  EXPECT_TRUE(arena_.Free(b, &freed));
  EXPECT_EQ(freed, 0u);
  EXPECT_FALSE(arena_.Free(b, &freed)) << "freed twice";
  EXPECT_EQ(Take(6000), b) << "its place is used again";
  for (const CUdeviceptr p : {a, b, c}) EXPECT_TRUE(arena_.Free(p, &freed));
  EXPECT_EQ(freed, Arena::kGranule);
  EXPECT_EQ(arena_.bytes(), 0u);
  EXPECT_TRUE(fake_.reserved.empty());
}

TEST_F(ArenaTest, AnotherContextsSmallAllocationsAreElsewhere) {
  Take(100, Context(1));
  Take(100, Context(2));
  EXPECT_EQ(arena_.bytes(), 2 * Arena::kGranule);
  EXPECT_EQ(arena_.Forget(Context(1)), Arena::kGranule);
  EXPECT_EQ(arena_.bytes(), Arena::kGranule);
}

TEST_F(ArenaTest, AnAddressFindsItsAllocation) {
  const CUdeviceptr large = Take(100 * kMiB + 12), small = Take(5000);
  Arena::Allocation found;
  ASSERT_TRUE(arena_.Find(large + 80 * kMiB, &found));
  EXPECT_EQ(found.base, large);
  EXPECT_EQ(found.bytes, 100 * kMiB + 12);
  EXPECT_FALSE(arena_.Find(large + 100 * kMiB + 12, &found));
  ASSERT_TRUE(arena_.Find(small + 4999, &found));
  EXPECT_EQ(found.base, small);
  EXPECT_EQ(found.bytes, 5000u);
  EXPECT_FALSE(arena_.Find(small + 5000, &found));
  EXPECT_FALSE(arena_.Find(1, &found));
}

TEST_F(ArenaTest, WhatDoesNotFitIsThereLater) {
  fake_.room = 100 * kMiB;
  const CUdeviceptr p = Take(150 * kMiB);
  EXPECT_EQ(arena_.in(), 64 * kMiB) << "whole parts";
  EXPECT_EQ(arena_.MoveIn(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_.pinned, 0u) << "there is nothing in what is missing";
  fake_.room = 150 * kMiB;
  MoveAllIn();
  memset(reinterpret_cast<void*>(p), 1, 150 * kMiB);
}

TEST_F(ArenaTest, NoMoreIsPinnedThanIsMovedAndAPart) {
  Take(400 * kMiB);
  MoveOutTo(300 * kMiB);
  EXPECT_LE(fake_.pinned, 164 * kMiB);
  EXPECT_EQ(fake_.pinned, arena_.pinned());
  MoveOutTo(0);
  EXPECT_EQ(fake_.pinned, 400 * kMiB);
  MoveAllIn();
  MoveOutTo(300 * kMiB);
  EXPECT_LE(fake_.pinned, 400 * kMiB);
  // Where the host has no more, what cannot be moved stays.
  fake_.pinned_most = fake_.pinned;
  Take(200 * kMiB);
  while (arena_.MoveOut(0)) {
  }
  EXPECT_EQ(arena_.in(), 200 * kMiB);
}

// Random allocations, frees and moves beside a copy of all contents. BATON_TEST_SEQUENCES: how
// many.
TEST_F(ArenaTest, ContentsAndAddressesStayWhateverMoves) {
  const char* many = getenv("BATON_TEST_SEQUENCES");
  const int sequences = many == nullptr ? 5 : atoi(many);
  for (int sequence = 0; sequence < sequences; ++sequence) {
    SCOPED_TRACE("seed " + std::to_string(sequence));
    std::mt19937 random(static_cast<unsigned>(sequence));
    std::map<CUdeviceptr, std::vector<unsigned char>> model;
    fake_.room = 96 * kMiB;
    for (int step = 0; step < 120; ++step) {
      const auto draw = random() % 10;
      if (draw < 4) {
        const uint64_t bytes =
            random() % 3 == 0 ? 1 + random() % (20 * kMiB) : 1 + random() % 70000;
        if (arena_.bytes() + bytes > 90 * kMiB) continue;
        const CUdeviceptr p = Take(bytes);
        ASSERT_EQ(model.count(p), 0u);
        const auto next = model.lower_bound(p);
        ASSERT_TRUE(next == model.end() || p + bytes <= next->first);
        ASSERT_TRUE(next == model.begin() ||
                    std::prev(next)->first + std::prev(next)->second.size() <= p);
        model[p].resize(bytes);
        MoveAllIn();  // before it is used
        for (size_t at = 0; at < bytes; at += 4096) {
          const auto mark = static_cast<int>(random());
          memset(&model[p][at], mark & 0xff, std::min<size_t>(4096, bytes - at));
          memcpy(&model[p][at], &mark, std::min<size_t>(sizeof mark, bytes - at));
        }
        memcpy(reinterpret_cast<void*>(p), model[p].data(), bytes);
      } else if (draw < 6 && !model.empty()) {
        auto it = std::next(model.begin(), static_cast<long>(random() % model.size()));
        uint64_t freed = 0;
        ASSERT_TRUE(arena_.Free(it->first, &freed));
        model.erase(it);
      } else if (draw < 8) {
        MoveOutTo(random() % (arena_.bytes() + 1));
      } else {
        MoveAllIn();
        for (const auto& [p, bytes] : model) {
          ASSERT_EQ(memcmp(reinterpret_cast<void*>(p), bytes.data(), bytes.size()), 0);
        }
      }
      ASSERT_EQ(arena_.in(), fake_.used);
      ASSERT_EQ(arena_.pinned(), fake_.pinned);
      ASSERT_LE(arena_.in(), arena_.bytes());
    }
    uint64_t freed = 0;
    for (const auto& [p, bytes] : model) ASSERT_TRUE(arena_.Free(p, &freed));
    ASSERT_EQ(arena_.bytes() + fake_.used + fake_.pinned, 0u);
    ASSERT_TRUE(fake_.reserved.empty());
  }
}

}  // namespace
}  // namespace baton::hook
