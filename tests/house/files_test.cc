// Files are short enough to be read as a whole, and need no banners to find one's way in.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLinesMax = 700;

std::vector<fs::path> Sources() {
  std::vector<fs::path> files;
  for (const auto& room : fs::directory_iterator(BATON_SOURCE)) {
    const std::string name = room.path().filename();
    if (!room.is_directory() || name == "build" || name.starts_with(".")) continue;
    for (fs::recursive_directory_iterator it(room.path()), end; it != end; ++it) {
      if (it->path().filename() == "node_modules") it.disable_recursion_pending();
      const std::string ending = it->path().extension();
      if (ending == ".cc" || ending == ".h") files.push_back(it->path());
    }
  }
  return files;
}

TEST(Files, AreShortAndHaveNoBanners) {
  const auto files = Sources();
  ASSERT_GT(files.size(), 400u);
  for (const fs::path& path : files) {
    std::ifstream file(path);
    size_t lines = 0;
    for (std::string line; std::getline(file, line);) {
      ++lines;
      const size_t text = line.find_first_not_of(" /");
      // A table has crossings.
      const bool banner =
          line.find("//") != std::string::npos && text != std::string::npos &&
          line.find('+') == std::string::npos &&
          (line.compare(text, 4, "----") == 0 || line.compare(text, 4, "====") == 0);
      EXPECT_FALSE(banner) << path.string() << ":" << lines << ": " << line;
    }
    EXPECT_LE(lines, kLinesMax) << path.string();
  }
}

// base/standard_files.h, by itself or by the main() that daemons and `baton` share.
TEST(Files, EachProgramLooksAtItsStandardFilesFirstAndLast) {
  size_t programs = 0;
  for (const fs::path& path : Sources()) {
    const std::string room = *fs::relative(path, BATON_SOURCE).begin();
    // Measuring and testing, and one that stands in for NVIDIA's.
    if (room == "tests" || room == "bench" || path.filename() == "mps_control.cc") continue;
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const size_t main = text.str().find("\nint main(");
    if (main == std::string::npos) continue;
    ++programs;
    const std::string body = text.str().substr(main);
    const auto says = [&body](const char* word) { return body.find(word) != std::string::npos; };
    EXPECT_TRUE((says("OpenStandardFiles()") && says("AfterOutput(")) || says("DaemonMain(") ||
                says("cli::Main("))
        << path.string();
  }
  EXPECT_GE(programs, 7u);
}

}  // namespace
}  // namespace baton
