#include "backend/control.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/books.h"
#include "backend/pod_cgroup.h"
#include "backend/status.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

using nlohmann::json;

json Failure(const Error& error) {
  return {{"ok", false}, {"error", error.message}, {"code", ErrorCodeName(error.code)}};
}

// Reads the fields of a request and refuses those it was not asked for.
class Request {
 public:
  explicit Request(const json& object) : object_(object) {}

  Result<std::string> Text(const char* key, const std::string& absent) {
    const json* field = Get(key);
    if (field == nullptr) return absent;
    if (!field->is_string()) return Bad(key, "text");
    return field->get<std::string>();
  }
  Result<int64_t> Whole(const char* key, int64_t absent, int64_t min, int64_t max) {
    const json* field = Get(key);
    if (field == nullptr) return absent;
    if (!field->is_number_integer()) return Bad(key, "a whole number");
    if (field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(max)) {
      return Bad(key, fmt::format("from {} to {}", min, max).c_str());
    }
    const auto value = field->get<int64_t>();
    if (value < min || value > max) return Bad(key, fmt::format("from {} to {}", min, max).c_str());
    return value;
  }
  // A percentage as number or text; 0 when absent.
  Result<policy::Share> Share(const char* key) {
    const json* field = Get(key);
    if (field == nullptr) return policy::Share{0};
    if (!field->is_number() && !field->is_string()) return Bad(key, "a percentage");
    auto share = ParsePercent(field->is_string() ? field->get<std::string>()
                                                 : fmt::format("{:.10g}", field->get<double>()));
    if (!share) return Fail(share.error().code, fmt::format("{}: {}", key, share.error().message));
    return share;
  }
  // Bytes as number or text.
  Result<uint64_t> Bytes(const char* key) {
    const json* field = Get(key);
    if (field == nullptr) return uint64_t{0};
    if (field->is_string()) return ParseBytes(field->get<std::string>());
    auto bytes = Whole(key, 0, 0, int64_t{1} << 60);
    if (!bytes) return tl::unexpected(bytes.error());
    return static_cast<uint64_t>(*bytes);
  }
  // False when absent.
  Result<bool> Flag(const char* key) {
    const json* field = Get(key);
    if (field == nullptr) return false;
    if (!field->is_boolean()) return Bad(key, "true or false");
    return field->get<bool>();
  }
  Result<std::vector<std::string>> Texts(const char* key) {
    std::vector<std::string> texts;
    const json* field = Get(key);
    if (field == nullptr) return texts;
    if (!field->is_array() || field->size() > wire::kGpusMax) {
      return Bad(key, "a list of at most 64 uuids or indexes");
    }
    for (const json& entry : *field) {
      if (entry.is_string()) {
        texts.push_back(entry.get<std::string>());
      } else if (entry.is_number_unsigned()) {
        texts.push_back(std::to_string(entry.get<uint64_t>()));
      } else {
        return Bad(key, "a list of uuids or indexes");
      }
    }
    return texts;
  }
  // A cap on memory: bytes, or a part of each GPU's: "25%".
  struct Memory {
    uint64_t bytes = 0;
    policy::Share part = 0;
  };
  Result<Memory> Cap(const char* key) {
    const json* field = Get(key);
    if (field != nullptr && field->is_string()) {
      const auto& text = field->get_ref<const std::string&>();
      if (!text.empty() && text.back() == '%') {
        const auto part = Share(key);
        if (!part) return tl::unexpected(part.error());
        return Memory{0, *part};
      }
    }
    const auto bytes = Bytes(key);
    if (!bytes) return tl::unexpected(bytes.error());
    return Memory{*bytes, 0};
  }
  // A few short words, such as models.
  Result<std::vector<std::string>> Words(const char* key) {
    std::vector<std::string> words;
    const json* field = Get(key);
    if (field == nullptr) return words;
    const auto bad = [&] { return Bad(key, "a list of at most 64 texts of 1 to 128 bytes"); };
    if (!field->is_array() || field->size() > 64) return bad();
    for (const json& entry : *field) {
      if (!entry.is_string()) return bad();
      words.push_back(entry.get<std::string>());
      if (words.back().empty() || words.back().size() > 128) return bad();
    }
    return words;
  }
  Result<std::string> Word(const char* key) {
    auto word = Text(key, "");
    if (word && word->size() > 128) return Bad(key, "at most 128 bytes");
    return word;
  }
  // Empty when absent: one is drawn.
  Result<std::string> Ticket(const char* key) {
    auto ticket = Text(key, "");
    if (!ticket || !Has(key)) return ticket;
    const bool printable =
        std::all_of(ticket->begin(), ticket->end(), [](char c) { return c > 0x20 && c < 0x7f; });
    if (ticket->empty() || ticket->size() > decltype(wire::Hello::ticket)::kCapacity ||
        !printable) {
      return Bad(key, "1 to 64 printable characters without spaces");
    }
    return ticket;
  }
  bool Has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  // After every field was read: one that is left over is a mistake of the caller's.
  Result<void> Finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (key != "command" && known_.count(key) == 0) {
        return Fail(ErrorCode::kInvalid,
                    fmt::format("this command has no field {}", key.substr(0, 64)));
      }
    }
    return {};
  }

 private:
  const json* Get(const char* key) {
    known_.insert(key);
    return Has(key) ? &object_.at(key) : nullptr;
  }
  static tl::unexpected<Error> Bad(const char* key, const char* what) {
    return Fail(ErrorCode::kInvalid, fmt::format("{} must be {}", key, what));
  }
  const json& object_;
  std::set<std::string> known_;
};

#define BATON_TAKE(variable, expression) \
  auto variable = (expression);          \
  if (!variable) return tl::unexpected(variable.error())

// A pod as it is asked for.
struct Wanted {
  Pod pod;
  uint32_t count = 0;  // 0: not said
};

Result<Wanted> ReadPod(Request& request) {
  BATON_TAKE(name, request.Text("name", ""));
  BATON_TAKE(ask, request.Share("request"));
  BATON_TAKE(limit, request.Share("limit"));
  BATON_TAKE(memory, request.Cap("memory"));
  BATON_TAKE(priority_name, request.Text("priority", "low"));
  BATON_TAKE(team, request.Text("team", ""));
  BATON_TAKE(user, request.Text("user", ""));
  BATON_TAKE(name_space, request.Text("namespace", ""));
  BATON_TAKE(gpus, request.Texts("gpus"));
  BATON_TAKE(count, request.Whole("count", 0, 1, devmgr::VgpuRequest::kCardsMax));
  BATON_TAKE(uid, request.Whole("uid", -1, -1, 0xffffffff));
  BATON_TAKE(cgroup, request.Text("cgroup", ""));
  BATON_TAKE(ticket, request.Ticket("ticket"));
  BATON_TAKE(independent, request.Flag("independent"));
  BATON_TAKE(mode, request.Word("mode"));
  BATON_TAKE(models, request.Words("models"));
  BATON_TAKE(not_models, request.Words("not_models"));
  BATON_TAKE(affinity, request.Word("affinity"));
  BATON_TAKE(anti_affinity, request.Word("anti_affinity"));
  BATON_TAKE(exclusion, request.Word("exclusion"));
  if (!cgroup->empty() && !IsKubernetesUid(*cgroup)) {
    return Fail(ErrorCode::kInvalid,
                "cgroup must be the uid of a Kubernetes pod: 1 to 64 letters, digits and dashes");
  }
  BATON_TAKE(priority, ParsePriority(*priority_name));
  BATON_TAKE(share, ShareFrom(*ask, *limit, *priority));
  Wanted wanted;
  Pod& pod = wanted.pod;
  pod.name = *name;
  pod.share = *share;
  pod.memory_cap = memory->bytes;
  pod.memory_part = memory->part;
  pod.team = *team;
  pod.user = *user;
  pod.name_space = *name_space;
  pod.uid = *uid;
  pod.cgroup = *cgroup;
  pod.ticket = *ticket;
  pod.independent = *independent;
  pod.wishes = {*mode, *models, *not_models, *gpus, *affinity, *anti_affinity, *exclusion};
  wanted.count = static_cast<uint32_t>(*count);
  return wanted;
}

Result<Wanted> ReadWhole(Request& request) {
  auto wanted = ReadPod(request);
  if (!wanted) return wanted;
  BATON_TAKE(finished, request.Finish());
  return wanted;
}

Result<Pod*> NamedPod(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(name, request.Text("name", ""));
  Pod* pod = arbiter.pods().FindByName(*name);
  if (pod == nullptr || !arbiter.PodIsOn(*pod, node)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no pod {} here; 'baton status' lists them", *name));
  }
  return pod;
}

Result<json> SetPod(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(pod, NamedPod(arbiter, request, node));
  BATON_TAKE(ask, request.Share("request"));
  BATON_TAKE(limit, request.Share("limit"));
  BATON_TAKE(memory, request.Cap("memory"));
  BATON_TAKE(priority_name, request.Text("priority", "low"));
  BATON_TAKE(team, request.Text("team", ""));
  BATON_TAKE(finished, request.Finish());
  BATON_TAKE(priority, ParsePriority(*priority_name));
  Arbiter::PodChange change;
  change.request = *ask;
  change.limit = *limit;
  if (request.Has("memory")) change.memory_cap = &memory->bytes;
  change.memory_part = memory->part;
  if (request.Has("priority")) change.priority = &*priority;
  if (request.Has("team")) change.team = &*team;
  BATON_TAKE(set, arbiter.SetPod(**pod, change));
  return PodJson(**pod);
}

Result<json> DescribePod(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(pod, NamedPod(arbiter, request, node));
  BATON_TAKE(finished, request.Finish());
  // Asked by who is about to run a program there.
  const Vgpus& vgpus = arbiter.vgpus();
  std::string trouble = vgpus.WhyUnbooked((*pod)->id);
  for (size_t i = 0; i < (*pod)->gpus.size() && trouble.empty(); ++i) {
    const devmgr::Card* card = vgpus.CardOf((*pod)->gpus[i]);
    if (card != nullptr && card->health != devmgr::Health::kHealthy) {
      trouble = fmt::format("{} cannot be used: {}", card->uuid,
                            card->why.empty() ? "it is missing" : card->why);
    } else if (!(*pod)->by_token() && (*pod)->vgpus[i].device.empty()) {
      trouble = fmt::format("its {} device on {} is not there; the log says why", (*pod)->mode,
                            (*pod)->gpus[i]);
    }
  }
  if (!trouble.empty()) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("pod {} cannot run now: {}", (*pod)->name, trouble));
  }
  return PodAnswer(arbiter, **pod);
}

Result<json> ListVgpus(const Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(finished, request.Finish());
  return json{{"vgpus", VgpusJson(arbiter, node)}};
}

// A pod that is only asked about has no name that another may have.
Result<uint32_t> Suppose(Arbiter& arbiter, Wanted& wanted, const std::string& node) {
  if (wanted.pod.name.empty() || arbiter.pods().FindByName(wanted.pod.name) != nullptr) {
    wanted.pod.name = "this pod";
    while (arbiter.pods().FindByName(wanted.pod.name) != nullptr) wanted.pod.name += '.';
  }
  return arbiter.Resolve(wanted.pod, wanted.count, node);
}

Result<json> ExplainPlacement(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(wanted, ReadWhole(request));
  BATON_TAKE(count, Suppose(arbiter, *wanted, node));
  BATON_TAKE(explanation, arbiter.vgpus().Explain(wanted->pod, *count, node));
  return ExplanationJson(arbiter.vgpus(), *explanation);
}

Result<Vgpus::Defragmentation> BeginDefrag(Arbiter& arbiter, Request& request,
                                           const std::string& node) {
  BATON_TAKE(moves, request.Whole("moves", 4, 1, devmgr::DefragOptions::kMovesMax));
  BATON_TAKE(wanted, ReadWhole(request));
  BATON_TAKE(count, Suppose(arbiter, *wanted, node));
  return arbiter.vgpus().Defrag(wanted->pod, *count, node, static_cast<uint32_t>(*moves));
}

Result<json> Cordon(Arbiter& arbiter, Request& request, const std::string& node, bool cordoned) {
  BATON_TAKE(gpus, request.Texts("gpus"));
  BATON_TAKE(finished, request.Finish());
  if (gpus->size() != 1) return Fail(ErrorCode::kInvalid, "gpus must name one GPU");
  BATON_TAKE(uuid, arbiter.Cordon(gpus->front(), node, cordoned));
  return json{{"gpu", *uuid}};
}

// Throw-away: it is there at once.
Result<json> BenchTicket(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(finished, request.Finish());
  size_t present = 0;
  for (const auto& [id, pod] : arbiter.pods().all()) present += pod.throw_away ? 1 : 0;
  if (present >= 256) {
    return Fail(ErrorCode::kExhausted, "256 tickets for measuring are out; use those first");
  }
  Pod pod;
  pod.name = "bench-" + RandomTicket().substr(0, 12);
  pod.share = *ShareFrom(policy::kWhole / 2, policy::kWhole, policy::Priority::kLow);
  pod.gpus = {arbiter.ThrowAwayGpu(node == "*" ? "" : node).info.uuid};
  pod.throw_away = true;
  Result<json> answer = json::object();
  arbiter.CreatePod(std::move(pod), 1, node, [&answer](const Result<Pod*>& made) {
    if (made) {
      answer = PodJson(**made);
    } else {
      answer = tl::unexpected(made.error());
    }
  });
  return answer;
}

std::string Write(Result<json> result) {
  json answer;
  if (result) {
    answer = std::move(*result);
    answer["ok"] = true;
  } else {
    answer = Failure(result.error());
  }
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Those that may be answered later. False: it is none of them.
bool HandleSlow(Arbiter& arbiter, const std::string& command, Request& request,
                const std::string& node, const Control::Respond& respond) {
  const auto done = [respond](const Result<void>& result) {
    respond(Write(result ? Result<json>(json::object()) : tl::unexpected(result.error())));
  };
  const auto refuse = [&](const Error& error) {
    respond(Write(tl::unexpected(error)));
    return true;
  };
  if (command == "create_pod") {
    auto wanted = ReadWhole(request);
    if (!wanted) return refuse(wanted.error());
    arbiter.CreatePod(std::move(wanted->pod), wanted->count, node,
                      [&arbiter, respond](const Result<Pod*>& made) {
                        respond(Write(made ? Result<json>(PodAnswer(arbiter, **made))
                                           : tl::unexpected(made.error())));
                      });
    return true;
  }
  if (command == "delete_pod" || command == "move_pod") {
    auto pod = NamedPod(arbiter, request, node);
    if (!pod) return refuse(pod.error());
    std::vector<std::string> gpus;
    if (command == "move_pod") {
      auto named = request.Texts("gpus");
      if (!named) return refuse(named.error());
      gpus = std::move(*named);
    }
    if (auto finished = request.Finish(); !finished) return refuse(finished.error());
    if (command == "delete_pod") {
      arbiter.DeletePod(**pod, done);
    } else {
      arbiter.MovePod(**pod, gpus, node, done);
    }
    return true;
  }
  if (command == "defrag") {
    auto work = BeginDefrag(arbiter, request, node);
    if (!work) return refuse(work.error());
    if (arbiter.maker() == nullptr) return refuse({ErrorCode::kUnavailable, "not now"});
    arbiter.maker()->Run([&arbiter, respond, work = std::move(*work)]() -> std::function<void()> {
      return [&arbiter, respond, plan = work()] {
        respond(
            Write(plan ? Result<json>(PlanJson(arbiter, *plan)) : tl::unexpected(plan.error())));
      };
    });
    return true;
  }
  return false;
}

}  // namespace

void Control::Handle(const std::string& line, const std::string& node, const Respond& respond) {
  // A request is from somebody who may set, yet not trusted to be well formed.
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("command") || !object.at("command").is_string()) {
    return respond(Write(Fail(
        ErrorCode::kInvalid, "write one JSON object per line, such as {\"command\": \"status\"}")));
  }
  const std::string command = object.at("command");
  if (Books::Knows(command)) {
    if (books_ == nullptr) {
      return respond(Write(
          Fail(ErrorCode::kUnavailable, "batond keeps no books: ledger.database is \"none\"")));
    }
    if (node != "*") {
      return respond(Write(
          Fail(ErrorCode::kDenied, "the books are those of all nodes; ask batond's own socket")));
    }
    return books_->Ask(object,
                       [respond](Result<json> answer) { respond(Write(std::move(answer))); });
  }
  Request request(object);
  Result<json> result = json::object();
  if (HandleSlow(arbiter_, command, request, node, respond)) return;
  if (command == "pod") {
    result = DescribePod(arbiter_, request, node);
  } else if (command == "vgpus") {
    result = ListVgpus(arbiter_, request, node);
  } else if (command == "explain_placement") {
    result = ExplainPlacement(arbiter_, request, node);
  } else if (command == "cordon" || command == "uncordon") {
    result = Cordon(arbiter_, request, node, command == "cordon");
  } else if (command == "set_pod") {
    result = SetPod(arbiter_, request, node);
  } else if (command == "status") {
    result = StatusJson(arbiter_, log_, daemon_(), node);
  } else if (command == "bench_ticket") {
    result = BenchTicket(arbiter_, request, node);
  } else if (command == "ping") {
    const DaemonStatus daemon = daemon_();
    result = json{{"version", daemon.version},
                  {"mode", daemon.mode == Mode::kObserve ? "observe" : "enforce"}};
  } else {
    result = Fail(ErrorCode::kInvalid,
                  fmt::format("there is no command {}; there are create_pod, delete_pod, set_pod, "
                              "move_pod, pod, vgpus, explain_placement, defrag, cordon, uncordon, "
                              "status, bench_ticket, ping, report, standing, explain and advise",
                              command.substr(0, 64)));
  }
  respond(Write(std::move(result)));
}

}  // namespace baton::backend
