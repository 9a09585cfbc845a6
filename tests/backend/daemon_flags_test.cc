// What the daemons' flags do that start none.
#include <cstdlib>

#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

TEST_F(Batond, ChecksAFileBesideTheOneThatServes) {
  const auto check = [&](const std::string& flags) {
    return std::system((std::string(BATOND) + " --check-config " + (folder_ / "batond.toml") +
                        flags + " >" + (folder_ / "said") + " 2>&1")
                           .c_str());
  };
  EXPECT_EQ(check(""), 0) << ReadText(folder_ / "said");
  Configure("[teams]\nfile = \"/nowhere\"\n");
  EXPECT_NE(check(""), 0);
  EXPECT_NE(ReadText(folder_ / "said").find("batond.toml: teams.file: "), std::string::npos)
      << ReadText(folder_ / "said");
  EXPECT_EQ(check(" --file-only"), 0) << ReadText(folder_ / "said");
  EXPECT_TRUE(Status().value("ok", false)) << "it serves as before";
}

TEST_F(Batond, OutputThatIsNotTakenIsAnError) {
  for (const std::string program : {BATOND, FRONTEND}) {
    for (const std::string flags : {"--print-config", "--version", "--help"}) {
      const auto run = [&](const char* to) {
        const int status =
            std::system((program + " " + flags + " " + to + " 2>" + (folder_ / "said")).c_str());
        return WEXITSTATUS(status);
      };
      EXPECT_EQ(run(">/dev/full"), 1) << program << " " << flags;
      EXPECT_NE(ReadText(folder_ / "said").find("cannot write the output"), std::string::npos)
          << ReadText(folder_ / "said");
      EXPECT_EQ(run(">&-"), 1) << program << " " << flags;
      EXPECT_EQ(run(">/dev/null"), 0) << program << " " << flags;
    }
  }
  EXPECT_EQ(WEXITSTATUS(std::system((std::string(BATOND) + " --file-only --check-config " +
                                     (folder_ / "batond.toml") + " >/dev/full 2>/dev/null")
                                        .c_str())),
            1);
}

// As of a variable that is not set.
TEST_F(Batond, AnEmptyPathOfAConfigurationIsRefused) {
  for (const std::string program : {BATOND, FRONTEND}) {
    for (const std::string flags :
         {"--check-config ''", "--config ''", "--config '' --print-config",
          "--check-config '' --file-only", "--config '' --supervise"}) {
      const int status = std::system(("timeout 20 " + program + " " + flags + " >" +
                                      (folder_ / "out") + " 2>" + (folder_ / "said"))
                                         .c_str());
      EXPECT_EQ(WEXITSTATUS(status), 2) << program << " " << flags;
      EXPECT_EQ(ReadText(folder_ / "out"), "");
      EXPECT_NE(ReadText(folder_ / "said").find("config: the path is empty; see "),
                std::string::npos)
          << ReadText(folder_ / "said");
    }
  }
}

}  // namespace
}  // namespace baton::backend
