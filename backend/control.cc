#include "backend/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "backend/books.h"
#include "backend/latency.h"
#include "backend/reports.h"
#include "backend/request.h"
#include "backend/status.h"
#include "backend/users.h"
#include "base/entropy.h"
#include "base/file.h"
#include "base/nesting.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

using nlohmann::json;

// Of lists and objects in a request.
constexpr size_t kDepthMax = 16;
// Pods of an answer between two looks at the sockets: some 40 microseconds each.
constexpr size_t kPodsOfAnswerAtOnce = 8;

json Failure(const Error& error) {
  return {{"ok", false}, {"error", error.message}, {"code", ErrorCodeName(error.code)}};
}

#define BATON_TAKE(variable, expression) \
  auto variable = (expression);          \
  if (!variable) return tl::unexpected(variable.error())

Result<Pod*> NamedPod(Arbiter& arbiter, Request& request, const Caller& caller) {
  BATON_TAKE(name, request.Text("name", ""));
  Pod* pod = arbiter.pods().FindByName(*name);
  if (pod != nullptr && caller.user && (pod->uid != caller.user->uid || !pod->from_file.empty())) {
    return Fail(ErrorCode::kDenied,
                fmt::format("pod {} is {}", *name,
                            pod->from_file.empty() ? "not yours" : "of the operator's file"));
  }
  if (pod == nullptr || !arbiter.PodIsOn(*pod, caller.node)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("no pod {} here; 'baton status' lists the pods", *name));
  }
  return pod;
}

Result<json> SetPod(Arbiter& arbiter, const spec::UsersOptions& users, Request& request,
                    const Caller& caller) {
  BATON_TAKE(pod, NamedPod(arbiter, request, caller));
  BATON_TAKE(changed, spec::Changed(**pod, request.Rest()));
  if (caller.user) {
    BATON_TAKE(may, spec::MayChange(users, *caller.user,
                                    PodsOfUser(arbiter.pods(), caller.user->uid, *pod), **pod,
                                    *changed, (*pod)->gpus.size()));
  }
  BATON_TAKE(set, arbiter.lifecycle().SetPod(**pod, *changed));
  return PodJson(**pod);
}

Result<json> DescribePod(Arbiter& arbiter, Request& request, const Caller& caller) {
  BATON_TAKE(pod, NamedPod(arbiter, request, caller));
  BATON_TAKE(finished, request.Finish());
  // Asked by who is about to run a program there.
  const Vgpus& vgpus = arbiter.vgpus();
  std::string trouble = vgpus.WhyUnreserved((*pod)->id);
  for (size_t i = 0; i < (*pod)->gpus.size() && trouble.empty(); ++i) {
    const devmgr::Card* card = vgpus.cards().Find((*pod)->gpus[i]);
    if (card != nullptr && card->health != devmgr::Health::kHealthy) {
      trouble = fmt::format("{} cannot be used: {}", card->uuid,
                            card->why.empty() ? "it is missing" : card->why);
    } else if ((*pod)->has_devices() && (*pod)->vgpus[i].device.empty()) {
      trouble = fmt::format("its {} device on {} is missing; the log says why", (*pod)->mode,
                            (*pod)->gpus[i]);
    }
  }
  if (!trouble.empty()) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("pod {} cannot run now: {}", (*pod)->name, trouble));
  }
  return PodAnswer(arbiter, **pod);
}

// A pod that is only asked about has no name that another may have.
Result<uint32_t> Suppose(Arbiter& arbiter, Pod& pod, const std::string& node) {
  if (pod.name.empty() || arbiter.pods().FindByName(pod.name) != nullptr) {
    pod.name = "this pod";
    while (arbiter.pods().FindByName(pod.name) != nullptr) pod.name += '.';
  }
  arbiter.lifecycle().CountTaken();
  return arbiter.lifecycle().Resolve(pod, pod.count, node);
}

Result<json> ExplainPlacement(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(wanted, request.WholePod());
  BATON_TAKE(count, Suppose(arbiter, *wanted, node));
  BATON_TAKE(late, WithoutLatency(arbiter.GpusOf(node), arbiter.pods(), *wanted));
  std::vector<std::string>& not_gpus = wanted->wishes.not_gpus;
  not_gpus.insert(not_gpus.end(), late->begin(), late->end());
  BATON_TAKE(explanation, arbiter.vgpus().Explain(*wanted, *count, node));
  return ExplanationJson(arbiter.vgpus(), *explanation);
}

Result<Vgpus::Defragmentation> BeginDefrag(Arbiter& arbiter, Request& request,
                                           const std::string& node) {
  BATON_TAKE(moves, request.Whole("moves", 4, 1, devmgr::DefragOptions::kMovesMax));
  BATON_TAKE(wanted, request.WholePod());
  BATON_TAKE(count, Suppose(arbiter, *wanted, node));
  return arbiter.vgpus().Defrag(*wanted, *count, node, static_cast<uint32_t>(*moves));
}

// What the operator offers, and how many of each there is room for now: one of them at a step, for
// that looks at all GPUs.
class FlavorsSteps {
 public:
  FlavorsSteps(Arbiter& arbiter, const spec::Flavors& flavors, std::string node)
      : arbiter_(arbiter), left_(flavors), node_(std::move(node)) {}

  // True: that was the last one.
  bool GoOn() {
    if (left_.empty()) return true;
    const auto next = left_.begin();
    arbiter_.lifecycle().CountTaken();
    json row = spec::FieldsOf(next->second);
    row["name"] = next->first;
    row["fit"] = arbiter_.vgpus().HowManyFit(next->second, node_);
    rows_.push_back(std::move(row));
    left_.erase(next);
    return left_.empty();
  }
  json Take() { return {{"flavors", std::move(rows_)}}; }

 private:
  Arbiter& arbiter_;
  spec::Flavors left_;
  const std::string node_;
  json rows_ = json::array();
};

Result<json> Cordon(Arbiter& arbiter, Request& request, const std::string& node, bool cordoned) {
  BATON_TAKE(gpus, request.Texts("gpus"));
  BATON_TAKE(finished, request.Finish());
  if (gpus->size() != 1) return Fail(ErrorCode::kInvalid, "gpus must list one GPU");
  BATON_TAKE(uuid, arbiter.Cordon(gpus->front(), node, cordoned));
  return json{{"gpu", *uuid}};
}

Result<json> Release(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(gpus, request.Texts("gpus"));
  BATON_TAKE(finished, request.Finish());
  if (gpus->size() != 1) return Fail(ErrorCode::kInvalid, "gpus must list one GPU");
  BATON_TAKE(released, arbiter.Release(gpus->front(), node));
  return json{{"gpu", gpus->front()}};
}

// So many virtual GPUs a node has for measuring.
constexpr int64_t kBenchGpusMax = 64;

// Throw-away: it is there at once.
Result<json> BenchTicket(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(number, request.Whole("gpu", 0, 0, kBenchGpusMax - 1));
  BATON_TAKE(finished, request.Finish());
  size_t present = 0;
  for (const auto& [id, pod] : arbiter.pods().all()) present += pod.throw_away ? 1 : 0;
  if (present >= 256) {
    return Fail(ErrorCode::kExhausted, "256 tickets for measuring are in use; use those first");
  }
  Pod pod;
  pod.name = "bench-" + RandomTicket().substr(0, 12);
  pod.share = *spec::ShareFrom(policy::kWhole / 2, policy::kWhole, policy::Priority::kNormal);
  pod.gpus = {
      arbiter.ThrowAwayGpu(node == "*" ? "" : node, static_cast<size_t>(*number)).info.uuid};
  pod.throw_away = true;
  Result<json> answer = json::object();
  arbiter.lifecycle().CreatePod(std::move(pod), 1, node, [&answer](const Result<Pod*>& made) {
    if (made) {
      answer = PodJson(**made);
    } else {
      answer = tl::unexpected(made.error());
    }
  });
  return answer;
}

// What a user may ask who has no right but user.sock. The rest is the operator's.
bool IsForUsers(std::string_view command) {
  static constexpr std::array kCommands{
      "create_pod",  "delete_pod", "set_pod", "pod",    "vgpus",  "flavors", "create_lease",
      "renew_lease", "end_lease",  "lease",   "leases", "status", "ping",    "explain_placement"};
  return FindReport(command) != nullptr ||
         std::find(kCommands.begin(), kCommands.end(), command) != kCommands.end();
}

std::string Text(const json& answer) {
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Write(Result<json> result) {
  if (!result) return Text(Failure(result.error()));
  (*result)["ok"] = true;
  return Text(*result);
}

// What is made in steps is an object without its end.
node::LongAnswer Good(node::LongAnswer answer) {
  answer.Add(",\"ok\":true}");
  return answer;
}

// Those that may be answered later. False: it is none of them.
bool HandleSlow(Arbiter& arbiter, const spec::UsersOptions& users, const std::string& command,
                Request& request, const Caller& caller, const Control::Respond& respond) {
  const std::string& node = caller.node;
  const auto done = [respond](const Result<void>& result) {
    respond(Write(result ? Result<json>(json::object()) : tl::unexpected(result.error())));
  };
  const auto refuse = [&](const Error& error) {
    respond(Write(tl::unexpected(error)));
    return true;
  };
  if (command == "create_pod") {
    auto wanted = request.WholePod();
    if (!wanted) return refuse(wanted.error());
    if (caller.user) {
      auto own = spec::AsUser(users, *caller.user,
                              PodsOfUser(arbiter.pods(), caller.user->uid, nullptr), *wanted);
      if (!own) return refuse(own.error());
      static_cast<spec::PodRequest&>(*wanted) = std::move(*own);
    }
    const uint32_t count = wanted->count;
    arbiter.lifecycle().CreatePod(std::move(*wanted), count, node,
                                  [&arbiter, respond](const Result<Pod*>& made) {
                                    respond(Write(made ? Result<json>(PodAnswer(arbiter, **made))
                                                       : tl::unexpected(made.error())));
                                  });
    return true;
  }
  if (command == "delete_pod" || command == "move_pod") {
    auto pod = NamedPod(arbiter, request, caller);
    if (!pod) return refuse(pod.error());
    std::vector<std::string> gpus;
    if (command == "move_pod") {
      auto named = request.Texts("gpus");
      if (!named) return refuse(named.error());
      gpus = std::move(*named);
    }
    if (auto finished = request.Finish(); !finished) return refuse(finished.error());
    if (command == "delete_pod") {
      arbiter.lifecycle().DeletePod(**pod, done);
    } else {
      arbiter.lifecycle().MovePod(**pod, gpus, node, done);
    }
    return true;
  }
  if (command == "defrag") {
    auto work = BeginDefrag(arbiter, request, node);
    if (!work) return refuse(work.error());
    DeviceMaker* maker = arbiter.lifecycle().maker();
    if (maker == nullptr) return refuse({ErrorCode::kUnavailable, "no devices can be made now"});
    maker->Run([&arbiter, respond, work = std::move(*work)]() -> std::function<void()> {
      return [&arbiter, respond, plan = work()] {
        respond(
            Write(plan ? Result<json>(PlanJson(arbiter, *plan)) : tl::unexpected(plan.error())));
      };
    });
    return true;
  }
  return false;
}

// By user.sock the kernel says it. By control.sock it is root, or whom root lets: the login that
// they came from says who that is.
std::string NameOf(const Caller& caller) {
  if (caller.user) return caller.user->name;
  if (caller.node != "*") return "node " + caller.node;
  const auto login =
      ReadFile(fmt::format("/proc/{}/loginuid", caller.peer.pid), 64).value_or(std::string());
  uint32_t uid = caller.peer.uid;
  const auto read = std::from_chars(login.data(), login.data() + login.size(), uid);
  if (read.ec != std::errc() || uid == UINT32_MAX) uid = caller.peer.uid;
  return uid == 0 ? "root" : fmt::format("uid {}", uid);
}

// What a pod is, for people who look back. Null: it is not there.
json Described(const Pod* pod) {
  if (pod == nullptr) return nullptr;
  json fields = PublicFields(*pod);
  if (!pod->gpus.empty()) fields["gpus"] = pod->gpus;
  return fields;
}

std::string PathOf(const Pod& pod) {
  return pod.name_space.empty() ? pod.name : pod.name_space + "/" + pod.name;
}

}  // namespace

Control::Control(boost::asio::io_context& io, Arbiter& arbiter, Leases& leases, node::EventLog& log,
                 Books* books, const spec::UsersOptions& users, const spec::Flavors& flavors,
                 std::function<DaemonStatus()> daemon)
    : arbiter_(arbiter),
      leases_(leases),
      log_(log),
      books_(books),
      users_(users),
      flavors_(flavors),
      daemon_(std::move(daemon)),
      slices_(io, kSlicesPart) {
  if (books_ == nullptr) return;
  leases_.OnChange([this](const Pod& pod, const Caller* who, bool begins) {
    ledger::Change change;
    change.who = who == nullptr ? "batond" : NameOf(*who);
    change.action = begins ? "create" : "delete";
    change.kind = "pod";
    change.object = PathOf(pod);
    const json is = Described(&pod);
    const bool of_user = pod.uid > 0 && (who == nullptr || who->user);
    books_->Record(std::move(change), begins ? json() : is, begins ? is : json(),
                   of_user ? static_cast<uint32_t>(pod.uid) : 0);
  });
}

void Control::ApplyConfiguredPods(const std::vector<config::ConfiguredPod>& configured) {
  arbiter_.lifecycle().ApplyConfiguredPods(configured, [this](const Pod& pod) {
    if (books_ == nullptr) return;
    ledger::Change change;
    change.who = ledger::kConfiguration;
    change.action = "create";
    change.kind = "pod";
    change.object = PathOf(pod);
    books_->Record(std::move(change), json(), Described(&pod), 0);
  });
}

bool Control::HandleLease(const std::string& command, Request& request, const Caller& caller,
                          const Respond& respond) {
  const auto refuse = [&](const Error& error) {
    respond(Write(tl::unexpected(error)));
    return true;
  };
  const auto answer = [respond](Result<json> said) { respond(Write(std::move(said))); };
  if (command == "leases") {
    if (auto finished = request.Finish(); !finished) return refuse(finished.error());
    answer(leases_.List(caller.node));
    return true;
  }
  if (command == "create_lease") {
    const auto term = request.Whole("seconds", 0, 1, Leases::kTermMax);
    if (!term) return refuse(term.error());
    if (*term == 0) return refuse({ErrorCode::kInvalid, "seconds says for how long: 1 to 86400"});
    const auto queue = request.Flag("queue", true);
    if (!queue) return refuse(queue.error());
    auto pod = request.WholePod();
    if (!pod) return refuse(pod.error());
    const auto term_s = static_cast<uint32_t>(*term);
    leases_.Create(*pod, caller, term_s, *queue,
                   [respond, cost = leases_.Cost(*pod, term_s, caller.node)](Result<json> said) {
                     if (said) return respond(Write(std::move(said)));
                     json refused = Failure(said.error());
                     refused["state"] = "refused";
                     refused.update(cost);
                     respond(Text(refused));
                   });
    return true;
  }
  if (command != "lease" && command != "renew_lease" && command != "end_lease") return false;
  const auto id = request.Text("lease", "");
  if (!id) return refuse(id.error());
  const auto wait = command == "lease" ? request.Whole("wait", 0, 0, Leases::kWaitMax) : 0;
  if (!wait) return refuse(wait.error());
  const auto term = command == "renew_lease" ? request.Whole("seconds", 0, 1, Leases::kTermMax) : 0;
  if (!term) return refuse(term.error());
  if (auto finished = request.Finish(); !finished) return refuse(finished.error());
  if (command == "lease") {
    leases_.Tell(*id, caller, std::chrono::seconds(*wait), answer);
  } else if (command == "renew_lease") {
    answer(leases_.Renew(*id, caller, static_cast<uint32_t>(*term)));
  } else {
    leases_.End(*id, caller, answer);
  }
  return true;
}

Control::Respond Control::WriteDown(const std::string& command, const json& request,
                                    const Caller& caller, Respond respond) {
  static constexpr std::pair<std::string_view, std::string_view> kActions[] = {
      {"create_pod", "create"}, {"delete_pod", "delete"}, {"set_pod", "set"},
      {"move_pod", "move"},     {"cordon", "cordon"},     {"uncordon", "uncordon"},
      {"release", "release"}};
  const auto action = std::find_if(std::begin(kActions), std::end(kActions),
                                   [&](const auto& one) { return one.first == command; });
  if (books_ == nullptr || action == std::end(kActions)) return respond;
  ledger::Change change;
  change.who = NameOf(caller);
  change.action = action->second;
  change.kind = command.ends_with("_pod") ? "pod" : "gpu";
  json was;
  std::string name;
  if (change.kind == "pod" && command != "create_pod" && request.contains("name") &&
      request.at("name").is_string()) {
    name = request.at("name");
    const Pod* pod = arbiter_.pods().FindByName(name);
    was = Described(pod);
    if (pod != nullptr) change.object = PathOf(*pod);
  }
  const uint32_t rationed = caller.user ? caller.user->uid : 0;
  return [this, change = std::move(change), was = std::move(was), name = std::move(name), rationed,
          respond = std::move(respond)](node::LongAnswer answer) mutable {
    const json said = json::parse(answer.Whole(), nullptr, false);
    if (said.is_object() && said.value("ok", false)) {
      json is;
      if (change.kind == "gpu") {
        change.object = said.value("gpu", "");
      } else if (change.action != "delete") {
        if (change.action == "create") name = said.value("name", "");
        const Pod* pod = arbiter_.pods().FindByName(name);
        is = Described(pod);
        if (pod != nullptr) change.object = PathOf(*pod);
      }
      if (was != is || change.kind == "gpu") books_->Record(std::move(change), was, is, rationed);
    }
    respond(std::move(answer));
  };
}

void Control::TellStatus(const std::string& node, const Respond& respond) {
  std::vector<Respond>& asked = asked_[node];
  asked.push_back(respond);
  if (asked.size() > 1) return;
  struct Work {
    std::optional<StatusSteps> steps;
    std::vector<Respond> asked;
  };
  slices_.Add([this, node, work = std::make_shared<Work>()] {
    if (!work->steps) {
      work->asked = std::move(asked_.at(node));
      asked_.erase(node);
      work->steps.emplace(arbiter_, log_, daemon_(), node);
      return false;
    }
    if (!work->steps->GoOn(kPodsOfAnswerAtOnce)) return false;
    node::LongAnswer answer = Good(work->steps->Take());
    for (size_t i = 1; i < work->asked.size(); ++i) work->asked[i](answer);
    work->asked[0](std::move(answer));
    return true;
  });
}

void Control::HandleOfUser(const std::string& line, uint32_t uid, const Respond& respond) {
  DeviceMaker* maker = arbiter_.lifecycle().maker();
  if (maker == nullptr) return Handle(line, {.node = "*", .user = LookUpUser(uid)}, respond);
  maker->Run([this, line, uid, respond]() -> std::function<void()> {
    return [this, line, respond, user = LookUpUser(uid)] {
      Handle(line, {.node = "*", .user = user}, respond);
    };
  });
}

void Control::Handle(const std::string& line, const Caller& caller, const Respond& respond) {
  const std::string& node = caller.node;
  // A request is from somebody who may set, yet not trusted to be well formed.
  if (!JsonNestsWithin(line, kDepthMax)) {
    return respond(Write(
        Fail(ErrorCode::kInvalid,
             fmt::format("lists and objects may lie in each other {} deep at most", kDepthMax))));
  }
  json object = json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("command") || !object.at("command").is_string()) {
    return respond(Write(Fail(
        ErrorCode::kInvalid, "write one JSON object per line, such as {\"command\": \"status\"}")));
  }
  const std::string command = object.at("command");
  if (caller.user && !IsForUsers(command)) {
    return respond(
        Write(Fail(ErrorCode::kDenied, fmt::format("{} is the operator's to say; run it with sudo",
                                                   command.substr(0, 64)))));
  }
  if (FindReport(command) != nullptr) {
    if (books_ == nullptr) {
      return respond(
          Write(Fail(ErrorCode::kUnavailable, "there is no ledger: ledger.database is \"none\"")));
    }
    if (node != "*") {
      return respond(Write(
          Fail(ErrorCode::kDenied, "the ledger is that of all nodes; use batond's own socket")));
    }
    return books_->Ask(object,
                       [respond](Result<json> answer) { respond(Write(std::move(answer))); });
  }
  auto filled = spec::FillIn(flavors_, std::move(object));
  if (!filled) return respond(Write(tl::unexpected(filled.error())));
  object = std::move(*filled);
  Request request(object);
  Result<json> result = json::object();
  const Respond told = WriteDown(command, object, caller, respond);
  if (HandleSlow(arbiter_, users_, command, request, caller, told)) return;
  if (HandleLease(command, request, caller, respond)) return;
  if (command == "pod") {
    result = DescribePod(arbiter_, request, caller);
  } else if (command == "vgpus") {
    const auto finished = request.Finish();
    if (!finished) return respond(Write(tl::unexpected(finished.error())));
    return slices_.Add([work = std::make_shared<VgpusSteps>(arbiter_, node), respond] {
      if (!work->GoOn(kPodsOfAnswerAtOnce)) return false;
      respond(Good(work->Take()));
      return true;
    });
  } else if (command == "explain_placement") {
    result = ExplainPlacement(arbiter_, request, node);
  } else if (command == "flavors") {
    const auto finished = request.Finish();
    if (!finished) return respond(Write(tl::unexpected(finished.error())));
    return slices_.Add([work = std::make_shared<FlavorsSteps>(arbiter_, flavors_, node), respond] {
      if (!work->GoOn()) return false;
      respond(Write(work->Take()));
      return true;
    });
  } else if (command == "cordon" || command == "uncordon") {
    result = Cordon(arbiter_, request, node, command == "cordon");
  } else if (command == "release") {
    result = Release(arbiter_, request, node);
  } else if (command == "set_pod") {
    result = SetPod(arbiter_, users_, request, caller);
  } else if (command == "status") {
    return TellStatus(node, respond);
  } else if (command == "bench_ticket") {
    result = BenchTicket(arbiter_, request, node);
  } else if (command == "ping") {
    const DaemonStatus daemon = daemon_();
    result = json{{"version", daemon.version},
                  {"mode", daemon.mode == config::Mode::kObserve ? "observe" : "enforce"}};
  } else {
    std::string known =
        "create_pod, delete_pod, set_pod, move_pod, pod, create_lease, renew_lease, end_lease, "
        "lease, leases, vgpus, flavors, explain_placement, defrag, cordon, uncordon, status, "
        "bench_ticket, ping";
    for (const Report& report : Reports()) known += fmt::format(", {}", report.name);
    result = Fail(ErrorCode::kInvalid,
                  fmt::format("unknown command {}; there are {}", command.substr(0, 64), known));
  }
  told(Write(std::move(result)));
}

}  // namespace baton::backend
