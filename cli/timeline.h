// A picture of a simulated GPU: who held the token in a window of time, and everybody's share over
// all of it; or of a cluster's teams. SVG that follows the viewer's light or dark scheme.
#ifndef BATON_CLI_TIMELINE_H_
#define BATON_CLI_TIMELINE_H_

#include <string>
#include <vector>

#include "base/time.h"

namespace baton::cli {

struct Timeline {
  struct Span {
    size_t pod = 0;
    Duration from{0};
    Duration to{0};
  };
  struct Pod {
    std::string name;
    std::string note;  // behind the name, such as "60 %"
    // Share of the GPU, 0 to 1, in each step; as many for every pod.
    std::vector<double> shares;
  };
  std::string title;
  std::string lanes_title = "Who held the token";
  std::string shares_title = "Share of the GPU";
  std::vector<Pod> pods;
  std::vector<Span> holds;  // may reach beyond the window
  Duration from{0};         // the window, from < to
  Duration to{0};
  Duration step{0};  // of `shares`
};

std::string DrawTimeline(const Timeline& timeline);

}  // namespace baton::cli

#endif  // BATON_CLI_TIMELINE_H_
