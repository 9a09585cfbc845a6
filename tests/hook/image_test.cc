// Images of modules, as far as the hook reads them.
#include "hook/image.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "tests/temp_folder.h"

namespace baton::hook {
namespace {

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

template <class T>
void Append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Cubin(uint64_t global, uint64_t init) {
  const std::string names = std::string("\0.shstrtab\0.nv.global\0.nv.global.init\0.text", 43);
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof(header) + names.size();
  header.e_shnum = 4;
  header.e_shstrndx = 0;
  std::string cubin;
  Append(cubin, header);
  cubin += names;
  const auto section = [&](const char* name, uint64_t size) {
    Elf64_Shdr s = {};
    s.sh_name = static_cast<uint32_t>(names.find(name));
    s.sh_offset = sizeof(header);
    s.sh_size = size;
    Append(cubin, s);
  };
  section(".shstrtab", names.size());
  section(".nv.global", global);
  section(".nv.global.init", init);
  section(".text", 1 << 30);
  return cubin;
}

void AddPart(std::string& fat, uint16_t kind, const std::string& data, uint64_t flags,
             uint64_t unpacked) {
  Append(fat, kind);
  Append(fat, uint16_t{0x101});
  Append(fat, uint32_t{64});
  Append(fat, uint64_t{data.size()});
  Append(fat, static_cast<uint32_t>(flags == 0 ? 0 : data.size()));
  for (int i = 0; i < 5; ++i) Append(fat, uint32_t{0});
  fat.resize(fat.size() - 4);
  Append(fat, uint32_t{0});
  Append(fat, flags);
  Append(fat, uint64_t{0});
  Append(fat, unpacked);
  fat += data;
}

std::string Fat(const std::string& parts) {
  std::string fat;
  Append(fat, uint32_t{0xba55ed50});
  Append(fat, uint16_t{1});
  Append(fat, uint16_t{16});
  Append(fat, uint64_t{parts.size()});
  return fat + parts;
}

// LZ4 without a match: literals alone.
std::string Packed(const std::string& data) {
  std::string packed(1, static_cast<char>(0xf0));
  size_t left = data.size() - 15;
  for (; left >= 255; left -= 255) packed += static_cast<char>(255);
  packed += static_cast<char>(left);
  return packed + data;
}

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
