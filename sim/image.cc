// Real images: PTX, cubins and fat binaries. What is read are the names of kernels, the places of
// their parameters, and variables; how long a kernel takes is said by BATON_SIM_KERNELS and
// BATON_SIM_KERNEL_NS (sim/README.md).
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <string_view>

#include "base/gpu_image.h"
#include "sim/driver.h"

namespace baton::sim {
namespace {

// Of a library with more, any kernel that is asked for is taken to be there.
constexpr uint64_t kBudget = uint64_t{48} << 20;
constexpr int64_t kUsualDuration = 10'000;

// What a kernel of this name takes: by the first line "PART-OF-NAME NANOSECONDS" of the file that
// has a part of it, else what all others take.
int64_t DurationOf(const std::string& name) {
  using Rule = std::pair<std::string, int64_t>;
  static const auto& rules = *[] {
    auto* list = new std::vector<Rule>;
    Rule rule;
    if (const char* path = getenv("BATON_SIM_KERNELS")) {
      for (std::ifstream file(path); file >> rule.first >> rule.second;) list->push_back(rule);
    }
    const char* others = getenv("BATON_SIM_KERNEL_NS");
    list->emplace_back("", others != nullptr ? atoll(others) : kUsualDuration);
    return list;
  }();
  const auto rule = std::find_if(rules.begin(), rules.end(), [&name](const Rule& each) {
    return name.find(each.first) != std::string::npos;
  });
  return std::max<int64_t>(rule->second, 1);
}

// Ordered by their place in the kernel's parameters.
void SetParams(KernelSpec* spec, const std::vector<std::pair<size_t, size_t>>& places) {
  if (!spec->param_sizes.empty()) return;  // as in the part for another card
  for (const auto& [offset, size] : places) {
    spec->param_offsets.push_back(offset);
    spec->param_sizes.push_back(size);
    spec->param_bytes = std::max(spec->param_bytes, offset + size);
  }
}

// The attributes of one kernel: 16-bit format and name, then a 16-bit value or, in format 4, its
// size and the value. Number 0x17 is a parameter: its ordinal, its offset, and from bit 18 on its
// size.
void ReadAttributes(const char* data, uint64_t size, KernelSpec* spec) {
  constexpr unsigned char kSized = 4, kParameter = 0x17;
  std::map<uint16_t, std::pair<size_t, size_t>> by_ordinal;
  struct {
    unsigned char format, name;
    uint16_t size;
  } attribute;
  uint64_t at = 0;
  while (gpu_image::Read(data, size, at, &attribute)) {
    at += sizeof(attribute);
    if (attribute.format != kSized) continue;
    uint16_t ordinal = 0, offset = 0;
    uint32_t bits = 0;
    if (attribute.name == kParameter && gpu_image::Read(data, size, at + 4, &ordinal) &&
        gpu_image::Read(data, size, at + 6, &offset) &&
        gpu_image::Read(data, size, at + 8, &bits)) {
      by_ordinal[ordinal] = {offset, bits >> 18};
    }
    at += attribute.size;
  }
  std::vector<std::pair<size_t, size_t>> places;
  places.reserve(by_ordinal.size());
  for (const auto& [ordinal, place] : by_ordinal) places.push_back(place);
  SetParams(spec, places);
}

void ReadCubin(Module* module, const char* data, uint64_t size) {
  constexpr std::string_view kOfKernel = ".nv.info.";
  const gpu_image::Sections sections(data, size);
  Elf64_Shdr section;
  for (uint64_t i = 0; sections.At(i, &section); ++i) {
    const char* const held = sections.Data(section);
    if (held == nullptr) continue;
    const std::string_view name = sections.Name(section);
    if (name.substr(0, kOfKernel.size()) == kOfKernel) {
      ReadAttributes(held, section.sh_size,
                     AddKernel(module, std::string(name.substr(kOfKernel.size()))));
    }
    if (section.sh_type != SHT_SYMTAB) continue;
    Elf64_Sym symbol;
    for (uint64_t at = 0; gpu_image::Read(held, section.sh_size, at, &symbol);
         at += sizeof(symbol)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size == 0) continue;
      Variable& variable = module->variables[sections.Text(section.sh_link, symbol.st_name)];
      variable.bytes = std::max<size_t>(variable.bytes, symbol.st_size);
    }
  }
}

// ".entry name ( .param .u64 .ptr a, .param .align 4 .b8 b[12] )"; without parameters none.
void ReadPtx(Module* module, const std::string& text) {
  static const std::regex parameter(R"(\.param\s+(?:\.align\s+(\d+)\s+)?\.[busf](8|16|32|64)\b)"
                                    R"([^,)\[]*(?:\[(\d+)\])?)");
  constexpr std::string_view kEntry = ".entry";
  for (size_t at = text.find(kEntry); at != text.npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    const size_t start = text.find_first_not_of(" \t\r\n", at);
    const size_t end = text.find_first_of("( \t\r\n{;", start);
    if (start == text.npos || end == text.npos) return;
    KernelSpec* spec = AddKernel(module, text.substr(start, end - start));
    const size_t open = text.find_first_not_of(" \t\r\n", end);
    if (open == text.npos || text[open] != '(') continue;
    const std::string list = text.substr(open, text.find(')', open) - open);
    std::vector<std::pair<size_t, size_t>> places;
    size_t offset = 0;
    for (std::sregex_iterator it(list.begin(), list.end(), parameter), none; it != none; ++it) {
      const size_t each = std::stoull((*it)[2]) / 8;
      const size_t align = (*it)[1].matched ? std::max<size_t>(std::stoull((*it)[1]), 1) : each;
      const size_t size = each * ((*it)[3].matched ? std::stoull((*it)[3]) : 1);
      offset = (offset + align - 1) / align * align;
      places.emplace_back(offset, size);
      offset += size;
    }
    SetParams(spec, places);
  }
}

bool IsPtx(std::string_view text) {
  return text.find(".version") != text.npos && text.find(".target") != text.npos;
}

}  // namespace

KernelSpec* AddKernel(Module* module, const std::string& name) {
  const auto [it, fresh] = module->by_name.try_emplace(name, nullptr);
  if (fresh) {
    it->second = &module->specs.emplace_back();
    it->second->name = name;
    it->second->duration_ns = DurationOf(name);
  }
  return it->second;
}

bool ReadImage(Module* module, const void* image, size_t bytes) {
  gpu_image::Parts parts(image, bytes, kBudget);
  gpu_image::Part part;
  bool real = false;
  while (parts.Next(&part)) {
    if (part.kind == gpu_image::Part::kCubin) {
      ReadCubin(module, part.data, part.size);
      real = true;
      continue;
    }
    const bool ends = part.size == gpu_image::kUnknownSize;
    const std::string text(part.data, ends ? strlen(part.data) : part.size);
    if (!IsPtx(text)) continue;
    ReadVariables(text, module);
    ReadPtx(module, text);
    real = true;
  }
  module->open_ended = parts.incomplete();
  return real || parts.incomplete();
}

}  // namespace baton::sim
