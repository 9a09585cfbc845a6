#include "cli/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace baton::cli {
namespace {

// Told apart by the colour-blind too, and on light and dark ground: Okabe and Ito's, without black
// and with a darker yellow.
constexpr std::array<const char*, 7> kColors{"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                             "#56b4e9", "#d55e00", "#b5a70a"};

constexpr double kWidth = 960;
constexpr double kLeft = 190;
constexpr double kRight = 24;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr double kTop = 62;
constexpr double kChart = 180;

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += '?';
    } else {
      out += c;
    }
  }
  return out;
}

// At most `max` characters of UTF-8.
std::string Shortened(const std::string& text, size_t max) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80 && ++characters > max) return text.substr(0, i) + "…";
  }
  return text;
}

struct Unit {
  const char* name;
  double ns;
};
// The one in which times up to this are short to write.
Unit UnitOf(Duration to) {
  if (to >= std::chrono::hours(2)) return {"hours", 3600e9};
  if (to >= std::chrono::minutes(10)) return {"minutes", 60e9};
  if (to >= std::chrono::seconds(1)) return {"seconds", 1e9};
  return {"milliseconds", 1e6};
}

// A round step that fits about eight times.
double TickOf(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 8)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= span / 8) return factor * power;
  }
  return 10 * power;
}

class Drawing {
 public:
  explicit Drawing(const Timeline& timeline) : t_(timeline) {
    lane_ = std::clamp(600.0 / static_cast<double>(std::max<size_t>(1, t_.pods.size())), 5.0, 26.0);
    pad_ = lane_ > 12 ? 2 : 0.5;
  }

  std::string Draw() {
    const double lanes = lane_ * static_cast<double>(t_.pods.size());
    const double chart = kTop + lanes + 82;
    const double height = chart + kChart + 44;
    out_ = fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img">
<style>
  text {{ font: 12px system-ui, sans-serif; fill: #1f2328; }}
  .title {{ font-weight: 600; font-size: 15px; }}
  .name {{ font-size: {2:.1f}px; }}
  .faint {{ fill: #59636e; }}
  .ground {{ fill: #ffffff; }}
  .lane {{ fill: #f3f4f6; }}
  .line {{ stroke: #d1d9e0; stroke-width: 1; }}
  .share {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #f0f6fc; }}
    .faint {{ fill: #9198a1; }}
    .ground {{ fill: #0d1117; }}
    .lane {{ fill: #161b22; }}
    .line {{ stroke: #3d444d; }}
  }}
</style>
<rect class="ground" width="100%" height="100%"/>
)",
        kWidth, height, std::min(12.0, lane_ - 1));
    Text(16, 24, "title", "start", t_.title);
    Text(16, 46, "faint", "start", t_.lanes_title);
    DrawLanes();
    Axis(kTop, kTop + lanes, t_.from, t_.to);
    DrawHolds();
    Text(16, chart - 16, "faint", "start", t_.shares_title);
    DrawShares(chart);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static const char* ColorOf(size_t pod) { return kColors[pod % kColors.size()]; }

  void Text(double x, double y, const char* kind, const char* anchor, const std::string& text) {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    kind, x, y, anchor, Escaped(text));
  }

  void DrawLanes() {
    for (size_t i = 0; i < t_.pods.size(); ++i) {
      const double y = kTop + lane_ * static_cast<double>(i);
      out_ += fmt::format(
          "<rect class=\"lane\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
          kLeft, y + pad_, kPlot, lane_ - 2 * pad_);
      if (lane_ < 7) continue;  // nobody could read it
      const double base = y + lane_ / 2 + std::min(12.0, lane_ - 1) / 3;
      Text(kLeft - 52, base, "name", "end", Shortened(t_.pods[i].name, 18));
      Text(kLeft - 8, base, "name faint", "end", t_.pods[i].note);
    }
  }

  void DrawHolds() {
    const double span = static_cast<double>(Nanos(t_.to - t_.from));
    for (const Timeline::Span& hold : t_.holds) {
      const Duration from = std::max(hold.from, t_.from);
      const Duration to = std::min(hold.to, t_.to);
      if (from >= to) continue;
      const double x = kLeft + kPlot * static_cast<double>(Nanos(from - t_.from)) / span;
      const double width = kPlot * static_cast<double>(Nanos(to - from)) / span;
      out_ += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x,
          kTop + lane_ * static_cast<double>(hold.pod) + pad_, std::max(width, 0.4),
          lane_ - 2 * pad_, ColorOf(hold.pod));
    }
  }

  // Time along the lower edge.
  void Axis(double top, double bottom, Duration from, Duration to) {
    const Unit unit = UnitOf(to);
    const double begin = static_cast<double>(Nanos(from)) / unit.ns;
    const double span = static_cast<double>(Nanos(to - from)) / unit.ns;
    const double tick = TickOf(span);
    // + 0.0, for a zero that is not written "-0".
    for (double n = std::ceil(begin / tick - 1e-6) + 0.0; n * tick <= begin + span * (1 + 1e-6);
         ++n) {
      const double x = kLeft + kPlot * (n * tick - begin) / span;
      out_ += fmt::format(
          "<line class=\"line\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", x,
          top, bottom + 4);
      Text(x, bottom + 18, "faint", "middle", fmt::format("{:.7g}", n * tick));
    }
    Text(kLeft - 28, bottom + 18, "faint", "end", unit.name);
  }

  void DrawShares(double top) {
    double most = 0.1;
    size_t steps = 0;
    for (const Timeline::Pod& pod : t_.pods) {
      for (const double share : pod.shares) most = std::max(most, share);
      steps = std::max(steps, pod.shares.size());
    }
    most = std::ceil(std::min(most, 1.0) * 10) / 10;
    for (double share = 0; share <= most + 1e-9; share += most > 0.5 ? 0.2 : 0.1) {
      const double y = top + kChart * (1 - share / most);
      out_ += fmt::format(
          "<line class=\"line\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft,
          kLeft + kPlot, y, y);
      Text(kLeft - 8, y + 4, "faint", "end", fmt::format("{:.0f} %", share * 100));
    }
    if (steps == 0) return;
    Axis(top, top + kChart, Duration(0), t_.step * static_cast<int64_t>(steps));
    for (size_t i = 0; i < t_.pods.size(); ++i) {
      out_ += fmt::format("<polyline class=\"share\" stroke=\"{}\" points=\"", ColorOf(i));
      for (size_t n = 0; n < t_.pods[i].shares.size(); ++n) {
        // In the middle of its step.
        const double x =
            kLeft + kPlot * (static_cast<double>(n) + 0.5) / static_cast<double>(steps);
        out_ += fmt::format("{:.1f},{:.1f} ", x,
                            top + kChart * (1 - std::min(t_.pods[i].shares[n], most) / most));
      }
      out_ += fmt::format("\"><title>{}</title></polyline>\n", Escaped(t_.pods[i].name));
    }
  }

  const Timeline& t_;
  double lane_;  // height of a pod's
  double pad_;   // above and below it
  std::string out_;
};

}  // namespace

std::string DrawTimeline(const Timeline& timeline) { return Drawing(timeline).Draw(); }

}  // namespace baton::cli
