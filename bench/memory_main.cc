// baton-memory: takes a GPU's memory, says what it was given and whether what it wrote there
// stayed. Speaks the driver API, and runs on a real GPU and on the simulated one alike.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/time.h"
#include "bench/bare_gpu.h"

namespace baton::bench {
namespace {

constexpr char kUsage[] = R"(Usage: baton-memory rounds SEED BYTES ROUNDS [MILLISECONDS [FILE]]
       baton-memory passes SEED BYTES [--ready FILE] [--go FILE] [--seconds N]
       baton-memory fill [PIECE]
       baton-memory leave BYTES
       baton-memory info

  rounds  allocates so much in pieces of many sizes, each word different; adds to every word in each
          round, works for so long (2), and reads all of it back. Ends with 1 at the first word that
          is not as it should be, or whose address is not. Prints a line after each round. What
          small pieces share counts too. The last round begins once FILE is there
  passes  allocates so much in such pieces and adds to every word again and again, for N seconds (5);
          reads all of it back once, at the end. Ends with 1 at a wrong word. With --ready it makes
          FILE first; with --go it begins once FILE is there, and ends at the time in it, in seconds
          since 1970
  fill    allocates pieces of so many bytes (8 MiB) until one is refused, then frees one, allocates
          it again and runs a kernel
  leave   allocates all but so much of what is free, and keeps it until standard input ends
  info    what cuMemGetInfo tells

Each prints a JSON object as its last line. Exit status: 0, 1 after a CUDA error or a wrong word, 64
usage, 69 no driver.
)";

constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr size_t kMiB = 1 << 20;

struct Piece {
  CUdeviceptr at = 0;
  uint32_t words = 0;
  uint32_t first = 0;  // what its first word was
};

uint32_t WordAt(uint32_t first, uint32_t i) { return (first + i) * 2654435761u; }

class Gpu : public BareGpu {
 public:
  explicit Gpu(const Driver& found) : BareGpu(found), add_(Kernel("baton_add")) {}
  void Add(Piece& piece, uint32_t by) const {
    void* arguments[] = {&piece.at, &piece.words, &by};
    Check(driver.LaunchKernel(add_, 64, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr),
          "baton_add");
  }

 private:
  const CUfunction add_;
};

std::vector<Piece> TakePieces(const Gpu& gpu, unsigned seed, size_t all, size_t* taken) {
  std::mt19937 random(seed);
  std::vector<Piece> pieces;
  std::vector<uint32_t> host;
  const auto take = [&](size_t bytes) {
    Piece piece;
    piece.words = static_cast<uint32_t>(bytes / 4);
    piece.first = random();
    gpu.Check(gpu.driver.MemAlloc(&piece.at, bytes), "cuMemAlloc");
    host.resize(piece.words);
    for (uint32_t i = 0; i < piece.words; ++i) host[i] = WordAt(piece.first, i);
    gpu.Check(gpu.driver.MemcpyHtoD(piece.at, host.data(), bytes), "cuMemcpyHtoD");
    pieces.push_back(piece);
  };
  // Small ones share 2 MiB.
  *taken = 2 * kMiB;
  for (int i = 0; i < 12; ++i) take(4 + random() % 100'000 / 4 * 4);
  while (*taken < all) {
    size_t bytes = std::min(all - *taken, (1 + random() % 160) * kMiB);
    bytes = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    *taken += bytes;
    take(bytes - random() % 1000 * 4);
  }
  return pieces;
}

// Whether address and words of the piece are what they should be after so many rounds.
bool IsRight(const Gpu& gpu, const Piece& piece, uint32_t round, std::vector<uint32_t>& host) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  gpu.Check(gpu.driver.MemGetAddressRange(&base, &bytes, piece.at + 2), "cuMemGetAddressRange");
  if (base != piece.at || bytes / 4 != piece.words) {
    std::fprintf(stderr, "round %u: an address is %llx, not %llx\n", round, base, piece.at);
    return false;
  }
  host.resize(piece.words);
  gpu.Check(gpu.driver.MemcpyDtoH(host.data(), piece.at, size_t{piece.words} * 4), "cuMemcpyDtoH");
  for (uint32_t i = 0; i < piece.words; ++i) {
    if (host[i] == WordAt(piece.first, i) + round) continue;
    std::fprintf(stderr, "round %u: word %u of %llx is %u, not %u\n", round, i, piece.at, host[i],
                 WordAt(piece.first, i) + round);
    return false;
  }
  return true;
}

int Rounds(const Gpu& gpu, unsigned seed, size_t all, int rounds, uint64_t spin_ns,
           const std::string& file) {
  size_t taken = 0;
  std::vector<Piece> pieces = TakePieces(gpu, seed, all, &taken);
  std::vector<uint32_t> host;
  int64_t slowest = 0;
  for (uint32_t round = 1; round <= static_cast<uint32_t>(rounds); ++round) {
    const bool last = round == static_cast<uint32_t>(rounds);
    while (last && !file.empty() && access(file.c_str(), F_OK) != 0) usleep(10'000);
    const Instant from = MonotonicNow();
    for (Piece& piece : pieces) gpu.Add(piece, 1);
    gpu.Spin(spin_ns);
    gpu.Synchronize();
    for (const Piece& piece : pieces) {
      if (!IsRight(gpu, piece, round, host)) return 1;
    }
    slowest = std::max(slowest, Nanos(MonotonicNow() - from));
    std::printf("round %u\n", round);
    std::fflush(stdout);
  }
  for (const Piece& piece : pieces) gpu.Check(gpu.driver.MemFree(piece.at), "cuMemFree");
  std::printf("{\"rounds\": %d, \"bytes\": %zu, \"slowest_ns\": %lld}\n", rounds, taken,
              static_cast<long long>(slowest));
  return 0;
}

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Race {
  std::string ready, go;
  double seconds = 5;
};

// Whether the rest of the command line is such flags.
bool ParseRace(const std::vector<std::string>& words, size_t from, Race* race) {
  for (size_t i = from; i < words.size(); i += 2) {
    if (i + 1 == words.size()) return false;
    if (words[i] == "--ready") {
      race->ready = words[i + 1];
    } else if (words[i] == "--go") {
      race->go = words[i + 1];
    } else if (words[i] == "--seconds") {
      race->seconds = std::strtod(words[i + 1].c_str(), nullptr);
      if (!(race->seconds > 0)) return false;
    } else {
      return false;
    }
  }
  return true;
}

int Passes(const Gpu& gpu, unsigned seed, size_t all, const Race& race) {
  size_t taken = 0;
  std::vector<Piece> pieces = TakePieces(gpu, seed, all, &taken);
  if (!race.ready.empty()) std::ofstream(race.ready).flush();
  double end = SecondsSince1970() + race.seconds;
  if (!race.go.empty()) {
    while (access(race.go.c_str(), F_OK) != 0) usleep(5'000);
    std::ifstream(race.go) >> end;
  }
  const double from = SecondsSince1970();
  uint32_t passes = 0;
  for (; SecondsSince1970() < end; ++passes) {
    for (Piece& piece : pieces) gpu.Add(piece, 1);
    gpu.Synchronize();
  }
  const double elapsed = SecondsSince1970() - from;
  std::vector<uint32_t> host;
  for (const Piece& piece : pieces) {
    if (!IsRight(gpu, piece, passes, host)) return 1;
  }
  std::printf("{\"steps\": %u, \"elapsed\": %.3f, \"bytes\": %zu, \"result\": \"right\"}\n", passes,
              elapsed, taken);
  return 0;
}

int Fill(const Gpu& gpu, size_t piece_bytes) {
  size_t free = 0, total = 0;
  gpu.Check(gpu.driver.MemGetInfo(&free, &total), "cuMemGetInfo");
  std::vector<Piece> pieces;
  CUresult refused = CUDA_SUCCESS;
  const auto take = [&] {
    Piece piece;
    piece.words = static_cast<uint32_t>(piece_bytes / 4);
    refused = gpu.driver.MemAlloc(&piece.at, piece_bytes);
    if (refused == CUDA_SUCCESS) pieces.push_back(piece);
    return refused == CUDA_SUCCESS;
  };
  while (take()) {
  }
  const size_t got = pieces.size();
  const std::string error = gpu.driver.Name(refused);
  // A program that was refused goes on.
  if (!pieces.empty()) {
    gpu.Check(gpu.driver.MemFree(pieces.back().at), "cuMemFree");
    pieces.pop_back();
    if (!take()) gpu.Check(refused, "cuMemAlloc of what was freed");
    gpu.Check(gpu.driver.MemsetD32(pieces.back().at, 7, pieces.back().words), "cuMemsetD32");
    gpu.Add(pieces.back(), 3);
    uint32_t word = 0;
    gpu.Check(gpu.driver.MemcpyDtoH(&word, pieces.back().at, 4), "cuMemcpyDtoH");
    if (word != 10) {
      std::fprintf(stderr, "a word is %u, not 10\n", word);
      return 1;
    }
  }
  for (const Piece& piece : pieces) gpu.Check(gpu.driver.MemFree(piece.at), "cuMemFree");
  std::printf("{\"total\": %zu, \"free\": %zu, \"got\": %zu, \"refused\": \"%s\"}\n", total, free,
              got * piece_bytes, error.c_str());
  return 0;
}

int Leave(const Gpu& gpu, size_t bytes) {
  size_t free = 0, total = 0;
  gpu.Check(gpu.driver.MemGetInfo(&free, &total), "cuMemGetInfo");
  const size_t taken = free > bytes ? (free - bytes) / kMiB * kMiB : 0;
  CUdeviceptr at = 0;
  if (taken > 0) gpu.Check(gpu.driver.MemAlloc(&at, taken), "cuMemAlloc");
  std::printf("{\"taken\": %zu, \"left\": %zu}\n", taken, free - taken);
  std::fflush(stdout);
  char unused[64];
  while (read(STDIN_FILENO, unused, sizeof unused) > 0) {
  }
  return 0;
}

int Info(const Gpu& gpu) {
  size_t free = 0, total = 0;
  gpu.Check(gpu.driver.MemGetInfo(&free, &total), "cuMemGetInfo");
  std::printf("{\"total\": %zu, \"free\": %zu}\n", total, free);
  return 0;
}

int Run(const std::vector<std::string>& words) {
  const std::string& what = words[0];
  const auto number = [&](size_t i, uint64_t otherwise) {
    return i < words.size() ? std::strtoull(words[i].c_str(), nullptr, 10) : otherwise;
  };
  Race race;
  if (!(what == "passes" && words.size() >= 3 && ParseRace(words, 3, &race)) &&
      !(what == "rounds" && words.size() >= 4 && words.size() <= 6) &&
      !(what == "fill" && words.size() <= 2) && !(what == "leave" && words.size() == 2) &&
      !(what == "info" && words.size() == 1)) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  Result<Driver> driver = LoadDriver(Resolve::kDlsym, false);
  if (!driver) {
    std::fprintf(stderr, "baton-memory: %s\n", driver.error().message.c_str());
    return kExitUnavailable;
  }
  const Gpu gpu(*driver);
  if (what == "rounds") {
    return Rounds(gpu, static_cast<unsigned>(number(1, 0)), number(2, 0),
                  static_cast<int>(number(3, 1)), number(4, 2) * 1'000'000,
                  words.size() > 5 ? words[5] : "");
  }
  if (what == "passes") {
    return Passes(gpu, static_cast<unsigned>(number(1, 0)), number(2, 0), race);
  }
  if (what == "fill") return Fill(gpu, std::max<size_t>(4, number(1, 8 * kMiB)));
  if (what == "leave") return Leave(gpu, number(1, 0));
  return Info(gpu);
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::fputs(baton::bench::kUsage, stdout);
    return 0;
  }
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) words.emplace_back();
  return baton::bench::Run(words);
}
