// What a GPU image carries, as cuModuleLoadData takes it: PTX, a cubin, a fat binary, or what nvcc
// puts around one. Freestanding but for the C library and zstd: libbaton.so reads with it too.
#ifndef BATON_BASE_GPU_IMAGE_H_
#define BATON_BASE_GPU_IMAGE_H_

#include <elf.h>
#include <stdint.h>
#include <string.h>

namespace baton::gpu_image {

// Of what is as long as it says itself: a text ends with a zero, a cubin where its header says.
inline constexpr uint64_t kUnknownSize = UINT64_MAX;

struct Part {
  enum Kind { kPtx, kCubin } kind = kPtx;
  const char* data = nullptr;
  uint64_t size = 0;  // or kUnknownSize
};

inline bool Has(uint64_t size, uint64_t offset, uint64_t bytes) {
  return offset <= size && bytes <= size - offset;
}
// Copies what stands there, which may lie at any address. False: it is not all there.
template <class T>
bool Read(const char* data, uint64_t size, uint64_t offset, T* out) {
  if (!Has(size, offset, sizeof(T))) return false;
  memcpy(out, data + offset, sizeof(T));
  return true;
}

// The parts of an image, unpacked, one after the other. Not thread safe.
class Parts {
 public:
  // `image` ends after `size` bytes, whatever it says; or, with kUnknownSize, where it says.
  // `budget`: so many bytes may be unpacked or read as PTX, as a large library holds parts for many
  // cards.
  Parts(const void* image, uint64_t size, uint64_t budget);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // False after the last one. What `part` points to stays until the next call.
  bool Next(Part* part);
  // Whether a part was left out: for the budget, or as nobody here can unpack it.
  bool incomplete() const { return incomplete_; }

 private:
  bool NextOfFat(Part* part);

  const char* data_ = nullptr;
  uint64_t size_ = 0;
  bool fat_ = false;
  uint64_t at_ = 0, end_ = 0;  // in a fat binary
  uint64_t budget_;
  bool incomplete_ = false;
  char* unpacked_ = nullptr;  // the part that was unpacked last
};

// The sections of a cubin. Of one of unknown size, its own header is believed.
class Sections {
 public:
  Sections(const char* data, uint64_t size);
  uint64_t count() const { return count_; }
  // False where it lies outside.
  bool At(uint64_t index, Elf64_Shdr* section) const;
  const char* Name(const Elf64_Shdr& section) const {
    return Text(header_.e_shstrndx, section.sh_name);
  }
  // The text there in a section of texts; empty where it is not whole.
  const char* Text(uint64_t section, uint64_t offset) const;
  // What a section holds; null where it holds nothing, or lies outside.
  const char* Data(const Elf64_Shdr& section) const;

 private:
  const char* data_;
  uint64_t size_;
  Elf64_Ehdr header_ = {};
  uint64_t count_ = 0;
};

}  // namespace baton::gpu_image

#endif  // BATON_BASE_GPU_IMAGE_H_
