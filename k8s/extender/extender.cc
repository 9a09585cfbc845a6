#include "k8s/extender/extender.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "devmgr/modes/modes.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/team.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

constexpr int kPriorityMax = 10;  // extender/v1's MaxExtenderPriority
// Volcano's codes of a predicate.
constexpr int kFits = 0;
constexpr int kError = 1;
constexpr int kUnschedulable = 2;

// Go reads and writes field names whatever their case.
const Json* Field(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  for (auto it = object.begin(); it != object.end(); ++it) {
    if (it.key().size() == name.size() &&
        std::equal(name.begin(), name.end(), it.key().begin(), [](char a, char b) {
          return std::tolower(static_cast<unsigned char>(a)) ==
                 std::tolower(static_cast<unsigned char>(b));
        })) {
      return it->is_null() ? nullptr : &*it;
    }
  }
  return nullptr;
}

std::string Text(const Json& object, std::string_view name) {
  const Json* field = Field(object, name);
  return field != nullptr && field->is_string() ? field->get<std::string>() : "";
}

// A pod that has GPUs to be found, as the device manager is asked.
struct Asked {
  GpuPod gpu;
  devmgr::PodRequest request;
};

Result<Asked> Ask(const Json& pod, uint32_t memory_unit_mib) {
  auto gpu = ReadGpuPod(pod, memory_unit_mib);
  if (!gpu) return tl::unexpected(gpu.error());
  // No part of a GPU can be made before another scheduler binds, so what is open is decided.
  if (gpu->mode_is_auto) gpu->request.mode = spec::kTimeSlice;
  if (gpu->asks() && !spec::ByToken(gpu->request.mode)) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("mode {} has a part of a GPU made before the pod is bound, which "
                            "Baton's own scheduler waits for; set schedulerName: {}",
                            gpu->request.mode, kScheduler));
  }
  Asked asked;
  asked.request = gpu->request;
  asked.request.name = NameOf(pod).Text();
  // The scheduler that asks has looked at the rest.
  asked.request.node_labels.clear();
  asked.gpu = *std::move(gpu);
  return asked;
}

bool HasCards(const Json& pod) {
  const auto placement = ReadPlacement(pod);
  return placement && placement->has_value();
}

}  // namespace

class ExtenderCore::Impl {
 public:
  explicit Impl(ExtenderOptions given)
      : options(std::move(given)), view(options.memory_unit_mib, options.policy, modes) {}

  void SetPod(const Json& pod) {
    const std::string key = NameOf(pod).Text();
    const std::string uid = UidOf(pod);
    const auto gpu = ReadGpuPod(pod, options.memory_unit_mib);
    if (gpu && gpu->asks() && learned[key] != uid) {
      learned[key] = uid;
      view.cluster().Learn(SeePod(pod, gpu).request);
    }
    const auto planned = plans.find(key);
    const bool bound = !TextAt(pod, "spec/nodeName").empty();
    if (planned != plans.end()) {
      // An event from before what is on its way.
      if (planned->second == uid && (!bound || !HasCards(pod))) return;
      plans.erase(planned);
    }
    view.SetPod(SeePod(pod, gpu));
  }

  // Forgets what was booked for a pod that is asked about again: it was not bound.
  void Renew(const std::string& key) {
    if (view.IsBound(key) || !view.IsBooked(key)) return;
    plans.erase(key);
    view.Release(key);
  }

  // What the arguments are about: the pod, and the nodes among which it may choose.
  struct Question {
    const Json* pod = nullptr;
    std::vector<std::string> nodes;
    const Json* node_list = nullptr;  // whole nodes, where they were sent
  };
  Result<Question> Read(const Json& arguments) const {
    Question question;
    question.pod = Field(arguments, "Pod");
    if (const Json* task = Field(arguments, "Task")) question.pod = Field(*task, "Pod");
    if (question.pod == nullptr || !question.pod->is_object()) {
      return Fail(ErrorCode::kInvalid, "the arguments contain no Pod");
    }
    const auto add = [&](const Json& node) {
      if (node.is_string()) {
        question.nodes.push_back(node.get<std::string>());
        return;
      }
      std::string name = TextAt(node, "metadata/name");
      if (name.empty()) name = Text(node, "Name");  // Volcano's
      if (!name.empty()) question.nodes.push_back(std::move(name));
    };
    const Json* nodes = Field(arguments, "Nodes");
    if (nodes != nullptr && nodes->is_object()) {
      question.node_list = nodes;
      nodes = Field(*nodes, "Items");
    } else if (nodes == nullptr) {
      nodes = Field(arguments, "NodeNames");
    }
    if (nodes != nullptr && nodes->is_array()) {
      for (const Json& node : *nodes) add(node);
    }
    if (const Json* node = Field(arguments, "Node")) add(*node);
    return question;
  }

  // Why not, by node; of those that would do nothing.
  Result<std::map<std::string, std::string>> WhyNot(const Question& question) {
    auto asked = Ask(*question.pod, options.memory_unit_mib);
    if (!asked) return tl::unexpected(asked.error());
    std::map<std::string, std::string> whys;
    if (!asked->gpu.asks()) return whys;
    view.Flush();
    Renew(asked->request.name);
    if (view.IsBooked(asked->request.name)) {
      return Fail(ErrorCode::kExists, asked->request.name + " is bound already");
    }
    if (const auto admitted = Admit(asked->request, devmgr::AskedBy(asked->request)); !admitted) {
      for (const std::string& node : question.nodes) whys[node] = admitted.error().message;
      return whys;
    }
    std::map<std::string, devmgr::NodeRefusal> refusals;
    for (devmgr::NodeRefusal& refusal : view.cluster().Explain(asked->request)) {
      std::string name = refusal.node;
      refusals.emplace(std::move(name), std::move(refusal));
    }
    for (const std::string& node : question.nodes) {
      if (!view.HasNode(node)) {
        whys[node] = "Baton has not seen this node yet";
        continue;
      }
      // Of what the binder filters by, the scheduler cannot know this.
      PodNeeds needs;
      // The scheduler has looked at taints.
      needs.tolerations = {{.key = "", .exists = true, .value = "", .effect = ""}};
      needs.hook_mounts = NeedsHookMounts(*question.pod);
      if (std::string off = view.WhyOff(needs, node); !off.empty()) {
        whys[node] = std::move(off);
        continue;
      }
      const auto refusal = refusals.find(node);
      if (refusal == refusals.end()) continue;
      std::string why = view.WhyClosed(node);
      if (why.empty()) why = refusal->second.why;
      for (size_t c = 0; c < refusal->second.cards.size() && why.size() < 512; ++c) {
        const std::string& card = refusal->second.cards[c].why;
        why += fmt::format("{}GPU {}: {}", why.empty() ? "" : "; ", c,
                           card.empty() ? "has room, but the pod needs more such GPUs" : card);
      }
      whys[node] = why.empty() ? "the node has no GPUs" : why;
    }
    return whys;
  }

  // The node that Decide() takes among those; empty: none, or it asks for no GPUs.
  Result<std::string> Best(const Question& question) {
    auto asked = Ask(*question.pod, options.memory_unit_mib);
    if (!asked) return tl::unexpected(asked.error());
    if (!asked->gpu.asks()) return "";
    view.Flush();
    Renew(asked->request.name);
    const std::set<std::string> among(question.nodes.begin(), question.nodes.end());
    auto off = std::make_shared<std::vector<devmgr::ExcludedNode>>();
    for (const devmgr::Node* node : view.cluster().Nodes()) {
      if (!among.contains(node->name)) off->push_back({node->name, "not a candidate"});
    }
    asked->request.off_nodes = std::move(off);
    const auto placement = view.cluster().Decide(asked->request);
    return placement ? placement->node : "";
  }

  Json Annotations(const GpuPod& gpu, const devmgr::Placement& placement) const {
    Json annotations = Json::object();
    for (auto& [key, value] : PlacementAnnotations(gpu, placement, gpu)) annotations[key] = value;
    return annotations;
  }

  // kExhausted: a ceiling of the pod's team is against it.
  Result<void> Admit(const devmgr::PodRequest& request, const devmgr::Amount& amount) {
    teams.Settle();
    return devmgr::Ledger(teams.quotas(), view.cluster()).Admit(request, amount);
  }

  // Books GPUs on that node. `within`: only within its team's ceilings.
  Result<devmgr::Placement> Book(Asked& asked, const std::string& node, bool within) {
    view.Flush();
    Renew(asked.request.name);
    // The scheduler has looked at processors and memory, with what it knows.
    devmgr::PodRequest cards = asked.request;
    cards.cpu_milli = 0;
    cards.memory_mib = 0;
    auto placement = view.cluster().DecideOn(node, cards);
    if (!placement) return placement;
    const devmgr::PodRequest there = RequestAt(asked.request, *placement);
    if (const auto admitted = Admit(there, devmgr::TakenBy(*placement)); within && !admitted) {
      return tl::unexpected(admitted.error());
    }
    if (auto booked = view.cluster().Adopt(there, *placement); !booked) {
      return tl::unexpected(booked.error());
    }
    return placement;
  }

  const ExtenderOptions options;
  std::mutex mutex;
  const devmgr::ModeSet modes;
  ClusterView view;
  TeamSet teams;
  std::map<std::string, std::string> learned;  // uids of pods by which the usual mix is known
  std::map<std::string, std::string> plans;    // uids of pods for which something is on its way
};

ExtenderCore::ExtenderCore(ExtenderOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ExtenderCore::~ExtenderCore() = default;
const devmgr::Cluster& ExtenderCore::cluster() const { return impl_->view.cluster(); }

void ExtenderCore::Changed(Watched kind, const Json& object) {
  std::lock_guard lock(impl_->mutex);
  switch (kind) {
    case Watched::kNode:
      return impl_->view.SetNode(object);
    case Watched::kGpuNode:
      if (const std::string trouble = impl_->view.SetGpuNode(object); !trouble.empty()) {
        spdlog::warn("{}", trouble);
      }
      return;
    case Watched::kPod:
      return impl_->SetPod(object);
    case Watched::kTeam:
      return impl_->teams.Set(object);
    default:
      return;
  }
}

void ExtenderCore::Gone(Watched kind, const Json& object) {
  std::lock_guard lock(impl_->mutex);
  switch (kind) {
    case Watched::kNode:
      return impl_->view.RemoveNode(TextAt(object, "metadata/name"));
    case Watched::kGpuNode:
      return impl_->view.RemoveGpuNode(TextAt(object, "metadata/name"));
    case Watched::kTeam:
      return impl_->teams.Remove(object);
    case Watched::kPod: {
      const std::string key = NameOf(object).Text();
      impl_->view.RemovePod(key);
      impl_->learned.erase(key);
      const auto planned = impl_->plans.find(key);
      if (planned != impl_->plans.end() && planned->second == UidOf(object)) {
        impl_->plans.erase(planned);
        impl_->view.Release(key);
      }
      return;
    }
    default:
      return;
  }
}

Json ExtenderCore::Filter(const Json& arguments) {
  std::lock_guard lock(impl_->mutex);
  const auto question = impl_->Read(arguments);
  if (!question) return {{"Error", question.error().message}};
  const auto whys = impl_->WhyNot(*question);
  if (!whys) return {{"Error", whys.error().message}};
  Json result{{"FailedNodes", *whys}, {"Error", ""}};
  if (question->node_list != nullptr) {
    Json items = Json::array();
    if (const Json* all = Field(*question->node_list, "Items"); all && all->is_array()) {
      for (const Json& node : *all) {
        if (!whys->contains(TextAt(node, "metadata/name"))) items.push_back(node);
      }
    }
    result["Nodes"] = {{"kind", "NodeList"},
                       {"apiVersion", "v1"},
                       {"metadata", Json::object()},
                       {"items", std::move(items)}};
  } else {
    Json names = Json::array();
    for (const std::string& node : question->nodes) {
      if (!whys->contains(node)) names.push_back(node);
    }
    result["NodeNames"] = std::move(names);
  }
  return result;
}

Json ExtenderCore::Prioritize(const Json& arguments) {
  std::lock_guard lock(impl_->mutex);
  const bool volcano = Field(arguments, "Task") != nullptr;
  const auto question = impl_->Read(arguments);
  std::string best;
  std::string wrong;
  if (!question) {
    wrong = question.error().message;
  } else if (auto found = impl_->Best(*question)) {
    best = *found;
  } else {
    wrong = found.error().message;
  }
  if (volcano) {
    Json scores = Json::object();
    if (question) {
      for (const std::string& node : question->nodes) {
        scores[node] = node == best ? kPriorityMax : 0;
      }
    }
    return {{"nodeScore", std::move(scores)}, {"errorMessage", wrong}};
  }
  Json list = Json::array();
  if (question) {
    for (const std::string& node : question->nodes) {
      list.push_back({{"Host", node}, {"Score", node == best ? kPriorityMax : 0}});
    }
  }
  return list;
}

Json ExtenderCore::Predicate(const Json& arguments) {
  std::lock_guard lock(impl_->mutex);
  const auto question = impl_->Read(arguments);
  if (!question) return {{"status", question.error().message}, {"code", kError}};
  const auto whys = impl_->WhyNot(*question);
  if (!whys) return {{"status", whys.error().message}, {"code", kError}};
  if (whys->empty()) return {{"status", ""}, {"code", kFits}};
  return {{"status", whys->begin()->second}, {"code", kUnschedulable}};
}

Result<ExtenderCore::Plan> ExtenderCore::PlanBinding(const Json& pod, const std::string& node) {
  std::lock_guard lock(impl_->mutex);
  auto asked = Ask(pod, impl_->options.memory_unit_mib);
  if (!asked) return tl::unexpected(asked.error());
  const ObjectName name = NameOf(pod);
  Json annotations = Json::object();
  if (asked->gpu.asks()) {
    const auto placement = impl_->Book(*asked, node, true);
    if (!placement) return tl::unexpected(placement.error());
    annotations = impl_->Annotations(asked->gpu, *placement);
    impl_->plans[name.Text()] = UidOf(pod);
  }
  Json body{{"apiVersion", "v1"},
            {"kind", "Binding"},
            {"metadata",
             {{"name", name.name},
              {"namespace", name.name_space},
              {"uid", UidOf(pod)},
              {"annotations", std::move(annotations)}}},
            {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}}}};
  return Plan{name.Text(), UidOf(pod), std::move(body)};
}

std::optional<ExtenderCore::Plan> ExtenderCore::PlanCards(const Json& pod) {
  std::lock_guard lock(impl_->mutex);
  const std::string node = TextAt(pod, "spec/nodeName");
  if (node.empty() || !TakesRoom(pod) || HasCards(pod)) return std::nullopt;
  if (TextAt(pod, "spec/schedulerName") == impl_->options.scheduler) return std::nullopt;
  auto asked = Ask(pod, impl_->options.memory_unit_mib);
  if (!asked || !asked->gpu.asks()) return std::nullopt;
  // Which whole GPUs it has the device plugin of its vendor has said.
  if (asked->gpu.containers.front().whole) return std::nullopt;
  const ObjectName name = NameOf(pod);
  if (impl_->plans.contains(name.Text())) return std::nullopt;
  // What was seen of it so far has no GPUs, and stands in the way of what is decided now.
  impl_->view.RemovePod(name.Text());
  // It is there already.
  const auto placement = impl_->Book(*asked, node, false);
  if (!placement) {
    spdlog::warn("{} is on node {} and its GPUs cannot be assigned: {}", name.Text(), node,
                 placement.error().message);
    impl_->SetPod(pod);
    return std::nullopt;
  }
  impl_->plans[name.Text()] = UidOf(pod);
  Json body{{"metadata",
             {{"uid", UidOf(pod)},
              {"resourceVersion", ResourceVersionOf(pod)},
              {"annotations", impl_->Annotations(asked->gpu, *placement)}}}};
  return Plan{name.Text(), UidOf(pod), std::move(body)};
}

void ExtenderCore::Ended(const Plan& plan, bool done, bool certain) {
  std::lock_guard lock(impl_->mutex);
  const auto planned = impl_->plans.find(plan.key);
  if (planned == impl_->plans.end() || planned->second != plan.uid) return;
  // Else the watch tells, or the scheduler asks again.
  if (done || !certain) return;
  impl_->plans.erase(planned);
  impl_->view.Release(plan.key);
}

class Extender::Impl {
 public:
  Impl(Client& given, ExtenderOptions options)
      : client(given), scheduler(options.scheduler), core(options) {
    worker = std::thread([this] { Work(); });
    const std::array<std::pair<Watched, Resource>, kKinds> kinds = {
        {{Watched::kNode, resources::kNodes},
         {Watched::kGpuNode, resources::kGpuNodes},
         {Watched::kPod, resources::kPods},
         {Watched::kTeam, resources::kTeams}}};
    for (const auto& [kind, resource] : kinds) {
      ReflectorSink sink;
      sink.changed = [this, kind = kind](Json object) {
        core.Changed(kind, object);
        if (kind == Watched::kPod) See(std::move(object));
      };
      sink.gone = [this, kind = kind](Json object) { core.Gone(kind, object); };
      const auto know = [this, told = std::make_shared<std::atomic<bool>>(false)] {
        if (told->exchange(true)) return;
        {
          std::lock_guard lock(mutex);
          ++synced;
        }
        wake.notify_all();
      };
      sink.synced = know;
      sink.trouble = [kind = kind, know, plural = resource.plural](const std::string& why) {
        LogTrouble(plural, why);
        // A cluster may have no Teams yet: their CRD is younger than the others.
        if (kind == Watched::kTeam && IsAbsent(why)) know();
      };
      reflectors.push_back(
          std::make_unique<Reflector>(client, resource, options.watches, std::move(sink)));
    }
  }

  ~Impl() {
    {
      std::lock_guard lock(mutex);
      ended = true;
    }
    wake.notify_all();
    reflectors.clear();
    worker.join();
  }

  // A pod that is bound without GPUs.
  void See(Json pod) {
    if (TextAt(pod, "spec/nodeName").empty() || !TakesRoom(pod)) return;
    if (const auto placement = ReadPlacement(pod); !placement || placement->has_value()) return;
    {
      std::lock_guard lock(mutex);
      if (bare.size() < 10'000) bare.push_back(std::move(pod));
    }
    wake.notify_all();
  }

  void Work() {
    for (;;) {
      Json pod;
      {
        std::unique_lock lock(mutex);
        // Not before all is known that is there.
        wake.wait(lock, [&] { return ended || (synced == kKinds && !bare.empty()); });
        if (ended) return;
        pod = std::move(bare.front());
        bare.pop_front();
      }
      const auto plan = core.PlanCards(pod);
      if (!plan) continue;
      auto done = client.Patch(resources::kPods, NameOf(pod), PatchKind::kMerge, plan->body);
      if (!done) spdlog::warn("{}: {}", plan->key, done.error().message);
      // Where the answer was lost, the pod itself says what became of it. That the patch names a
      // version makes it safe to try again.
      const bool lost = !done && done.error().status == 0;
      while (!done && done.error().status == 0) {
        if (!Pause()) return;
        done = client.Get(resources::kPods, NameOf(pod));
      }
      const bool has = done && UidOf(*done) == plan->uid && HasCards(*done);
      core.Ended(*plan, has, true);
      if (lost && done && !has) See(*std::move(done));
    }
  }

  // False: it is to end.
  bool Pause() {
    std::unique_lock lock(mutex);
    return !wake.wait_for(lock, kLostPause, [&] { return ended; });
  }

  Json Bind(const Json& arguments) {
    const ObjectName name{Text(arguments, "PodNamespace"), Text(arguments, "PodName")};
    const std::string uid = Text(arguments, "PodUID");
    const std::string node = Text(arguments, "Node");
    if (name.name.empty() || name.name_space.empty() || node.empty()) {
      return {{"Error", "PodName, PodNamespace and Node are required"}};
    }
    const auto pod = client.Get(resources::kPods, name);
    if (!pod) return {{"Error", pod.error().message}};
    if (!uid.empty() && UidOf(*pod) != uid) {
      return {{"Error", fmt::format("{} has been replaced by another pod", name.Text())}};
    }
    if (TextAt(*pod, "spec/schedulerName") == scheduler) {
      return {{"Error", fmt::format("{} belongs to Baton's binder (schedulerName {}); set its "
                                    "schedulerName to your scheduler's, or change --scheduler-name",
                                    name.Text(), scheduler)}};
    }
    const auto plan = core.PlanBinding(*pod, node);
    if (!plan) return {{"Error", plan.error().message}};
    const auto done = client.Create(resources::kPods, name, plan->body, "binding");
    bool bound = done.has_value();
    if (!done && done.error().status == 0) {
      // The answer was lost: the pod itself says what became of it. Where it is not bound yet, it
      // may still be.
      const auto now = client.Get(resources::kPods, name);
      bound = now && UidOf(*now) == plan->uid && TextAt(*now, "spec/nodeName") == node;
    }
    core.Ended(*plan, bound, bound || done.error().status != 0);
    return {{"Error", bound ? "" : done.error().message}};
  }

  static constexpr Duration kLostPause = std::chrono::milliseconds(200);
  static constexpr int kKinds = 4;  // that are watched

  Client& client;
  const std::string scheduler;
  ExtenderCore core;
  std::vector<std::unique_ptr<Reflector>> reflectors;
  std::atomic<int> synced = 0;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Json> bare;
  bool ended = false;
  std::thread worker;
};

Extender::Extender(Client& client, ExtenderOptions options)
    : impl_(std::make_unique<Impl>(client, std::move(options))) {}
Extender::~Extender() = default;
bool Extender::synced() const { return impl_->synced == Impl::kKinds; }

net::HttpResponse Extender::Answer(const net::HttpRequest& request) {
  if (request.method == "GET") {
    if (request.path == "/healthz") return {200, "ok\n", "text/plain"};
    if (request.path == "/readyz") {
      if (synced()) return {200, "ok\n", "text/plain"};
      return {503, "the cluster has not been listed yet\n", "text/plain"};
    }
    return net::ErrorResponse(404, "unknown path; use /healthz or /readyz");
  }
  if (request.method != "POST") return net::ErrorResponse(405, "use POST");
  const std::optional<Json> parsed = ParseObject(request.body);
  if (!parsed)
    return net::ErrorResponse(400, "the body is not a JSON object, or it nests too deeply");
  const Json& arguments = *parsed;
  if (!synced()) return net::ErrorResponse(503, "Baton has not listed the cluster yet");
  Json answer;
  if (request.path == "/filter") {
    answer = impl_->core.Filter(arguments);
  } else if (request.path == "/prioritize") {
    answer = impl_->core.Prioritize(arguments);
  } else if (request.path == "/bind") {
    answer = impl_->Bind(arguments);
  } else if (request.path == "/predicate") {
    answer = impl_->core.Predicate(arguments);
  } else {
    return net::ErrorResponse(404, "unknown path; use /filter, /prioritize, /bind or /predicate");
  }
  return {200, answer.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json"};
}

}  // namespace baton::k8s
