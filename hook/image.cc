#include "hook/image.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/gpu_image.h"

namespace baton::hook {
namespace {

// A large library holds parts for many cards, and its load is not to take seconds longer.
constexpr uint64_t kBudget = uint64_t{64} << 20;

uint64_t Max(uint64_t a, uint64_t b) { return a > b ? a : b; }
uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
uint64_t Plus(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

// The sections of variables of a cubin.
uint64_t OfCubin(const char* data, uint64_t size) {
  constexpr char kGlobal[] = ".nv.global";
  const gpu_image::Sections sections(data, size);
  Elf64_Shdr section;
  uint64_t bytes = 0;
  for (uint64_t i = 0; sections.At(i, &section); ++i) {
    if (strncmp(sections.Name(section), kGlobal, strlen(kGlobal)) == 0) {
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
        end_(size == gpu_image::kUnknownSize ? reinterpret_cast<const char*>(UINTPTR_MAX)
                                             : text + size) {}

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

uint64_t OfImage(const void* image, uint64_t size) {
  gpu_image::Parts parts(image, size, kBudget);
  gpu_image::Part part;
  uint64_t most = 0;
  while (parts.Next(&part)) {
    most = Max(most, part.kind == gpu_image::Part::kCubin ? OfCubin(part.data, part.size)
                                                          : Ptx(part.data, part.size).Bytes());
  }
  return most;
}

}  // namespace

uint64_t VariableBytes(const char* image, uint64_t size) { return OfImage(image, size); }

uint64_t VariableBytes(const void* image) { return OfImage(image, gpu_image::kUnknownSize); }

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
