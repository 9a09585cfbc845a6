#include "cli/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace baton::cli {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "Add this machine's ELF number"
#endif

std::string FindOnPath(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    return access(program.c_str(), X_OK) == 0 ? program : "";
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    struct stat st;
    if (access(candidate.c_str(), X_OK) == 0 && stat(candidate.c_str(), &st) == 0 &&
        S_ISREG(st.st_mode)) {
      return candidate;
    }
  }
  return "";
}

// "#!/usr/bin/env python3" names python3, "#!/bin/sh -e" /bin/sh; "" when it is no script.
std::string ScriptProgram(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return "";
  std::istringstream words(line);
  std::string first, second;
  words >> first >> second;
  return first.ends_with("/env") && !second.empty() ? second : first;
}

}  // namespace

Result<ProgramFile> InspectProgram(const std::string& program) {
  ProgramFile found;
  found.path = FindOnPath(program);
  if (!found.path.empty()) {
    if (const std::string next = ScriptProgram(found.path); !next.empty()) {
      found.path = FindOnPath(next);
    }
  }
  if (found.path.empty()) {
    return Fail(ErrorCode::kNotFound, "no program '" + program + "'; check its name and PATH");
  }
  struct stat st;
  found.privileged = stat(found.path.c_str(), &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)) != 0;

  std::ifstream file(found.path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine) {
    found.foreign = true;
    return found;
  }
  for (uint16_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + uint64_t{i} * header.e_phentsize));
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);
    if (!file) break;
    if (segment.p_type != PT_INTERP || segment.p_filesz > 4096) continue;
    std::string interpreter(segment.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    file.read(interpreter.data(), static_cast<std::streamsize>(interpreter.size()));
    found.interpreter = interpreter.c_str();  // without the terminating zero
    break;
  }
  return found;
}

}  // namespace baton::cli
