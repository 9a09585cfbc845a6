// The shell of `scripts/demo --shell`: README's lines for it work there, and it leaves nothing
// behind.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/process.h"
#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

std::string TextIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The block of commands below README's heading.
std::vector<std::string> ReadmesLines() {
  std::istringstream readme(TextIn(README));
  std::vector<std::string> lines;
  bool below = false, within = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "### A shell to try it in") below = true;
    if (below && within && line == "```") break;
    if (within) lines.push_back(line);
    if (below && line == "```sh") within = true;
  }
  return lines;
}

TEST(Sandbox, RunsReadmesLinesAndEndsWithItsShell) {
  const std::string folder =
      ::testing::TempDir() + "baton-sandbox-" + std::to_string(getpid()) + "/";
  std::filesystem::create_directories(folder);
  const std::vector<std::string> lines = ReadmesLines();
  ASSERT_GE(lines.size(), 9u);
  std::ofstream input(folder + "in");
  input << "echo in $BATON_SOCKET_DIR\n";
  for (const std::string& line : lines) {
    // `top` is for terminals; elsewhere it prints for ever.
    const bool live = line.starts_with("baton top");
    input << (live ? "baton top | head -4\n" : "sudo " + line + "\n") << "echo \"STATUS $?\"\n";
  }
  input << "exit 7\n";
  input.close();
  SpawnOptions spawn;
  spawn.command = {
      "/bin/sh", "-c",
      std::string("exec ") + BATON_PROGRAMS + "/baton-demo --shell --http '' < " + folder + "in"};
  spawn.environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
  spawn.stdout_path = spawn.stderr_path = folder + "out";
  auto process = Process::Spawn(spawn);
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_EQ(process->Wait(std::chrono::seconds(120)), ExitStatus(7)) << "the shell's own";
  const std::string out = TextIn(folder + "out");
  size_t worked = 0;
  for (size_t at = 0; (at = out.find("STATUS 0\n", at)) != std::string::npos; ++at) ++worked;
  EXPECT_EQ(worked, lines.size()) << out;
  for (const char* said : {"llm", "batch", "web asks for 10%", "research", "GPU 1"}) {
    EXPECT_NE(out.find(said), std::string::npos) << said << " in:\n" << out;
  }
  const size_t from = out.find("in /") + 3;
  const std::filesystem::path cluster =
      std::filesystem::path(out.substr(from, out.find('\n', from) - from)).parent_path();
  EXPECT_EQ(cluster.filename().string().substr(0, 6), "baton-") << cluster;
  EXPECT_FALSE(std::filesystem::exists(cluster)) << "its folder is gone";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace baton::bench
