// swapping SEED BYTES ROUNDS [MILLISECONDS]: allocates so much device memory in pieces of many
// sizes, each word different, adds to every word in each round, works for so long (2), and reads
// all of it back. Fails at the first word that is not as it should be, or whose address is not.
// Prints a line after each round, and at the end what it did, as JSON. BYTES takes what is shared
// by small pieces into account.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/time.h"
#include "bench/kernels.h"
#include "hook/cuda_types.h"

extern "C" {
CUresult Allocate(CUdeviceptr* p, size_t bytes) __asm__("cuMemAlloc_v2");
CUresult Free(CUdeviceptr p) __asm__("cuMemFree_v2");
CUresult RangeOf(CUdeviceptr* base, size_t* bytes,
                 CUdeviceptr p) __asm__("cuMemGetAddressRange_v2");
CUresult CopyIn(CUdeviceptr to, const void* from, size_t n) __asm__("cuMemcpyHtoD_v2");
CUresult CopyOut(void* to, CUdeviceptr from, size_t n) __asm__("cuMemcpyDtoH_v2");
}

namespace {

constexpr size_t kMiB = 1 << 20;

struct Piece {
  CUdeviceptr at = 0;
  uint32_t words = 0;
  uint32_t first = 0;  // what its first word was
};

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}

uint32_t WordAt(uint32_t first, uint32_t i) { return (first + i) * 2654435761u; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  std::mt19937 random(static_cast<unsigned>(std::atoi(argv[1])));
  const size_t all = std::strtoull(argv[2], nullptr, 10);
  const int rounds = std::atoi(argv[3]);
  unsigned long long spin_ns = 1'000'000ull * (argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 2);
  CUcontext context;
  CUmodule module;
  CUfunction spin, add;
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuModuleLoadData(&module, baton::bench::kKernelsPtx), "cuModuleLoadData");
  Check(cuModuleGetFunction(&spin, module, "baton_spin"), "cuModuleGetFunction");
  Check(cuModuleGetFunction(&add, module, "baton_add"), "cuModuleGetFunction");

  std::vector<Piece> pieces;
  std::vector<uint32_t> host;
  const auto take = [&](size_t bytes) {
    Piece piece;
    piece.words = static_cast<uint32_t>(bytes / 4);
    piece.first = random();
    Check(Allocate(&piece.at, bytes), "cuMemAlloc");
    host.resize(piece.words);
    for (uint32_t i = 0; i < piece.words; ++i) host[i] = WordAt(piece.first, i);
    Check(CopyIn(piece.at, host.data(), bytes), "cuMemcpyHtoD");
    pieces.push_back(piece);
  };
  // Small ones share 2 MiB.
  size_t taken = 2 * kMiB;
  for (int i = 0; i < 12; ++i) take(4 + random() % 100'000 / 4 * 4);
  while (taken < all) {
    size_t bytes = std::min(all - taken, (1 + random() % 160) * kMiB);
    bytes = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    taken += bytes;
    take(bytes - random() % 1000 * 4);
  }

  int64_t slowest = 0;
  for (uint32_t round = 1; round <= static_cast<uint32_t>(rounds); ++round) {
    const auto from = baton::MonotonicNow();
    for (Piece& piece : pieces) {
      uint32_t by = 1;
      void* arguments[] = {&piece.at, &piece.words, &by};
      Check(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), "baton_add");
    }
    void* arguments[] = {&spin_ns};
    Check(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), "baton_spin");
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
    for (const Piece& piece : pieces) {
      CUdeviceptr base = 0;
      size_t bytes = 0;
      Check(RangeOf(&base, &bytes, piece.at + 2), "cuMemGetAddressRange");
      if (base != piece.at || bytes / 4 != piece.words) {
        std::fprintf(stderr, "round %u: an address is %llx, not %llx\n", round, base, piece.at);
        return 1;
      }
      host.resize(piece.words);
      Check(CopyOut(host.data(), piece.at, size_t{piece.words} * 4), "cuMemcpyDtoH");
      for (uint32_t i = 0; i < piece.words; ++i) {
        if (host[i] == WordAt(piece.first, i) + round) continue;
        std::fprintf(stderr, "round %u: word %u of %llx is %u, not %u\n", round, i, piece.at,
                     host[i], WordAt(piece.first, i) + round);
        return 1;
      }
    }
    slowest = std::max(slowest, baton::Nanos(baton::MonotonicNow() - from));
    std::printf("round %u\n", round);
    std::fflush(stdout);
  }
  for (const Piece& piece : pieces) Check(Free(piece.at), "cuMemFree");
  std::printf("{\"rounds\": %d, \"bytes\": %zu, \"slowest_ns\": %lld}\n", rounds, taken,
              static_cast<long long>(slowest));
  return 0;
}
