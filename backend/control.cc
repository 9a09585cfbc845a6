#include "backend/control.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/books.h"
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

Result<json> CreatePod(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(name, request.Text("name", ""));
  BATON_TAKE(ask, request.Share("request"));
  BATON_TAKE(limit, request.Share("limit"));
  BATON_TAKE(memory, request.Bytes("memory"));
  BATON_TAKE(priority_name, request.Text("priority", "low"));
  BATON_TAKE(team, request.Text("team", ""));
  BATON_TAKE(user, request.Text("user", ""));
  BATON_TAKE(name_space, request.Text("namespace", ""));
  BATON_TAKE(gpus, request.Texts("gpus"));
  BATON_TAKE(count, request.Whole("count", 1, 1, wire::kGpusMax));
  BATON_TAKE(uid, request.Whole("uid", -1, -1, 0xffffffff));
  BATON_TAKE(independent, request.Flag("independent"));
  BATON_TAKE(finished, request.Finish());
  BATON_TAKE(priority, ParsePriority(*priority_name));
  BATON_TAKE(share, ShareFrom(*ask, *limit, *priority));
  Pod pod;
  pod.name = *name;
  pod.share = *share;
  pod.memory_cap = *memory;
  pod.team = *team;
  pod.user = *user;
  pod.name_space = *name_space;
  pod.gpus = *gpus;
  pod.uid = *uid;
  pod.independent = *independent;
  BATON_TAKE(made, arbiter.CreatePod(std::move(pod), static_cast<uint32_t>(*count), node));
  return PodJson(**made);
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
  BATON_TAKE(memory, request.Bytes("memory"));
  BATON_TAKE(priority_name, request.Text("priority", "low"));
  BATON_TAKE(team, request.Text("team", ""));
  BATON_TAKE(finished, request.Finish());
  BATON_TAKE(priority, ParsePriority(*priority_name));
  Arbiter::PodChange change;
  change.request = *ask;
  change.limit = *limit;
  if (request.Has("memory")) change.memory_cap = &*memory;
  if (request.Has("priority")) change.priority = &*priority;
  if (request.Has("team")) change.team = &*team;
  BATON_TAKE(set, arbiter.SetPod(**pod, change));
  return PodJson(**pod);
}

Result<json> DeletePod(Arbiter& arbiter, Request& request, const std::string& node) {
  BATON_TAKE(pod, NamedPod(arbiter, request, node));
  BATON_TAKE(finished, request.Finish());
  BATON_TAKE(deleted, arbiter.DeletePod(**pod));
  return json::object();
}

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
  BATON_TAKE(made, arbiter.CreatePod(std::move(pod), 1, node));
  return PodJson(**made);
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
  if (command == "create_pod") {
    result = CreatePod(arbiter_, request, node);
  } else if (command == "delete_pod") {
    result = DeletePod(arbiter_, request, node);
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
                              "status, bench_ticket, ping, report, standing, explain and advise",
                              command.substr(0, 64)));
  }
  respond(Write(std::move(result)));
}

}  // namespace baton::backend
