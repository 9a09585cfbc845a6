// The table "Folders, and who may include whom" of docs/design.md is what the code does.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace baton {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = BATON_SOURCE;

// A row of the table: a folder, and the folders that it may include beside itself.
struct Room {
  std::string folder;  // "devmgr/modes", as includes spell it
  std::set<std::string> may_include;
  bool everything = false;
};

std::vector<Room> Rooms() {
  std::ifstream design(kSource / "docs/design.md");
  const std::regex row(R"(^\| `([a-z0-9_/]+)/` \|.*\| ([^|]*)\|$)");
  const std::regex name(R"([a-z][a-z0-9_/]*)");
  std::vector<Room> rooms;
  for (std::string line; std::getline(design, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    Room room{.folder = match[1], .may_include = {}};
    const std::string list = match[2];
    for (std::sregex_iterator it(list.begin(), list.end(), name), end; it != end; ++it) {
      if (it->str() == "everything") room.everything = true;
      room.may_include.insert(it->str());
    }
    rooms.push_back(std::move(room));
  }
  return rooms;
}

// The innermost room that a path lies in; null: none.
const Room* RoomOf(const std::vector<Room>& rooms, const std::string& path) {
  const Room* found = nullptr;
  for (const Room& room : rooms) {
    if (path.starts_with(room.folder + "/") &&
        (found == nullptr || room.folder.size() > found->folder.size())) {
      found = &room;
    }
  }
  return found;
}

bool Allows(const Room& room, const std::string& folder) {
  if (room.everything) return true;
  // What is said of a folder holds for the rooms in it.
  return std::any_of(room.may_include.begin(), room.may_include.end(), [&](const std::string& may) {
    return folder == may || folder.starts_with(may + "/");
  });
}

TEST(Includes, GoByTheTableInTheDesign) {
  const std::vector<Room> rooms = Rooms();
  ASSERT_GE(rooms.size(), 15u) << "the table was not found";
  const std::regex include(R"re(^\s*#include "([^"]+)")re");
  size_t seen = 0;
  for (const Room& room : rooms) {
    ASSERT_TRUE(fs::is_directory(kSource / room.folder)) << room.folder << " is in the table only";
    for (const auto& entry : fs::recursive_directory_iterator(kSource / room.folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc" && extension != ".inc") continue;
      const std::string path = fs::relative(entry.path(), kSource);
      if (RoomOf(rooms, path) != &room) continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (!std::regex_search(line, match, include)) continue;
        const std::string included = match[1];
        const Room* other = RoomOf(rooms, included);
        if (other == nullptr) {
          EXPECT_TRUE(included.find('/') == std::string::npos || room.everything)
              << path << " includes " << included << ", which is in no folder of the table";
          continue;
        }
        ++seen;
        EXPECT_TRUE(other == &room || Allows(room, other->folder))
            << path << " includes " << included << "; " << room.folder << " may not";
      }
    }
  }
  EXPECT_GT(seen, 500u);
}

// Arrows go up the page only: so there is no cycle.
TEST(Includes, TheTableIsSortedLowestFirst) {
  const std::vector<Room> rooms = Rooms();
  std::set<std::string> above;
  for (const Room& room : rooms) {
    for (const std::string& may : room.may_include) {
      if (room.everything) break;
      EXPECT_TRUE(std::any_of(above.begin(), above.end(),
                              [&](const std::string& folder) {
                                return folder == may || folder.starts_with(may + "/");
                              }))
          << room.folder << " may include " << may << ", which is below it";
    }
    above.insert(room.folder);
  }
}

TEST(Includes, OnlyTestsAndBenchmarksKnowThatAGpuCanBeSimulated) {
  for (const Room& room : Rooms()) {
    if (room.folder == "bench" || room.folder == "tests" || room.folder == "sim") continue;
    EXPECT_FALSE(room.everything) << room.folder;
    for (const char* never : {"sim", "tests", "bench"}) {
      EXPECT_EQ(room.may_include.count(never), 0u) << room.folder << " may include " << never;
    }
  }
}

// One place has the limits, the deadlines and the trust.
TEST(Includes, OnlyTheNetworkLayerSpeaksHttpAndTls) {
  const std::regex include(R"re(^\s*#include <(boost/beast/|boost/asio/ssl|openssl/ssl\.h))re");
  size_t seen = 0;
  for (const Room& room : Rooms()) {
    if (room.everything) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kSource / room.folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (!std::regex_search(line, include)) continue;
        ++seen;
        EXPECT_EQ(room.folder, "net") << entry.path() << ": " << line;
      }
    }
  }
  EXPECT_GT(seen, 5u);
}

}  // namespace
}  // namespace baton
