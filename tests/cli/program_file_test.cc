#include "cli/program_file.h"

#include <elf.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

class ProgramFiles : public testing::Test {
 protected:
  // An executable file with these bytes.
  std::string Make(const std::string& name, const std::string& bytes, mode_t mode = 0755) {
    std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    chmod(path.c_str(), mode);
    return path;
  }
  // A 64-bit program of this machine that names `interpreter`; empty: static.
  static std::string Elf(const std::string& interpreter) {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    Elf64_Ehdr header{};
    self.read(reinterpret_cast<char*>(&header), sizeof header);
    header.e_phoff = sizeof header;
    header.e_phnum = interpreter.empty() ? 0 : 1;
    Elf64_Phdr segment{};
    segment.p_type = PT_INTERP;
    segment.p_offset = sizeof header + sizeof segment;
    segment.p_filesz = interpreter.size() + 1;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(&segment), sizeof segment);
    return bytes + interpreter + '\0';
  }

  TempFolder folder_;
};

TEST_F(ProgramFiles, AnOrdinaryProgramNamesItsLoader) {
  const Result<ProgramFile> file = InspectProgram("sh");
  ASSERT_TRUE(file);
  EXPECT_NE(file->interpreter.find("ld-linux"), std::string::npos) << file->interpreter;
  EXPECT_FALSE(file->foreign);
}

TEST_F(ProgramFiles, AStaticProgramNamesNone) {
  EXPECT_EQ(InspectProgram(Make("static", Elf("")))->interpreter, "");
}

TEST_F(ProgramFiles, MuslIsSeen) {
  const std::string path = Make("musl", Elf("/lib/ld-musl-x86_64.so.1"));
  EXPECT_EQ(InspectProgram(path)->interpreter, "/lib/ld-musl-x86_64.so.1");
}

TEST_F(ProgramFiles, AScriptIsItsInterpreter) {
  EXPECT_EQ(InspectProgram(Make("script", "#!/bin/sh -e\n"))->path, "/bin/sh");
  EXPECT_TRUE(InspectProgram(Make("env", "#!/usr/bin/env sh\n"))->path.ends_with("/sh"));
}

TEST_F(ProgramFiles, WhatIsNoProgramOfThisMachineIsForeign) {
  std::string bytes = Elf("");
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_TRUE(InspectProgram(Make("32bit", bytes))->foreign);
  EXPECT_TRUE(InspectProgram(Make("text", "hello"))->foreign);
}

TEST_F(ProgramFiles, SetuidIsSeen) {
  EXPECT_TRUE(InspectProgram(Make("setuid", Elf("x"), 04755))->privileged);
}

TEST_F(ProgramFiles, AMissingProgramIsAnError) {
  EXPECT_EQ(InspectProgram("no-such-program").error().code, ErrorCode::kNotFound);
}

TEST(Doctor, NamesWhatIsBrokenAndEndsWithOne) {
  const TempFolder folder;
  const Outcome outcome =
      RunBaton({"doctor", "--json", "--socket-dir", folder.path(), "--", "/bin/sh"},
               {{"BATON_HOOK", EMPTY_HOOK}});
  EXPECT_EQ(outcome.status, 1);
  const nlohmann::json report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["healthy"], false);
  std::map<std::string, nlohmann::json> checks;
  for (const nlohmann::json& check : report["checks"]) checks[check["check"]] = check;
  EXPECT_EQ(checks["hook"]["ok"], true) << checks["hook"];
  EXPECT_EQ(checks["control socket"]["ok"], false);
  EXPECT_NE(checks["control socket"]["advice"], "");
  EXPECT_TRUE(checks["GPUs"]["ok"].is_null());
  // Where this kernel lacks what they need, it says what.
  const nlohmann::json& hand_offs = checks.at("hand-offs");
  EXPECT_TRUE(hand_offs.at("ok") == true || !hand_offs.at("advice").get<std::string>().empty())
      << hand_offs;
}

// As root's batond has it with [users]: control.sock is the operator's alone.
TEST(Doctor, OfAUserWhoIsLetInGoesByTheirSocket) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  FakeDaemon daemon([](const nlohmann::json&) -> nlohmann::json {
    return {{"version", "0"}, {"mode", "enforce"}};
  });
  const std::string& dir = daemon.socket_dir();
  chmod(dir.c_str(), 0755);
  ASSERT_EQ(rename((dir + "/control.sock").c_str(), (dir + "/user.sock").c_str()), 0);
  std::ofstream(dir + "/control.sock") << "";
  chmod((dir + "/control.sock").c_str(), 0600);
  const auto control = [&](mode_t users) {
    chmod((dir + "/user.sock").c_str(), users);
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(out[1], STDOUT_FILENO);
      if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
      execl(BATON_PROGRAM, BATON_PROGRAM, "doctor", "--json", "--socket-dir", dir.c_str(), nullptr);
      _exit(127);
    }
    close(out[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    close(out[0]);
    waitpid(child, nullptr, 0);
    std::map<std::string, nlohmann::json> checks;
    const nlohmann::json report = nlohmann::json::parse(text, nullptr, false);
    for (const nlohmann::json& check : report.value("checks", nlohmann::json::array())) {
      checks[check["check"]] = check;
    }
    return checks;
  };
  auto checks = control(0666);
  EXPECT_EQ(checks["control socket"]["ok"], true) << checks["control socket"];
  EXPECT_EQ(checks["control socket"]["detail"], dir + "/user.sock, for pods of your own");
  EXPECT_NE(checks["daemon"]["detail"].dump().find("batond 0, mode enforce"), std::string::npos)
      << checks["daemon"];
  EXPECT_FALSE(checks["memory caps"]["ok"].is_null()) << checks["memory caps"];
  checks = control(0600);
  EXPECT_EQ(checks["control socket"]["ok"], false) << checks["control socket"];
  EXPECT_TRUE(checks["daemon"]["ok"].is_null()) << checks["daemon"];
}

TEST(Doctor, SaysThatAHookDoesNotLoad) {
  const TempFolder folder;
  const std::string hook = folder.path() + "/libbaton.so";
  std::ofstream(hook) << "no library";
  const Outcome outcome = RunBaton({"doctor", "--", "/bin/sh"}, {{"BATON_HOOK", hook}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("✗ hook            " + hook + " does not load into"),
            std::string::npos)
      << outcome.out;
}

}  // namespace
}  // namespace baton::cli
