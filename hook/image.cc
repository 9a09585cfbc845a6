#include "hook/image.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace baton::hook {
namespace {

constexpr uint64_t kUnknownSize = UINT64_MAX;
// A large library holds parts for many cards, and its load is not to take seconds longer.
constexpr uint64_t kBudget = uint64_t{64} << 20;

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
struct Part {
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

uint64_t Max(uint64_t a, uint64_t b) { return a > b ? a : b; }
uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
uint64_t Plus(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

bool Has(uint64_t size, uint64_t offset, uint64_t bytes) {
  return offset <= size && bytes <= size - offset;
}

// Copies what stands there, which may lie at any address. False: it is not all there.
template <class T>
bool Read(const char* data, uint64_t size, uint64_t offset, T* out) {
  if (!Has(size, offset, sizeof(T))) return false;
  memcpy(out, data + offset, sizeof(T));
  return true;
}

// The sections of variables of a cubin. Its own header is believed where its size is not known.
uint64_t OfCubin(const char* data, uint64_t size) {
  Elf64_Ehdr header;
  Elf64_Shdr names, section;
  if (!Read(data, size, 0, &header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shstrndx >= header.e_shnum) {
    return 0;
  }
  const auto read_section = [&](uint64_t i, Elf64_Shdr* out) {
    return header.e_shoff <= size && Read(data, size, header.e_shoff + i * sizeof(*out), out);
  };
  if (!read_section(header.e_shstrndx, &names)) return 0;
  constexpr char kGlobal[] = ".nv.global";
  char name[sizeof(kGlobal) - 1];
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < header.e_shnum && read_section(i, &section); ++i) {
    if (names.sh_offset <= size && Read(data, size, names.sh_offset + section.sh_name, &name) &&
        memcmp(name, kGlobal, sizeof(name)) == 0) {
      bytes = Plus(bytes, section.sh_size);
    }
  }
  return bytes;
}

bool IsName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

// PTX: declarations such as ".visible .global .align 4 .v2 .f32 name[4][8] = {...};".
class Ptx {
 public:
  Ptx(const char* text, uint64_t size)
      : at_(text),
        end_(size == kUnknownSize ? reinterpret_cast<const char*>(UINTPTR_MAX) : text + size) {}

  uint64_t Bytes() {
    uint64_t bytes = 0;
    bool is_extern = false;
    const char* word = nullptr;
    size_t n = 0;
    while (Next(&word, &n)) {
      if (Is(word, n, ".extern")) {
        is_extern = true;
        continue;
      }
      if (Is(word, n, ".global") && !is_extern) bytes = Plus(bytes, Declaration());
      if (!Is(word, n, ".visible") && !Is(word, n, ".weak")) is_extern = false;
    }
    return bytes;
  }

 private:
  static bool Is(const char* word, size_t n, const char* what) {
    return strlen(what) == n && memcmp(word, what, n) == 0;
  }
  static uint64_t Number(const char* digits, size_t n) {
    uint64_t number = 0;
    for (size_t i = 0; i < n && digits[i] >= '0' && digits[i] <= '9'; ++i) {
      number = Plus(Times(number, 10), static_cast<uint64_t>(digits[i] - '0'));
    }
    return number;
  }
  // The next word: of a name's letters, or one other letter.
  bool Next(const char** word, size_t* n) {
    while (at_ < end_ && *at_ != 0) {
      if (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r') {
        ++at_;
      } else if (at_[0] == '/' && at_ + 1 < end_ && at_[1] == '/') {
        while (at_ < end_ && *at_ != 0 && *at_ != '\n') ++at_;
      } else {
        *word = at_;
        while (at_ < end_ && IsName(*at_)) ++at_;
        if (at_ == *word) ++at_;
        *n = static_cast<size_t>(at_ - *word);
        return true;
      }
    }
    return false;
  }
  // What follows .global, up to its end.
  uint64_t Declaration() {
    uint64_t each = 0, all = 0, count = 1;
    bool in_brackets = false, named = false;
    const char* word = nullptr;
    size_t n = 0;
    while (Next(&word, &n) && *word != ';' && *word != '=') {
      if (*word == '.') {
        const uint64_t bits = n < 3 ? 0 : Number(word + 2, n - 2);
        if (bits > 0 && word[1] == 'v') count = bits;
        if (bits >= 8 && strchr("busf", word[1]) != nullptr) each = bits / 8;
      } else if (*word == '[' || *word == ']') {
        in_brackets = *word == '[';
      } else if (in_brackets) {
        count = Times(count, Number(word, n));
      } else if (*word == ',') {  // another one of the same kind
        all = Plus(all, Times(each, count));
        count = 1;
      } else if (each > 0) {
        named = true;
      }
    }
    return named ? Plus(all, Times(each, count)) : 0;
  }

  const char* at_;
  const char* end_;
};

uint64_t OfBytes(const char* data, uint64_t size) {
  if (size > 4 && memcmp(data, ELFMAG, SELFMAG) == 0) return OfCubin(data, size);
  return Ptx(data, size).Bytes();
}

// One block of LZ4. How much came out; at most `room`.
uint64_t Unpack(const unsigned char* in, uint64_t size, char* out, uint64_t room) {
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

// `budget`: so much may still be unpacked or read as text for this image.
uint64_t OfPart(const Part& part, const char* data, uint64_t& budget) {
  if (part.kind != Part::kPtx && part.kind != Part::kCubin) return 0;
  const bool plain = (part.flags & (Part::kLz4 | Part::kZstd)) == 0;
  if (plain && part.kind == Part::kCubin) return OfCubin(data, part.bytes);
  if ((!plain && (part.flags & Part::kLz4) == 0) || part.packed_bytes > part.bytes) return 0;
  const uint64_t work = plain ? part.bytes : part.unpacked_bytes;
  if (work > budget) return 0;
  budget -= work;
  if (plain) return OfBytes(data, part.bytes);
  auto* unpacked = static_cast<char*>(malloc(part.unpacked_bytes + 1));
  if (unpacked == nullptr) return 0;
  const uint64_t packed = part.packed_bytes != 0 ? part.packed_bytes : part.bytes;
  const uint64_t n =
      Unpack(reinterpret_cast<const unsigned char*>(data), packed, unpacked, part.unpacked_bytes);
  const uint64_t bytes = OfBytes(unpacked, n);
  free(unpacked);
  return bytes;
}

uint64_t OfFat(const char* data, uint64_t size) {
  Fat fat;
  if (!Read(data, size, 0, &fat) || !Has(size, fat.header_bytes, fat.bytes)) return 0;
  const uint64_t end = fat.header_bytes + fat.bytes;
  uint64_t most = 0;
  uint64_t budget = kBudget;
  Part part;
  for (uint64_t at = fat.header_bytes; Read(data, end, at, &part);) {
    if (part.header_bytes < sizeof(Part) || !Has(end, at + part.header_bytes, part.bytes)) break;
    most = Max(most, OfPart(part, data + at + part.header_bytes, budget));
    at += part.header_bytes + part.bytes;
  }
  return most;
}

uint64_t OfImage(const char* data, uint64_t size) {
  uint32_t magic = 0;
  if (size < sizeof(magic)) return 0;
  // What is not known to be longer may be a short text.
  for (size_t i = 0; i < sizeof(magic); ++i) {
    if (data[i] == 0) return 0;
    reinterpret_cast<char*>(&magic)[i] = data[i];
  }
  if (magic == Wrapper::kMagic && size == kUnknownSize) {
    Wrapper wrapper;
    memcpy(&wrapper, data, sizeof(wrapper));
    const void* inner = wrapper.data;
    return inner == nullptr ? 0 : OfFat(static_cast<const char*>(inner), kUnknownSize);
  }
  return magic == Fat::kMagic ? OfFat(data, size) : OfBytes(data, size);
}

}  // namespace

uint64_t VariableBytes(const char* image, uint64_t size) { return OfImage(image, size); }

uint64_t VariableBytes(const void* image) {
  return image == nullptr ? 0 : OfImage(static_cast<const char*>(image), kUnknownSize);
}

uint64_t VariableBytesOfFile(const char* path) {
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const off_t end = lseek(fd, 0, SEEK_END);
  uint64_t bytes = 0;
  if (end > 0) {
    const auto size = static_cast<size_t>(end);
    void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at != MAP_FAILED) {
      bytes = VariableBytes(static_cast<const char*>(at), size);
      munmap(at, size);
    }
  }
  close(fd);
  return bytes;
}

}  // namespace baton::hook
