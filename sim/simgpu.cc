// baton-simgpu: makes device files, looks into them, injects faults.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/help_command.h"
#include "base/parse.h"
#include "base/standard_files.h"
#include "sim/card.h"
#include "sim/device.h"
#include "sim/record.h"

namespace {

using baton::sim::Device;
using json = nlohmann::json;

int Refuse(const std::string& message) {
  std::fprintf(stderr, "baton-simgpu: %s\n", message.c_str());
  return 1;
}

struct CreateArgs {
  std::string model, name, memory, slice = "2ms", context_switch = "0", uuid;
  std::vector<std::string> links;
  baton::sim::DeviceOptions options;
};

// "switch@0000:c1:00.0" or "gpu@0000:27:00.0".
bool ParseLink(const std::string& text, baton::sim::DeviceOptions::Link* link) {
  const size_t at = text.find('@');
  const std::string kind = text.substr(0, at);
  if (at == std::string::npos || (kind != "switch" && kind != "gpu")) return false;
  link->to_switch = kind == "switch";
  link->bus = text.substr(at + 1);
  return !link->bus.empty();
}

int Create(const std::string& path, const CreateArgs& args) {
  baton::sim::DeviceOptions options = args.options;
  if (!args.model.empty()) {
    const auto* model = baton::sim::FindModel(args.model);
    if (model == nullptr) {
      return Refuse("--model: there is no \"" + args.model + "\"; baton-simgpu models lists them");
    }
    const auto of_model = baton::sim::OptionsFor(*model);
    options.model = of_model.model;
    options.name = of_model.name;
    options.memory_bytes = of_model.memory_bytes;
    options.ecc = of_model.ecc;
    if (options.mig && model->memory_slices == 0) return Refuse("--mig: this model has none");
  } else if (options.mig) {
    return Refuse("--mig needs a --model that has it");
  }
  if (!args.name.empty()) options.name = args.name;
  if (!args.memory.empty()) {
    auto bytes = baton::ParseBytes(args.memory);
    if (!bytes) return Refuse("--memory: " + bytes.error().message);
    options.memory_bytes = *bytes;
  }
  auto length = baton::ParseDuration(args.slice);
  if (!length) return Refuse("--slice: " + length.error().message);
  if (*length < std::chrono::microseconds(1)) return Refuse("--slice: must be at least 1us");
  auto between = baton::ParseDuration(args.context_switch);
  if (!between) return Refuse("--context-switch: " + between.error().message);
  if (options.records == 0) return Refuse("--records: must be at least 1");
  if (!args.uuid.empty() && !baton::sim::ParseUuid(args.uuid, options.uuid)) {
    return Refuse("--uuid: \"" + args.uuid + "\" is no uuid; write GPU- and 32 hexadecimal digits");
  }
  for (const std::string& text : args.links) {
    baton::sim::DeviceOptions::Link link;
    if (!ParseLink(text, &link) || options.links.size() == baton::sim::kMaxLinks) {
      return Refuse("--nvlink: write up to 18 such as switch@0000:c1:00.0 or gpu@0000:27:00.0");
    }
    options.links.push_back(link);
  }
  options.slice_ns = baton::Nanos(*length);
  options.switch_ns = baton::Nanos(*between);
  auto made = baton::sim::CreateDeviceFile(path, options);
  return made ? 0 : Refuse(made.error().message);
}

int ListModels() {
  for (const auto& model : baton::sim::Models()) {
    std::printf("%-8s  %-25s  %6lu MiB  %s\n", model.key, model.name, model.memory_mib,
                model.memory_slices == 0 ? "" : "MIG");
  }
  return 0;
}

struct NvmlArgs {
  uint64_t xid = 0;
  int64_t ecc = -1;
  std::string mig, presence, remap, link;
  std::vector<std::string> fail, slow;
  bool clear = false;
};

// "CALL=WHAT" or "CALL=WHAT*TIMES".
bool ParseFailure(const std::string& text, baton::sim::NvmlFailure* failure, std::string* what) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  failure->call = text.substr(0, equals);
  *what = text.substr(equals + 1);
  const size_t star = what->find('*');
  if (star == std::string::npos) return true;
  const std::string times = what->substr(star + 1);
  if (times.empty() || times.size() > 9 ||
      times.find_first_not_of("0123456789") != std::string::npos) {
    return false;
  }
  failure->times = static_cast<uint32_t>(std::stoul(times));
  what->resize(star);
  return failure->times > 0;
}

int ChangeNvml(const std::string& path, const NvmlArgs& args) {
  auto opened = Device::Open(path);
  if (!opened) return Refuse(opened.error().message);
  Device* device = *opened;
  if (args.clear) {
    baton::sim::ClearFailures(device);
    baton::sim::SetEccErrors(device, 0, 0);
    baton::sim::SetRowRemap(device, false, false);
    baton::sim::SetPresence(device, baton::sim::Presence::kPresent);
  }
  if (!args.mig.empty()) {
    auto done = baton::sim::SetMigMode(device, args.mig == "on");
    if (!done) return Refuse(done.error().message);
  }
  if (args.ecc >= 0) baton::sim::SetEccErrors(device, 0, static_cast<uint64_t>(args.ecc));
  if (!args.remap.empty()) {
    baton::sim::SetRowRemap(device, args.remap == "pending", args.remap == "failed");
  }
  if (!args.link.empty()) {
    const size_t equals = args.link.find('=');
    const std::string state = equals == std::string::npos ? "" : args.link.substr(equals + 1);
    if (equals == 0 || equals > 2 || (state != "up" && state != "down") ||
        args.link.find_first_not_of("0123456789") != equals) {
      return Refuse("--link: write NUMBER=up or NUMBER=down");
    }
    auto done =
        baton::sim::SetLink(device, static_cast<uint32_t>(std::stoul(args.link)), state == "up");
    if (!done) return Refuse(done.error().message);
  }
  for (const auto& [texts, slow] : {std::pair{&args.fail, false}, {&args.slow, true}}) {
    for (const std::string& text : *texts) {
      baton::sim::NvmlFailure failure;
      std::string what;
      if (!ParseFailure(text, &failure, &what)) {
        return Refuse(slow ? "--slow: write CALL=TIME or CALL=TIME*COUNT"
                           : "--fail: write CALL=CODE or CALL=CODE*COUNT");
      }
      if (slow) {
        auto delay = baton::ParseDuration(what);
        if (!delay) return Refuse("--slow: " + delay.error().message);
        failure.delay_ns = baton::Nanos(*delay);
      } else {
        auto code = baton::sim::NvmlCode(what);
        if (!code) return Refuse("--fail: " + code.error().message);
        failure.code = *code;
      }
      auto added = baton::sim::AddFailure(device, failure);
      if (!added) return Refuse(added.error().message);
    }
  }
  if (!args.presence.empty()) {
    baton::sim::SetPresence(device, args.presence == "lost"   ? baton::sim::Presence::kLost
                                    : args.presence == "gone" ? baton::sim::Presence::kGone
                                                              : baton::sim::Presence::kPresent);
  }
  if (args.xid != 0) baton::sim::RaiseXid(device, args.xid);
  return 0;
}

int Info(const std::string& path) {
  auto opened = Device::Open(path);
  if (!opened) return Refuse(opened.error().message);
  Device& device = **opened;
  json processes = json::array();
  for (const auto& p : device.Processes()) {
    processes.push_back({{"pid", p.pid},
                         {"memory", p.memory},
                         {"joules", static_cast<double>(p.energy) / 1e9},
                         {"dying", p.dying}});
  }
  Device::Session session(&device);
  const auto& file = device.file();
  json instances = json::array();
  const auto* model = baton::sim::FindModel(file.card.model);
  for (const auto& slot : file.card.instances) {
    if (slot.serial == 0) continue;
    int computes = 0;
    for (const auto& compute : slot.computes) computes += compute.profile != 0;
    instances.push_back({{"profile", model->ByIndex(slot.profile)->name},
                         {"start", slot.start},
                         {"size", slot.size},
                         {"compute_instances", computes}});
  }
  constexpr const char* kPresence[] = {"present", "lost", "gone"};
  std::printf("%s\n", json{{"name", file.name},
                           {"uuid", baton::sim::FormatUuid(file.uuid)},
                           {"memory", file.memory_bytes},
                           {"memory_used", uint64_t{file.memory_used}},
                           {"slice_ns", file.slice_ns},
                           {"switch_ns", file.switch_ns},
                           {"now_ns", uint64_t{file.now}},
                           {"busy_ns", uint64_t{file.busy_total}},
                           {"records", uint64_t{file.record_count}},
                           {"records_kept", file.record_capacity},
                           {"processes", processes},
                           {"model", file.card.model},
                           {"presence", kPresence[file.card.presence]},
                           {"mig", file.card.mig_mode != 0},
                           {"instances", instances}}
                          .dump(2)
                          .c_str());
  return 0;
}

int Records(const std::string& path, uint64_t first, bool csv) {
  auto records = baton::sim::ReadRecords(path, first);
  if (!records) return Refuse(records.error().message);
  if (csv) {
    std::printf(
        "index,pid,context,stream,sequence,name,submitted_ns,start_ns,end_ns,busy_ns,"
        "killed,fault\n");
  }
  for (const auto& r : *records) {
    if (csv) {
      std::printf("%lu,%lu,%lu,%lu,%lu,%s,%ld,%ld,%ld,%ld,%d,%d\n", r.index, r.pid, r.context,
                  r.stream, r.sequence, r.name.c_str(), r.submitted_ns, r.start_ns, r.end_ns,
                  r.busy_ns, r.killed, r.fault);
      continue;
    }
    std::printf("%s\n", json{{"index", r.index},
                             {"pid", r.pid},
                             {"context", r.context},
                             {"stream", r.stream},
                             {"sequence", r.sequence},
                             {"name", r.name},
                             {"submitted_ns", r.submitted_ns},
                             {"start_ns", r.start_ns},
                             {"end_ns", r.end_ns},
                             {"busy_ns", r.busy_ns},
                             {"killed", r.killed},
                             {"fault", r.fault}}
                            .dump()
                            .c_str());
  }
  return 0;
}

int Inject(const std::string& path, uint64_t pid, bool hang) {
  auto opened = Device::Open(path);
  if (!opened) return Refuse(opened.error().message);
  Device::Session session(*opened);
  if (!session->Inject(
          pid, hang ? baton::sim::Injection::kHang : baton::sim::Injection::kIllegalAddress)) {
    return Refuse("process " + std::to_string(pid) + " has no context on " + path +
                  "; baton-simgpu info lists those that have");
  }
  return 0;
}

int Run(int argc, char** argv) {
  CLI::App app{
      "Simulated GPUs: device files that libcuda.so.1 and libnvidia-ml.so.1 in lib/sim use.",
      "baton-simgpu"};
  app.require_subcommand(1);
  app.footer(R"(Examples:
  baton-simgpu create /dev/shm/a.gpu --memory 24GiB --slice 2ms
  BATON_SIM_DEVICES=/dev/shm/a.gpu LD_LIBRARY_PATH=build/release/lib/sim baton-burn
  baton-simgpu info /dev/shm/a.gpu
  baton-simgpu records /dev/shm/a.gpu --csv > kernels.csv
  baton-simgpu inject /dev/shm/a.gpu --pid 4711 --illegal-address
  baton-simgpu create /dev/shm/b.gpu --model h200 --mig --numa 1 --nvlink switch@0000:c1:00.0
  baton-simgpu nvml /dev/shm/b.gpu --xid 79
  baton-simgpu nvml /dev/shm/b.gpu --fail nvmlDeviceGetCount_v2=DRIVER_NOT_LOADED*3)");

  std::string path;
  CreateArgs args;
  auto* create = app.add_subcommand("create", "Make a device file; best on a tmpfs");
  create->add_option("path", path, "The file to make")->required();
  create->add_option("--model", args.model, "One that baton-simgpu models lists");
  create->add_option("--name", args.name, "The device's name; Baton Sim GPU, or the model's");
  create->add_option("--memory", args.memory, "Its memory; 16GiB, or the model's");
  create->add_option("--slice", args.slice, "How long a context runs while others wait")
      ->capture_default_str();
  create
      ->add_option("--context-switch", args.context_switch,
                   "What it needs to go from one context to another; an H200: 142us")
      ->capture_default_str();
  create->add_option("--records", args.options.records, "How many kernels it remembers")
      ->capture_default_str();
  create->add_option("--uuid", args.uuid, "GPU-...; random when not given");
  create->add_option("--bus", args.options.bus,
                     "PCI address, 0000:17:00.0; by its place if not given");
  create->add_option("--numa", args.options.numa, "NUMA node that its bus hangs on")
      ->check(CLI::Range(0, 1023));
  create->add_option("--pcie-switch", args.options.pcie_switch,
                     "Cards with the same name hang on one switch");
  create->add_option("--nvlink", args.links, "A link, as switch@BUS or gpu@BUS; repeat it");
  create->add_flag("--mig", args.options.mig, "MIG mode is on");

  auto* models = app.add_subcommand("models", "List the models that there are");

  NvmlArgs changes;
  auto* nvml = app.add_subcommand("nvml", "Change what NVML says of a card, at once");
  nvml->add_option("path", path, "The device file")->required();
  nvml->add_option("--xid", changes.xid, "Report this XID; 79 loses the card too");
  nvml->add_option("--ecc", changes.ecc, "So many uncorrected ECC errors")
      ->check(CLI::Range(0, 1'000'000));
  nvml->add_option("--remap", changes.remap, "Row remapping: pending, failed or none")
      ->check(CLI::IsMember({"pending", "failed", "none"}));
  nvml->add_option("--presence", changes.presence,
                   "lost: NVML says so of it; gone: it is not counted; present")
      ->check(CLI::IsMember({"lost", "gone", "present"}));
  nvml->add_option("--mig", changes.mig, "MIG mode: on or off")
      ->check(CLI::IsMember({"on", "off"}));
  nvml->add_option("--link", changes.link, "NUMBER=up or NUMBER=down");
  nvml->add_option("--fail", changes.fail,
                   "CALL=CODE or CALL=CODE*COUNT: nvmlDeviceGetUUID=GPU_IS_LOST*2; CALL may be *");
  nvml->add_option("--slow", changes.slow, "CALL=TIME or CALL=TIME*COUNT");
  nvml->add_flag("--clear", changes.clear, "First, take back errors, ECC and absence");

  auto* info = app.add_subcommand("info", "Describe a device and who uses it, as JSON");
  info->add_option("path", path, "The device file")->required();

  uint64_t first = 0;
  bool csv = false;
  auto* records = app.add_subcommand("records", "Print executed kernels, one JSON object a line");
  records->add_option("path", path, "The device file")->required();
  records->add_option("--first", first, "Leave out what was recorded before this index");
  records->add_flag("--csv", csv, "Print CSV instead");

  uint64_t pid = 0;
  bool illegal = false, hang = false;
  auto* inject = app.add_subcommand(
      "inject", "Let the running kernel of a process, or its next one, fail or hang");
  inject->add_option("path", path, "The device file")->required();
  inject->add_option("--pid", pid, "The process")->required();
  auto* kinds = inject->add_option_group("fault");
  kinds->add_flag("--illegal-address", illegal, "It ends in CUDA_ERROR_ILLEGAL_ADDRESS");
  kinds->add_flag("--hang", hang, "It never ends");
  kinds->require_option(1);

  baton::AddHelpCommand(app);
  CLI11_PARSE(app, argc, argv);
  if (*create) return Create(path, args);
  if (*models) return ListModels();
  if (*nvml) return ChangeNvml(path, changes);
  if (*info) return Info(path);
  if (*records) return Records(path, first, csv);
  return Inject(path, pid, hang);
}

}  // namespace

int main(int argc, char** argv) {
  baton::OpenStandardFiles();
  return baton::AfterOutput("baton-simgpu", Run(argc, argv));
}
