#include "base/team_path.h"

#include <algorithm>

namespace baton {

std::string TeamPath(std::string_view said) {
  std::string path;
  size_t depth = 0;
  while (!said.empty() && depth < kTeamDepthMax) {
    const size_t end = std::min(said.find('/'), said.size());
    if (end > 0) {
      if (depth++ > 0) path += '/';
      path += said.substr(0, end);
    }
    said.remove_prefix(std::min(end + 1, said.size()));
  }
  return path;
}

}  // namespace baton
