#include "spec/pod_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "base/suggest.h"
#include "base/team_path.h"
#include "spec/modes.h"

namespace baton::spec {
namespace {

constexpr size_t kWordMax = 128;
constexpr size_t kPathMax = 256;

tl::unexpected<Error> Bad(std::string what) { return Fail(ErrorCode::kInvalid, std::move(what)); }

template <class T>
Result<void> Put(Result<T> value, T& to) {
  if (!value) return tl::unexpected(value.error());
  to = std::move(*value);
  return {};
}

// A percentage, as a number or as text with or without "%".
Result<policy::Share> ReadShare(const Json& value) {
  if (value.is_string()) return policy::ParsePercent(value.get_ref<const std::string&>());
  if (!value.is_number()) return Bad("must be a percentage");
  return policy::ParsePercent(fmt::format("{:.10g}", value.get<double>()));
}

using policy::Percent;

template <policy::Share policy::ShareSpec::*kWhich>
PodField::Special ShareRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            const auto share = ReadShare(value);
            if (!share) return tl::unexpected(share.error());
            request.share.*kWhich = *share;
            return {};
          },
          [](const PodRequest& request) -> Json {
            const policy::Share share = request.share.*kWhich;
            return share == policy::Share(0) ? Json() : Json(Percent(share));
          }};
}

Result<int64_t> ReadWhole(const Json& value, int64_t min, int64_t max) {
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX;
  if (!value.is_number_integer() || huge || value.get<int64_t>() < min ||
      value.get<int64_t>() > max) {
    return Bad(fmt::format("must be a whole number from {} to {}", min, max));
  }
  return value.get<int64_t>();
}

PodField::Special MemoryRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            request.memory_cap = 0;
            request.memory_part = policy::Share(0);
            if (value.is_string() && value.get_ref<const std::string&>().ends_with('%')) {
              const auto part = ReadShare(value);
              if (!part) return tl::unexpected(part.error());
              request.memory_part = *part;
              return {};
            }
            if (value.is_string()) {
              const auto bytes = ParseBytes(value.get_ref<const std::string&>());
              if (!bytes) return tl::unexpected(bytes.error());
              request.memory_cap = *bytes;
              return {};
            }
            const auto bytes = ReadWhole(value, 0, int64_t{1} << 60);
            if (!bytes) return tl::unexpected(bytes.error());
            request.memory_cap = static_cast<uint64_t>(*bytes);
            return {};
          },
          [](const PodRequest& request) -> Json {
            if (request.memory_cap != 0) return request.memory_cap;
            if (request.memory_part == policy::Share(0)) return {};
            return fmt::format("{}%", Percent(request.memory_part));
          }};
}

PodField::Special PriorityRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            if (!value.is_string()) return Bad("must be \"normal\", \"high\" or \"idle\"");
            const auto priority = ParsePriority(value.get_ref<const std::string&>());
            if (!priority) return tl::unexpected(priority.error());
            request.share.priority = *priority;
            return {};
          },
          [](const PodRequest& request) -> Json { return PriorityName(request.share.priority); }};
}

// Whole microseconds, so that what is written is what was read.
PodField::Special LatencyRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            const bool none = value == Json(0) || value == Json("none");
            if (!none && !value.is_string()) {
              return Bad("must be a time with a unit, such as \"20ms\"");
            }
            const auto latency =
                none ? Duration(0) : ParseDuration(value.get_ref<const std::string&>());
            if (!latency) return tl::unexpected(latency.error());
            if (*latency != Duration(0) &&
                (*latency < policy::kLatencyMin || *latency > policy::kLatencyMax)) {
              return Bad("must be from 1ms to 10s, or none");
            }
            request.share.latency = std::chrono::duration_cast<std::chrono::microseconds>(*latency);
            return {};
          },
          [](const PodRequest& request) -> Json {
            const Duration latency = request.share.latency;
            if (latency == Duration(0)) return {};
            const std::string text = FormatDuration(latency);
            if (ParseDuration(text) == latency) return text;
            return fmt::format("{}us", Nanos(latency) / 1'000);
          }};
}

// A number of things; 0: not said.
template <uint32_t PodRequest::*kWhich, uint32_t kMax>
PodField::Special CountRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            const auto count = ReadWhole(value, 1, kMax);
            if (!count) return tl::unexpected(count.error());
            request.*kWhich = static_cast<uint32_t>(*count);
            return {};
          },
          [](const PodRequest& request) -> Json {
            return request.*kWhich == 0 ? Json() : Json(request.*kWhich);
          }};
}

PodField::Special MemoryRequestRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            if (value.is_string())
              return Put(ParseBytes(value.get_ref<const std::string&>()), request.memory_request);
            const auto bytes = ReadWhole(value, 0, int64_t{1} << 60);
            if (!bytes) return tl::unexpected(bytes.error());
            request.memory_request = static_cast<uint64_t>(*bytes);
            return {};
          },
          [](const PodRequest& request) -> Json {
            return request.memory_request == 0 ? Json() : Json(request.memory_request);
          }};
}

// Yes, or not said.
template <bool PodRequest::*kWhich>
PodField::Special FlagRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            if (!value.is_boolean() && value != Json("true") && value != Json("false")) {
              return Bad("must be true or false");
            }
            request.*kWhich = value == Json(true) || value == Json("true");
            return {};
          },
          [](const PodRequest& request) -> Json { return request.*kWhich ? Json(true) : Json(); }};
}

PodField::Special UidRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            const auto uid = ReadWhole(value, -1, 0xffffffff);
            if (!uid) return tl::unexpected(uid.error());
            request.uid = *uid;
            return {};
          },
          [](const PodRequest& request) -> Json {
            return request.uid == -1 ? Json() : Json(request.uid);
          }};
}

PodField::Special TicketRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            const std::string ticket = value.is_string() ? value.get<std::string>() : "";
            const bool printable = std::all_of(ticket.begin(), ticket.end(),
                                               [](char c) { return c > 0x20 && c < 0x7f; });
            if (ticket.empty() || ticket.size() > kTicketMax || !printable) {
              return Bad("must be 1 to 64 printable characters without spaces");
            }
            request.ticket = ticket;
            return {};
          },
          [](const PodRequest& request) -> Json {
            return request.ticket.empty() ? Json() : Json(request.ticket);
          }};
}

PodField::Special AskedAtRow() {
  return {[](const Json& value, PodRequest& request) -> Result<void> {
            const auto at = ReadWhole(value, 0, 0xffffffff);
            if (!at) return tl::unexpected(at.error());
            request.asked_at = *at;
            return {};
          },
          [](const PodRequest& request) -> Json {
            return request.asked_at == 0 ? Json() : Json(request.asked_at);
          }};
}

// "time-slice (by the token), mig (by instances that the hardware divides), ...".
std::string ModesInWords() {
  std::string words;
  for (const Mode& mode : kModes) {
    words += fmt::format("{}{} ({})", words.empty() ? "" : ", ", mode.name, mode.meaning);
  }
  return words;
}

const std::array<PodField, 31>& Table() {
  static const std::string kModeNames = fmt::format("{}, {}", ModeNames(), kAuto);
  static const std::string kModeAbout =
      "How the GPU is shared: " + ModesInWords() +
      ", auto (one of the first two, where there is room); default: on Kubernetes time-slice, "
      "unless the operator says auto; elsewhere auto";
  static const std::array<PodField, 31> kTable{{
      {"name", "", "NAME", false, "", "", "How users call the pod", kWordMax, &PodRequest::name},
      {"flavor", "--flavor", "NAME", true, "flavor", "flavor",
       "Named size that the operator offers (baton flavors): what is not said of request, limit "
       "and "
       "memory",
       kWordMax, &PodRequest::flavor},
      {"request", "--request", "PERCENT", true, "request", "request",
       "Guaranteed share of the GPU while the pod has work, 0.1 to 100", 0,
       ShareRow<&policy::ShareSpec::request>()},
      {"limit", "--limit", "PERCENT", true, "limit", "limit",
       "Share that is never exceeded, from the request to 100", 0,
       ShareRow<&policy::ShareSpec::limit>()},
      {"memory", "--memory", "BYTES|PERCENT%", true, "memory", "memory",
       "Memory cap on each GPU, in bytes or in percent of its memory; 0: none", 0, MemoryRow()},
      {"swap", "--swap", "", false, "swap", "swap",
       "Memory above the request may be moved to the host while others need the room", 0,
       FlagRow<&PodRequest::swap>()},
      {"memory_request",
       "--memory-request",
       "BYTES",
       true,
       "memory-request",
       "memoryRequest",
       "With swap: memory that is always there for the pod; default: none",
       0,
       MemoryRequestRow(),
       {},
       "On Kubernetes each container that asks for a GPU has that much, and it is what the pod "
       "takes "
       "of a GPU's memory where it is placed."},
      {"priority", "--priority", "normal|high|idle", true, "priority", "priority",
       "high: before the others, within the requests of all; idle: without a request, while no "
       "other "
       "pod of the GPU has work",
       0, PriorityRow(), "normal, low, high, idle",
       "It does not affect placement and preempts no pod; priorityClassName does. low is the old "
       "name of normal. An idle pod's request (1 will do) is the room that it takes on a GPU, and "
       "gives it no time."},
      {"latency",
       "--latency",
       "TIME",
       true,
       "latency",
       "latency",
       "Within its request the pod begins so soon after it asks, 1ms to 10s; none: whenever its "
       "share comes",
       0,
       LatencyRow(),
       {},
       "For pods that share one GPU by the token, and have a request."},
      {"team", "--team", "PATH", true, "team", "team", "Team that pays, such as research/vision",
       kPathMax, &PodRequest::team},
      {"user", "--user", "NAME", false, "user", "user", "User in reports", kPathMax,
       &PodRequest::user},
      {"namespace", "--namespace", "NAME", false, "", "", "Namespace in reports", kPathMax,
       &PodRequest::name_space},
      {"gpus", "--gpu", "UUID|INDEX", false, "gpu-uuid", "uuid",
       "GPU to use; default: the best fit (see baton explain placement)", kWordMax,
       &CardWishes::gpus, "", "On Kubernetes by uuid."},
      {"not_gpus", "--not-gpu", "UUID|INDEX", false, "not-gpu-uuid", "notUuid", "GPU not to use",
       kWordMax, &CardWishes::not_gpus, "", "On Kubernetes by uuid."},
      {"node_policy", "--node-policy", "binpack|spread", false, "node-policy", "nodePolicy",
       "Node to use among those that have room: binpack: the fullest, spread: the emptiest; "
       "default: as the operator configured",
       kWordMax, &CardWishes::node_policy, "binpack, spread", "", "binpack, spread"},
      {"gpu_policy", "--gpu-policy", "binpack|spread", false, "gpu-policy", "gpuPolicy",
       "GPU of the node to use, likewise: binpack leaves other GPUs empty, spread has fewer pods "
       "beside it",
       kWordMax, &CardWishes::gpu_policy, "binpack, spread", "", "binpack, spread"},
      {"count", "--count", "N", false, "", "",
       "Number of GPUs, 1 to 16; default: as many as --gpu names, or one", 0,
       CountRow<&PodRequest::count, kGpusMax>()},
      {"mode", "--mode", "MODE", false, "mode", "mode", kModeAbout, kWordMax, &CardWishes::mode,
       kModeNames, "", kModeNames},
      {"models", "--model", "MODEL", false, "model", "model",
       "Allowed GPU model, by words of its name (a100 80gb)", kWordMax, &CardWishes::models},
      {"not_models", "--not-model", "MODEL", false, "not-model", "notModel", "Excluded GPU model",
       kWordMax, &CardWishes::not_models},
      {"affinity", "--affinity", "WORD", false, "affinity", "affinity",
       "Use GPUs that have a pod with the same word, once there is one", kWordMax,
       &CardWishes::affinity},
      {"anti_affinity", "--anti-affinity", "WORD", false, "anti-affinity", "antiAffinity",
       "Use no GPU that has a pod with the same word", kWordMax, &CardWishes::anti_affinity},
      {"exclusion", "--exclusion", "WORD", false, "exclusion", "exclusion",
       "Use no GPU that has pods with another word, or without one", kWordMax,
       &CardWishes::exclusion},
      {"independent", "--independent", "", false, "", "",
       "Its processes never wait for each other across GPUs: grant each GPU's token by itself; "
       "default: the tokens of all its GPUs or none",
       0, FlagRow<&PodRequest::independent>()},
      {"gang", "--gang", "NAME", false, "", "",
       "Pods of the same gang have their tokens at the same time, for their processes wait for "
       "each "
       "other; each has GPUs of its own, unless --gpu or --affinity says otherwise",
       kPathMax, &PodRequest::gang},
      {"gang_size", "--gang-size", "N", false, "", "",
       "Number of pods of the gang: none of them launches before all are there; default: nobody is "
       "waited for",
       0, CountRow<&PodRequest::gang_size, kGangMax>()},
      {"uid", "", "UID", false, "", "", "Whose processes may attach; -1: anybody's", 0, UidRow()},
      {"cgroup", "", "UID", false, "", "",
       "Uid of the Kubernetes pod whose processes may attach; none: any", kWordMax,
       &PodRequest::cgroup},
      {"ticket", "", "TEXT", false, "", "",
       "What processes attach by, 1 to 64 characters; default: drawn at random", 0, TicketRow()},
      {"without_hook", "--without-hook", "", false, "", "",
       "With mode exclusive: programs run without the hook; all of the pod's time counts as held",
       0, FlagRow<&PodRequest::without_hook>()},
      {"asked_at", "", "SECONDS", false, "", "",
       "When it was asked for, since 1970, where it waited before it was made", 0, AskedAtRow()},
  }};
  return kTable;
}

// `list`: "a, b".
bool IsListed(std::string_view word, std::string_view list) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(", "), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 2, list.size()));
  }
  return false;
}

// Whole numbers too: the indexes of GPUs.
Result<std::vector<std::string>> ReadTexts(const Json& value, size_t bytes_max) {
  const auto bad = [bytes_max] {
    return Bad(
        fmt::format("must be a list of at most {} texts of 1 to {} bytes", kListMax, bytes_max));
  };
  if (!value.is_array() || value.size() > kListMax) return bad();
  std::vector<std::string> texts;
  for (const Json& entry : value) {
    if (entry.is_string()) {
      texts.push_back(entry.get<std::string>());
    } else if (entry.is_number_integer() && entry >= 0) {
      texts.push_back(entry.dump());
    } else {
      return bad();
    }
    if (texts.back().empty() || texts.back().size() > bytes_max) return bad();
  }
  return texts;
}

Result<std::string> ReadText(const PodField& field, const Json& value) {
  if (!value.is_string()) return Bad("must be text");
  auto text = value.get<std::string>();
  if (text.size() > field.bytes_max) {
    return Bad(fmt::format("must have at most {} bytes", field.bytes_max));
  }
  if (!text.empty() && !field.values.empty() && !IsListed(text, field.values)) {
    return Bad(fmt::format("'{}' is none of {}", text, field.values));
  }
  return text;
}

Result<void> ReadPlace(const PodField& field, const Json& value, PodRequest& request) {
  if (const auto* text = std::get_if<std::string PodRequest::*>(&field.place)) {
    auto put = Put(ReadText(field, value), request.**text);
    // One spelling for budgets, limits and reports.
    if (put && *text == &PodRequest::team) request.team = TeamPath(request.team);
    return put;
  }
  if (const auto* text = std::get_if<std::string CardWishes::*>(&field.place)) {
    auto put = Put(ReadText(field, value), request.wishes.**text);
    // To leave the choice open is to wish for nothing.
    if (put && request.wishes.mode == kAuto) request.wishes.mode.clear();
    return put;
  }
  if (const auto* texts = std::get_if<std::vector<std::string> CardWishes::*>(&field.place)) {
    return Put(ReadTexts(value, field.bytes_max), request.wishes.**texts);
  }
  return std::get<PodField::Special>(field.place).read(value, request);
}

tl::unexpected<Error> NoField(const std::string& key) {
  std::vector<std::string> keys;
  for (const PodField& field : PodFields()) keys.emplace_back(field.key);
  const std::string near = Nearest(key, keys);
  return Bad(fmt::format("a pod has no field {}{}", key.substr(0, 64),
                         near.empty() ? "" : "; did you mean '" + near + "'?"));
}

}  // namespace

std::span<const PodField> PodFields() { return Table(); }

const PodField* FindPodField(std::string_view key) {
  for (const PodField& field : PodFields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

Result<void> ReadField(const PodField& field, const Json& value, PodRequest& request) {
  auto read = ReadPlace(field, value, request);
  if (read) return read;
  const std::string& why = read.error().message;
  // "count must be ...", "request: '130' is not ..."
  return Bad(fmt::format("{}{}{}", field.key, why.starts_with("must ") ? " " : ": ", why));
}

Json WriteField(const PodField& field, const PodRequest& request) {
  const auto text = [](const std::string& said) { return said.empty() ? Json() : Json(said); };
  if (const auto* at = std::get_if<std::string PodRequest::*>(&field.place)) {
    return text(request.**at);
  }
  if (const auto* at = std::get_if<std::string CardWishes::*>(&field.place)) {
    return text(request.wishes.**at);
  }
  if (const auto* at = std::get_if<std::vector<std::string> CardWishes::*>(&field.place)) {
    return (request.wishes.**at).empty() ? Json() : Json(request.wishes.**at);
  }
  return std::get<PodField::Special>(field.place).write(request);
}

Result<void> ReadFields(const Json& object, PodRequest& request, std::string_view skip) {
  for (const auto& [key, value] : object.items()) {
    if (key == skip) continue;
    const PodField* field = FindPodField(key);
    if (field == nullptr) return NoField(key);
    if (value.is_null()) continue;
    if (auto read = ReadField(*field, value, request); !read) return read;
  }
  return {};
}

Json WriteFields(const PodRequest& request) {
  Json object = Json::object();
  for (const PodField& field : PodFields()) {
    if (Json value = WriteField(field, request); !value.is_null()) object[field.key] = value;
  }
  return object;
}

Result<void> Complete(PodRequest& request) {
  if (request.gang_size != 0 && request.gang.empty()) {
    return Bad("a gang's size needs the gang's name: set gang");
  }
  if (request.without_hook && request.wishes.mode != kExclusive) {
    return Bad(fmt::format("a pod without the hook needs mode {}", kExclusive));
  }
  policy::ShareSpec& share = request.share;
  if (share.priority == policy::Priority::kIdle) {
    if (share.limit == policy::Share(0)) share.limit = policy::kWhole;
    share.slack_weight = 0;
    return Put(policy::Validated(share), share);
  }
  if (share.request == policy::Share(0) && share.limit == policy::Share(0)) {
    return Bad("a pod needs a request or a limit, in percent of a GPU");
  }
  if (share.request == policy::Share(0)) share.request = share.limit;
  if (share.limit == policy::Share(0)) share.limit = policy::kWhole;
  share.slack_weight = 0;
  return Put(policy::Validated(share), share);
}

Result<void> CheckSwap(const PodRequest& request) {
  if (!request.swap) {
    if (request.memory_request == 0) return {};
    return Bad(
        "a memory request needs swap; a pod without swap has all of its memory cap reserved");
  }
  const CardWishes& wishes = request.wishes;
  if (!wishes.mode.empty() && wishes.mode != kTimeSlice) {
    return Bad(
        fmt::format("swap needs mode {}, where memory can move between two tokens", kTimeSlice));
  }
  if (request.count > 1 || (request.count == 0 && wishes.gpus.size() > 1) ||
      !request.gang.empty()) {
    return Bad("a pod with swap has one GPU and is in no gang");
  }
  if (request.memory_part != policy::Share(0)) {
    return Bad("with swap the memory cap is in bytes, such as 12GiB, not in percent");
  }
  if (request.memory_cap != 0 && request.memory_request > request.memory_cap) {
    return Bad("the memory request is above the memory cap");
  }
  return {};
}

Result<void> CheckShare(const policy::ShareSpec& share, std::string_view mode, bool gang) {
  const bool idle = share.priority == policy::Priority::kIdle;
  const std::string what = idle ? "idle priority" : "a latency";
  if (!idle && share.latency == Duration(0)) return {};
  if (!mode.empty() && mode != kTimeSlice) {
    return Bad(
        fmt::format("{} needs mode {}, where GPUs are shared by the token", what, kTimeSlice));
  }
  if (!gang) return {};
  return Bad(
      fmt::format("a pod {} is in no gang, and has one GPU or several that are --independent: {}",
                  idle ? "of idle priority" : "with a latency",
                  idle ? "the tokens of all at once would keep GPUs from those who have work"
                       : "the tokens of all at once come when the last of them is free"));
}

Result<PodRequest> Changed(const PodRequest& was, const Json& change) {
  PodRequest now = was;
  for (const auto& [key, value] : change.items()) {
    const PodField* field = FindPodField(key);
    if (field == nullptr) return NoField(key);
    if (!field->changes && !value.is_null()) {
      return Bad(
          fmt::format("{} cannot change while the pod exists; delete it and create it again", key));
    }
  }
  if (auto read = ReadFields(change, now); !read) return tl::unexpected(read.error());
  const bool strict = was.share.limit == was.share.request;
  const auto said = [&change](const char* key) {
    return change.contains(key) && !change.at(key).is_null();
  };
  if (strict && said("request") && !said("limit")) {
    now.share.limit = std::max(now.share.limit, now.share.request);
  }
  // Who becomes idle gives its request up, and gets none back by itself.
  if (now.share.priority == policy::Priority::kIdle) {
    if (!said("request")) now.share.request = policy::Share(0);
  } else if (was.share.priority == policy::Priority::kIdle && !said("request")) {
    return Bad("a pod that was idle has no request; give it one");
  }
  if (auto complete = Complete(now); !complete) return tl::unexpected(complete.error());
  return now;
}

Result<policy::Priority> ParsePriority(std::string_view text) {
  if (text == "normal" || text == "low") return policy::Priority::kNormal;
  if (text == "high") return policy::Priority::kHigh;
  if (text == "idle") return policy::Priority::kIdle;
  return Bad(fmt::format("'{}' is no priority; write normal, high or idle", text.substr(0, 64)));
}

const char* PriorityName(policy::Priority priority) {
  return priority == policy::Priority::kNormal ? "low" : PriorityWord(priority);
}

const char* PriorityWord(policy::Priority priority) {
  switch (priority) {
    case policy::Priority::kNormal:
      break;
    case policy::Priority::kHigh:
      return "high";
    case policy::Priority::kIdle:
      return "idle";
  }
  return "normal";
}

Result<policy::ShareSpec> ShareFrom(policy::Share request, policy::Share limit,
                                    policy::Priority priority) {
  PodRequest pod;
  pod.share = {.request = request, .limit = limit, .priority = priority};
  if (auto complete = Complete(pod); !complete) return tl::unexpected(complete.error());
  return pod.share;
}

}  // namespace baton::spec
