// What libbaton.so is as a file: it goes into other people's processes, so what it shows and what
// it needs is a promise.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "hook/nvml.h"

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

TEST_F(Library, ExportsTheDriversNamesAndThoseThatFindThemAlone) {
  std::set<std::string> expected = {"dlopen", "dlsym", "dlvsym"};
#define BATON_ENTRY(action, spelling, name, since, per_thread) expected.insert(#spelling);
#include "hook/functions.inc"
#define BATON_NVML_NAME(name) expected.insert(#name);
  BATON_NVML_REPLACED(BATON_NVML_NAME)
  EXPECT_EQ(defined_, expected);
}

// The words of a C header without its comments; brackets, commas and the like are words of their
// own.
std::vector<std::string> WordsOf(const char* path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i) + 2;
    } else if (text.compare(i, 2, "//") == 0) {
      i = text.find('\n', i);
    } else if (isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_') {
      const size_t begin = i;
      while (isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_') ++i;
      words.push_back(text.substr(begin, i - begin));
    } else {
      if (!isspace(static_cast<unsigned char>(text[i]))) words.emplace_back(1, text[i]);
      ++i;
    }
  }
  return words;
}

// Every driver function that the cuda.h in use declares, by the names that it is exported under:
// `#define cuX __CUDA_API_PTSZ(cuX_v2)` stands for cuX_v2 and cuX_v2_ptsz. The older generations
// stand at the header's end, where the renaming is undone.
std::set<std::string> DriverFunctions() {
  const std::vector<std::string> words = WordsOf(BATON_CUDA_HEADER);
  std::map<std::string, std::set<std::string>> renamed;
  std::set<std::string> found;
  for (size_t i = 0; i + 5 < words.size(); ++i) {
    const std::string& name = words[i + 1];
    if (!name.starts_with("cu")) continue;
    if (words[i] == "undef") {
      renamed.erase(name);
    } else if (words[i] == "define" && words[i + 2].starts_with("__CUDA_API_PT")) {
      const std::string suffix = words[i + 2] == "__CUDA_API_PTSZ" ? "_ptsz" : "_ptds";
      renamed[name].insert({words[i + 4], words[i + 4] + suffix});
    } else if (words[i] == "define" && words[i + 2].starts_with(name)) {
      renamed[name].insert(words[i + 2]);
    } else if (words[i] == "CUDAAPI") {
      if (const auto as = renamed.find(name); as != renamed.end()) {
        found.insert(as->second.begin(), as->second.end());
      } else {
        found.insert(name);
      }
    }
  }
  return found;
}

// cuX of cuX_v2_ptsz.
std::string BaseOf(const std::string& spelling) {
  std::string name = spelling.substr(0, spelling.find("_pt"));
  if (const size_t v = name.rfind("_v"); v != std::string::npos) name.resize(v);
  return name;
}

struct Passed {
  std::string reason;
  std::string names;  // "cuA, cuB"
};

std::map<std::string, std::string> ReasonsToPass() {
  const Passed all[] = {
#define BATON_PASS(reason, ...) {reason, #__VA_ARGS__},
#include "hook/functions.inc"
  };
  std::map<std::string, std::string> reasons;
  for (const Passed& passed : all) {
    std::istringstream names(passed.names);
    for (std::string name; std::getline(names >> std::ws, name, ',');) {
      EXPECT_TRUE(reasons.emplace(name, passed.reason).second) << name << " stands there twice";
    }
  }
  return reasons;
}

TEST_F(Library, ReplacesEveryFunctionOfTheDriverOrPassesItForAReason) {
  const std::map<std::string, std::string> passed = ReasonsToPass();
  const std::set<std::string> functions = DriverFunctions();
  EXPECT_GT(functions.size(), 480u) << BATON_CUDA_HEADER " was not understood";
  for (const std::string& function : functions) {
    EXPECT_TRUE(defined_.count(function) > 0 || passed.count(BaseOf(function)) > 0)
        << "hook/functions.inc does not say what the hook does about " << function;
  }
}

TEST_F(Library, PassesNoFunctionInOneSpellingThatItReplacesInAnother) {
  const std::map<std::string, std::string> passed = ReasonsToPass();
#define BATON_ENTRY(action, spelling, name, since, per_thread) \
  EXPECT_EQ(passed.count(#name), 0u) << #spelling;
#include "hook/functions.inc"
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
