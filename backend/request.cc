#include "backend/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "node/pod_cgroup.h"
#include "wire/messages.h"

namespace baton::backend {
namespace {

using nlohmann::json;

tl::unexpected<Error> BadField(const char* key, const char* what) {
  return Fail(ErrorCode::kInvalid, fmt::format("{} must be {}", key, what));
}

}  // namespace

Result<std::string> Request::Text(const char* key, const std::string& absent) {
  const json* field = Get(key);
  if (field == nullptr) return absent;
  if (!field->is_string()) return BadField(key, "text");
  return field->get<std::string>();
}

Result<bool> Request::Flag(const char* key, bool absent) {
  const json* field = Get(key);
  if (field == nullptr) return absent;
  if (!field->is_boolean()) return BadField(key, "true or false");
  return field->get<bool>();
}

Result<int64_t> Request::Whole(const char* key, int64_t absent, int64_t min, int64_t max) {
  const json* field = Get(key);
  if (field == nullptr) return absent;
  if (!field->is_number_integer()) return BadField(key, "a whole number");
  const auto out = [&] { return BadField(key, fmt::format("from {} to {}", min, max).c_str()); };
  if (field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(max)) {
    return out();
  }
  const auto value = field->get<int64_t>();
  if (value < min || value > max) return out();
  return value;
}

Result<std::vector<std::string>> Request::Texts(const char* key) {
  std::vector<std::string> texts;
  const json* field = Get(key);
  if (field == nullptr) return texts;
  if (!field->is_array() || field->size() > wire::kGpusMax) {
    return BadField(key, "a list of at most 64 uuids or indexes");
  }
  for (const json& entry : *field) {
    if (entry.is_string()) {
      texts.push_back(entry.get<std::string>());
    } else if (entry.is_number_unsigned()) {
      texts.push_back(std::to_string(entry.get<uint64_t>()));
    } else {
      return BadField(key, "a list of uuids or indexes");
    }
  }
  return texts;
}

Result<spec::PodRequest> Request::Pod() {
  spec::PodRequest asked;
  for (const spec::PodField& field : spec::PodFields()) {
    const json* value = Get(field.key);
    if (value == nullptr) continue;
    if (auto read = spec::ReadField(field, *value, asked); !read) {
      return tl::unexpected(read.error());
    }
  }
  if (!asked.cgroup.empty() && !node::IsKubernetesUid(asked.cgroup)) {
    return Fail(ErrorCode::kInvalid,
                "cgroup must be the uid of a Kubernetes pod: 1 to 64 letters, digits and dashes");
  }
  if (auto complete = spec::Complete(asked); !complete) return tl::unexpected(complete.error());
  return asked;
}

Result<backend::Pod> Request::WholePod() {
  auto asked = Pod();
  if (!asked) return tl::unexpected(asked.error());
  backend::Pod pod;
  if (const json* slots = Get("slots")) {
    const bool good = slots->is_array() && slots->size() <= spec::kGpusMax &&
                      std::all_of(slots->begin(), slots->end(), [](const json& slot) {
                        return slot.is_number_unsigned() && slot.get<uint64_t>() <= UINT32_MAX;
                      });
    if (!good) return BadField("slots", "a list of numbers, one for each of the GPUs in gpus");
    pod.slots = slots->get<std::vector<uint32_t>>();
  }
  if (auto finished = Finish(); !finished) return tl::unexpected(finished.error());
  static_cast<spec::PodRequest&>(pod) = std::move(*asked);
  return pod;
}

json Request::Rest() const {
  json rest = object_;
  rest.erase("command");
  for (const std::string& key : known_) rest.erase(key);
  return rest;
}

bool Request::Has(std::string_view key) const {
  return object_.contains(key) && !object_.at(std::string(key)).is_null();
}

Result<void> Request::Finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (key != "command" && known_.count(key) == 0) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("this command has no field {}", key.substr(0, 64)));
    }
  }
  return {};
}

const json* Request::Get(std::string_view key) {
  known_.emplace(key);
  return Has(key) ? &object_.at(std::string(key)) : nullptr;
}

}  // namespace baton::backend
