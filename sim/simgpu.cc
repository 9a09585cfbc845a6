// baton-simgpu: makes device files, looks into them, injects faults.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "sim/device.h"
#include "sim/record.h"

namespace {

using baton::sim::Device;
using json = nlohmann::json;

int Refuse(const std::string& message) {
  std::fprintf(stderr, "baton-simgpu: %s\n", message.c_str());
  return 1;
}

int Create(const std::string& path, const std::string& memory, const std::string& slice,
           const std::string& uuid, baton::sim::DeviceOptions options) {
  auto bytes = baton::ParseBytes(memory);
  if (!bytes) return Refuse("--memory: " + bytes.error().message);
  auto length = baton::ParseDuration(slice);
  if (!length) return Refuse("--slice: " + length.error().message);
  if (*length < std::chrono::microseconds(1)) return Refuse("--slice: must be at least 1us");
  if (options.records == 0) return Refuse("--records: must be at least 1");
  if (!uuid.empty() && !baton::sim::ParseUuid(uuid, options.uuid)) {
    return Refuse("--uuid: \"" + uuid + "\" is no uuid; write GPU- and 32 hexadecimal digits");
  }
  options.memory_bytes = *bytes;
  options.slice_ns = baton::Nanos(*length);
  auto made = baton::sim::CreateDeviceFile(path, options);
  return made ? 0 : Refuse(made.error().message);
}

int Info(const std::string& path) {
  auto opened = Device::Open(path);
  if (!opened) return Refuse(opened.error().message);
  Device& device = **opened;
  json processes = json::array();
  for (const auto& p : device.Processes()) {
    processes.push_back({{"pid", p.pid}, {"memory", p.memory}, {"dying", p.dying}});
  }
  Device::Session session(&device);
  const auto& file = device.file();
  std::printf("%s\n", json{{"name", file.name},
                           {"uuid", baton::sim::FormatUuid(file.uuid)},
                           {"memory", file.memory_bytes},
                           {"memory_used", uint64_t{file.memory_used}},
                           {"slice_ns", file.slice_ns},
                           {"now_ns", uint64_t{file.now}},
                           {"busy_ns", uint64_t{file.busy_total}},
                           {"records", uint64_t{file.record_count}},
                           {"records_kept", file.record_capacity},
                           {"processes", processes}}
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Simulated GPUs: device files that libcuda.so.1 and libnvidia-ml.so.1 in lib/sim use."};
  app.require_subcommand(1);
  app.footer(R"(Examples:
  baton-simgpu create /dev/shm/a.gpu --memory 24GiB --slice 2ms
  BATON_SIM_DEVICES=/dev/shm/a.gpu LD_LIBRARY_PATH=build/release/lib/sim baton-burn
  baton-simgpu info /dev/shm/a.gpu
  baton-simgpu records /dev/shm/a.gpu --csv > kernels.csv
  baton-simgpu inject /dev/shm/a.gpu --pid 4711 --illegal-address)");

  std::string path, memory = "16GiB", slice = "2ms", uuid;
  baton::sim::DeviceOptions options;
  auto* create = app.add_subcommand("create", "Make a device file; best on a tmpfs");
  create->add_option("path", path, "The file to make")->required();
  create->add_option("--name", options.name, "The device's name")->capture_default_str();
  create->add_option("--memory", memory, "Its memory")->capture_default_str();
  create->add_option("--slice", slice, "How long a context runs while others wait")
      ->capture_default_str();
  create->add_option("--records", options.records, "How many kernels it remembers")
      ->capture_default_str();
  create->add_option("--uuid", uuid, "GPU-...; random when not given");

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

  CLI11_PARSE(app, argc, argv);
  if (*create) return Create(path, memory, slice, uuid, options);
  if (*info) return Info(path);
  if (*records) return Records(path, first, csv);
  return Inject(path, pid, hang);
}
