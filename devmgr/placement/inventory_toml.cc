#include "devmgr/placement/inventory_toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/parse.h"
#include "base/suggest.h"
#include "base/toml.h"
#include "base/utf8.h"
#include "devmgr/placement/request.h"

namespace baton::devmgr {
namespace {

constexpr size_t kNameMax = 253;   // bytes, as Kubernetes has it for nodes
constexpr size_t kTextMax = 1024;  // bytes of what is only shown
constexpr size_t kLabelsMax = 256;
constexpr uint64_t kCardMibMax = uint64_t{16} << 20;  // 16 TiB
constexpr uint64_t kHostMibMax = uint64_t{1} << 30;   // 1 PiB
constexpr int64_t kNumaMax = 1023, kGroupMax = 1023;
constexpr uint32_t kMemorySlices = 8;  // no card has more

// NVML's `memory.total` as nvidia-smi prints it.
constexpr KnownModel kModels[] = {
    {"NVIDIA A10", 23'028, false},
    {"NVIDIA A100-PCIE-40GB", 40'960, true},
    {"NVIDIA A100-SXM4-40GB", 40'960, true},
    {"NVIDIA A100 80GB PCIe", 81'920, true},
    {"NVIDIA A100-SXM4-80GB", 81'920, true},
    {"NVIDIA A30", 24'576, true},
    {"NVIDIA GeForce RTX 4090", 24'564, false},
    {"NVIDIA H100 80GB HBM3", 81'559, true},
    {"NVIDIA H100 PCIe", 81'559, true},
    {"NVIDIA H200", 143'771, true},
    {"NVIDIA L4", 23'034, false},
    {"NVIDIA L40S", 46'068, false},
    {"Tesla T4", 15'360, false},
};

constexpr std::string_view kVendor = "NVIDIA ";

std::string_view Bare(std::string_view model) {
  return model.starts_with(kVendor) ? model.substr(kVendor.size()) : model;
}

// For a message: no line of its own, and not endless.
std::string Shown(std::string_view text) {
  constexpr size_t kMax = 80;
  return ToPrintable(text.substr(0, kMax)) + (text.size() > kMax ? "..." : "");
}

bool Printable(std::string_view text, size_t max) {
  return text.size() <= max && IsPrintable(text);
}

// A name that stands in lists and paths.
bool Word(std::string_view text) {
  return !text.empty() && Printable(text, kNameMax) &&
         text.find_first_of(" ,") == std::string_view::npos;
}

bool IsBus(std::string_view text) {
  constexpr std::string_view kForm = "0000:00:00.0";
  if (text.size() != kForm.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (kForm[i] == '0' ? !hex : c != kForm[i]) return false;
  }
  return true;
}

class InventoryReader {
 public:
  InventoryReader(const toml::table& root, std::string file)
      : root_(root), file_(std::move(file)) {}

  Result<std::vector<Node>> Read() {
    std::vector<Node> nodes;
    Keys keys(*this, root_, "the file");
    const toml::node* list = keys.Get("node");
    keys.End();
    ForEach(list, "[[node]]", kInventoryNodesMax,
            [&](const toml::table& table) { nodes.push_back(ReadNode(table)); });
    if (!error_.empty()) return Fail(ErrorCode::kInvalid, error_);
    return nodes;
  }

 private:
  // The keys of one table: those that nobody asked for are a mistake.
  class Keys {
   public:
    Keys(InventoryReader& reader, const toml::table& table, const char* what)
        : reader_(reader), table_(table), what_(what) {}
    const toml::node* Get(const char* key) {
      known_.emplace_back(key);
      return table_.get(key);
    }
    void End() {
      for (auto&& [key, node] : table_) {
        if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
        const std::string near = key.str().size() <= 64 ? Nearest(key.str(), known_) : "";
        std::string all;
        for (const std::string& one : known_) all += (all.empty() ? "" : ", ") + one;
        reader_.Complain(
            node, fmt::format("{} has no key {}; {}", what_, Shown(key.str()),
                              near.empty() ? "it has " + all : "did you mean " + near + "?"));
      }
    }

   private:
    InventoryReader& reader_;
    const toml::table& table_;
    const char* what_;
    std::vector<std::string> known_;
  };

  template <class Read>
  void ForEach(const toml::node* node, const char* what, size_t max, Read read) {
    if (node == nullptr || !error_.empty()) return;
    const toml::array* list = node->as_array();
    if (list == nullptr) return Complain(*node, fmt::format("write {}, one for each", what));
    if (list->size() > max) {
      return Complain(*node, fmt::format("there are {} {}; at most {}", list->size(), what, max));
    }
    for (const toml::node& row : *list) {
      if (!error_.empty()) return;
      const toml::table* table = row.as_table();
      if (table == nullptr) return Complain(row, fmt::format("write {}, one for each", what));
      read(*table);
    }
  }

  Node ReadNode(const toml::table& table) {
    Node node;
    Keys keys(*this, table, "[[node]]");
    const toml::node* name = keys.Get("name");
    node.name = name == nullptr ? "" : Text(*name, "name", kNameMax);
    if (const toml::node* cpu = keys.Get("cpu")) {
      const auto cores = cpu->is_number() ? cpu->value<double>() : std::nullopt;
      if (!cores || !(*cores >= 0.001 && *cores <= 1e6)) {
        Complain(*cpu, "cpu must be a number of cores from 0.001 to 1000000");
      } else {
        node.cpu_milli = static_cast<uint32_t>(std::llround(*cores * 1000));
      }
    }
    if (const toml::node* memory = keys.Get("memory")) {
      node.memory_mib = Mib(*memory, kHostMibMax);
    }
    if (const toml::node* labels = keys.Get("labels")) ReadLabels(*labels, node);
    if (const toml::node* cordoned = keys.Get("cordoned"))
      node.cordoned = Flag(*cordoned, "cordoned");
    const toml::node* cards = keys.Get("card");
    keys.End();
    if (name == nullptr) {
      Complain(table, "a [[node]] needs a name");
    } else if (!Word(node.name)) {
      Complain(*name, "a node's name is 1 to 253 printable bytes without spaces and commas");
    } else if (!names_.insert(node.name).second) {
      Complain(*name, fmt::format("node {} is listed twice", node.name));
    }
    ForEach(cards, "[[node.card]]", VgpuRequest::kCardsMax,
            [&](const toml::table& card) { ReadCards(card, node); });
    return node;
  }

  void ReadLabels(const toml::node& node, Node& out) {
    const toml::table* labels = node.as_table();
    if (labels == nullptr) return Complain(node, "labels must be a table such as {zone = \"a\"}");
    if (labels->size() > kLabelsMax) {
      return Complain(node,
                      fmt::format("there are {} labels; at most {}", labels->size(), kLabelsMax));
    }
    for (auto&& [key, value] : *labels) {
      const auto text = value.value_exact<std::string>();
      if (!text || !Printable(*text, kTextMax) || !Printable(key.str(), kTextMax)) {
        return Complain(value, "a label is a printable text");
      }
      out.labels.emplace(key.str(), *text);
    }
  }

  void ReadCards(const toml::table& table, Node& node) {
    Keys keys(*this, table, "[[node.card]]");
    Card card;
    const toml::node* uuid = keys.Get("uuid");
    const toml::node* model = keys.Get("model");
    const toml::node* memory = keys.Get("memory");
    const toml::node* count = keys.Get("count");
    const toml::node* mig = keys.Get("mig");
    const toml::node* instances = keys.Get("instances");
    const toml::node* health = keys.Get("health");
    const toml::node* why = keys.Get("why");
    if (uuid != nullptr) {
      card.uuid = Text(*uuid, "uuid", kNameMax);
      if (!Word(card.uuid)) {
        Complain(*uuid, "a uuid is 1 to 253 printable bytes without spaces and commas");
      }
    }
    if (model == nullptr) return Complain(table, "a card needs a model");
    card.model = Text(*model, "model", kNameMax);
    const KnownModel* known = FindModel(card.model);
    if (known != nullptr) {
      card.model = known->name;
      card.memory_mib = known->memory_mib;
      card.mig_capable = known->mig_capable;
    } else if (card.model.empty()) {
      Complain(*model, "a model's name is not empty");
    }
    if (memory != nullptr) {
      card.memory_mib = static_cast<uint32_t>(Mib(*memory, kCardMibMax));
    } else if (known == nullptr) {
      Complain(*model, fmt::format("the model {} is not known, so its card needs a memory{}",
                                   Shown(card.model), Meant(card.model)));
    }
    if (const toml::node* n = keys.Get("vendor")) {
      card.vendor = Text(*n, "vendor", kNameMax);
      if (!Word(card.vendor)) Complain(*n, "a vendor's name has no spaces and commas");
    }
    if (const toml::node* n = keys.Get("numa")) card.numa = Number(*n, "numa", 0, kNumaMax);
    if (const toml::node* n = keys.Get("island")) card.island = Number(*n, "island", 0, kGroupMax);
    if (const toml::node* n = keys.Get("pcie")) card.pcie = Number(*n, "pcie", 0, kGroupMax);
    if (const toml::node* n = keys.Get("bus")) {
      card.bus = Text(*n, "bus", kNameMax);
      if (!IsBus(card.bus)) Complain(*n, "bus must be such as \"0000:17:00.0\"");
    }
    if (const toml::node* n = keys.Get("mig_capable")) card.mig_capable = Flag(*n, "mig_capable");
    if (const toml::node* n = keys.Get("cordoned")) card.cordoned = Flag(*n, "cordoned");
    keys.End();
    if (mig != nullptr) card.mig_enabled = Flag(*mig, "mig");
    if (card.mig_enabled && !card.mig_capable) {
      Complain(*mig, fmt::format("a {} has no MIG (or say mig_capable = true)", Shown(card.model)));
    }
    if (instances != nullptr && !card.mig_enabled) {
      Complain(*instances, "instances need mig = true");
    } else if (instances != nullptr) {
      ReadInstances(*instances, card);
    }
    ReadHealth(health, why, card);
    const int32_t copies =
        count == nullptr ? 1 : Number(*count, "count", 1, VgpuRequest::kCardsMax);
    if (copies > 1 && (!card.bus.empty() || !card.instances.empty())) {
      Complain(*count, "cards with a bus or instances are not alike; list each");
    }
    if (node.cards.size() + static_cast<size_t>(copies) > VgpuRequest::kCardsMax) {
      Complain(table, fmt::format("a node has at most {} cards", VgpuRequest::kCardsMax));
    }
    for (int32_t i = 0; i < copies && error_.empty(); ++i) {
      Card one = card;
      if (uuid == nullptr) {
        one.uuid = fmt::format("{}/{}", node.name, node.cards.size());
      } else if (count != nullptr) {
        one.uuid = fmt::format("{}/{}", card.uuid, i);
      }
      if (!uuids_.insert(one.uuid).second) {
        Complain(uuid != nullptr ? *uuid : table, fmt::format("card {} is listed twice", one.uuid));
      }
      node.cards.push_back(std::move(one));
    }
  }

  void ReadInstances(const toml::node& list, Card& card) {
    uint32_t taken = 0;
    ForEach(&list, "{profile = ..., start = ..., slices = ...}", kMemorySlices,
            [&](const toml::table& table) {
              Keys keys(*this, table, "an instance");
              MigInstance instance;
              const toml::node* profile = keys.Get("profile");
              const toml::node* start = keys.Get("start");
              const toml::node* slices = keys.Get("slices");
              if (const toml::node* n = keys.Get("id")) {
                instance.id = static_cast<uint32_t>(Number(*n, "id", 0, 1'000'000));
              }
              if (const toml::node* n = keys.Get("uuid")) {
                instance.uuid = Text(*n, "uuid", kNameMax);
                if (!Word(instance.uuid)) Complain(*n, "a uuid has no spaces and commas");
              }
              keys.End();
              if (profile == nullptr || start == nullptr || slices == nullptr) {
                return Complain(table, "an instance needs a profile, a start and slices");
              }
              instance.profile = Text(*profile, "profile", kNameMax);
              if (!Word(instance.profile)) {
                Complain(*profile, "a profile is such as \"1g.10gb\"");
              }
              instance.start = static_cast<uint32_t>(Number(*start, "start", 0, kMemorySlices - 1));
              instance.slices = static_cast<uint32_t>(Number(*slices, "slices", 1, kMemorySlices));
              if (instance.start + instance.slices > kMemorySlices) {
                return Complain(table, fmt::format("a {} of {} slices cannot start at {}: a card "
                                                   "has at most {}",
                                                   Shown(instance.profile), instance.slices,
                                                   instance.start, kMemorySlices));
              }
              const uint32_t slots = ((1u << instance.slices) - 1) << instance.start;
              if ((taken & slots) != 0) {
                return Complain(table, fmt::format("the {} at {} lies over another instance",
                                                   Shown(instance.profile), instance.start));
              }
              taken |= slots;
              card.instances.push_back(std::move(instance));
            });
    std::sort(card.instances.begin(), card.instances.end(),
              [](const MigInstance& a, const MigInstance& b) { return a.start < b.start; });
  }

  void ReadHealth(const toml::node* health, const toml::node* why, Card& card) {
    if (health != nullptr) {
      const auto text = health->value_exact<std::string>().value_or("");
      card.health = text == "failed"    ? Health::kFailed
                    : text == "missing" ? Health::kMissing
                                        : Health::kHealthy;
      if (card.health == Health::kHealthy && text != "healthy") {
        Complain(*health, "health must be \"healthy\", \"failed\" or \"missing\"");
      }
    }
    if (why == nullptr) return;
    card.why = Text(*why, "why", kTextMax);
    if (card.health == Health::kHealthy) {
      Complain(*why, "why needs health = \"failed\" or \"missing\" beside it");
    }
  }

  std::string Text(const toml::node& node, const char* key, size_t max) {
    auto text = node.value_exact<std::string>();
    if (text && Printable(*text, max)) return *std::move(text);
    Complain(node, fmt::format("{} must be a text of at most {} printable bytes", key, max));
    return {};
  }

  bool Flag(const toml::node& node, const char* key) {
    const auto flag = node.value_exact<bool>();
    if (!flag) Complain(node, fmt::format("{} must be true or false", key));
    return flag.value_or(false);
  }

  int32_t Number(const toml::node& node, const char* key, int64_t min, int64_t max) {
    const auto number = node.value_exact<int64_t>();
    if (number && *number >= min && *number <= max) return static_cast<int32_t>(*number);
    Complain(node, fmt::format("{} must be a whole number from {} to {}", key, min, max));
    return static_cast<int32_t>(min);
  }

  // 1 to `max`.
  uint64_t Mib(const toml::node& node, uint64_t max) {
    const auto text = node.value_exact<std::string>();
    if (!text) {
      Complain(node, "memory must be a text with its unit, such as \"80GiB\" or \"81559MiB\"");
      return 1;
    }
    const auto bytes = ParseBytes(text->size() <= 64 ? *text : std::string(64, '?'));
    if (!bytes) {
      Complain(node, "memory: " + Shown(bytes.error().message));
      return 1;
    }
    const uint64_t mib = *bytes >> 20;
    if (mib < 1 || mib > max || mib << 20 != *bytes) {
      Complain(node, fmt::format("memory must be whole MiB from 1MiB to {}, not {}",
                                 FormatBytes(max << 20), Shown(*text)));
      return 1;
    }
    return mib;
  }

  static std::string Meant(const std::string& model) {
    std::vector<std::string> names;
    for (const KnownModel& known : kModels) names.emplace_back(Bare(known.name));
    const std::string near = model.size() <= 64 ? Nearest(Bare(model), names) : "";
    return near.empty() ? " such as \"80GiB\"" : " (or did you mean " + near + "?)";
  }

  // Keeps the first complaint.
  void Complain(const toml::node& node, const std::string& what) {
    if (!error_.empty()) return;
    error_ = fmt::format("{}:{}: {}", file_, node.source().begin.line, what);
  }

  const toml::table& root_;
  const std::string file_;
  std::string error_;
  std::unordered_set<std::string> names_, uuids_;
};

void PrintCard(const Card& card, std::string& out) {
  const auto number = [&out](const char* key, int32_t value) {
    if (value >= 0) out += fmt::format("{} = {}\n", key, value);
  };
  out += fmt::format("\n[[node.card]]\nuuid = {}\nmodel = {}\nmemory = \"{}MiB\"\n",
                     TomlText(card.uuid), TomlText(card.model), card.memory_mib);
  if (card.vendor != Card().vendor) out += fmt::format("vendor = {}\n", TomlText(card.vendor));
  number("numa", card.numa);
  number("island", card.island);
  number("pcie", card.pcie);
  if (!card.bus.empty()) out += fmt::format("bus = {}\n", TomlText(card.bus));
  const KnownModel* known = FindModel(card.model);
  if (card.mig_capable != (known != nullptr && known->mig_capable)) {
    out += fmt::format("mig_capable = {}\n", card.mig_capable);
  }
  if (card.mig_enabled) out += "mig = true\n";
  for (size_t i = 0; i < card.instances.size(); ++i) {
    const MigInstance& instance = card.instances[i];
    out += fmt::format("{}{{profile = {}, start = {}, slices = {}, id = {}",
                       i == 0 ? "instances = [" : ", ", TomlText(instance.profile), instance.start,
                       instance.slices, instance.id);
    if (!instance.uuid.empty()) out += fmt::format(", uuid = {}", TomlText(instance.uuid));
    out += i + 1 == card.instances.size() ? "}]\n" : "}";
  }
  if (card.health != Health::kHealthy) {
    out += fmt::format("health = \"{}\"\n", card.health == Health::kFailed ? "failed" : "missing");
    if (!card.why.empty()) out += fmt::format("why = {}\n", TomlText(card.why));
  }
  if (card.cordoned) out += "cordoned = true\n";
}

}  // namespace

const KnownModel* FindModel(std::string_view name) {
  for (const KnownModel& model : kModels) {
    if (Bare(model.name) == Bare(name)) return &model;
  }
  return nullptr;
}

Result<std::vector<Node>> ParseInventory(std::string_view text, const std::string& name) {
  if (text.size() > kInventoryBytesMax) {
    return Fail(ErrorCode::kInvalid, fmt::format("{}: an inventory is at most {}", name,
                                                 FormatBytes(kInventoryBytesMax)));
  }
  const auto parsed = ParseToml(text, name);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  return InventoryReader(*parsed, name).Read();
}

std::string PrintInventory(const std::vector<Node>& nodes) {
  std::string out;
  for (const Node& node : nodes) {
    out += fmt::format("{}[[node]]\nname = {}\n", out.empty() ? "" : "\n", TomlText(node.name));
    if (node.cpu_milli > 0) out += fmt::format("cpu = {}\n", node.cpu_milli / 1000.0);
    if (node.memory_mib > 0) out += fmt::format("memory = \"{}MiB\"\n", node.memory_mib);
    if (!node.labels.empty()) {
      std::string labels;
      for (const auto& [key, value] : node.labels) {
        labels +=
            fmt::format("{}{} = {}", labels.empty() ? "" : ", ", TomlText(key), TomlText(value));
      }
      out += fmt::format("labels = {{{}}}\n", labels);
    }
    if (node.cordoned) out += "cordoned = true\n";
    for (const Card& card : node.cards) PrintCard(card, out);
  }
  return out;
}

}  // namespace baton::devmgr
