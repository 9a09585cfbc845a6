#include "cli/hook_path.h"

#include <cstdlib>
#include <filesystem>

namespace baton::cli {

namespace fs = std::filesystem;

Result<std::string> FindHook() {
  fs::path hook;
  std::error_code error;
  if (const char* given = std::getenv("BATON_HOOK"); given != nullptr && *given != '\0') {
    hook = fs::absolute(given, error);
    if (!fs::exists(hook, error)) {
      return Fail(ErrorCode::kNotFound, "BATON_HOOK names " + hook.string() +
                                            ", which does not exist; correct or unset it");
    }
  } else {
    const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
    for (const char* folder : {"lib", BATON_LIBDIR}) {
      hook = prefix / folder / "libbaton.so";
      if (fs::exists(hook, error)) break;
    }
    if (!fs::exists(hook, error)) {
      return Fail(ErrorCode::kNotFound,
                  "no libbaton.so at " + hook.string() +
                      "; install all of Baton, or set BATON_HOOK to its path");
    }
  }
  if (hook.string().find_first_of(" :") != std::string::npos) {
    return Fail(ErrorCode::kInvalid, "the hook's path '" + hook.string() +
                                         "' has a space or a colon, which LD_PRELOAD splits at; "
                                         "move it, or set BATON_HOOK");
  }
  return hook.string();
}

}  // namespace baton::cli
