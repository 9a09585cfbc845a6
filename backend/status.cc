#include "backend/status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "backend/latency.h"
#include "backend/memory_room.h"
#include "backend/pod_use.h"

namespace baton::backend {

// What is done of a status, and where to go on.
struct StatusSteps::State {
  Arbiter& arbiter;
  const node::EventLog& log;
  const DaemonStatus daemon;
  const std::string node;
  node::LongAnswer answer{};
  bool first = true;  // in the list that is being written
  std::vector<Gpu*> gpus{};
  size_t gpu = 0;  // the next one
  // By GPU, as when its turn came.
  std::map<std::string, std::vector<scheduler::PodStatus>> schedulers{};
  bool pods_done = false;
  PodId pod{};          // the last one that was looked at
  uint64_t client = 0;  // the same, by its number
};

namespace {

using nlohmann::json;

using policy::Percent;
double Percent(double part) { return part * 100; }

const char* PhaseName(wire::Phase phase) {
  switch (phase) {
    case wire::Phase::kIdle:
      return "idle";
    case wire::Phase::kWaiting:
      return "waiting";
    case wire::Phase::kHolding:
      return "holding";
    case wire::Phase::kDraining:
      return "draining";
  }
  return "unknown";
}

// Of a pod of idle priority that waits while others have work.
constexpr const char* kPaused = "paused";

const char* HealthName(devmgr::Health health) {
  switch (health) {
    case devmgr::Health::kHealthy:
      return "healthy";
    case devmgr::Health::kFailed:
      return "failed";
    case devmgr::Health::kMissing:
      return "missing";
  }
  return "unknown";
}

// Of several clients the one that is furthest in tells the pod's phase; draining is past holding.
int Rank(wire::Phase phase) {
  return phase == wire::Phase::kHolding    ? 3
         : phase == wire::Phase::kDraining ? 2
         : phase == wire::Phase::kWaiting  ? 1
                                           : 0;
}
wire::Phase Busier(wire::Phase a, wire::Phase b) { return Rank(a) >= Rank(b) ? a : b; }

void AddUsage(json& to, const Usage& usage, uint64_t held_ns) {
  auto add = [&](const char* key, uint64_t value) { to[key] = to.value(key, uint64_t{0}) + value; };
  add("held_ns", held_ns);
  add("busy_ns", usage.busy_ns);
  add("waited_ns", usage.waited_ns);
  add("unmanaged_ns", usage.unmanaged_ns);
  add("launches", usage.launches);
  add("copies_bytes", usage.copies_bytes);
  add("grants", usage.grants);
  add("revocations", usage.revocations);
}

using Clients = std::vector<const Client*>;

// Of a pod with a latency: how it was met on a GPU, added up, and why it may not be.
void AddLatency(json& row, const Gpu& gpu, const Pods& pods, const Pod& pod,
                const scheduler::PodStatus* status, std::span<const scheduler::PodStatus> all) {
  if (pod.share.latency == Duration(0) || status == nullptr) return;
  const auto add = [&](const char* key, uint64_t n) { row[key] = row.value(key, uint64_t{0}) + n; };
  add("latency_waits", status->met.waits);
  add("latency_late", status->met.late);
  add("latency_ahead", status->met.ahead);
  const std::string note = NoteOfLatency(gpu, pods, pod, all).text;
  if (!note.empty() && !row.contains("latency_note")) row["latency_note"] = note;
}

json GpuOfPod(const Arbiter& arbiter, const Gpu& gpu, const Pod& pod, const Clients& clients,
              const scheduler::PodStatus* status, Instant now) {
  json row{{"uuid", gpu.info.uuid}, {"node", gpu.node}};
  wire::Phase phase = wire::Phase::kIdle;
  for (const Client* client : clients) {
    for (const auto& lane : client->lanes) {
      if (lane->gpu == &gpu) phase = Busier(phase, lane->phase);
    }
  }
  if (pod.allocated && gpu.allocations.contains(pod.id)) phase = wire::Phase::kHolding;
  row["phase"] = status != nullptr && status->paused ? kPaused : PhaseName(phase);
  const uint64_t held = arbiter.accounts().HeldNow(gpu, pod.id, now);
  const uint64_t used = arbiter.accounts().UsedNow(gpu, pod.id, now);
  const auto waited = status != nullptr ? static_cast<uint64_t>(Nanos(status->waited)) : 0;
  row["fluid"] = status != nullptr ? Percent(status->fluid) : 0.0;
  row["throttled"] = status != nullptr && status->throttled;
  row["lag_ns"] = status != nullptr ? Nanos(status->lag) : 0;
  const PodOnGpu none;
  auto it = gpu.pods.find(pod.id);
  const PodOnGpu& on = it != gpu.pods.end() ? it->second : none;
  for (const auto& [key, seconds] :
       {std::pair{"achieved_1s", 1}, {"achieved_10s", 10}, {"achieved_60s", 60}}) {
    row[key] = Percent(on.series.Over(std::chrono::seconds(seconds), now, used, waited).held);
  }
  row["waited_1s"] = Percent(on.series.Over(std::chrono::seconds(1), now, used, waited).waited);
  row["memory_used"] = on.memory;
  for (size_t i = 0; i < pod.vgpus.size() && pod.has_devices(); ++i) {
    if (pod.gpus[i] != gpu.info.uuid) continue;
    row["device"] = pod.vgpus[i].device;
    if (pod.mode == spec::kMig) row["slot"] = pod.vgpus[i].fit.slot;
  }
  if (pod.CapOn(gpu.info.uuid) != 0 && pod.by_token()) {
    const KernelCaps::Held held_by = arbiter.kernel_caps().Of(gpu, pod);
    row["kernel_cap"] = held_by.by_driver;
    row["kernel_cap_why"] = held_by.why;
  }
  if (pod.swap) {
    row["memory_swapped"] = SwappedOut(gpu, pod.id);
    row["memory_released"] = IsReleased(gpu, pod.id);
  }
  if (const PodUse* use = UseNow(on, now)) {
    row["sm_utilization"] = Percent(use->sm);
    row["memory_utilization"] = Percent(use->memory);
  }
  const UsageEntry* account = arbiter.accounts().Of(gpu, pod.id);
  AddUsage(row, account != nullptr ? account->usage : Usage{}, held);
  return row;
}

wire::Phase PhaseOf(const Client& client) {
  wire::Phase phase = wire::Phase::kIdle;
  for (const auto& lane : client.lanes) phase = Busier(phase, lane->phase);
  return phase;
}

// Processes that launch there without a token.
json UnmanagedJson(const Gpu& gpu) {
  json rows = json::array();
  for (const UnmanagedProcess& process : gpu.unmanaged) {
    rows.push_back({{"pid", process.pid},
                    {"user", process.user},
                    {"uid", process.uid},
                    {"command", process.command},
                    {"container", process.container},
                    {"pod", process.pod},
                    {"memory", process.memory_bytes}});
  }
  return rows;
}

using Steps = StatusSteps::State;

std::string Written(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// One more of the list that is being written.
void AddRow(Steps& steps, const json& row) {
  if (!std::exchange(steps.first, false)) steps.answer.Add(",");
  steps.answer.Add(Written(row));
}

void BeginList(Steps& steps, const char* name) {
  steps.answer.Add(fmt::format("],\"{}\":[", name));
  steps.first = true;
}

void Begin(Steps& steps) {
  json daemon{{"version", steps.daemon.version},
              {"mode", steps.daemon.mode == config::Mode::kObserve ? "observe" : "enforce"},
              {"pid", getpid()},
              {"started", steps.daemon.started},
              {"degraded", steps.daemon.degraded}};
  const config::PageOptions& page = steps.daemon.page;
  if (!page.node.empty()) daemon["node_page"] = page.node;
  if (!page.all_nodes.empty()) daemon["all_nodes_page"] = page.all_nodes;
  steps.answer.Add(fmt::format("{{\"daemon\":{},\"gpus\":[", Written(daemon)));
  steps.gpus = steps.arbiter.GpusOf(steps.node);
  for (const auto& [uuid, gpu] : steps.arbiter.gpus()) {
    if (gpu->throw_away) steps.schedulers[uuid] = gpu->scheduler.Status(MonotonicNow());
  }
}

json GpuRow(const Steps& steps, const Gpu* gpu, const std::vector<scheduler::PodStatus>& pods) {
  const Arbiter& arbiter = steps.arbiter;
  json row{{"uuid", gpu->info.uuid},
           {"name", gpu->info.name},
           {"node", gpu->node},
           {"memory", gpu->info.memory_bytes},
           {"memory_overhead", gpu->overhead},
           {"memory_reserve", uint64_t{arbiter.vgpus().cards().reserve_mib()} << 20},
           {"present", gpu->present},
           {"epoch", gpu->scheduler.epoch()},
           {"handoff_ns", Nanos(gpu->scheduler.handoff())},
           {"handoff_total_ns", Nanos(gpu->scheduler.handoff_total())},
           {"grants", gpu->grants},
           {"overruns", gpu->overruns},
           {"hung", gpu->hung},
           {"link", gpu->frozen ? "cut" : "up"},
           {"queue", json::array()},
           {"unmanaged", UnmanagedJson(*gpu)},
           {"kernel_caps", arbiter.kernel_caps().WhyNot(*gpu).empty()},
           {"kernel_caps_why", arbiter.kernel_caps().WhyNot(*gpu)}};
  if (const devmgr::Card* card = arbiter.vgpus().cards().Find(gpu->info.uuid)) {
    row["health"] = HealthName(card->health);
    row["why"] = card->why;
    row["vendor"] = card->vendor;
    row["numa"] = card->numa;
    row["island"] = card->island;
    row["pcie"] = card->pcie;
    row["bus"] = card->bus;
    row["mig_capable"] = card->mig_capable;
    row["mig_enabled"] = card->mig_enabled;
    for (const devmgr::MigInstance& instance : card->instances) {
      row["instances"].push_back({{"profile", instance.profile},
                                  {"uuid", instance.uuid},
                                  {"start", instance.start},
                                  {"slices", instance.slices}});
    }
  }
  if (const auto beyond = arbiter.vgpus().expected_use().BeyondOn(gpu->info.uuid)) {
    row["use_beyond_requests"] = static_cast<double>(*beyond) / 1e4;
  }
  row["cordoned"] = arbiter.pods().cordoned().count(gpu->info.uuid) != 0;
  auto holder = gpu->scheduler.holder();
  for (const auto& [pod, allocation] : gpu->allocations) {
    if (allocation.part == policy::kWhole) holder = pod;
  }
  if (holder) {
    const Pod* pod = arbiter.pods().Find(*holder);
    row["holder"] = pod != nullptr ? pod->name : "(deleted)";
  }
  for (const scheduler::PodStatus& pod : pods) {
    if (!pod.waiting) continue;
    const Pod* named = arbiter.pods().Find(pod.pod);
    row["queue"].push_back(named != nullptr ? named->name : "(deleted)");
  }
  return row;
}

void AddGpu(Steps& steps) {
  Gpu* gpu = steps.gpus[steps.gpu++];
  auto& pods = steps.schedulers[gpu->info.uuid];
  pods = gpu->scheduler.Status(MonotonicNow());
  AddRow(steps, GpuRow(steps, gpu, pods));
  if (steps.gpu == steps.gpus.size()) BeginList(steps, "pods");
}

// Nodes and events: what does not take long.
void End(Steps& steps) {
  BeginList(steps, "nodes");
  for (const NodeStatus& n : steps.daemon.nodes) {
    if (steps.node != "*" && n.name != steps.node) continue;
    AddRow(steps, {{"name", n.name},
                   {"link", n.connected ? "up" : "cut"},
                   {"clients", n.clients},
                   {"silent_ms", n.silent_ms}});
  }
  BeginList(steps, "events");
  for (const node::EventLog::Event& event : steps.log.events()) {
    AddRow(steps, {{"time_ms", event.unix_ms}, {"kind", event.kind}, {"text", event.text}});
  }
  steps.answer.Add("]");
}

// One pod that is on the node.
json PodRow(const Steps& steps, const Pod& pod, const Clients& clients, Instant now) {
  const Arbiter& arbiter = steps.arbiter;
  const PodId id = pod.id;
  json row = PodJson(pod);
  row["gang_missing"] = arbiter.pods().MissingOf(pod);
  row.erase("ticket");
  row.erase("pod");
  row["asked"] = spec::WriteFields(pod);
  row["asked"].erase("ticket");
  row["gpus"] = json::array();
  row["clients"] = json::array();
  row["memory_used"] = uint64_t{0};
  row["lag_ns"] = int64_t{0};
  AddUsage(row, Usage{}, 0);
  for (const char* key : {"achieved_1s", "achieved_10s", "achieved_60s"}) row[key] = 0.0;
  wire::Phase phase = wire::Phase::kIdle;
  for (const std::string& uuid : pod.gpus) {
    auto it = arbiter.gpus().find(uuid);
    if (it == arbiter.gpus().end()) continue;
    const Gpu& gpu = *it->second;
    // A GPU may have come since the beginning.
    const scheduler::PodStatus* of_pod = nullptr;
    std::span<const scheduler::PodStatus> sorted;  // by id
    if (const auto known = steps.schedulers.find(uuid); known != steps.schedulers.end()) {
      sorted = known->second;
      const auto at =
          std::lower_bound(sorted.begin(), sorted.end(), id,
                           [](const scheduler::PodStatus& s, PodId pod) { return s.pod < pod; });
      if (at != sorted.end() && at->pod == id) of_pod = &*at;
    }
    AddLatency(row, gpu, arbiter.pods(), pod, of_pod, sorted);
    json part = GpuOfPod(arbiter, gpu, pod, clients, of_pod, now);
    for (const char* key : {"achieved_1s", "achieved_10s", "achieved_60s"}) {
      row[key] = row[key].get<double>() + part[key].get<double>();
    }
    row["memory_used"] = row["memory_used"].get<uint64_t>() + part["memory_used"].get<uint64_t>();
    if (pod.swap) {  // it has one GPU
      row["memory_swapped"] = part["memory_swapped"];
      row["memory_released"] = part["memory_released"];
    }
    row["lag_ns"] = row["lag_ns"].get<int64_t>() + part["lag_ns"].get<int64_t>();
    if (const UsageEntry* account = arbiter.accounts().Of(gpu, id)) {
      AddUsage(row, account->usage, arbiter.accounts().HeldNow(gpu, id, now));
    }
    row["gpus"].push_back(std::move(part));
  }
  for (const Client* client : clients) {
    phase = Busier(phase, PhaseOf(*client));
    row["clients"].push_back({{"pid", client->pid},
                              {"command", client->command},
                              {"uid", client->uid},
                              {"connected", client->connected},
                              {"phase", PhaseName(PhaseOf(*client))}});
  }
  const bool paused = phase == wire::Phase::kWaiting &&
                      std::any_of(row["gpus"].begin(), row["gpus"].end(),
                                  [](const json& part) { return part["phase"] == kPaused; });
  if (pod.allocated) phase = wire::Phase::kHolding;
  row["phase"] = paused ? kPaused : PhaseName(phase);
  return row;
}

json ClientRow(Arbiter& arbiter, const Client& client) {
  const Pod* pod = arbiter.pods().Find(client.pod);
  return {{"id", client.id.value},
          {"pid", client.pid},
          {"node", client.node},
          {"pod", pod != nullptr ? pod->name : "(deleted)"},
          {"command", client.command},
          {"connected", client.connected},
          {"phase", PhaseName(PhaseOf(client))}};
}

// Those clients whose pods are in (after, last].
std::map<PodId, Clients> ClientsOf(const Arbiter& arbiter, PodId after, PodId last) {
  std::map<PodId, Clients> clients;
  for (const auto& [number, client] : arbiter.clients()) {
    if (after < client->pod && !(last < client->pod)) clients[client->pod].push_back(client.get());
  }
  return clients;
}

void AddPods(Steps& steps, size_t most) {
  const auto& all = steps.arbiter.pods().all();
  const Instant now = MonotonicNow();
  const auto from = all.upper_bound(steps.pod);
  auto to = from;
  PodId last = steps.pod;
  for (size_t i = 0; i < most && to != all.end(); ++i, ++to) last = to->first;
  const auto clients = ClientsOf(steps.arbiter, steps.pod, last);
  const Clients none;
  for (auto at = from; at != to; ++at) {
    if (!steps.arbiter.PodIsOn(at->second, steps.node)) continue;
    const auto of_pod = clients.find(at->first);
    AddRow(steps, PodRow(steps, at->second, of_pod != clients.end() ? of_pod->second : none, now));
  }
  steps.pod = last;
  steps.pods_done = to == all.end();
  if (steps.pods_done) BeginList(steps, "clients");
}

bool AddClients(Steps& steps, size_t most) {
  const auto& all = steps.arbiter.clients();
  auto at = all.upper_bound(steps.client);
  for (size_t i = 0; i < most && at != all.end(); ++i, ++at) {
    steps.client = at->first;
    if (steps.node != "*" && at->second->node != steps.node) continue;
    AddRow(steps, ClientRow(steps.arbiter, *at->second));
  }
  if (at != all.end()) return false;
  End(steps);
  return true;
}

}  // namespace

json PodJson(const Pod& pod) {
  json row{{"pod", pod.id.value},
           {"id", pod.id.value},
           {"name", pod.name},
           {"ticket", pod.ticket},
           {"gpus", pod.gpus},
           {"request", Percent(pod.share.request)},
           {"limit", Percent(pod.share.limit)},
           {"memory", pod.gpus.empty() ? pod.memory_cap : pod.CapOn(pod.gpus.front())},
           {"memory_percent", Percent(pod.memory_part)},
           {"mode", pod.mode},
           {"priority", spec::PriorityName(pod.share.priority)},
           {"team", pod.team},
           {"user", pod.user},
           {"namespace", pod.name_space},
           {"uid", pod.uid},
           {"cgroup", pod.cgroup},
           {"gang", pod.in_gang()},
           {"gang_name", pod.gang}};
  if (pod.share.latency != Duration(0)) row["latency_ns"] = Nanos(pod.share.latency);
  return row;
}

json PodAnswer(const Arbiter& arbiter, const Pod& pod) {
  json answer = PodJson(pod);
  answer["environment"] = json::object();
  for (const auto& [name, value] : arbiter.vgpus().EnvironmentOf(pod)) {
    answer["environment"][name] = value;
  }
  answer["hook"] = pod.by_token();
  return answer;
}

namespace {

// Each virtual GPU of one pod.
std::vector<json> VgpuRows(const Arbiter& arbiter, const Pod* pod, Instant now) {
  const Vgpus& vgpus = arbiter.vgpus();
  const std::string& name = pod->name;
  std::vector<json> rows;
  const std::string unreserved = vgpus.WhyUnreserved(pod->id);
  for (size_t i = 0; i < pod->gpus.size(); ++i) {
    const std::string& uuid = pod->gpus[i];
    const PodVgpu& vgpu = pod->vgpus[i];
    json row{{"pod", name},
             {"index", i},
             {"node", ""},
             {"gpu", uuid},
             {"model", ""},
             {"mode", pod->mode},
             {"device", vgpu.device},
             {"request", Percent(pod->share.request)},
             {"limit", Percent(pod->share.limit)},
             {"memory", pod->CapOn(uuid)},
             {"memory_used", uint64_t{0}},
             {"memory_peak", vgpu.memory_peak},
             {"running", arbiter.lifecycle().Runs(*pod)},
             {"allocated", pod->allocated},
             {"booked", unreserved.empty()},
             {"why", unreserved}};
    if (const devmgr::Card* card = vgpus.cards().Find(uuid)) {
      row["model"] = card->model;
      if (unreserved.empty() && card->health != devmgr::Health::kHealthy) {
        row["why"] = fmt::format("its GPU is {}{}{}", HealthName(card->health),
                                 card->why.empty() ? "" : ": ", card->why);
      }
    }
    uint64_t held = 0, busy = 0;
    auto add = [&, id = pod->id](const std::string& on) {
      const auto it = arbiter.gpus().find(on);
      if (it == arbiter.gpus().end()) return;
      held += arbiter.accounts().HeldNow(*it->second, id, now);
      if (const UsageEntry* account = arbiter.accounts().Of(*it->second, id)) {
        busy += account->usage.busy_ns;
      }
    };
    add(uuid);
    for (const std::string& before : vgpu.before) add(before);
    row["held_ns"] = held;
    row["busy_ns"] = busy;
    if (const auto it = arbiter.gpus().find(uuid); it != arbiter.gpus().end()) {
      row["node"] = vgpus.cards().NameOf(it->second->node);
      if (const auto on = it->second->pods.find(pod->id); on != it->second->pods.end()) {
        row["memory_used"] = on->second.memory;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

VgpusSteps::VgpusSteps(const Arbiter& arbiter, std::string node)
    : arbiter_(arbiter), node_(std::move(node)) {
  answer_.Add("{\"vgpus\":[");
}

bool VgpusSteps::GoOn(size_t most) {
  const Instant now = MonotonicNow();
  const auto& by_name = arbiter_.pods().by_name();
  auto at = by_name.upper_bound(after_);
  for (size_t i = 0; i < most && at != by_name.end(); ++i, ++at) {
    after_ = at->first;
    const Pod* pod = arbiter_.pods().Find(at->second);
    if (pod->throw_away || !arbiter_.PodIsOn(*pod, node_)) continue;
    for (const json& row : VgpuRows(arbiter_, pod, now)) {
      if (std::exchange(any_, true)) answer_.Add(",");
      answer_.Add(Written(row));
    }
  }
  if (at != by_name.end()) return false;
  answer_.Add("]");
  return true;
}

namespace {

// Which it is among its node's, as users count them.
json CardJson(const Vgpus& vgpus, const std::string& node, const std::string& uuid) {
  json row{{"uuid", uuid}};
  const devmgr::Card* card = vgpus.cards().Find(uuid);
  if (card != nullptr) row["model"] = card->model;
  if (const devmgr::Node* on = vgpus.cards().FindNode(node)) {
    for (size_t i = 0; i < on->cards.size(); ++i) {
      if (on->cards[i].uuid == uuid) row["index"] = i;
    }
  }
  return row;
}

json PlaceJson(const Vgpus& vgpus, const devmgr::Placement& placement) {
  json gpus = json::array();
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    gpus.push_back(CardJson(vgpus, placement.node, vgpu.card));
    gpus.back()["mode"] = vgpu.mode;
  }
  return {{"node", placement.node}, {"gpus", std::move(gpus)}};
}

}  // namespace

json ExplanationJson(const Vgpus& vgpus, const Vgpus::Explanation& explanation) {
  json answer{{"fits", explanation.where.has_value()}, {"nodes", json::array()}};
  if (explanation.where) {
    answer["where"] = PlaceJson(vgpus, *explanation.where);
    if (!explanation.use.empty()) answer["use"] = explanation.use;
  } else {
    answer["error"] = explanation.error;
  }
  for (const devmgr::NodeRefusal& refusal : explanation.nodes) {
    json cards = json::array();
    for (const devmgr::CardRefusal& card : refusal.cards) {
      cards.push_back(CardJson(vgpus, refusal.node, card.uuid));
      cards.back()["why"] = card.why;
    }
    answer["nodes"].push_back(
        {{"node", refusal.node}, {"why", refusal.why}, {"cards", std::move(cards)}});
  }
  return answer;
}

json PlanJson(Arbiter& arbiter, const devmgr::DefragPlan& plan) {
  const Vgpus& vgpus = arbiter.vgpus();
  json answer{
      {"exact", plan.exact}, {"where", PlaceJson(vgpus, plan.placement)}, {"moves", json::array()}};
  for (const devmgr::PodMove& move : plan.moves) {
    const Pod* pod = arbiter.pods().FindByName(move.pod);
    answer["moves"].push_back({{"pod", move.pod},
                               {"running", pod != nullptr && arbiter.lifecycle().Runs(*pod)},
                               {"from", PlaceJson(vgpus, move.from)},
                               {"to", PlaceJson(vgpus, move.to)}});
  }
  return answer;
}

StatusSteps::StatusSteps(Arbiter& arbiter, const node::EventLog& log, const DaemonStatus& daemon,
                         std::string node)
    : state_(new State{arbiter, log, daemon, std::move(node)}) {
  Begin(*state_);
  if (state_->gpus.empty()) BeginList(*state_, "pods");
}

StatusSteps::~StatusSteps() = default;

bool StatusSteps::GoOn(size_t most) {
  if (state_->gpu < state_->gpus.size()) {
    AddGpu(*state_);
    return false;
  }
  if (state_->pods_done) return AddClients(*state_, most);
  AddPods(*state_, most);
  return false;
}

node::LongAnswer StatusSteps::Take() { return std::move(state_->answer); }

}  // namespace baton::backend
