// The modes in which GPUs are given to pods: a row each, for everybody who reads, checks or prints
// a mode. What a mode makes of a GPU is its class, which devmgr/modes/modes.cc lists in this
// order.
#ifndef BATON_SPEC_MODES_H_
#define BATON_SPEC_MODES_H_

#include <array>
#include <string>
#include <string_view>

namespace baton::spec {

struct Mode {
  std::string_view name;
  bool by_token;  // its pods launch under tokens; else a driver makes devices, without the hook
  // May be chosen for a pod that leaves the choice open: each of its containers is as safe from its
  // neighbours as by turns, and its GPU stays open to others.
  bool chosen;
  std::string_view meaning;  // a clause, for people
};

inline constexpr std::string_view kTimeSlice = "time-slice";
inline constexpr std::string_view kExclusive = "exclusive";
inline constexpr std::string_view kMig = "mig";
inline constexpr std::string_view kMps = "mps";
// A wish, not a mode: whichever scores best of those that may be chosen.
inline constexpr std::string_view kAuto = "auto";

inline constexpr std::array kModes{
    Mode{kTimeSlice, true, true, "by the token"},
    Mode{kMig, false, true, "by instances that the hardware divides"},
    Mode{kMps, false, false, "at the same time, by parts of its multiprocessors"},
    Mode{kExclusive, true, false, "not at all"},
};

// Null: there is no such mode.
constexpr const Mode* FindMode(std::string_view name) {
  for (const Mode& mode : kModes) {
    if (mode.name == name) return &mode;
  }
  return nullptr;
}
// Whether its pods launch under tokens. A mode that does not exist has none to give.
constexpr bool ByToken(std::string_view name) {
  const Mode* mode = FindMode(name);
  return mode != nullptr && mode->by_token;
}
// Whether a pod that wants `wanted` may be in the mode `name`. Empty: it leaves the choice open, to
// modes beside these too.
constexpr bool Accepts(std::string_view wanted, std::string_view name) {
  if (!wanted.empty()) return wanted == name;
  const Mode* mode = FindMode(name);
  return mode == nullptr || mode->chosen;
}
// "time-slice, mig, mps, exclusive".
inline std::string ModeNames(std::string_view between = ", ") {
  std::string names;
  for (const Mode& mode : kModes) {
    if (!names.empty()) names += between;
    names += mode.name;
  }
  return names;
}

}  // namespace baton::spec

#endif  // BATON_SPEC_MODES_H_
