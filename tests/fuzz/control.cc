// Requests to the control socket, one in each line, as an operator's or a relay's.
#include "backend/control.h"

#include <nlohmann/json.hpp>

#include "backend/arbiter.h"
#include "backend/pods_text.h"
#include "tests/backend/memory_disk.h"
#include "tests/fuzz/target.h"
#include "tests/temp_folder.h"

namespace baton::fuzz {
namespace {

using Json = nlohmann::json;

config::Options FuzzOptions() {
  static const MemoryFolder folder;
  config::Options options;
  options.server.state_dir = folder.path();
  return options;
}

FUZZ_TARGET(control) {
  static const config::Options& options = *new config::Options(FuzzOptions());
  boost::asio::io_context io;
  node::EventLog log;
  backend::Pods pods;
  backend::UsageBook usage;
  backend::Vgpus vgpus(options.placement.policy, options.overcommit,
                       devmgr::MigTemplates::BuiltIn(), "here");
  const auto disk = std::make_shared<backend::MemoryDisk>();
  backend::PodsFile file(disk, pods, log);
  BATON_CHECK(file.Load());
  backend::Arbiter arbiter(io, options, file, vgpus, usage, log);
  for (const char* uuid : {"GPU-a", "GPU-b"}) {
    BATON_CHECK(arbiter.AddGpu({uuid, "NVIDIA H200", uint64_t{141} << 30}, ""));
  }
  backend::Leases leases(io, options, arbiter, file);
  backend::Control control(io, arbiter, leases, log, nullptr, options.users, options.flavors,
                           [] { return backend::DaemonStatus{}; });
  // The operator, a relay's node without a name, and a user of the machine.
  const backend::Caller callers[] = {
      {}, {.node = "", .user = {}}, {.node = "*", .user = spec::User{1000, "user", {}}}};
  std::string_view rest = input;
  for (int requests = 0; !rest.empty() && requests < 16; ++requests) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    int answers = 0;
    control.Handle(std::string(line), callers[requests % 3], [&](const node::LongAnswer& given) {
      ++answers;
      const std::string answer = given.Whole();
      const Json json = Json::parse(answer, nullptr, false);
      BATON_CHECK(answer.find('\n') == std::string::npos);
      BATON_CHECK(json.is_object() && json.at("ok").is_boolean());
      if (!json.at("ok").get<bool>()) BATON_CHECK(!json.at("error").get<std::string>().empty());
    });
    io.restart();
    while (answers == 0) io.run_one();  // lists are made in steps, with pauses
    BATON_CHECK(answers == 1);
  }
  // What was accepted is there again after a restart.
  arbiter.Store();
  backend::Pods again;
  backend::PodsFile kept(disk, again, log);
  const auto found = kept.Load();
  BATON_CHECK(found && found->known && found->troubles.empty());
  BATON_CHECK(backend::WritePodsText(again, 1) == backend::WritePodsText(pods, 1));
}

}  // namespace
}  // namespace baton::fuzz
