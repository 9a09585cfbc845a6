#include "base/gpu_image.h"

#include <stdlib.h>
#include <zstd.h>

// zstd calls these, where a program has them, to trace what it does. It is linked into libbaton.so,
// and no other library shall answer there.
extern "C" {
[[gnu::visibility("hidden")]] unsigned long long ZSTD_trace_decompress_begin(const ZSTD_DCtx*) {
  return 0;
}
[[gnu::visibility("hidden")]] void ZSTD_trace_decompress_end(unsigned long long, const void*) {}
}

namespace baton::gpu_image {
namespace {

struct Wrapper {  // what nvcc puts around a fat binary
  static constexpr uint32_t kMagic = 0x466243b1;
  uint32_t magic, version;
  const void* data;
  const void* more;
};
struct Fat {
  static constexpr uint32_t kMagic = 0xba55ed50;
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of all parts
};
struct FatPart {
  static constexpr uint16_t kPtx = 1, kCubin = 2;
  static constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t packed_bytes, unused;
  uint16_t minor, major;
  uint32_t arch, name_offset, name_bytes;
  uint64_t flags, zero, unpacked_bytes;
};

// One block of LZ4. How much came out; at most `room`.
uint64_t UnpackLz4(const char* from, uint64_t size, char* out, uint64_t room) {
  const auto* in = reinterpret_cast<const unsigned char*>(from);
  uint64_t i = 0, o = 0;
  const auto length = [&](uint64_t n) {
    if (n < 15) return n;
    unsigned char more = 255;
    while (more == 255 && i < size) n += more = in[i++];
    return n;
  };
  while (i < size) {
    const unsigned token = in[i++];
    const uint64_t literals = length(token >> 4);
    if (literals > size - i || literals > room - o) break;
    memcpy(out + o, in + i, literals);
    i += literals;
    o += literals;
    if (size - i < 2) break;
    const uint64_t back = in[i] | static_cast<uint64_t>(in[i + 1]) << 8;
    i += 2;
    const uint64_t match = length(token & 15) + 4;
    if (back == 0 || back > o || match > room - o) break;
    for (uint64_t k = 0; k < match; ++k, ++o) out[o] = out[o - back];
  }
  return o;
}

uint64_t UnpackZstd(const char* in, uint64_t size, char* out, uint64_t room) {
  const size_t n = ZSTD_decompress(out, room, in, size);
  return ZSTD_isError(n) != 0 ? 0 : n;
}

bool IsCubin(const char* data, uint64_t size) {
  return size > SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0;
}

}  // namespace

Parts::Parts(const void* image, uint64_t size, uint64_t budget)
    : data_(static_cast<const char*>(image)), size_(size), budget_(budget) {
  uint32_t magic = 0;
  if (image == nullptr || size < sizeof(magic)) {
    data_ = nullptr;
    return;
  }
  // What is not known to be longer may be a short text.
  for (size_t i = 0; i < sizeof(magic); ++i) {
    if (data_[i] == 0) {
      data_ = nullptr;
      return;
    }
    reinterpret_cast<char*>(&magic)[i] = data_[i];
  }
  if (magic == Wrapper::kMagic && size == kUnknownSize) {
    Wrapper wrapper;
    memcpy(&wrapper, data_, sizeof(wrapper));
    data_ = static_cast<const char*>(wrapper.data);
    if (data_ == nullptr) return;
    memcpy(&magic, data_, sizeof(magic));
    if (magic != Fat::kMagic) data_ = nullptr;
  }
  if (magic != Fat::kMagic) return;
  fat_ = true;
  Fat fat;
  if (!Read(data_, size_, 0, &fat) || !Has(size_, fat.header_bytes, fat.bytes)) return;
  at_ = fat.header_bytes;
  end_ = at_ + fat.bytes;
}

Parts::~Parts() { free(unpacked_); }

bool Parts::Next(Part* part) {
  if (data_ == nullptr) return false;
  if (fat_) return NextOfFat(part);
  *part = {IsCubin(data_, size_) ? Part::kCubin : Part::kPtx, data_, size_};
  data_ = nullptr;
  return true;
}

bool Parts::NextOfFat(Part* part) {
  FatPart header;
  while (Read(data_, end_, at_, &header)) {
    const uint64_t at = at_ + header.header_bytes;
    if (header.header_bytes < sizeof(header) || !Has(end_, at, header.bytes)) return false;
    at_ = at + header.bytes;
    if (header.kind != FatPart::kPtx && header.kind != FatPart::kCubin) continue;
    const char* data = data_ + at;
    const bool packed = (header.flags & (FatPart::kLz4 | FatPart::kZstd)) != 0;
    if (!packed && header.kind == FatPart::kCubin) {
      *part = {Part::kCubin, data, header.bytes};
      return true;
    }
    const uint64_t work = packed ? header.unpacked_bytes : header.bytes;
    if (work > budget_ || header.packed_bytes > header.bytes) {
      incomplete_ = true;
      continue;
    }
    budget_ -= work;
    if (!packed) {
      *part = {Part::kPtx, data, header.bytes};
      return true;
    }
    free(unpacked_);
    unpacked_ = static_cast<char*>(malloc(header.unpacked_bytes + 1));
    const uint64_t bytes = header.packed_bytes != 0 ? header.packed_bytes : header.bytes;
    const auto unpack = (header.flags & FatPart::kLz4) != 0 ? UnpackLz4 : UnpackZstd;
    const uint64_t n =
        unpacked_ == nullptr ? 0 : unpack(data, bytes, unpacked_, header.unpacked_bytes);
    if (n == 0) {
      incomplete_ = true;
      continue;
    }
    *part = {IsCubin(unpacked_, n) ? Part::kCubin : Part::kPtx, unpacked_, n};
    return true;
  }
  return false;
}

Sections::Sections(const char* data, uint64_t size) : data_(data), size_(size) {
  if (Read(data, size, 0, &header_) && header_.e_ident[EI_CLASS] == ELFCLASS64) {
    count_ = header_.e_shnum;
  }
}

bool Sections::At(uint64_t index, Elf64_Shdr* section) const {
  return index < count_ && header_.e_shoff <= size_ &&
         Read(data_, size_, header_.e_shoff + index * sizeof(*section), section);
}

const char* Sections::Text(uint64_t section, uint64_t offset) const {
  Elf64_Shdr texts;
  const char* data = At(section, &texts) ? Data(texts) : nullptr;
  if (data == nullptr || offset >= texts.sh_size) return "";
  const bool ends = memchr(data + offset, 0, texts.sh_size - offset) != nullptr;
  return ends ? data + offset : "";
}

const char* Sections::Data(const Elf64_Shdr& section) const {
  const bool there =
      section.sh_type != SHT_NOBITS && Has(size_, section.sh_offset, section.sh_size);
  return there ? data_ + section.sh_offset : nullptr;
}

}  // namespace baton::gpu_image
