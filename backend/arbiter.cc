#include "backend/arbiter.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "backend/latency.h"
#include "backend/recovery.h"
#include "base/hash.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

// Whether the node may have the GPU. This machine's GPUs are seen, not told of.
Result<void> CheckOwner(const GpuOwners& owners, const config::Options& options,
                        node::EventLog& log, const std::string& gpu, const std::string& node) {
  const std::string* owner = node.empty() ? nullptr : owners.Find(gpu);
  if (owner == nullptr || *owner == node) return {};
  const auto& listed = options.zmq.nodes;
  if (!listed.empty() && listed.count(*owner) == 0) {
    log.Add(node::EventLog::Level::kInfo, "gpu",
            fmt::format("{} was of node {}, which is not in [zmq.nodes] any more; it now belongs "
                        "to node {}",
                        gpu, *owner, node));
    return {};
  }
  return Fail(
      ErrorCode::kExists,
      fmt::format("{} belongs to node {}; if it was put into node {}, say: baton release {}", gpu,
                  *owner, node, gpu));
}

}  // namespace

Arbiter::Arbiter(boost::asio::io_context& io, const config::Options& options, PodsFile& file,
                 Vgpus& vgpus, UsageBook& usage, node::EventLog& log)
    : io_(io),
      options_(options),
      pods_(file.pods()),
      vgpus_(vgpus),
      usage_(usage),
      log_(log),
      boot_id_(node::BootId()),
      owners_(options.server.state_dir + "/gpu-nodes.json"),
      clients_(usage),
      file_(file),
      accounts_(options, pods_, usage),
      snapshots_(io, options, file_, usage, gpus_, clients_, accounts_),
      tokens_(io, options, pods_, gpus_, clients_, accounts_, log),
      room_(options, pods_, tokens_, log),
      shares_(io, pods_, gpus_, usage, tokens_),
      lifecycle_(options, gpus_, vgpus, file_, usage, accounts_, snapshots_, clients_, tokens_,
                 shares_, log),
      sessions_(options, pods_, gpus_, clients_, accounts_, tokens_, room_, lifecycle_, log),
      unmanaged_(pods_, gpus_, vgpus, accounts_, log),
      kernel_caps_(options.kernel_caps, pods_, gpus_, log),
      sampler_(io) {
  file_.SetLater([this, alive = alive_](std::function<void()> step) {
    boost::asio::post(io_, [alive, step = std::move(step)] {
      if (*alive) step();
    });
  });
  vgpus_.cards().SetCordoned(pods_.cordoned());
  // Until their GPUs have come they wait for them.
  for (const auto& [id, pod] : pods_.all()) vgpus_.Reserve(*pods_.Find(id));
  Sample();
}

Arbiter::~Arbiter() { *alive_ = false; }

Result<void> Arbiter::ReadOwners() {
  auto trouble = owners_.Load();
  if (!trouble) return tl::unexpected(trouble.error());
  if (!trouble->empty()) log_.Add(node::EventLog::Level::kWarning, "daemon", *trouble);
  if (!trouble->empty()) troubles_.push_back(std::move(*trouble));
  return {};
}

Result<void> Arbiter::AddGpu(const devmgr::GpuInfo& info, const std::string& node,
                             bool throw_away) {
  if (Gpu* known = gpus_.Find(info.uuid)) {
    Gpu& gpu = *known;
    if (gpu.node != node) {
      return Fail(
          ErrorCode::kExists,
          fmt::format("{} already belongs to {}; if it was put into node {}, say: baton "
                      "release {}, and restart batond",
                      info.uuid, gpu.node.empty() ? "batond's own machine" : "node " + gpu.node,
                      node, info.uuid));
    }
    if (!node.empty() && !gpu.throw_away) owners_.Set(info.uuid, node);
    gpu.info = info;
    gpu.present = true;
    return {};
  }
  if (!throw_away) {
    if (auto ok = CheckOwner(owners_, options_, log_, info.uuid, node); !ok) return ok;
  }
  HolderFile file;
  // Of another machine's processes its relay knows (NodeCheck), not this machine's boot.
  const auto opened = file.Open(options_.server.state_dir + "/gpu-" + info.uuid + ".holder",
                                boot_id_, node.empty());
  if (!opened) return tl::unexpected(opened.error());
  std::string trouble = *opened;
  HolderFile next_file;
  const auto next = next_file.Open(options_.server.state_dir + "/gpu-" + info.uuid + ".next",
                                   boot_id_, node.empty());
  if (!next) return tl::unexpected(next.error());
  if (trouble.empty()) trouble = *next;
  if (!throw_away) {
    // What NVML says of it beyond that comes first, where it is this machine's.
    devmgr::Card card;
    card.uuid = info.uuid;
    card.model = info.name;
    card.vendor = info.vendor;
    card.environment = info.environment;
    card.memory_mib =
        static_cast<uint32_t>(std::min<uint64_t>(info.memory_bytes >> 20, kUnknownMemoryMib));
    if (auto known = vgpus_.cards().Add(node, card); !known) return known;
  }
  if (!trouble.empty()) troubles_.push_back(trouble);
  if (!trouble.empty()) log_.Add(node::EventLog::Level::kWarning, "gpu", trouble);
  const uint64_t gpu_key = HashOf(info.uuid);
  const uint64_t newest = std::max(file.epoch(), usage_.NewestHold(gpu_key));
  // Grants begin at the wall clock, in millionths of a second: above any that a daemon whose state
  // was lost, or could not be written, can have given out, so hooks and relays do not take them for
  // old.
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const uint64_t first_epoch = static_cast<uint64_t>(wall.tv_sec) * 1'000'000;
  auto made = std::make_unique<Gpu>(io_, options_.scheduler, newest, first_epoch);
  Gpu& gpu = *made;
  gpu.info = info;
  gpu.node = node;
  gpu.present = true;
  gpu.throw_away = throw_away;
  gpu.key = gpu_key;
  gpu.holder_stored = file.writable();
  gpu.file = std::move(file);
  gpu.next_file = std::move(next_file);
  gpus_.Add(std::move(made));
  tokens_.Add(gpu);
  if (!node.empty() && !throw_away) owners_.Set(info.uuid, node);
  lifecycle_.ReserveAgain(&info.uuid);
  lifecycle_.PutPodsOn(gpu);
  accounts_.NoteIdle(gpu, MonotonicNow());
  if (Enforces(options_)) RestoreHolders(gpu, pods_, usage_, clients_, tokens_, log_);
  // Only now: a gang that holds elsewhere claims this GPU too, which may have holders of its own.
  for (const auto& [id, pod] : pods_.all()) {
    if (pod.Has(info.uuid)) tokens_.FormGang(pod);
  }
  tokens_.TendGangs();
  log_.Add(node::EventLog::Level::kInfo, "gpu",
           fmt::format("{} {} {}{}", info.uuid, info.name, FormatBytes(info.memory_bytes),
                       node.empty() ? "" : " on node " + node));
  lifecycle_.ApplyConfiguredPodsAgain();
  return {};
}

Gpu& Arbiter::ThrowAwayGpu(const std::string& node, size_t number) {
  std::string uuid = "BENCH-" + (node.empty() ? "0" : node.substr(0, 48));
  if (number > 0) uuid += "#" + std::to_string(number);
  if (Gpu* known = gpus_.Find(uuid)) return *known;
  // Who measured before this daemon started holds nothing that matters.
  for (const char* file : {".holder", ".next"}) {
    unlink((options_.server.state_dir + "/gpu-" + uuid + file).c_str());
  }
  // As real as a GPU can be without a device: its holder is stored too.
  (void)AddGpu({uuid, "virtual", 0}, node, true);
  return *gpus_.Find(uuid);
}

void Arbiter::SetCards(const std::string& node, std::vector<devmgr::Card> cards) {
  auto events = vgpus_.cards().Set(node, std::move(cards));
  if (!events) {
    log_.Add(node::EventLog::Level::kWarning, "gpu", events.error().message);
    return;
  }
  for (const devmgr::InventoryEvent& event : *events) {
    using Kind = devmgr::InventoryEvent::Kind;
    const char* what = nullptr;
    switch (event.kind) {
      case Kind::kFailed:
        what = "has failed";
        break;
      case Kind::kVanished:
        what = "has vanished";
        break;
      case Kind::kRecovered:
        what = "is healthy again";
        break;
      case Kind::kAppeared:
        // The first time it is told with what it is, by AddGpu().
        if (gpus_.Find(event.uuid) != nullptr) what = "is back";
        break;
      case Kind::kReshaped:
      case Kind::kChanged:
      case Kind::kCordoned:
      case Kind::kUncordoned:
        break;
    }
    if (what == nullptr) continue;
    const bool bad = event.kind == Kind::kFailed || event.kind == Kind::kVanished;
    std::string pods;
    for (const std::string& pod : vgpus_.PodsOn(event.uuid)) {
      if (pods.size() > 200) {
        pods += ", ...";
        break;
      }
      pods += (pods.empty() ? "" : ", ") + pod;
    }
    log_.Add(
        bad ? node::EventLog::Level::kWarning : node::EventLog::Level::kInfo, "gpu",
        fmt::format("{} {}{}{}{}{}", event.uuid, what,
                    event.kind == Kind::kAppeared || event.why.empty() ? "" : ": ",
                    event.kind == Kind::kAppeared ? "" : event.why,
                    bad ? "; it gets no new pods" : "", pods.empty() ? "" : "; on it: " + pods));
  }
  lifecycle_.ReserveAgain(nullptr);
}

void Arbiter::SetProcesses(const SeenProcesses& seen) {
  unmanaged_.Update(seen, MonotonicNow());
  lifecycle_.CountTaken();
}

Result<std::string> Arbiter::Cordon(const std::string& gpu, const std::string& node,
                                    bool cordoned) {
  const auto uuids = gpus_.Resolve({gpu}, node);
  if (!uuids) return tl::unexpected(uuids.error());
  const std::string& uuid = uuids->front();
  pods_.SetCordoned(uuid, cordoned);
  vgpus_.cards().SetCordoned(pods_.cordoned());
  if (!cordoned && lifecycle_.maker() != nullptr && gpus_.Find(uuid)->node.empty())
    lifecycle_.maker()->Forgive(uuid);
  file_.Save();
  log_.Add(node::EventLog::Level::kInfo, "gpu",
           uuid + (cordoned ? " cordoned: it gets no new pods" : " uncordoned"));
  return uuid;
}

Result<void> Arbiter::Release(const std::string& gpu, const std::string& node) {
  const std::string* owner = owners_.Find(gpu);
  if (owner == nullptr || (node != "*" && *owner != node)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("no node has a GPU {}; write its uuid, as 'baton status' does", gpu));
  }
  const bool here = gpus_.Find(gpu) != nullptr;
  const std::string text =
      fmt::format("{} is released from node {}: it belongs to the node that names it first{}", gpu,
                  *owner, here ? " after the next start of batond" : "");
  owners_.Release(gpu);
  log_.Add(node::EventLog::Level::kInfo, "gpu", text);
  return {};
}

void Arbiter::SetFrozen(const std::string& node, bool frozen) {
  vgpus_.cards().SetReachable(node, !frozen);
  for (Gpu* gpu : gpus_.all()) {
    if (gpu->node != node || gpu->frozen == frozen) continue;
    gpu->frozen = frozen;
    tokens_.Step(*gpu, scheduler::LinkCut{frozen});
  }
  // Pods of the file that wait for this node.
  if (!frozen) lifecycle_.ApplyConfiguredPodsAgain();
}

void Arbiter::Sample() {
  sampler_.expires_after(Series::kEvery);
  sampler_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive) return;
    // One GPU at a time: frames that arrive meanwhile go first.
    for (const auto& [uuid, gpu] : gpus_.by_uuid()) {
      boost::asio::post(io_, [this, alive, &gpu = *gpu] {
        if (!*alive) return;
        accounts_.Sample(gpu);
        WarnOfLatencies(gpu, pods_, MonotonicNow(), log_);
        room_.ReleaseIdle(gpu);
      });
    }
    if (std::string trouble = usage_.Flush(); !trouble.empty()) {
      log_.Add(node::EventLog::Level::kWarning, "daemon", trouble);
      if (usage_.degraded().empty()) AddTrouble(std::move(trouble));
    }
    file_.Tend(MonotonicNow());
    lifecycle_.DropUnused(MonotonicNow());
    kernel_caps_.Tend(MonotonicNow());
    Sample();
  });
}

std::vector<std::string> Arbiter::Degraded() const {
  std::vector<std::string> all = troubles_;
  if (!usage_.degraded().empty()) all.push_back(usage_.degraded());
  if (!file_.degraded().empty()) all.push_back(file_.degraded());
  if (!owners_.degraded().empty()) all.push_back(owners_.degraded());
  if (std::any_of(gpus_.all().begin(), gpus_.all().end(),
                  [](const Gpu* gpu) { return !gpu->holder_stored; })) {
    all.push_back("the holders of GPUs could not be saved in " + options_.server.state_dir +
                  "; after a crash batond would not wait for them");
  }
  if (!vgpus_.unreserved().empty()) {
    std::string names;
    size_t named = 0;
    for (const auto& [id, why] : vgpus_.unreserved()) {
      const Pod* pod = std::as_const(pods_).Find(id);
      if (pod == nullptr || ++named > 3) continue;
      names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", pod->name, why);
    }
    if (named > 3) names += fmt::format(", and {} more", named - 3);
    all.push_back("pods without room: " + names);
  }
  for (const Gpu* gpu : gpus_.all()) {
    const devmgr::Card* card = vgpus_.cards().Find(gpu->info.uuid);
    if (card == nullptr || card->health != devmgr::Health::kFailed) continue;
    all.push_back(fmt::format("{} has failed: {}", card->uuid, card->why));
  }
  return all;
}

void Arbiter::Store() {
  tokens_.Flush();
  file_.SaveAll();
  usage_.Flush();
}

}  // namespace baton::backend
