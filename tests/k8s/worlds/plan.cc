#include "tests/k8s/worlds/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "devmgr/inventory.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/binder/objects.h"

namespace baton::k8s::testing {
namespace {

constexpr const char* kTeamPaths[] = {"a", "b", "b/x", "b/y", "c"};
constexpr size_t kTeams = 5;  // the last has no Team
constexpr const char* kClasses[] = {"low", "high", "polite"};

uint64_t Mix(uint64_t seed, uint64_t number) {
  return (seed + 1) * 0x9e3779b97f4a7c15u ^ (number + 1) * 0xbf58476d1ce4e5b9u;
}

std::string Percent(Random& random) {
  return std::to_string(random.Between(1, random.OneIn(3) ? 100 : 60));
}

// Some object's name; empty: there is none.
std::string Some(World& world, const Resource& resource) {
  const auto all = world.All(resource);
  if (all.empty()) return "";
  return TextAt(all[world.random().Next() % all.size()], "metadata/name");
}

std::string NodeName(uint32_t n) { return fmt::format("n{}", n); }

// Its GPUs: the same at any time.
devmgr::Node InventoryOf(uint64_t seed, uint32_t n) {
  Random random(Mix(seed, 1'000 + n));
  devmgr::Node node;
  node.name = NodeName(n);
  const bool mixed = random.OneIn(4);
  const bool old = random.OneIn(2);
  const int64_t cards = random.Between(1, 4);
  for (int64_t c = 0; c < cards; ++c) {
    devmgr::Card card;
    card.uuid = fmt::format("GPU-{}-{}", node.name, c);
    const bool a100 = mixed ? c % 2 == 0 : old;
    card.model = a100 ? "NVIDIA A100" : "NVIDIA H100";
    card.memory_mib = a100 ? 40'000 : 80'000;
    card.island = static_cast<int32_t>(c / 2);
    card.numa = static_cast<int32_t>(c / 2);
    node.cards.push_back(card);
  }
  return node;
}

Json GpuNodeAt(const devmgr::Node& inventory) {
  Json object = GpuNodeOf(inventory);
  SetMountsHook(object, true);
  return object;
}

Json NodeAt(uint64_t seed, uint32_t n) {
  Random random(Mix(seed, 2'000 + n));
  const devmgr::Node inventory = InventoryOf(seed, n);
  Json rest{{"metadata", {{"labels", {{"zone", random.OneIn(2) ? "east" : "west"}}}}}};
  if (random.OneIn(2)) {
    uint64_t units = 0;
    for (const devmgr::Card& card : inventory.cards) units += card.memory_mib / kMemoryUnitMib;
    rest["status"]["allocatable"] = {
        {"baton.dev/gpu-share", std::to_string(100 * inventory.cards.size())},
        {"baton.dev/gpu-memory", std::to_string(units)}};
  }
  return NodeOf(inventory.name, rest);
}

void AddNode(World& world, uint64_t seed, uint32_t n) {
  world.Put(resources::kNodes, NodeAt(seed, n));
  world.Put(resources::kGpuNodes, GpuNodeAt(InventoryOf(seed, n)));
}

void AddClasses(World& world) {
  world.AddClass("low", -10);
  world.AddClass("high", 1'000);
  world.AddClass("polite", 1'000, false);
}

// As the webhook leaves a pod: its kubelet has to mount the hook.
void AddPod(World& world, const std::string& name, const Json& limits, Json annotations,
            const Json& spec = {}) {
  annotations["baton.dev/injected"] = "2";
  world.AddPod(name, limits, annotations, spec);
}

// What a Team says: `t` of kTeamPaths.
Json TeamSpec(Random& random, size_t t) {
  Json spec{{"team", kTeamPaths[t]}};
  if (random.OneIn(2)) spec["weight"] = random.Between(1, 5);
  const auto gpus = [&](int64_t most) { return fmt::format("{}m", 100 * random.Between(2, most)); };
  if (random.OneIn(2)) spec["guarantee"]["gpus"] = gpus(t == 1 ? 20 : 10);
  if (random.OneIn(5)) spec["guarantee"]["memory"] = fmt::format("{}Gi", random.Between(10, 80));
  if (random.OneIn(2)) spec["ceiling"]["gpus"] = gpus(30);
  if (random.OneIn(5)) spec["ceiling"]["memory"] = fmt::format("{}Gi", random.Between(20, 120));
  return spec;
}

std::string PutTeam(World& world, size_t t) {
  std::string name = fmt::format("t{}", t);
  world.Put(resources::kTeams,
            {{"metadata", {{"name", name}}}, {"spec", TeamSpec(world.random(), t)}});
  return name;
}

std::string SomeTeam(Random& random) {
  return kTeamPaths[static_cast<size_t>(random.Between(0, kTeams - 1))];
}

// Some GPUs, of which there may be none; beside `random`, so that nothing else depends on it.
void WishForUuids(Random random, Json& gpu) {
  Random apart(Mix(random.Next(), 12));
  const int64_t wish = apart.Between(0, 23);
  if (wish > 3) return;
  std::string uuids;
  for (int64_t n = apart.Between(1, 3); n > 0; --n) {
    uuids += fmt::format("{}GPU-{}-{}", uuids.empty() ? "" : ", ",
                         NodeName(static_cast<uint32_t>(apart.Between(0, 4))), apart.Between(0, 3));
  }
  gpu[wish == 0 ? "uuid" : "notUuid"] = uuids;
}

Json Gpu(Random& random, const Traits& traits) {
  Json gpu{{"request", Percent(random)}};
  if (random.OneIn(3)) gpu["memory"] = fmt::format("{}Gi", random.Between(1, 40));
  if (random.OneIn(12)) gpu["memory"] = fmt::format("{}%", random.Between(1, 100));
  if (random.OneIn(5)) gpu["count"] = random.Between(2, 3);
  if (random.OneIn(10)) gpu = {{"mode", "exclusive"}};
  if (random.OneIn(6)) {
    gpu["priority"] = "high";
  } else if (!gpu.contains("mode") && !gpu.contains("count") && random.OneIn(8)) {
    gpu["priority"] = "idle";
    gpu["request"] = "1";
  }
  if (random.OneIn(12) && !gpu.contains("mode") && !gpu.contains("count")) {
    gpu["memory"] = fmt::format("{}Gi", random.Between(20, 40));
    gpu["swap"] = true;
    gpu["memoryRequest"] = fmt::format("{}Gi", random.Between(1, 10));
  }
  if (random.OneIn(6)) gpu["model"] = random.OneIn(2) ? "h100" : "a100";
  if (random.OneIn(8)) gpu["antiAffinity"] = random.OneIn(2) ? "red" : "blue";
  if (random.OneIn(10)) gpu["exclusion"] = random.OneIn(2) ? "one" : "two";
  if (random.OneIn(10)) gpu["affinity"] = "near";
  if (traits.teams) gpu["team"] = SomeTeam(random);
  if (traits.uuids) WishForUuids(random, gpu);
  return gpu;
}

Json Template(World& world, const Traits& traits, uint32_t number) {
  Random& random = world.random();
  Json spec = Json::object();
  if (random.OneIn(2)) spec["restartPolicy"] = random.OneIn(2) ? "Never" : "OnFailure";
  if (random.OneIn(3)) spec["priorityClassName"] = kClasses[random.Between(0, 2)];
  if (random.OneIn(8)) spec["nodeSelector"] = {{"zone", random.OneIn(2) ? "east" : "west"}};
  if (traits.volumes && random.OneIn(4)) {
    const std::string claim = fmt::format("c{}", number);
    world.Put(kStorageClassesOfWorld, {{"metadata", {{"name", "waits"}}},
                                       {"provisioner", "csi.example.com"},
                                       {"volumeBindingMode", "WaitForFirstConsumer"}});
    world.Put(kClaimsOfWorld, {{"metadata", {{"name", claim}}},
                               {"spec", {{"storageClassName", "waits"}}},
                               {"status", {{"phase", "Pending"}}}});
    spec["volumes"] = {{{"name", "data"}, {"persistentVolumeClaim", {{"claimName", claim}}}}};
  }
  return spec;
}

std::string AddShare(World& world, const Traits& traits, uint32_t number) {
  Random& random = world.random();
  const std::string name = fmt::format("s{}", number);
  const Json gpu = Gpu(random, traits);
  const Json spec = Template(world, traits, number);
  world.AddShare(name, gpu, spec);
  return fmt::format("SharePod {} {} {}", name, gpu.dump(), spec.dump());
}

std::string AddPod(World& world, const Traits& traits, uint32_t number) {
  Random& random = world.random();
  const std::string name = fmt::format("p{}", number);
  Json annotations = Json::object();
  if (traits.teams) annotations["baton.dev/team"] = SomeTeam(random);
  Json limits{{"baton.dev/gpu-share", Percent(random)}};
  if (random.OneIn(3)) limits["baton.dev/gpu-memory"] = fmt::format("{}", random.Between(1, 120));
  Json spec = Json::object();
  if (random.OneIn(4)) spec["priorityClassName"] = kClasses[random.Between(0, 2)];
  if (random.OneIn(8)) spec["schedulingGates"] = {{{"name", "later"}}};
  AddPod(world, name, limits, annotations, spec);
  return fmt::format("pod {} {} {} {}", name, limits.dump(), annotations.dump(), spec.dump());
}

std::string AddGang(World& world, const Traits& traits, uint32_t number) {
  Random& random = world.random();
  const std::string gang = fmt::format("g{}", number);
  const int64_t size = random.Between(2, 4);
  // Some come late, or one too many.
  const int64_t come = random.OneIn(4) ? size - 1 : random.OneIn(8) ? size + 1 : size;
  const bool pods = random.OneIn(4);
  const std::string percent = Percent(random);
  const std::string team = SomeTeam(random);
  for (int64_t i = 0; i < come; ++i) {
    const std::string name = fmt::format("{}-{}", gang, i);
    const std::string share = random.OneIn(3) ? Percent(random) : percent;
    if (pods) {
      Json annotations{{"baton.dev/gang", gang}, {"baton.dev/gang-size", std::to_string(size)}};
      if (traits.teams) annotations["baton.dev/team"] = team;
      Json spec = Json::object();
      if (random.OneIn(8)) spec["schedulingGates"] = {{{"name", "later"}}};
      AddPod(world, name, {{"baton.dev/gpu-share", share}}, annotations, spec);
    } else {
      Json gpu{{"request", share}, {"gang", {{"name", gang}, {"size", size}}}};
      if (traits.teams) gpu["team"] = team;
      world.AddShare(name, gpu, Template(world, traits, number));
    }
  }
  return fmt::format("{} of {} {} of gang {} with {} %", come, size, pods ? "pods" : "SharePods",
                     gang, percent);
}

// One more of a gang that is there.
std::string JoinGang(World& world, uint32_t number) {
  for (const Json& share : world.All(resources::kSharePods)) {
    if (!Find(share, "spec/gpu/gang") || world.random().OneIn(2)) continue;
    const std::string name = fmt::format("j{}", number);
    world.AddShare(name, share["spec"]["gpu"]);
    return name + " joins the gang of " + NameOf(share).name;
  }
  return "nobody joins";
}

std::string ChangeShare(World& world, const Traits& traits) {
  Random& random = world.random();
  const std::string name = Some(world, resources::kSharePods);
  if (name.empty()) return "nothing to change";
  Json gpu;
  switch (random.Between(0, 4)) {
    case 0:
    case 1:
      gpu["request"] = Percent(random);
      break;
    case 2:
      gpu["memory"] = fmt::format("{}Mi", random.Between(1, 60'000));
      break;
    case 3:
      if (traits.teams) gpu["team"] = SomeTeam(random);
      break;
    default:
      world.Patch(resources::kSharePods, name,
                  {{"spec", {{"template", {{"metadata", {{"labels", {{"v", "2"}}}}}}}}}});
      return "template of " + name + " changes";
  }
  if (gpu.is_null()) return "nothing to change";
  world.Patch(resources::kSharePods, name, {{"spec", {{"gpu", gpu}}}});
  return name + " asks for " + gpu.dump();
}

std::string ChangePod(World& world) {
  Random& random = world.random();
  const std::string name = Some(world, resources::kPods);
  const auto pod = name.empty() ? std::nullopt : world.Get(resources::kPods, name);
  if (!pod || Find(*pod, "metadata/ownerReferences") != nullptr) return "no pod to change";
  if (Find(*pod, "spec/schedulingGates") != nullptr) {
    world.Patch(resources::kPods, name, {{"spec", {{"schedulingGates", nullptr}}}});
    return "the gate of " + name + " opens";
  }
  if (TextAt(*pod, "spec/nodeName").empty()) return "no pod to change";
  const std::string percent = Percent(random);
  world.Patch(resources::kPods, name,
              {{"metadata", {{"annotations", {{"baton.dev/request", percent}}}}}});
  return fmt::format("{} asks for {} %", name, percent);
}

std::string BreakNode(World& world, const Traits& traits, uint64_t seed) {
  Random& random = world.random();
  const auto n = static_cast<uint32_t>(random.Between(0, traits.nodes - 1));
  const std::string name = NodeName(n);
  const auto node = world.Get(resources::kNodes, name);
  switch (random.Between(0, 6)) {
    case 0:
      if (node) {
        world.RemoveNode(name);
        return name + " goes";
      }
      [[fallthrough]];
    case 1:
      AddNode(world, seed, n);
      return name + " is as new";
    case 2: {
      devmgr::Node inventory = InventoryOf(seed, n);
      for (devmgr::Card& card : inventory.cards) {
        if (random.OneIn(2)) continue;
        card.health = random.OneIn(2) ? devmgr::Health::kFailed : devmgr::Health::kHealthy;
        card.cordoned = random.OneIn(3);
        card.why = "XID 79";
      }
      world.Put(resources::kGpuNodes, GpuNodeAt(inventory));
      return "GPUs of " + name + " fail";
    }
    case 3:
      world.Delete(resources::kGpuNodes, name);
      return "the GpuNode of " + name + " goes";
    case 4:
      if (node) {
        world.Patch(resources::kNodes, name,
                    {{"spec", {{"taints", {{{"key", "odd"}, {"effect", "NoSchedule"}}}}}}});
      }
      return name + " gets a taint";
    case 5:
      if (node) {
        Json down = *world.Get(resources::kNodes, name);
        down["status"]["conditions"] = Json::array({{{"type", "Ready"}, {"status", "Unknown"}}});
        if (random.OneIn(2)) down["status"]["allocatable"]["baton.dev/gpu-share"] = "0";
        world.Put(resources::kNodes, down);
      }
      return name + " is not heard of";
    default: {
      Json cut = GpuNodeAt(InventoryOf(seed, n));
      SetMountsHook(cut, false);
      cut.erase("status");
      world.Put(resources::kGpuNodes, cut);
      return "the agent of " + name + " knows no GPUs";
    }
  }
}

std::string ReformTeams(World& world) {
  Random& random = world.random();
  const auto t = static_cast<size_t>(random.Between(0, kTeams - 2));
  const std::string name = fmt::format("t{}", t);
  if (random.OneIn(3)) {
    world.Delete(resources::kTeams, name);
    return "Team " + name + " goes";
  }
  if (const auto old = world.Get(resources::kTeams, name)) {
    Json team = *old;
    team["spec"] = TeamSpec(random, t);
    team["metadata"]["generation"] = team["metadata"]["generation"].get<int64_t>() + 1;
    world.Put(resources::kTeams, team);
    return "Team " + name + " says " + team["spec"].dump();
  }
  PutTeam(world, t);
  return "Team " + name + " says " + (*world.Get(resources::kTeams, name))["spec"].dump();
}

std::string TroublePods(World& world) {
  Random& random = world.random();
  const std::string pod = Some(world, resources::kPods);
  switch (random.Between(0, 3)) {
    case 0: {
      const char* reasons[] = {"UnexpectedAdmissionError", "OutOfcpu", "NodeShutdown", "Evicted"};
      world.Fail(pod, reasons[random.Between(0, 3)], random.OneIn(2));
      return "the kubelet ends " + pod;
    }
    case 1:
      world.ShutDown(pod);
      return "the node of " + pod + " shuts down";
    case 2: {
      const std::string node = Some(world, resources::kNodes);
      const bool refuses = random.OneIn(2);
      world.RefuseOn(node, refuses ? "UnexpectedAdmissionError" : "");
      return node + (refuses ? " refuses pods" : " takes pods again");
    }
    default:
      if (pod.empty()) return "no budget";
      if (world.store().budgeted.erase({kSpace, pod}) > 0) return pod + " may be evicted again";
      world.store().budgeted.insert({kSpace, pod});
      return "a budget keeps " + pod;
  }
}

std::string UseNameAgain(World& world) {
  Random& random = world.random();
  const std::string pod = Some(world, resources::kPods);
  if (pod.starts_with("p")) {
    world.Delete(resources::kPods, pod);
    AddPod(world, pod, {{"baton.dev/gpu-share", Percent(random)}}, Json::object());
  }
  const std::string name = Some(world, resources::kSharePods);
  if (!name.empty()) {
    world.Delete(resources::kSharePods, name);
    world.AddShare(name, {{"request", Percent(random)}});
  }
  return fmt::format("names {} and {} are used again", pod, name);
}

std::string DoSome(World& world, const Traits& traits, uint64_t seed, uint32_t number) {
  Random& random = world.random();
  switch (random.Between(0, 27)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      return AddShare(world, traits, number);
    case 5:
    case 6:
    case 7:
      return AddPod(world, traits, number);
    case 8:
    case 9:
      return AddGang(world, traits, number);
    case 10:
      return JoinGang(world, number);
    case 11: {
      const std::string name = Some(world, resources::kSharePods);
      world.Delete(resources::kSharePods, name);
      return "SharePod " + name + " is deleted";
    }
    case 12: {
      const std::string name = Some(world, resources::kPods);
      world.Delete(resources::kPods, name);
      return "pod " + name + " is deleted";
    }
    case 13:
    case 14:
      random.OneIn(2) ? world.Stop() : world.Reap();
      return "what was deleted ends";
    case 15:
    case 16: {
      const std::string name = Some(world, resources::kPods);
      world.SetPhase(name, random.OneIn(2) ? "Succeeded" : "Running");
      return "pod " + name + " goes on";
    }
    case 17:
    case 18:
      return ChangeShare(world, traits);
    case 19:
      return ChangePod(world);
    case 20: {
      const std::string node = Some(world, resources::kNodes);
      const bool cordoned = random.OneIn(2);
      world.Cordon(node, cordoned);
      return node + (cordoned ? " is cordoned" : " is open");
    }
    case 21:
    case 22:
      return traits.breakage ? BreakNode(world, traits, seed) : AddShare(world, traits, number);
    case 23:
      return traits.calm ? AddPod(world, traits, number) : TroublePods(world);
    case 24:
      return traits.reforms ? ReformTeams(world) : AddShare(world, traits, number);
    case 25:
      if (traits.calm) return UseNameAgain(world);
      if (traits.standby && random.OneIn(2)) return kTakeOver;
      return kRestart;
    case 26:
      world.Relist(static_cast<Watched>(random.Between(0, kWatchedKinds - 1)));
      return "a watch breaks";
    default:
      if (random.OneIn(2)) return UseNameAgain(world);
      Provision(world);
      world.Pass(std::chrono::seconds(random.Spread(1, 60)));
      return "time passes";
  }
}

}  // namespace

Traits TraitsOf(const Plan& plan) {
  Random random(Mix(plan.seed, 0));
  Traits traits;
  traits.uuids = plan.uuids;
  traits.calm = random.OneIn(3);
  traits.keeps = random.OneIn(4);
  traits.teams = !random.OneIn(3);
  traits.reforms = traits.teams && random.OneIn(2);
  traits.volumes = random.OneIn(4);
  traits.standby = !traits.calm && random.OneIn(3);
  traits.breakage = random.OneIn(2);
  traits.nodes = static_cast<uint32_t>(random.Between(1, 4));
  traits.deeds = 1 + traits.nodes + static_cast<uint32_t>(random.Between(10, 60));
  const auto one_in = [&] { return static_cast<uint64_t>(random.Between(3, 20)); };
  const WorldFaults faults{one_in(), one_in(), one_in(), one_in(), one_in()};
  if (!traits.calm) traits.faults = faults;
  traits.options.retry_max = std::chrono::seconds(5);
  traits.options.round.patience =
      traits.keeps ? static_cast<uint32_t>(random.Between(1, 8)) : 1'000'000;
  // Without them whatever fits is placed.
  if (!traits.keeps) traits.options.round.reservations = 0;
  return traits;
}

Plan Plan::Of(uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  const uint32_t deeds = TraitsOf(plan).deeds;
  for (uint32_t d = 0; d < deeds; ++d) plan.deeds.push_back(d);
  return plan;
}

std::string DeedsText(const std::vector<uint32_t>& deeds) {
  std::string text;
  for (size_t i = 0; i < deeds.size();) {
    size_t last = i;
    while (last + 1 < deeds.size() && deeds[last + 1] == deeds[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", deeds[i]);
    if (last > i) text += fmt::format("-{}", deeds[last]);
    i = last + 1;
  }
  return text;
}

Result<std::vector<uint32_t>> ParseDeeds(const std::string& text) {
  std::vector<uint32_t> deeds;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](uint32_t* value) {
    const auto [next, error] = std::from_chars(at, end, *value);
    at = next;
    return error == std::errc() && *value < 10'000;
  };
  while (at < end) {
    uint32_t first = 0;
    if (!number(&first)) break;
    uint32_t last = first;
    if (at < end && *at == '-' && (++at, !number(&last))) break;
    for (uint32_t d = first; d <= last; ++d) deeds.push_back(d);
    if (at == end) return deeds;
    if (*at++ != ',') break;
  }
  return Fail(ErrorCode::kInvalid, "'" + text + "' is not a list of deeds such as \"0-4,7,9-12\"");
}

std::string Do(World& world, const Traits& traits, uint64_t seed, uint32_t number) {
  world.random() = Random(Mix(seed, 3'000 + number));
  if (number == 0) {
    AddClasses(world);
    if (!traits.teams) return "PriorityClasses";
    std::string said = "PriorityClasses; Teams";
    for (size_t t = 0; t + 1 < kTeams; ++t) {
      if (world.random().OneIn(3)) continue;
      const std::string name = PutTeam(world, t);
      said += " " + (*world.Get(resources::kTeams, name))["spec"].dump();
    }
    return said;
  }
  if (number <= traits.nodes) {
    AddNode(world, seed, number - 1);
    const devmgr::Node inventory = InventoryOf(seed, number - 1);
    return fmt::format("node {} with {} GPUs, the first {}", inventory.name, inventory.cards.size(),
                       inventory.cards.front().model);
  }
  return DoSome(world, traits, seed, number);
}

void Provision(World& world) {
  for (const Json& claim : world.All(kClaimsOfWorld)) {
    if (!TextAt(claim, "spec/volumeName").empty()) continue;
    if (TextAt(claim, "metadata/annotations/volume.kubernetes.io~1selected-node").empty()) continue;
    const std::string name = NameOf(claim).name;
    world.Put(kVolumesOfWorld, {{"metadata", {{"name", "pv-" + name}}}});
    Json bound = claim;
    bound["spec"]["volumeName"] = "pv-" + name;
    bound["status"]["phase"] = "Bound";
    world.Put(kClaimsOfWorld, bound);
  }
}

void Mend(World& world, const Traits& traits, const Plan& plan) {
  world.faults = {};
  world.store().budgeted.clear();
  for (uint32_t n = 0; n < traits.nodes; ++n) {
    if (std::find(plan.deeds.begin(), plan.deeds.end(), n + 1) == plan.deeds.end()) continue;
    AddNode(world, plan.seed, n);
    world.RefuseOn(NodeName(n), "");
  }
  for (const Json& pod : world.All(resources::kPods)) {
    if (Find(pod, "spec/schedulingGates") == nullptr) continue;
    world.Patch(resources::kPods, NameOf(pod).name, {{"spec", {{"schedulingGates", nullptr}}}});
  }
}

}  // namespace baton::k8s::testing
