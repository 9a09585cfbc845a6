#include "hook/deepbind.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

namespace baton::hook {
namespace {

constexpr char kDriver[] = "libcuda.so";
constexpr int kDepthMax = 16;
constexpr int kSeenMax = 512;

using Path = char[PATH_MAX];

// A file, mapped to be read. Nothing is believed of what is in it.
class File {
 public:
  explicit File(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const off_t end = lseek(fd, 0, SEEK_END);
    if (end > 0) {
      void* at = mmap(nullptr, static_cast<size_t>(end), PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) {
        data_ = static_cast<const char*>(at);
        size_ = static_cast<size_t>(end);
      }
    }
    close(fd);
  }
  ~File() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  // Null: it does not reach so far.
  template <class T>
  const T* At(uint64_t offset, uint64_t count = 1) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }
  // A string with its end; null: there is none.
  const char* Text(uint64_t offset) const {
    if (offset >= size_ || memchr(data_ + offset, 0, size_ - offset) == nullptr) return nullptr;
    return data_ + offset;
  }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// The dynamic section of a library in a file.
class Library {
 public:
  explicit Library(const File& file) : file_(file) {
    const auto* header = file.At<ElfW(Ehdr)>(0);
    if (header == nullptr || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64) {
      return;
    }
    segments_ = file.At<ElfW(Phdr)>(header->e_phoff, header->e_phnum);
    segment_count_ = segments_ == nullptr ? 0 : header->e_phnum;
    for (int i = 0; i < segment_count_; ++i) {
      if (segments_[i].p_type != PT_DYNAMIC) continue;
      const uint64_t count = segments_[i].p_filesz / sizeof(ElfW(Dyn));
      dynamic_ = file.At<ElfW(Dyn)>(segments_[i].p_offset, count);
      dynamic_count_ = dynamic_ == nullptr ? 0 : count;
    }
    ForEach(DT_STRTAB, [&](uint64_t address) {
      strings_ = OffsetOf(address);
      return true;
    });
  }
  bool IsElf() const { return segments_ != nullptr; }

  // Calls `act(text)` for the entries of this kind, until it returns true: then this does.
  template <class Act>
  bool ForEachText(int64_t tag, Act act) const {
    return ForEach(tag, [&](uint64_t value) {
      const char* text = strings_ == 0 ? nullptr : file_.Text(strings_ + value);
      return text != nullptr && act(text);
    });
  }

 private:
  template <class Act>
  bool ForEach(int64_t tag, Act act) const {
    for (uint64_t i = 0; i < dynamic_count_ && dynamic_[i].d_tag != DT_NULL; ++i) {
      if (dynamic_[i].d_tag == tag && act(dynamic_[i].d_un.d_val)) return true;
    }
    return false;
  }
  uint64_t OffsetOf(uint64_t address) const {
    for (int i = 0; i < segment_count_; ++i) {
      const ElfW(Phdr)& s = segments_[i];
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz) {
        return s.p_offset + (address - s.p_vaddr);
      }
    }
    return 0;
  }

  const File& file_;
  const ElfW(Phdr) * segments_ = nullptr;
  int segment_count_ = 0;
  const ElfW(Dyn) * dynamic_ = nullptr;
  uint64_t dynamic_count_ = 0;
  uint64_t strings_ = 0;
};

bool Exists(const char* path) { return access(path, R_OK) == 0; }

// `from`, of `n` bytes, with $ORIGIN as the folder of `owner`, and "/name" behind it. False: it is
// too long.
bool Join(const char* from, size_t n, const char* owner, const char* name, Path& out) {
  const char* slash = strrchr(owner, '/');
  const size_t origin = slash == nullptr ? 0 : static_cast<size_t>(slash - owner);
  size_t length = 0;
  const auto add = [&](const char* text, size_t count) {
    if (length + count >= sizeof(Path)) return false;
    memcpy(out + length, text, count);
    length += count;
    return true;
  };
  for (size_t i = 0; i < n;) {
    const size_t word = strncmp(from + i, "${ORIGIN}", 9) == 0 ? 9
                        : strncmp(from + i, "$ORIGIN", 7) == 0 ? 7
                                                               : 0;
    if (!(word > 0 ? add(owner, origin) : add(from + i, 1))) return false;
    i += word > 0 ? word : 1;
  }
  if (name != nullptr && (!add("/", 1) || !add(name, strlen(name)))) return false;
  out[length] = 0;
  return true;
}

// Looks for the library in folders between ":".
bool InFolders(const char* folders, const char* owner, const char* name, Path& out) {
  while (folders != nullptr && *folders != 0) {
    const size_t n = strcspn(folders, ":");
    if (n > 0 && Join(folders, n, owner, name, out) && Exists(out)) return true;
    folders += n + (folders[n] == ':');
  }
  return false;
}

// Looks for the library in what ldconfig has found.
bool InCache(const char* name, Path& out) {
  struct Entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hwcap;
  };
  constexpr char kMagic[] = "glibc-ld.so.cache1.1";
  const File cache("/etc/ld.so.cache");
  const char* begin = cache.data() == nullptr
                          ? nullptr
                          : static_cast<const char*>(
                                memmem(cache.data(), cache.size(), kMagic, sizeof(kMagic) - 1));
  if (begin == nullptr) return false;
  const auto at = static_cast<uint64_t>(begin - cache.data());
  constexpr uint64_t kHeader = 48;
  const auto* count = cache.At<uint32_t>(at + 20);
  const auto* entries = count == nullptr ? nullptr : cache.At<Entry>(at + kHeader, *count);
  for (uint32_t i = 0; entries != nullptr && i < *count; ++i) {
    const char* key = cache.Text(at + entries[i].key);
    const char* value = cache.Text(at + entries[i].value);
    if (key == nullptr || value == nullptr || strcmp(key, name) != 0) continue;
    if (Join(value, strlen(value), "", nullptr, out) && Exists(out)) return true;
  }
  return false;
}

// The file that the loader would take for `name`, asked for by the library or program `owner`.
bool Find(const char* name, const char* owner, const Library& asking, Path& out) {
  if (strchr(name, '/') != nullptr) {
    return Join(name, strlen(name), owner, nullptr, out) && Exists(out);
  }
  const auto in = [&](const char* folders) { return InFolders(folders, owner, name, out); };
  return asking.ForEachText(DT_RPATH, in) || in(getenv("LD_LIBRARY_PATH")) ||
         asking.ForEachText(DT_RUNPATH, in) || InCache(name, out) ||
         in("/lib64:/usr/lib64:/lib/" MULTIARCH ":/usr/lib/" MULTIARCH ":/lib:/usr/lib");
}

// What was looked at already: libraries need each other in all directions.
struct Seen {
  uint64_t names[kSeenMax];
  int count = 0;
};

bool FirstTime(Seen& seen, const char* path) {
  uint64_t hash = 14695981039346656037u;
  for (const char* c = path; *c != 0; ++c) {
    hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211u;
  }
  for (int i = 0; i < seen.count; ++i) {
    if (seen.names[i] == hash) return false;
  }
  if (seen.count == kSeenMax) return false;
  seen.names[seen.count++] = hash;
  return true;
}

bool Reaches(const char* path, Seen& seen, int depth) {
  if (depth > kDepthMax || !FirstTime(seen, path)) return false;
  const File file(path);
  const Library library(file);
  if (!library.IsElf()) return false;
  // By its name, in what it needs or in what it opens: a static runtime does that.
  if (memmem(file.data(), file.size(), kDriver, sizeof(kDriver) - 1) != nullptr) return true;
  return library.ForEachText(DT_NEEDED, [&](const char* name) {
    auto* needed = static_cast<char*>(malloc(sizeof(Path)));
    if (needed == nullptr) return false;
    const bool reaches = Find(name, path, library, *reinterpret_cast<Path*>(needed)) &&
                         Reaches(needed, seen, depth + 1);
    free(needed);
    return reaches;
  });
}

// The file of the program or library that an address is in.
struct Owner {
  uint64_t address;
  Path path;
};

int IsIn(dl_phdr_info* info, size_t, void* argument) {
  auto* owner = static_cast<Owner*>(argument);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& s = info->dlpi_phdr[i];
    const uint64_t begin = info->dlpi_addr + s.p_vaddr;
    if (s.p_type != PT_LOAD || owner->address < begin || owner->address - begin >= s.p_memsz) {
      continue;
    }
    const bool program = info->dlpi_name == nullptr || info->dlpi_name[0] == 0;
    if (program) {
      const ssize_t n = readlink("/proc/self/exe", owner->path, sizeof(owner->path) - 1);
      owner->path[n > 0 ? n : 0] = 0;
    } else {
      snprintf(owner->path, sizeof(owner->path), "%s", info->dlpi_name);
    }
    return 1;
  }
  return 0;
}

struct Work {
  Owner owner;
  Path path;
  Seen seen;
};

}  // namespace

bool ReachesCuda(const char* file, const void* caller) {
  auto* work = static_cast<Work*>(malloc(sizeof(Work)));
  if (work == nullptr) return false;
  work->owner.address = reinterpret_cast<uintptr_t>(caller);
  work->owner.path[0] = 0;
  work->seen.count = 0;
  dl_iterate_phdr(IsIn, &work->owner);
  bool reaches = false;
  {
    const File asking(work->owner.path);
    if (Find(file, work->owner.path, Library(asking), work->path)) {
      reaches = Reaches(work->path, work->seen, 0);
    }
  }
  free(work);
  return reaches;
}

}  // namespace baton::hook
