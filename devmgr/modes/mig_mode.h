// MIG: pods have instances of the GPU, cut in hardware. A GPU is divided by a group of its
// model's template, which the first virtual GPU on it chooses and all that follow keep to.
#ifndef BATON_DEVMGR_MODES_MIG_MODE_H_
#define BATON_DEVMGR_MODES_MIG_MODE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "devmgr/modes/mig_templates.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

// Fit::slot is the group's id and the first memory slice, so it means the same after a restart and
// with other templates. CardUse::layout is the group's id with a bit for each first memory slice
// that is taken.
//
// Instances on the GPU (Card::instances) occupy their slices, whoever made them: a place that the
// map thinks free is not, as long as an instance is there.
class MigMode final : public SharingMode {
 public:
  // `templates` lives longer than this.
  explicit MigMode(const MigTemplates& templates = MigTemplates::BuiltIn())
      : templates_(&templates) {}

  std::string_view name() const override { return "mig"; }
  // NVIDIA's GPUs on which MIG is on and whose model has a template.
  bool Serves(const Card& card) const override;
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override;
  // Where an instance is there already that is exactly the one, that is the virtual GPU's own.
  std::optional<Fit> FitAt(const Card& card, const CardUse& use, const VgpuWant& want,
                           uint32_t slot) const override;
  uint64_t Without(const Card& card, uint64_t layout, uint32_t slot) const override;
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override;
  // `device`: the instance's uuid.
  Environment EnvironmentOf(const Card& card, const Fit& fit,
                            const std::string& device) const override;

  // The instance that a slot stands for.
  struct Part {
    std::string profile;
    uint32_t start = 0;   // first memory slice
    uint32_t slices = 0;  // memory slices
  };
  // Nothing: the GPU's template has no such group, and never had.
  std::optional<Part> PartOf(const Card& card, uint32_t slot) const;
  // Memory slice of a slot, even if nothing else is known of it.
  static uint32_t StartOf(uint32_t slot) { return slot & 7; }

  const MigTemplates& templates() const { return *templates_; }

 private:
  const MigTemplates* templates_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_MIG_MODE_H_
