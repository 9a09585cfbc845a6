// What `baton top` shows on a terminal, and what its keys change. Pure.
#ifndef BATON_CLI_TOP_PICTURE_H_
#define BATON_CLI_TOP_PICTURE_H_

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "cli/pod_table.h"

namespace baton::cli {

// What a reader has chosen.
struct TopView {
  SortBy sort = SortBy::kGpu;
  std::string filter;      // pods whose name, team, GPU or phase has this in it, in any case
  bool filtering = false;  // what is typed goes there
  bool help = false;
  size_t first = 0;  // row of the table that is shown first
  size_t page = 1;   // rows that the last picture had room for

  // A key, or the sequence that a terminal sends for one. False: leave.
  bool OnKey(std::string_view key);
};

// By GPU: the part of the time between two answers in which it executed, 0 to 1.
class GpuParts {
 public:
  // `status`, heard `now`.
  void Hear(const nlohmann::json& status, Instant now);
  // In which it executed, and in which it stood still because its token moved. Negative: not known.
  double Busy(const std::string& uuid) const;
  double Handoffs(const std::string& uuid) const;

 private:
  struct Sums {
    uint64_t busy_ns = 0;
    uint64_t handoff_total_ns = 0;
  };
  struct Parts {
    double busy = -1;
    double handoffs = -1;
  };
  std::map<std::string, Sums> sums_;
  std::map<std::string, Parts> parts_;
  Instant heard_{};
};

struct TopLine {
  enum class Style { kPlain, kHeading, kHolding, kWaiting, kWrong, kFaint };
  std::string text;
  Style style = Style::kPlain;
};

// At most `height` lines of at most `width` columns: what can be chosen, what is wrong, each GPU,
// and as many pods as there is room for from view.first on, which is set right where it is beyond
// the end. `blocks`: the terminal shows U+2588.
std::vector<TopLine> TopPicture(const nlohmann::json& status, const GpuParts& parts, TopView& view,
                                size_t width, size_t height, bool blocks);
// With the terminal's attributes; without colours where the reader wants none (no-color.org).
std::string Painted(const TopLine& line, bool colours);

}  // namespace baton::cli

#endif  // BATON_CLI_TOP_PICTURE_H_
