// Classes are small enough to be held in the head.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFunctionsMax = 30;

// Without comments, and with nothing between quotes.
std::string Stripped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      i = std::min(text.find('\n', i), text.size());
      out += '\n';
    } else if (c == '"' || (c == '\'' && (i == 0 || isalnum(text[i - 1]) == 0))) {
      for (++i; i < text.size() && text[i] != c; ++i) i += text[i] == '\\' ? 1 : 0;
      out += "0";
    } else {
      out += c;
    }
  }
  return out;
}

// The declarations between the brace at `open` and its end, without what is in braces itself.
std::vector<std::string> Declarations(const std::string& text, size_t open) {
  std::vector<std::string> all(1);
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' && depth++ == 1) all.emplace_back();
    if (c == '}' && --depth == 0) break;
    if (depth != 1 || c == '{' || c == '}') continue;
    if (c == ';') {
      all.emplace_back();
    } else {
      all.back() += c;
    }
  }
  return all;
}

// The name of the member function that is declared, if it is one; not of constructors, destructors
// and operators.
std::string FunctionOf(std::string declaration, const std::string& class_name) {
  static const std::regex access(R"(\b(public|private|protected)\s*:)");
  static const std::regex arguments(R"(<[^<>()]*>)");
  static const std::regex other(
      R"(^\s*(using|typedef|friend|static_assert|enum|struct|class|union)\b)");
  static const std::regex function(R"((~?\w+)\s*\()");
  declaration = std::regex_replace(declaration, access, "");
  if (std::regex_search(declaration, other)) return "";
  for (std::string before; before != declaration;) {
    before = declaration;
    declaration = std::regex_replace(declaration, arguments, "");
  }
  std::smatch found;
  if (!std::regex_search(declaration, found, function)) return "";
  const std::string before = found.prefix();
  if (before.find('=') != std::string::npos || before.find("operator") != std::string::npos) {
    return "";
  }
  const std::string name = found[1];
  // A member that is a std::function, or an initialiser.
  if (before.find_first_not_of(" \n\t") == std::string::npos && name != class_name) return "";
  return name == class_name || name[0] == '~' || name == "alignas" ? "" : name;
}

struct Class {
  std::string file, name;
  std::vector<std::string> functions;
};

std::vector<Class> ClassesIn(const fs::path& path) {
  std::ifstream file(path);
  const std::string text = Stripped({std::istreambuf_iterator<char>(file), {}});
  static const std::regex head(
      R"(\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)\s*(?:final\s*)?(?::[^;{()]*)?\{)");
  std::vector<Class> all;
  for (std::sregex_iterator it(text.begin(), text.end(), head), end; it != end; ++it) {
    Class found{path.string(), (*it)[1], {}};
    const auto open = static_cast<size_t>(it->position() + it->length() - 1);
    for (const std::string& declaration : Declarations(text, open)) {
      const std::string name = FunctionOf(declaration, found.name);
      if (!name.empty()) found.functions.push_back(name);
    }
    all.push_back(std::move(found));
  }
  return all;
}

TEST(Classes, HaveFewFunctions) {
  std::map<std::string, size_t> known;
  size_t classes = 0;
  for (const auto& room : fs::directory_iterator(BATON_SOURCE)) {
    const std::string name = room.path().filename();
    if (!room.is_directory() || name == "build" || name.starts_with(".")) continue;
    if (name == "tests" || name == "web") continue;
    for (fs::recursive_directory_iterator it(room.path()), end; it != end; ++it) {
      const std::string ending = it->path().extension();
      if (ending != ".h" && ending != ".cc") continue;
      for (const Class& found : ClassesIn(it->path())) {
        ++classes;
        known[found.name] = found.functions.size();
        std::string list;
        for (const std::string& function : found.functions) list += " " + function;
        EXPECT_LE(found.functions.size(), kFunctionsMax)
            << found.file << ": " << found.name << ":" << list;
      }
    }
  }
  // That it sees them.
  EXPECT_GT(classes, 500u);
  EXPECT_GE(known["FairQueue"], 15u);
  EXPECT_GE(known["Holding"], 15u);
}

}  // namespace
}  // namespace baton
