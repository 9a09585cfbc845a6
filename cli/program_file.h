// Whether LD_PRELOAD can reach a program.
#ifndef BATON_CLI_PROGRAM_FILE_H_
#define BATON_CLI_PROGRAM_FILE_H_

#include <string>

#include "base/result.h"

namespace baton::cli {

struct ProgramFile {
  std::string path;         // found on PATH; for a script, its interpreter
  std::string interpreter;  // the dynamic loader it names; empty: static
  bool foreign = false;     // not a 64-bit ELF file of this machine
  bool privileged = false;  // setuid or setgid: the loader ignores LD_PRELOAD
};

// Finds `program` as a shell would, follows "#!" once, and reads the ELF headers. kNotFound when
// there is no such program.
Result<ProgramFile> InspectProgram(const std::string& program);

}  // namespace baton::cli

#endif  // BATON_CLI_PROGRAM_FILE_H_
