#include "base/help_command.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/help_formatter.h"

namespace baton {
namespace {

struct Said {
  std::string out;
  std::string error;
  int exit_code = -1;
};

Said Say(std::vector<std::string> words) {
  CLI::App program("Does things.", "program");
  program.require_subcommand(1);
  CLI::App* make = program.add_subcommand("make", "Make something");
  bool large = false;
  make->add_flag("--large", large, "A large one");
  make->add_subcommand("again", "Make it again");
  AddHelpCommand(program);
  Said said;
  testing::internal::CaptureStdout();
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    program.parse(reversed);
  } catch (const CLI::ParseError& error) {
    said.error = error.what();
    said.exit_code = program.exit(error, std::cout, std::cout);
  }
  said.out = testing::internal::GetCapturedStdout();
  return said;
}

TEST(HelpFormatter, LeavesTwoSpacesOrALineBetweenAnOptionAndItsDescription) {
  for (size_t length = 1; length < 40; ++length) {
    CLI::App program("Does things.", "program");
    program.formatter(std::make_shared<HelpFormatter>());
    std::string value;
    program.add_option("--size", value, "How large")->type_name(std::string(length, 'X'));
    const std::string help = program.help();
    const size_t at = help.find("How large");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(help.substr(at - 2, 2), "  ") << help;
  }
}

TEST(HelpCommand, PrintsWhatTheFlagPrints) {
  EXPECT_EQ(Say({"help"}).out, Say({"--help"}).out);
  EXPECT_EQ(Say({"help", "make"}).out, Say({"make", "--help"}).out);
  EXPECT_EQ(Say({"help", "make", "again"}).out, Say({"make", "again", "--help"}).out);
  EXPECT_NE(Say({"help", "make"}).out.find("--large"), std::string::npos);
  EXPECT_EQ(Say({"help", "make"}).exit_code, 0);
}

TEST(HelpCommand, SaysWhichWordNamesNoCommand) {
  const Said said = Say({"help", "mke"});
  EXPECT_EQ(said.error, "unknown command 'mke'; did you mean make?");
  EXPECT_NE(said.exit_code, 0);
}

}  // namespace
}  // namespace baton
