// GPU images made by hand: cubins and fat binaries.
#ifndef BATON_TESTS_GPU_IMAGE_H_
#define BATON_TESTS_GPU_IMAGE_H_

#include <elf.h>
#include <zstd.h>

#include <cstring>
#include <string>

namespace baton::gpu_image {

template <class T>
void Append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string Cubin(uint64_t global, uint64_t init) {
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

inline void AddPart(std::string& fat, uint16_t kind, const std::string& data, uint64_t flags,
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

inline std::string Fat(const std::string& parts) {
  std::string fat;
  Append(fat, uint32_t{0xba55ed50});
  Append(fat, uint16_t{1});
  Append(fat, uint16_t{16});
  Append(fat, uint64_t{parts.size()});
  return fat + parts;
}

// LZ4 without a match: literals alone.
inline std::string Packed(const std::string& data) {
  std::string packed(1, static_cast<char>(0xf0));
  size_t left = data.size() - 15;
  for (; left >= 255; left -= 255) packed += static_cast<char>(255);
  packed += static_cast<char>(left);
  return packed + data;
}

inline std::string PackedByZstd(const std::string& data) {
  std::string packed(ZSTD_compressBound(data.size()), 0);
  packed.resize(ZSTD_compress(packed.data(), packed.size(), data.data(), data.size(), 3));
  return packed;
}

}  // namespace baton::gpu_image

#endif  // BATON_TESTS_GPU_IMAGE_H_
