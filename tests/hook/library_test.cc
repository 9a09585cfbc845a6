// What libbaton.so is as a file: it goes into other people's processes, so what it shows and what
// it needs is a promise.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace baton::hook {
namespace {

// The dynamic part of a library, read from the file.
class Library : public testing::Test {
 protected:
  void SetUp() override {
    const int fd = open(BATON_HOOK_LIBRARY, O_RDONLY);
    ASSERT_GE(fd, 0);
    struct stat info;
    ASSERT_EQ(fstat(fd, &info), 0);
    file_ = static_cast<const char*>(
        mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0));
    close(fd);
    ASSERT_NE(file_, MAP_FAILED);
    const auto* header = At<ElfW(Ehdr)>(0);
    const auto* sections = At<ElfW(Shdr)>(header->e_shoff);
    for (int i = 0; i < header->e_shnum; ++i) {
      const ElfW(Shdr)& s = sections[i];
      const char* strings = At<char>(sections[s.sh_link].sh_offset);
      if (s.sh_type == SHT_DYNAMIC) {
        for (const auto* d = At<ElfW(Dyn)>(s.sh_offset); d->d_tag != DT_NULL; ++d) {
          if (d->d_tag == DT_NEEDED) needed_.insert(strings + d->d_un.d_val);
        }
      } else if (s.sh_type == SHT_GNU_verneed) {
        ReadVersions(s.sh_offset, s.sh_info, strings);
      } else if (s.sh_type == SHT_DYNSYM) {
        const auto* symbols = At<ElfW(Sym)>(s.sh_offset);
        for (size_t n = 1; n < s.sh_size / sizeof(ElfW(Sym)); ++n) {
          const std::string name = strings + symbols[n].st_name;
          const bool weak = ELF64_ST_BIND(symbols[n].st_info) == STB_WEAK;
          if (symbols[n].st_shndx == SHN_UNDEF) {
            (weak ? weak_ : undefined_).insert(name);
          } else if (symbols[n].st_shndx != SHN_ABS) {
            defined_.insert(name);
            if (weak) weak_.insert(name);
          }
        }
      }
    }
  }

  template <class T>
  const T* At(size_t offset) const {
    return reinterpret_cast<const T*>(file_ + offset);
  }

  void ReadVersions(size_t offset, size_t files, const char* strings) {
    for (size_t i = 0; i < files; ++i) {
      const auto* need = At<ElfW(Verneed)>(offset);
      size_t at = offset + need->vn_aux;
      for (int v = 0; v < need->vn_cnt; ++v) {
        const auto* aux = At<ElfW(Vernaux)>(at);
        versions_.insert(strings + aux->vna_name);
        at += aux->vna_next;
      }
      offset += need->vn_next;
    }
  }

  const char* file_ = nullptr;
  std::set<std::string> needed_, versions_, defined_, undefined_, weak_;
};

TEST_F(Library, NeedsTheCLibraryAlone) {
  for (const std::string& name : needed_) {
    EXPECT_TRUE(name == "libc.so.6" || name.starts_with("ld-linux")) << name;
  }
}

TEST_F(Library, NeedsNothingNewerThanGlibc217) {
  ASSERT_FALSE(versions_.empty());
  for (const std::string& version : versions_) {
    int major = 0, minor = 0;
    ASSERT_GE(sscanf(version.c_str(), "GLIBC_%d.%d", &major, &minor), 2) << version;
    EXPECT_LE(major * 1000 + minor, 2017) << version;
  }
}

TEST_F(Library, ExportsTheDriversNamesAndDlsymAlone) {
  std::set<std::string> expected = {"dlsym", "dlvsym"};
#define BATON_ENTRY(spelling, name, since, per_thread) expected.insert(#spelling);
#include "hook/entries.inc"
#undef BATON_ENTRY
  EXPECT_EQ(defined_, expected);
}

TEST_F(Library, HasNoSymbolOfACxxRuntimeAndNoneThatAnotherLibraryCouldReplace) {
  for (const std::string& name : undefined_) {
    EXPECT_FALSE(name.starts_with("_Z") || name.starts_with("__cxa_throw") ||
                 name.starts_with("__gxx") || name.starts_with("_Unwind"))
        << name;
  }
  // What the compiler's start files ask for, if it is there.
  weak_.erase("__cxa_finalize");
  weak_.erase("__gmon_start__");
  weak_.erase("_ITM_deregisterTMCloneTable");
  weak_.erase("_ITM_registerTMCloneTable");
  EXPECT_EQ(weak_, std::set<std::string>{});
}

}  // namespace
}  // namespace baton::hook
