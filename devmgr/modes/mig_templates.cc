#include "devmgr/modes/mig_templates.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/hash.h"
#include "base/toml.h"
#include "base/utf8.h"

namespace baton::devmgr {
namespace {

constexpr size_t kTextMax = 262'144;
constexpr size_t kModelsMax = 64;
constexpr size_t kNamesMax = 16;
constexpr size_t kNameMax = 64;  // bytes
constexpr size_t kProfilesMax = 16;
constexpr size_t kGroupsMax = 200;
constexpr int64_t kSlicesMax = 8;
constexpr int64_t kMemoryMax = 16'777'216;  // MiB

std::string_view WithoutVendor(std::string_view name) {
  constexpr std::string_view kVendor = "NVIDIA ";
  return name.starts_with(kVendor) ? name.substr(kVendor.size()) : name;
}

// Of a name; equal names have equal keys.
uint64_t KeyOf(std::string_view name) {
  uint64_t first = 0, last = 0;
  if (name.size() >= sizeof(first)) {
    std::memcpy(&first, name.data(), sizeof(first));
    std::memcpy(&last, name.data() + name.size() - sizeof(last), sizeof(last));
  } else {
    for (const char c : name) first = first << 8 | static_cast<unsigned char>(c);
  }
  uint64_t h = (first ^ std::rotl(last, 21) ^ name.size()) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

std::string Counted(size_t n, const std::string& name) {
  return n == 1 ? name : std::to_string(n) + " x " + name;
}

// Compute slices and GB of "4g.30gb".
std::optional<std::pair<uint32_t, uint32_t>> ParseProfile(std::string_view text) {
  const auto number = [&](std::string_view unit) -> std::optional<uint32_t> {
    size_t digits = 0;
    uint32_t value = 0;
    while (digits < text.size() && digits < 5 && text[digits] >= '0' && text[digits] <= '9') {
      value = value * 10 + static_cast<uint32_t>(text[digits++] - '0');
    }
    if (digits == 0 || !text.substr(digits).starts_with(unit)) return std::nullopt;
    text.remove_prefix(digits + unit.size());
    return value;
  };
  const auto compute = number("g.");
  const auto memory = compute ? number("gb") : std::nullopt;
  if (!memory || (!text.empty() && text[0] != '+')) return std::nullopt;
  return std::pair{*compute, *memory};
}

// Gives each instance of `counts` (by profile) a place, the biggest first; false: there is none.
bool Place(const MigModel& model, std::vector<uint8_t>& counts, size_t profile, uint32_t from,
           uint8_t taken, std::vector<MigGroup::Part>& parts) {
  while (profile > 0 && counts[profile - 1] == 0) {
    --profile;
    from = 0;
  }
  if (profile == 0) return true;
  const MigProfile& p = model.profiles[profile - 1];
  // Those that are alike in the order of their places: another order is the same.
  for (uint32_t start = from; start < model.slices; ++start) {
    if (!(p.starts >> start & 1)) continue;
    const auto mask = static_cast<uint8_t>(((1u << p.slices) - 1) << start);
    if (taken & mask) continue;
    --counts[profile - 1];
    parts.push_back({static_cast<uint8_t>(profile - 1), static_cast<uint8_t>(start), mask});
    if (Place(model, counts, profile, start + 1, taken | mask, parts)) return true;
    parts.pop_back();
    ++counts[profile - 1];
  }
  return false;
}

// What a group is known by: names and places, whatever else the template says.
uint32_t IdOf(const MigModel& model, const MigGroup& group) {
  std::string parts;
  for (const MigGroup::Part& part : group.parts) {
    parts += model.profiles[part.profile].name;
    parts += '@';
    parts += static_cast<char>(part.start);
    parts += static_cast<char>(part.mask);
  }
  const uint64_t h = HashOf(parts);
  const auto id = static_cast<uint32_t>((h ^ h >> 24 ^ h >> 48) & 0xffffff);
  return id == 0 ? 1 : id;
}

class Reader {
 public:
  Reader(std::string_view file, const std::vector<MigModel>& base) : file_(file), base_(base) {}

  Result<std::vector<MigModel>> Read(const toml::table& root) {
    std::vector<MigModel> models;
    Keys(root, "the file", {"model"});
    const toml::node* rows = root.get("model");
    const toml::array* list = rows != nullptr ? rows->as_array() : nullptr;
    if (rows != nullptr && list == nullptr) Complain(*rows, "write [[model]], one for each");
    if (list != nullptr && list->size() > kModelsMax) {
      Complain(*rows, "more than " + std::to_string(kModelsMax) + " models");
    }
    for (size_t i = 0; list != nullptr && i < list->size() && error_.empty(); ++i) {
      const toml::table* table = list->get(i)->as_table();
      if (table == nullptr) {
        Complain(*list->get(i), "write [[model]], one for each");
        break;
      }
      models.push_back(ReadModel(*table));
    }
    if (!error_.empty()) return Fail(ErrorCode::kInvalid, error_);
    return models;
  }

 private:
  MigModel ReadModel(const toml::table& table) {
    MigModel model;
    Keys(table, "a model", {"names", "like", "slices", "compute", "profiles", "groups"});
    const toml::array* names = Array(table, "names", kNamesMax);
    for (size_t i = 0; names != nullptr && i < names->size(); ++i) {
      const std::string name(WithoutVendor(Text(*names->get(i), "a name")));
      if (!error_.empty()) return model;
      if (!named_.insert(name).second)
        Complain(*names->get(i), "there are two models '" + name + "'");
      model.names.push_back(name);
    }
    if (model.names.empty()) {
      Complain(table, "a model needs names = [\"...\"], as NVML says them");
      return model;
    }
    model_ = model.names[0];

    std::string like = model.names[0];
    if (const toml::node* node = table.get("like")) like = WithoutVendor(Text(*node, "like"));
    if (!error_.empty()) return model;
    const MigModel* known = FindKnown(like);
    if (table.contains("profiles")) {
      ReadProfiles(table, model);
    } else if (known != nullptr) {
      if (table.contains("slices") || table.contains("compute")) {
        Complain(table, "slices and compute are of no use without profiles");
      }
      model.slices = known->slices;
      model.compute = known->compute;
      model.profiles = known->profiles;
    } else {
      Complain(table, "'" + like + "' is not known: give its slices, compute and profiles, or " +
                          "like = a model that is known");
    }
    if (!error_.empty()) return model;
    if (table.contains("groups")) {
      ReadGroups(table, model);
    } else if (known != nullptr && !table.contains("profiles")) {
      for (const MigGroup& group : known->groups) {
        if (group.offered) model.groups.push_back(group);
      }
    } else {
      Complain(table, "it needs groups = [{\"PROFILE\" = COUNT, ...}, ...]");
    }
    return model;
  }

  void ReadProfiles(const toml::table& table, MigModel& model) {
    model.slices = static_cast<uint8_t>(Number(table, "slices", 1, kSlicesMax));
    model.compute = static_cast<uint8_t>(Number(table, "compute", 1, kSlicesMax));
    const toml::array* list = Array(table, "profiles", kProfilesMax);
    for (size_t i = 0; list != nullptr && i < list->size() && error_.empty(); ++i) {
      const toml::table* row = list->get(i)->as_table();
      if (row == nullptr) {
        Complain(*list->get(i), "write a profile as {name = \"1g.5gb\", compute = 1, ...}");
        return;
      }
      Keys(*row, "a profile", {"name", "compute", "slices", "memory_mib", "starts", "most"});
      MigProfile p;
      const toml::node* name = row->get("name");
      if (name == nullptr) {
        Complain(*row, "a profile needs a name");
        return;
      }
      p.name = Text(*name, "name");
      p.compute = static_cast<uint8_t>(Number(*row, "compute", 1, model.compute));
      p.slices = static_cast<uint8_t>(Number(*row, "slices", 1, model.slices));
      p.memory_mib = static_cast<uint32_t>(Number(*row, "memory_mib", 1, kMemoryMax));
      p.most = static_cast<uint8_t>(Number(*row, "most", 1, kSlicesMax));
      if (!error_.empty()) return;
      p.share = policy::kWhole * p.compute / model.compute;
      const toml::array* starts = Array(*row, "starts", kSlicesMax);
      for (size_t s = 0; starts != nullptr && s < starts->size(); ++s) {
        const auto start = starts->get(s)->value_exact<int64_t>();
        if (!start || *start < 0 || *start + p.slices > model.slices) {
          Complain(*starts->get(s), "'" + p.name + "' cannot start there: it has " +
                                        std::to_string(p.slices) + " of the GPU's " +
                                        std::to_string(model.slices) + " memory slices");
          return;
        }
        p.starts |= static_cast<uint8_t>(1u << *start);
      }
      if (p.starts == 0) Complain(*row, "'" + p.name + "' needs starts = [0, ...]");
      for (const MigProfile& other : model.profiles) {
        if (other.name == p.name) Complain(*row, "there are two profiles '" + p.name + "'");
      }
      model.profiles.push_back(p);
    }
    if (model.profiles.empty()) Complain(table, "profiles is empty");
    std::stable_sort(model.profiles.begin(), model.profiles.end(),
                     [](const MigProfile& a, const MigProfile& b) {
                       const auto size = [](const MigProfile& p) {
                         return std::tuple(p.slices, p.compute, p.memory_mib, p.media());
                       };
                       return size(a) < size(b);
                     });
  }

  void ReadGroups(const toml::table& table, MigModel& model) {
    const toml::array* list = Array(table, "groups", kGroupsMax);
    if (list != nullptr && list->empty()) Complain(table, "groups is empty");
    for (size_t i = 0; list != nullptr && i < list->size() && error_.empty(); ++i) {
      const toml::table* row = list->get(i)->as_table();
      if (row == nullptr || row->empty()) {
        Complain(*list->get(i), "write a group as {\"3g.20gb\" = 1, \"1g.5gb\" = 4}");
        return;
      }
      ReadGroup(*row, "group " + std::to_string(i + 1) + " of " + model_, model);
    }
  }

  void ReadGroup(const toml::table& row, const std::string& which, MigModel& model) {
    MigGroup group;
    std::vector<uint8_t> counts(model.profiles.size());
    std::string all;
    uint32_t slices = 0, compute = 0, media = 0;
    for (auto&& [key, node] : row) {
      const std::string name(key.str());
      size_t p = 0;
      while (p < model.profiles.size() && model.profiles[p].name != name) ++p;
      if (p == model.profiles.size()) {
        std::string has;
        for (const MigProfile& profile : model.profiles) has += ", " + profile.name;
        return Complain(node, which + ": it has no profile '" + name + "', only " + has.substr(2));
      }
      const MigProfile& profile = model.profiles[p];
      const auto count = node.value_exact<int64_t>();
      if (!count || *count < 1) {
        return Complain(node, which + ": how many " + name + "? Write a number from 1 to " +
                                  std::to_string(profile.most));
      }
      if (*count > profile.most) {
        return Complain(node, which + ": there is no GPU with " + std::to_string(*count) + " x " +
                                  name + "; at most " + std::to_string(profile.most) + " fit");
      }
      const auto n = static_cast<uint8_t>(*count);
      counts[p] = n;
      group.profiles |= static_cast<uint16_t>(1u << p);
      slices += n * profile.slices;
      compute += n * profile.compute;
      media += profile.media() ? n : 0;
      all += (all.empty() ? "" : " + ") + Counted(n, name);
    }
    if (slices > model.slices || compute > model.compute) {
      return Complain(row, which + ": " + all + " do not fit on one GPU: they take " +
                               std::to_string(slices) + " memory slices of " +
                               std::to_string(model.slices) + " and " + std::to_string(compute) +
                               " compute slices of " + std::to_string(model.compute));
    }
    if (media > 1) {
      return Complain(row, which + ": " + all + ": only one instance can have the media engines");
    }
    if (!Place(model, counts, counts.size(), 0, 0, group.parts)) {
      return Complain(row, which + ": " + all + " do not fit beside each other: wherever they " +
                               "start, two of them overlap");
    }
    std::sort(group.parts.begin(), group.parts.end(),
              [](const MigGroup::Part& a, const MigGroup::Part& b) {
                return std::tuple(a.profile, a.start) < std::tuple(b.profile, b.start);
              });
    group.id = IdOf(model, group);
    for (size_t i = 0; i < model.groups.size(); ++i) {
      if (model.groups[i].id == group.id) {
        return Complain(
            row, which + ": " + all + " is there already, as group " + std::to_string(i + 1));
      }
    }
    model.groups.push_back(std::move(group));
  }

  const MigModel* FindKnown(const std::string& name) const {
    for (const MigModel& model : base_) {
      if (std::find(model.names.begin(), model.names.end(), name) != model.names.end()) {
        return &model;
      }
    }
    return nullptr;
  }

  std::string Text(const toml::node& node, const char* what) {
    const auto text = node.value_exact<std::string>();
    const bool fine = text && !text->empty() && text->size() <= kNameMax && IsPrintable(*text);
    if (!fine) Complain(node, std::string(what) + " must be a text of 1 to 64 bytes");
    return fine ? *text : std::string();
  }

  int64_t Number(const toml::table& table, const char* key, int64_t min, int64_t max) {
    const toml::node* node = table.get(key);
    const auto value = node != nullptr ? node->value_exact<int64_t>() : std::nullopt;
    if (value && *value >= min && *value <= max) return *value;
    Complain(node != nullptr ? *node : static_cast<const toml::node&>(table),
             std::string(key) + " must be a number from " + std::to_string(min) + " to " +
                 std::to_string(max));
    return min;
  }

  const toml::array* Array(const toml::table& table, const char* key, size_t max) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return nullptr;
    const toml::array* list = node->as_array();
    if (list == nullptr) {
      Complain(*node, std::string(key) + " must be a list");
    } else if (list->size() > max) {
      Complain(*node, std::string(key) + " has more than " + std::to_string(max) + " entries");
      return nullptr;
    }
    return list;
  }

  void Keys(const toml::table& table, const char* what, const std::set<std::string>& known) {
    for (auto&& [key, node] : table) {
      if (known.count(std::string(key.str())) != 0) continue;
      std::string all;
      for (const std::string& name : known) all += ", " + name;
      Complain(node, std::string(what) + " has no key '" + std::string(key.str()) + "', only " +
                         all.substr(2));
    }
  }

  // Keeps the first complaint.
  void Complain(const toml::node& node, const std::string& what) {
    if (!error_.empty()) return;
    error_ = file_ + ":" + std::to_string(node.source().begin.line) + ": " + what;
  }

  const std::string file_;
  const std::vector<MigModel>& base_;
  std::set<std::string> named_;
  std::string model_;
  std::string error_;
};

// The file, included by the assembler: nothing for the compiler to chew.
__asm__(
    ".section .rodata\n"
    "baton_mig_geometries:\n"
    ".incbin \"" BATON_MIG_GEOMETRIES
    "\"\n"
    "baton_mig_geometries_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" __attribute__((visibility("hidden"))) const char baton_mig_geometries[];
extern "C" __attribute__((visibility("hidden"))) const char baton_mig_geometries_end[];

}  // namespace

bool MigProfile::media() const { return name.find("+me") != std::string::npos; }

const MigGroup* MigModel::FindGroup(uint32_t id) const {
  for (const MigGroup& group : groups) {
    if (group.id == id) return &group;
  }
  return nullptr;
}

std::string MigModel::Describe(const MigGroup& group) const {
  std::string text;
  for (size_t p = profiles.size(); p-- > 0;) {
    const auto n = std::count_if(group.parts.begin(), group.parts.end(),
                                 [&](const MigGroup::Part& part) { return part.profile == p; });
    if (n == 0) continue;
    text += (text.empty() ? "" : " + ") + Counted(static_cast<size_t>(n), profiles[p].name);
  }
  return text;
}

std::string MigModel::Nearest(std::string_view wanted, uint32_t want_compute,
                              uint32_t memory_mib) const {
  const MigProfile* nearest = nullptr;
  const MigProfile* holds = nullptr;
  uint64_t distance_min = 0;
  uint32_t memory_max = 1;
  for (const MigProfile& p : profiles) memory_max = std::max(memory_max, p.memory_mib);
  for (size_t i = 0; i < profiles.size(); ++i) {
    const MigProfile& p = profiles[i];
    if (first[i] == kNoGroup || p.media()) continue;
    const auto apart = [](uint64_t a, uint64_t b) { return a < b ? b - a : a - b; };
    // In parts of the whole GPU, compute and memory counting the same.
    const uint64_t distance = apart(p.compute, want_compute) * 1'000'000 / compute +
                              apart(p.memory_mib, memory_mib) * 1'000'000 / memory_max;
    if (nearest == nullptr || distance < distance_min) {
      nearest = &p;
      distance_min = distance;
    }
    if (holds == nullptr && p.compute >= want_compute && p.memory_mib >= memory_mib) holds = &p;
  }
  std::string text = "no " + std::string(wanted) + " on " + names[0];
  if (nearest == nullptr) return text + ": its template offers nothing";
  text += ": nearest is " + nearest->name + " with " + std::to_string(nearest->memory_mib) + " MiB";
  if (holds != nullptr && holds != nearest) {
    text += "; " + holds->name + " is the smallest that has both, with " +
            std::to_string(holds->memory_mib) + " MiB";
  }
  return text;
}

const MigTemplates& MigTemplates::BuiltIn() {
  static const MigTemplates* const kBuiltIn = [] {
    auto read = MigTemplates().With(BuiltInText(), "mig_geometries.toml");
    BATON_CHECK(read.has_value());
    return new MigTemplates(std::move(*read));
  }();
  return *kBuiltIn;
}

std::string_view MigTemplates::BuiltInText() {
  return {baton_mig_geometries,
          static_cast<size_t>(baton_mig_geometries_end - baton_mig_geometries)};
}

Result<MigTemplates> MigTemplates::With(std::string_view text, std::string_view file) const {
  if (text.size() > kTextMax) {
    return Fail(ErrorCode::kInvalid, std::string(file) + ": more than 256 KiB of MIG templates");
  }
  const auto parsed = ParseToml(text, file);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  auto read = Reader(file, models_).Read(*parsed);
  if (!read) return tl::unexpected<Error>(read.error());

  MigTemplates result;
  for (MigModel& model : *read) {
    for (const MigModel& old : models_) {
      if (std::none_of(old.names.begin(), old.names.end(), [&](const std::string& name) {
            return std::find(model.names.begin(), model.names.end(), name) != model.names.end();
          })) {
        continue;
      }
      // What a GPU may still be divided into: to be known again, if the profiles are the same.
      const auto alike = [](const MigProfile& a, const MigProfile& b) { return a.name == b.name; };
      if (!std::equal(model.profiles.begin(), model.profiles.end(), old.profiles.begin(),
                      old.profiles.end(), alike)) {
        continue;
      }
      for (const MigGroup& group : old.groups) {
        if (model.FindGroup(group.id) != nullptr || model.groups.size() >= 2 * kGroupsMax) continue;
        model.groups.push_back(group);
        model.groups.back().offered = false;
      }
    }
    result.models_.push_back(std::move(model));
  }
  // What is not replaced stays.
  for (const MigModel& old : models_) {
    MigModel kept = old;
    std::erase_if(kept.names, [&](const std::string& name) {
      return std::any_of(result.models_.begin(), result.models_.end(), [&](const MigModel& model) {
        return std::find(model.names.begin(), model.names.end(), name) != model.names.end();
      });
    });
    if (!kept.names.empty()) result.models_.push_back(std::move(kept));
  }
  result.Index();
  return result;
}

void MigTemplates::Index() {
  size_t names = 0;
  for (MigModel& model : models_) {
    names += model.names.size();
    model.first.fill(MigModel::kNoGroup);
    for (size_t g = model.groups.size(); g-- > 0;) {
      if (!model.groups[g].offered) continue;
      for (size_t p = 0; p < model.profiles.size(); ++p) {
        if (model.groups[g].profiles >> p & 1) model.first[p] = static_cast<uint8_t>(g);
      }
    }
  }
  names_.assign(std::bit_ceil(2 * names + 2), {0, UINT32_MAX, 0});
  for (uint32_t m = 0; m < models_.size(); ++m) {
    for (uint32_t n = 0; n < models_[m].names.size(); ++n) {
      const uint64_t key = KeyOf(models_[m].names[n]);
      size_t at = key & (names_.size() - 1);
      while (names_[at].model != UINT32_MAX) at = (at + 1) & (names_.size() - 1);
      names_[at] = {key, m, n};
    }
  }
}

const MigModel* MigTemplates::Find(std::string_view name) const {
  name = WithoutVendor(name);
  if (names_.empty()) return nullptr;
  const uint64_t key = KeyOf(name);
  for (size_t at = key & (names_.size() - 1); names_[at].model != UINT32_MAX;
       at = (at + 1) & (names_.size() - 1)) {
    const Name& entry = names_[at];
    if (entry.key == key && models_[entry.model].names[entry.name] == name) {
      return &models_[entry.model];
    }
  }
  return nullptr;
}

std::string MigTemplates::WhyUnknown(std::string_view name) const {
  std::string known;
  for (const MigModel& model : models_) known += ", " + model.names[0];
  return "there is no MIG template for '" + std::string(name) + "'" +
         (known.empty() ? "" : "; there is for " + known.substr(2));
}

Result<VgpuWant> MigTemplates::Want(std::string_view name, std::string_view profile) const {
  const MigModel* model = Find(name);
  if (model == nullptr) return Fail(ErrorCode::kNotFound, WhyUnknown(name));
  for (size_t p = 0; p < model->profiles.size(); ++p) {
    if (model->profiles[p].name != profile || model->first[p] == MigModel::kNoGroup) continue;
    if (model->profiles[p].media()) {
      return Fail(ErrorCode::kInvalid, "'" + std::string(profile) +
                                           "' cannot be asked for: sizes do not tell it from the "
                                           "profile without media engines");
    }
    return VgpuWant{model->profiles[p].share, model->profiles[p].memory_mib};
  }
  const auto parsed = ParseProfile(profile);
  if (!parsed) {
    std::string has;
    for (size_t p = 0; p < model->profiles.size(); ++p) {
      if (model->first[p] != MigModel::kNoGroup) has += ", " + model->profiles[p].name;
    }
    return Fail(ErrorCode::kInvalid, "'" + std::string(profile) + "' is no MIG profile; " +
                                         model->names[0] + " has " +
                                         (has.empty() ? "none" : has.substr(2)));
  }
  // A profile's GB are not what it holds; the GPU's own figures are nearer.
  uint32_t memory_mib = parsed->second * 1024;
  for (const MigProfile& p : model->profiles) {
    const auto own = ParseProfile(p.name);
    if (own && own->second == parsed->second) memory_mib = p.memory_mib;
  }
  return Fail(ErrorCode::kInvalid, model->Nearest(profile, parsed->first, memory_mib));
}

}  // namespace baton::devmgr
