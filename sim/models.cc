#include "sim/models.h"

namespace baton::sim {
namespace {

// Of a card with eight memory and seven compute slices. `memory`: MiB of an instance of one, two,
// four and eight memory slices; `sms`: multiprocessors of one of 1, 2, 3, 4 and 7 compute slices.
std::vector<MigProfile> Sevenths(const char* const (&names)[7], const uint64_t (&memory)[4],
                                 const uint32_t (&sms)[5], bool hopper) {
  // Engines: on Hopper every slice has its decoder and JPEG engine.
  const auto by = [hopper](uint32_t hopper_has, uint32_t ampere_has) {
    return hopper ? hopper_has : ampere_has;
  };
  const std::vector<uint32_t> single = {0, 1, 2, 3, 4, 5, 6};
  return {
      {0, 19, names[0], 1, 1, 7, sms[0], 1, by(1, 0), by(1, 0), 0, memory[0], single},
      {1, 14, names[3], 2, 2, 3, sms[1], 2, by(2, 1), by(2, 0), 0, memory[1], {0, 2, 4}},
      {2, 9, names[4], 3, 4, 2, sms[2], 3, by(3, 2), by(3, 0), 0, memory[2], {0, 4}},
      {3, 5, names[5], 4, 4, 1, sms[3], 4, by(4, 2), by(4, 0), 0, memory[2], {0}},
      {4, 0, names[6], 7, 8, 1, sms[4], by(8, 7), by(7, 5), by(7, 1), 1, memory[3], {0}},
      {7, 20, names[1], 1, 1, 1, sms[0], 1, 1, 1, 1, memory[0], single},
      {9, 15, names[2], 1, 2, 4, by(26, sms[0]), 1, 1, by(1, 0), 0, memory[1], {0, 2, 4, 6}},
  };
}

std::vector<Model> Make() {
  std::vector<Model> models;
  models.push_back({"a30",
                    "NVIDIA A30",
                    24'576,
                    true,
                    4,
                    {
                        {0, 14, "MIG 1g.6gb", 1, 1, 4, 14, 1, 1, 0, 0, 5'952, {0, 1, 2, 3}},
                        {1, 5, "MIG 2g.12gb", 2, 2, 2, 28, 2, 2, 0, 0, 11'968, {0, 2}},
                        {3, 0, "MIG 4g.24gb", 4, 4, 1, 56, 4, 4, 1, 1, 24'000, {0}},
                        {7, 21, "MIG 1g.6gb+me", 1, 1, 1, 14, 1, 1, 1, 1, 5'952, {0, 1, 2, 3}},
                        {8, 6, "MIG 2g.12gb+me", 2, 2, 1, 28, 2, 2, 1, 1, 11'968, {0, 2}},
                    }});
  models.push_back({"a100-40", "NVIDIA A100-SXM4-40GB", 40'960, true, 8,
                    Sevenths({"MIG 1g.5gb", "MIG 1g.5gb+me", "MIG 1g.10gb", "MIG 2g.10gb",
                              "MIG 3g.20gb", "MIG 4g.20gb", "MIG 7g.40gb"},
                             {4'864, 9'856, 19'968, 40'192}, {14, 28, 42, 56, 98}, false)});
  models.push_back({"a100-80", "NVIDIA A100-SXM4-80GB", 81'920, true, 8,
                    Sevenths({"MIG 1g.10gb", "MIG 1g.10gb+me", "MIG 1g.20gb", "MIG 2g.20gb",
                              "MIG 3g.40gb", "MIG 4g.40gb", "MIG 7g.80gb"},
                             {9'728, 19'968, 40'192, 80'896}, {14, 28, 42, 56, 98}, false)});
  models.push_back({"h100-80", "NVIDIA H100 80GB HBM3", 81'559, true, 8,
                    Sevenths({"MIG 1g.10gb", "MIG 1g.10gb+me", "MIG 1g.20gb", "MIG 2g.20gb",
                              "MIG 3g.40gb", "MIG 4g.40gb", "MIG 7g.80gb"},
                             {9'984, 20'096, 40'448, 81'152}, {16, 32, 60, 64, 132}, true),
                    true});
  // What 3g and 4g have is not printed anywhere in public; here it is a half of the card, less what
  // halves of an H100 lose.
  models.push_back({"h200", "NVIDIA H200", 143'771, true, 8,
                    Sevenths({"MIG 1g.18gb", "MIG 1g.18gb+me", "MIG 1g.35gb", "MIG 2g.35gb",
                              "MIG 3g.71gb", "MIG 4g.71gb", "MIG 7g.141gb"},
                             {16'384, 33'280, 71'168, 143'360}, {16, 32, 60, 64, 132}, true),
                    true});
  models.push_back({"l40s", "NVIDIA L40S", 46'068, true, 0, {}});
  models.push_back({"rtx4090", "NVIDIA GeForce RTX 4090", 24'564, false, 0, {}});
  return models;
}

}  // namespace

const MigProfile* Model::ByIndex(uint32_t index) const {
  for (const MigProfile& profile : profiles) {
    if (profile.index == index) return &profile;
  }
  return nullptr;
}

const MigProfile* Model::ById(uint32_t id) const {
  for (const MigProfile& profile : profiles) {
    if (profile.id == id) return &profile;
  }
  return nullptr;
}

const std::vector<Model>& Models() {
  static const auto& models = *new std::vector<Model>(Make());
  return models;
}

const Model* FindModel(std::string_view key) {
  for (const Model& model : Models()) {
    if (model.key == key) return &model;
  }
  return nullptr;
}

}  // namespace baton::sim
