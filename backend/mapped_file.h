// A file mapped for reading and writing, of which another program may take the ground: it cuts the
// file short, or the disk has no page for it. What is mapped becomes memory of this process then,
// so whoever writes there goes on, and asks torn() before it relies on the file.
// Not thread safe, but any thread may touch what is mapped.
#ifndef BATON_BACKEND_MAPPED_FILE_H_
#define BATON_BACKEND_MAPPED_FILE_H_

#include <cstddef>
#include <utility>

namespace baton::backend {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : region_(std::exchange(other.region_, nullptr)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(region_, other.region_);
    return *this;
  }

  // Maps the first `size` bytes of `fd`, whole pages, in place of what was mapped before; false
  // with errno, and nothing changed, where that cannot be. `fd` may be closed afterwards. What lies
  // beyond the file's end tears when it is touched, so make room on the disk first.
  bool Map(int fd, size_t size);
  bool mapped() const { return region_ != nullptr; }
  // Stays where it is as long as this is mapped, torn or not.
  char* data() const;
  // Whether data() is memory, no longer the file.
  bool torn() const;

  // Copies the first `bytes` bytes aside: they stand there should it be torn. Zeros where nothing
  // was kept. A file that was torn keeps what it has.
  void Keep(size_t bytes);
  // As if it had been torn: memory, with what was kept. False where nothing was.
  bool Tear();

 private:
  struct Region;
  static Region* NewRegion();
  Region* region_ = nullptr;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_MAPPED_FILE_H_
