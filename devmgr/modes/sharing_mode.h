// How a GPU is divided among pods. One object for each way (time slices, MIG, MPS, the whole GPU,
// another vendor's tiles): placement asks it what would fit and knows no more of it, so to place
// pods on a new kind of accelerator takes one class that implements this. docs/devmgr.md says what
// else it takes to run them there.
//
// Pure and const: the state is in CardUse, which the vGPU map keeps for each GPU. Thread safe.
#ifndef BATON_DEVMGR_MODES_SHARING_MODE_H_
#define BATON_DEVMGR_MODES_SHARING_MODE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"
#include "policy/share.h"

namespace baton::devmgr {

// What is taken of a GPU. A value: copying it is a snapshot.
struct CardUse {
  static constexpr uint8_t kNoMode = 0xff;

  policy::Share share;      // at most policy::kWhole
  uint32_t memory_mib = 0;  // at most the GPU's
  uint16_t vgpus = 0;
  uint8_t mode = kNoMode;  // index of the mode that all of them are in; kNoMode while there is none
  uint64_t layout = 0;     // the mode's own; 0 while there is no vGPU

  friend bool operator==(const CardUse&, const CardUse&) = default;
};

// Memory of the GPU that vGPUs which share it can have.
inline uint32_t SharedMib(const Card& card) {
  return card.memory_mib - std::min(card.memory_mib, card.reserve_mib);
}

// Of it, what a new vGPU can have.
inline uint32_t FreeMib(const Card& card, const CardUse& use) {
  const uint64_t gone = uint64_t{use.memory_mib} + card.taken_mib;
  const uint32_t shared = SharedMib(card);
  return gone < shared ? shared - static_cast<uint32_t>(gone) : 0;
}

// One vGPU as a pod wants it, with its memory worked out for the GPU in question.
struct VgpuWant {
  policy::Share share = policy::kWhole;
  uint32_t memory_mib = 0;  // 0: none asked for, so not looked at (the whole GPU: all of it)
};

// What a vGPU takes: no less than was wanted.
struct Fit {
  policy::Share share;
  uint32_t memory_mib = 0;
  uint64_t layout = 0;  // CardUse::layout once it is there
  uint32_t slot = 0;    // which part it is, in the mode's own numbering

  friend bool operator==(const Fit&, const Fit&) = default;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

class SharingMode {
 public:
  virtual ~SharingMode() = default;

  // As users write it: "time-slice". Unique among the modes of a cluster.
  virtual std::string_view name() const = 0;
  // Whether this GPU, as it is now, can be used so.
  virtual bool Serves(const Card& card) const = 0;
  // What `want` takes of a GPU that Serves() and on which `use` is taken, all of it in this mode
  // (or nothing). Deterministic: the smallest part that fits, then the lowest. Never more than what
  // is free. Called for every GPU of a search: no allocation.
  virtual std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                                    const VgpuWant& want) const = 0;
  // The same, but at `slot` or not at all: for what was decided before.
  virtual std::optional<Fit> FitAt(const Card& card, const CardUse& use, const VgpuWant& want,
                                   uint32_t slot) const {
    const auto fit = TryFit(card, use, want);
    return fit && fit->slot == slot ? fit : std::nullopt;
  }
  // CardUse::layout without the part `slot`. After all parts are gone: 0.
  virtual uint64_t Without(const Card& card, uint64_t layout, uint32_t slot) const = 0;
  // Why TryFit() found nothing, or why it does not serve the GPU: a clause, with what would fit
  // where there is such a thing
  // ("of 40 960 MiB 8 192 are free, 12 288 wanted").
  virtual std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const = 0;
  // How the vGPU's processes find their part. `device`: what DeviceDriver::Create said.
  virtual Environment EnvironmentOf(const Card& card, const Fit& fit,
                                    const std::string& device) const = 0;
};

// The part of a mode that touches the machine, on the node where the GPU is. Calls may take
// seconds and must be safe to repeat: after a crash nobody knows whether the last one was carried
// out.
class DeviceDriver {
 public:
  struct Vgpu {
    std::string id;    // of the vGPU map, unique on the node
    std::string card;  // uuid
    Fit fit;
    std::string device;  // what Create() said; empty: it was not recorded
  };
  virtual ~DeviceDriver() = default;

  // Makes the part exist and returns its name for EnvironmentOf() ("MIG-..."). Where it exists
  // already, because the daemon ended between making and recording it: that one.
  virtual Result<std::string> Create(const Card& card, const Vgpu& vgpu) = 0;
  // Takes it away; success where it is gone already. kUnavailable: it is in use, or the driver does
  // not answer; try again later.
  virtual Result<void> Destroy(const Card& card, const Vgpu& vgpu) = 0;
  // After a start, or at any time: `known` is all that the map has on this GPU in this mode. Makes
  // what is missing, takes away what was ours and is not known any more; leaves alone what others
  // made. Sets each `device`: empty where there is none, and none can be made. Returns a sentence
  // for each thing done, or that could not be done.
  virtual Result<std::vector<std::string>> Reconcile(const Card& card,
                                                     std::vector<Vgpu>& known) = 0;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_SHARING_MODE_H_
