// Images of modules, as far as the hook reads them.
#include "hook/image.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/gpu_image.h"
#include "tests/temp_folder.h"

namespace baton::hook {
namespace {

using namespace gpu_image;

constexpr char kPtx[] = R"(.version 8.0
.target sm_80
// .global .b8 comment[100];
.visible .global .align 4 .u32 counter;
.global .align 1 .b8 big[67108864];
.extern .global .align 4 .b8 elsewhere[1000000];
.global .align 8 .v2 .f64 pairs[3][5] = {1, 2};
.global .attribute(.managed) .align 4 .b8 m[4000];
.const .align 4 .b8 c[1024];
.visible .entry k() { ld.global.u32 %r1, [counter]; st.global.u8 [%rd3], %r3; ret; }
)";
constexpr uint64_t kPtxBytes = 4 + 67108864 + 16 * 15 + 4000;

TEST(Image, VariablesOfPtxAreThoseThatItDefines) {
  EXPECT_EQ(VariableBytes(kPtx), kPtxBytes);
  EXPECT_EQ(VariableBytes(".version 8.0\n"), 0u);
  EXPECT_EQ(VariableBytes(".version 8.0\n.global .b8 many[18446744073709551615]; .global .u8 x;"),
            UINT64_MAX);
  EXPECT_EQ(VariableBytes(nullptr), 0u);
}

TEST(Image, VariablesOfACubinAreItsSections) {
  EXPECT_EQ(VariableBytes(Cubin(0x4000fa0, 16).data()), 0x4000fa0u + 16);
}

TEST(Image, AFatBinaryTakesWhatItsLargestPartDoes) {
  std::string parts;
  AddPart(parts, 2, Cubin(1000, 24), 0, 0);
  AddPart(parts, 2, Cubin(2000, 48), 0, 0);
  AddPart(parts, 1, ".version 8.0\n.global .b8 small[10];", 0, 0);
  const std::string fat = Fat(parts);
  EXPECT_EQ(VariableBytes(fat.data()), 2048u);
  const struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* data;
    const void* more = nullptr;
  } wrapper = {.data = fat.data()};
  EXPECT_EQ(VariableBytes(&wrapper), 2048u);
}

TEST(Image, WhatIsPackedByLz4IsRead) {
  std::string parts;
  AddPart(parts, 1, Packed(kPtx), 0x2000, sizeof(kPtx) - 1);
  EXPECT_EQ(VariableBytes(Fat(parts).data()), kPtxBytes);
}

TEST(Image, WhatIsPackedByZstdIsRead) {
  const std::string packed = PackedByZstd(kPtx);
  std::string parts;
  AddPart(parts, 1, packed, 0x8000, sizeof(kPtx) - 1);
  EXPECT_EQ(VariableBytes(Fat(parts).data()), kPtxBytes);
  // Broken parts are left out, and those after them read.
  for (size_t n = 0; n < packed.size(); ++n) {
    std::string broken = packed;
    broken[n] = static_cast<char>(~broken[n]);
    parts.clear();
    AddPart(parts, 1, packed.substr(0, n), 0x8000, sizeof(kPtx) - 1);
    AddPart(parts, 1, packed, 0x8000, 10);
    AddPart(parts, 1, packed, 0x8000, UINT64_MAX);
    AddPart(parts, 2, Cubin(1000, 24), 0, 0);
    EXPECT_EQ(VariableBytes(Fat(parts).data()), 1024u) << n;
    parts.clear();
    AddPart(parts, 1, broken, 0x8000, sizeof(kPtx) - 1);
    VariableBytes(Fat(parts).data());
  }
}

TEST(Image, AFileIsReadAndNothingBehindItsEnd) {
  TempFolder folder;
  const std::string path = folder.path() + "/image";
  std::string parts;
  AddPart(parts, 2, Cubin(1000, 24), 0, 0);
  const std::string fat = Fat(parts);
  for (size_t n = 0; n <= fat.size(); ++n) {
    std::ofstream(path, std::ios::trunc).write(fat.data(), static_cast<std::streamsize>(n));
    EXPECT_EQ(VariableBytesOfFile(path.c_str()), n == fat.size() ? 1024u : 0u) << n;
  }
  EXPECT_EQ(VariableBytesOfFile("/nowhere"), 0u);
}

}  // namespace
}  // namespace baton::hook
