// Modules: what the `//@baton-sim` lines of an image say (sim/README.md; sim/image.cc reads real
// images), and how a launch of such a kernel becomes work.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <regex>
#include <string_view>

#include "sim/driver.h"

namespace baton::sim {
namespace {

constexpr std::string_view kMark = "//@baton-sim kernel ";

bool ParseTime(std::string_view text, int64_t* ns) {
  size_t digits = 0;
  double value = 0;
  while (digits < text.size() && (isdigit(text[digits]) || text[digits] == '.')) ++digits;
  if (digits == 0) return false;
  value = strtod(std::string(text.substr(0, digits)).c_str(), nullptr);
  const std::string_view unit = text.substr(digits);
  const double scale = unit == "ns"   ? 1
                       : unit == "us" ? 1e3
                       : unit == "ms" ? 1e6
                       : unit == "s"  ? 1e9
                                      : 0;
  *ns = static_cast<int64_t>(value * scale);
  return scale != 0;
}

// "arg2" to 2, if the kernel has such a parameter.
bool ParseArg(const KernelSpec& spec, std::string_view text, int* arg) {
  if (text.substr(0, 3) != "arg" || text.size() < 4 || text.size() > 5) return false;
  *arg = atoi(std::string(text.substr(3)).c_str());
  return *arg >= 0 && static_cast<size_t>(*arg) < spec.param_sizes.size();
}

bool ParseArgs(const KernelSpec& spec, std::string_view text, std::vector<int*> args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t end = i + 1 < args.size() ? text.find(':') : text.size();
    if (end == std::string_view::npos || !ParseArg(spec, text.substr(0, end), args[i]))
      return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// NAME(type,...) key=value...
bool ParseKernel(std::string_view line, KernelSpec* spec) {
  const size_t open = line.find('('), close = line.find(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return false;
  spec->name = line.substr(0, open);
  std::string_view types = line.substr(open + 1, close - open - 1);
  while (!types.empty()) {
    const size_t end = std::min(types.find(','), types.size());
    const std::string_view type = types.substr(0, end);
    const size_t size = type == "u64" || type == "ptr" ? 8 : type == "u32" || type == "f32" ? 4 : 0;
    if (size == 0) return false;
    spec->param_bytes = (spec->param_bytes + size - 1) / size * size;
    spec->param_offsets.push_back(spec->param_bytes);
    spec->param_sizes.push_back(size);
    spec->param_bytes += size;
    types.remove_prefix(std::min(end + 1, types.size()));
  }
  std::string_view rest = line.substr(close + 1);
  while (true) {
    while (!rest.empty() && isspace(static_cast<unsigned char>(rest[0]))) rest.remove_prefix(1);
    if (rest.empty()) return true;
    const size_t end = std::min(rest.find_first_of(" \t\r"), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end);
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    std::string_view value = word.substr(std::min(equals + 1, word.size()));
    bool good = false;
    if (key == "duration") {
      if (value.substr(0, 5) == "grid*") {
        spec->per_block = true;
        value.remove_prefix(5);
      }
      good = ParseArg(*spec, value, &spec->duration_arg) || ParseTime(value, &spec->duration_ns);
    } else if (key == "spread") {
      spec->spread = strtod(std::string(value).c_str(), nullptr) / 100;
      good = spec->spread > 0 && spec->spread <= 1 && value.back() == '%';
    } else if (key == "concurrent") {
      good = spec->concurrent = true;
    } else if (key == "fault") {
      good = spec->fault = true;
    } else if (key == "hang") {
      good = spec->hang = true;
    } else if (key == "wait") {
      good = ParseArgs(*spec, value, {&spec->wait_pointer, &spec->wait_value});
    } else if (key == "store") {
      good = ParseArgs(*spec, value, {&spec->store_pointer, &spec->store_value});
    } else if (key == "add") {
      good = ParseArgs(*spec, value, {&spec->add_pointer, &spec->add_count, &spec->add_value});
    }
    if (!good) return false;
  }
}

uint64_t Argument(const KernelSpec& spec, const std::vector<unsigned char>& args, int index) {
  const auto i = static_cast<size_t>(index);
  uint64_t value = 0;
  memcpy(&value, args.data() + spec.param_offsets[i], spec.param_sizes[i]);
  return value;
}

}  // namespace

// Such as ".visible .global .align 4 .b8 name[64];".
void ReadVariables(const std::string& text, Module* module) {
  static const std::regex declaration(
      R"((?:^|\n)\s*(?:\.visible\s+|\.weak\s+)?\.global\s[^;\n]*?\.[busf](8|16|32|64)\s+(\w+)(?:\[(\d+)\])?)");
  if (text.find(".global") == std::string::npos) return;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), declaration);
       it != std::sregex_iterator(); ++it) {
    const size_t count = (*it)[3].matched ? std::stoull((*it)[3]) : 1;
    module->variables[(*it)[2]].bytes = count * std::stoull((*it)[1]) / 8;
  }
}

CUresult LoadModule(const void* image, size_t bytes_limit, Module** out) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* text = static_cast<const char*>(image);
  size_t bytes = bytes_limit;
  if (bytes == 0 && strncmp(text, "\x50\xed\x55\xba", 4) == 0) {
    // A fat binary: its header says how long it is.
    uint16_t header;
    uint64_t body;
    memcpy(&header, text + 6, 2);
    memcpy(&body, text + 8, 8);
    bytes = header + body;
  } else if (bytes == 0) {
    bytes = strlen(text);  // of a binary image: up to its first zero
  }
  auto module = std::make_unique<Module>();
  const std::string_view all(text, bytes);
  for (size_t at = all.find(kMark); at != std::string_view::npos; at = all.find(kMark, at + 1)) {
    const size_t start = at + kMark.size();
    const std::string_view line = all.substr(start, all.find('\n', start) - start);
    KernelSpec spec;
    if (!ParseKernel(line, &spec)) return CUDA_ERROR_INVALID_PTX;
    module->specs.push_back(std::move(spec));
  }
  if (!module->specs.empty()) {
    ReadVariables(std::string(all), module.get());
  } else if (!ReadImage(module.get(), image, bytes_limit != 0 ? bytes_limit : SIZE_MAX)) {
    return all.find(".version") != std::string_view::npos ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                          : CUDA_ERROR_INVALID_IMAGE;
  }
  *out = module.release();
  return CUDA_SUCCESS;
}

CUresult GetFunction(const void* handle, Function** out) {
  auto* function = const_cast<Function*>(static_cast<const Function*>(handle));
  if (!IsLive(function)) return CUDA_ERROR_INVALID_HANDLE;
  *out = function;
  return CUDA_SUCCESS;
}

CUresult MakeKernelWork(Function* function, const LaunchShape& shape, void** params, void** extra,
                        Work* work) {
  const KernelSpec& spec = *function->spec;
  const unsigned int* g = shape.grid;
  const unsigned int* b = shape.block;
  if (g[0] == 0 || g[1] == 0 || g[2] == 0 || b[0] == 0 || b[1] == 0 || b[2] == 0 ||
      uint64_t{b[0]} * b[1] * b[2] > 1024 || b[2] > 64 || g[1] > 65535 || g[2] > 65535 ||
      shape.shared_bytes > 227 * 1024) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<unsigned char> args(spec.param_bytes);
  if (params != nullptr) {
    for (size_t i = 0; i < spec.param_sizes.size(); ++i) {
      memcpy(args.data() + spec.param_offsets[i], params[i], spec.param_sizes[i]);
    }
  } else if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
      if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(extra[1]);
    }
    if (buffer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // It may be shorter: NCCL passes only the part of its parameters that it uses.
    memcpy(args.data(), buffer, std::min(bytes, args.size()));
  } else if (!args.empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  work->kind = OpKind::kKernel;
  work->node_type = CU_GRAPH_NODE_TYPE_KERNEL;
  work->name = spec.name.c_str();
  int64_t duration = spec.duration_arg >= 0
                         ? static_cast<int64_t>(Argument(spec, args, spec.duration_arg))
                         : spec.duration_ns;
  if (spec.per_block) duration *= int64_t{g[0]} * g[1] * g[2];
  if (spec.spread > 0) {
    // A small generator of its own per thread, so that runs are alike and threads do not meet.
    static thread_local uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const double part = static_cast<double>(state >> 11) / 9007199254740992.0;
    duration += static_cast<int64_t>(static_cast<double>(duration) * spec.spread * (2 * part - 1));
  }
  work->duration = spec.hang ? kForever : std::max<int64_t>(duration, 1);
  work->flags = (spec.concurrent ? kConcurrent : 0) | (spec.fault ? kFaults : 0);
  if (spec.wait_pointer >= 0) {
    const auto* word =
        static_cast<const volatile uint32_t*>(AsPointer(Argument(spec, args, spec.wait_pointer)));
    const auto value = static_cast<uint32_t>(Argument(spec, args, spec.wait_value));
    work->condition = [word, value] { return *word >= value; };
  }
  // What a kernel touches must be there, else it ends in a fault as a real one does.
  const auto check = [work](uint64_t pointer, size_t bytes) {
    const bool there = bytes == 0 || FindAllocation(pointer, bytes) != nullptr;
    if (!there) {
      work->flags |= kFaults;
      work->condition = nullptr;
    }
    return there;
  };
  if (spec.wait_pointer >= 0) check(Argument(spec, args, spec.wait_pointer), 4);
  if (spec.store_pointer >= 0 && check(Argument(spec, args, spec.store_pointer), 4)) {
    const uint64_t pointer = Argument(spec, args, spec.store_pointer);
    auto* word = static_cast<volatile uint32_t*>(AsPointer(pointer));
    const auto value = static_cast<uint32_t>(Argument(spec, args, spec.store_value));
    work->effect = [word, value] { *word = value; };
    work->prompt = !IsDeviceMemory(pointer);
  }
  if (spec.add_pointer >= 0) {
    const uint64_t pointer = Argument(spec, args, spec.add_pointer);
    const uint64_t count = Argument(spec, args, spec.add_count);
    if (check(pointer, count * 4)) {
      auto* words = static_cast<uint32_t*>(AsPointer(pointer));
      const auto value = static_cast<uint32_t>(Argument(spec, args, spec.add_value));
      work->effect = [words, count, value] {
        for (uint64_t i = 0; i < count; ++i) words[i] += value;
      };
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace baton::sim
