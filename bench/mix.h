// A mix of pods as it is written on a command line, and what a perfectly fair GPU would give them.
#ifndef BATON_BENCH_MIX_H_
#define BATON_BENCH_MIX_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/share.h"

namespace baton::bench {

struct PodShare {
  std::string name;
  policy::Share request;
  policy::Share limit;
  double target;  // percent of the GPU while all of the mix have work
};

// "a:60:100,b:30,c:10:20": names are of letters, digits, '-', '_' and '.', and differ; a limit left
// out is 100. Requests together are at most 100.
Result<std::vector<PodShare>> ParseMix(std::string_view text);

}  // namespace baton::bench

#endif  // BATON_BENCH_MIX_H_
