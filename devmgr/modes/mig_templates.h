// How GPUs can be divided by MIG, as devmgr/modes/mig_geometries.toml says it: models, their
// profiles, and groups of instances that a GPU is divided into as a whole.
#ifndef BATON_DEVMGR_MODES_MIG_TEMPLATES_H_
#define BATON_DEVMGR_MODES_MIG_TEMPLATES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devmgr/modes/sharing_mode.h"
#include "policy/share.h"

namespace baton::devmgr {

struct MigProfile {
  std::string name;         // "3g.20gb", as nvidia-smi spells it
  uint8_t compute = 0;      // compute slices
  uint8_t slices = 0;       // memory slices
  uint8_t most = 0;         // instances of it on one GPU
  uint8_t starts = 0;       // bit s: it can begin at memory slice s
  uint32_t memory_mib = 0;  // what can be allocated in an instance
  policy::Share share;      // compute / the model's compute slices, rounded down
  bool media() const;       // has the GPU's media engines ("+me"), as one instance at most can
};

// What a GPU is divided into. Each instance has its place beforehand, so whatever the order in
// which they are asked for, all of them fit.
struct MigGroup {
  struct Part {
    uint8_t profile = 0;  // index in MigModel::profiles
    uint8_t start = 0;    // memory slice
    uint8_t mask = 0;     // bit s: it occupies memory slice s
  };
  // Of the instances and their places, so that a running GPU's group is known again after the
  // templates have changed. 24 bits, unique within the model, not 0.
  uint32_t id = 0;
  bool offered = true;      // false: only to know it again
  uint16_t profiles = 0;    // bit p: it has an instance of profile p
  std::vector<Part> parts;  // the smallest first, then by start; at most 8
};

struct MigModel {
  static constexpr uint8_t kNoGroup = 0xff;

  std::vector<std::string> names;    // without "NVIDIA "
  uint8_t slices = 0;                // memory slices, at most 8
  uint8_t compute = 0;               // compute slices, at most 8
  std::vector<MigProfile> profiles;  // the smallest first; at most 16
  std::vector<MigGroup> groups;      // those that are offered first, in their order; at most 200
  // By profile: the first group that offers it; kNoGroup: none.
  std::array<uint8_t, 16> first{};

  // Null: no such group.
  const MigGroup* FindGroup(uint32_t id) const;
  // "4g.20gb + 2 x 1g.5gb".
  std::string Describe(const MigGroup& group) const;
  // "no 4g.30gb on A100-SXM4-40GB: nearest is 4g.20gb with 19968 MiB; 7g.40gb has both". Of what
  // the groups offer.
  std::string Nearest(std::string_view wanted, uint32_t compute, uint32_t memory_mib) const;
};

// A value; const use is thread safe.
class MigTemplates {
 public:
  // What comes with Baton: A100 (40 and 80 GB), H100 80 GB, H200, A30.
  static const MigTemplates& BuiltIn();
  static std::string_view BuiltInText();
  // These, with what `text` says in place of or beside them. kInvalid: "FILE:LINE: ..." with the
  // first thing that is wrong: torn TOML, an unknown key or profile, a geometry that does not
  // exist (instances that overlap, too many of them). A model's old groups stay known, so that
  // GPUs in use are understood.
  Result<MigTemplates> With(std::string_view text, std::string_view file) const;

  // By what NVML calls the GPU, with or without "NVIDIA ". Null: there is no template for it. No
  // allocation; some nanoseconds.
  const MigModel* Find(std::string_view name) const;
  const std::vector<MigModel>& models() const { return models_; }
  // "there is no MIG template for X; there is for A100-SXM4-40GB, ...".
  std::string WhyUnknown(std::string_view name) const;

  // What to ask for to get an instance of `profile` on such a GPU. kNotFound: no such template;
  // kInvalid: no such profile, or none that is offered, with the nearest that is.
  Result<VgpuWant> Want(std::string_view model, std::string_view profile) const;

 private:
  struct Name {
    uint64_t key = 0;
    uint32_t model = 0;
    uint32_t name = 0;  // index in MigModel::names
  };
  void Index();

  std::vector<MigModel> models_;
  std::vector<Name> names_;  // a hash table, open addressing; a power of two, at most half full
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MODES_MIG_TEMPLATES_H_
