#include "spec/flavors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/suggest.h"

namespace baton::spec {
namespace {

constexpr std::string_view kSizes[] = {"request", "limit", "memory"};

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

Result<void> AddFlavor(Flavors& flavors, std::string_view name, const Json& fields) {
  const auto bad = [&](const std::string& why) {
    return Fail(ErrorCode::kInvalid, fmt::format("flavor {}: {}", name.substr(0, 64), why));
  };
  if (!IsName(name)) return bad("a name has 1 to 63 letters, digits, '-', '_' and '.'");
  if (!fields.is_object()) return bad("write such as {request = 10, memory = \"4GiB\"}");
  if (flavors.size() >= kFlavorsMax) return bad(fmt::format("at most {}", kFlavorsMax));
  PodRequest flavor;
  for (const auto& [key, value] : fields.items()) {
    if (std::find(std::begin(kSizes), std::end(kSizes), key) == std::end(kSizes)) {
      return bad(
          fmt::format("it has no {}; a flavor has request, limit and memory", key.substr(0, 64)));
    }
    if (auto read = ReadField(*FindPodField(key), value, flavor); !read) {
      return bad(read.error().message);
    }
  }
  if (auto complete = Complete(flavor); !complete) return bad(complete.error().message);
  if (!flavors.emplace(name, std::move(flavor)).second) return bad("it is listed twice");
  return {};
}

Json FieldsOf(const PodRequest& flavor) {
  Json fields = Json::object();
  for (const std::string_view key : kSizes) {
    if (Json value = WriteField(*FindPodField(key), flavor); !value.is_null()) {
      fields[std::string(key)] = std::move(value);
    }
  }
  return fields;
}

Result<const PodRequest*> FindFlavor(const Flavors& flavors, std::string_view name) {
  const auto found = flavors.find(name);
  if (found != flavors.end()) return &found->second;
  const std::string what = fmt::format("there is no flavor '{}'", name.substr(0, 64));
  if (flavors.empty()) return Fail(ErrorCode::kNotFound, what + ": the operator offers none");
  std::vector<std::string> names;
  for (const auto& entry : flavors) names.push_back(entry.first);
  const std::string near = Nearest(std::string(name), names);
  return Fail(ErrorCode::kNotFound,
              near.empty() ? fmt::format("{}; there are {}", what, fmt::join(names, ", "))
                           : fmt::format("{}; did you mean '{}'?", what, near));
}

Result<Json> FillIn(const Flavors& flavors, Json fields) {
  const auto named = fields.is_object() ? fields.find("flavor") : fields.end();
  if (!fields.is_object() || named == fields.end()) return fields;
  if (!named->is_null() && !named->is_string()) {
    return Fail(ErrorCode::kInvalid, "flavor must be text");
  }
  const std::string name = named->is_null() ? "" : named->get<std::string>();
  fields.erase("flavor");
  if (name.empty()) return fields;
  const auto flavor = FindFlavor(flavors, name);
  if (!flavor) return tl::unexpected(flavor.error());
  const bool idle = fields.value("priority", Json()) == Json("idle");
  const Json said = FieldsOf(**flavor);
  for (const auto& [key, value] : said.items()) {
    if (key == "request" && idle) continue;  // such a pod has none
    Json& field = fields[key];
    if (field.is_null()) field = value;
  }
  return fields;
}

}  // namespace baton::spec
