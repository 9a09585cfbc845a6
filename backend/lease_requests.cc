#include "backend/lease_requests.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/nesting.h"

namespace baton::backend {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kLeases = "/api/v1/leases";
constexpr size_t kBodyDepthMax = 16;  // of lists and objects in each other

tl::unexpected<net::HttpResponse> Refuse(int status, std::string_view why) {
  const ErrorCode code = status == 404 ? ErrorCode::kNotFound : ErrorCode::kInvalid;
  return tl::unexpected(net::ErrorResponse(status, code, why));
}

tl::unexpected<net::HttpResponse> NotAllowed(const char* methods) {
  net::HttpResponse response = net::ErrorResponse(
      405, ErrorCode::kInvalid, fmt::format("the method is not allowed here; use {}", methods));
  response.fields.emplace_back("Allow", methods);
  return tl::unexpected(std::move(response));
}

// The fields of the body; none where there is none.
tl::expected<Json, net::HttpResponse> FieldsOf(const net::HttpRequest& request) {
  if (request.body.empty()) return Json::object();
  Json fields;
  if (JsonNestsWithin(request.body, kBodyDepthMax))
    fields = Json::parse(request.body, nullptr, false);
  if (!fields.is_object()) {
    return Refuse(400, R"(the body must be a JSON object, such as {"request": 40, "seconds": 60})");
  }
  for (const char* ours : {"command", "lease"}) {
    if (fields.contains(ours)) {
      return Refuse(400, fmt::format("'{}' is no field of the body; method and path say it", ours));
    }
  }
  return fields;
}

tl::expected<Json, net::HttpResponse> Command(const net::HttpRequest& request) {
  const std::string_view path = request.path;
  if (!path.starts_with(kLeases) || (path.size() > kLeases.size() && path[kLeases.size()] != '/')) {
    return Refuse(404, fmt::format("there are {} and {}/ID on this socket; batond's page and its "
                                   "API are at the address of [http] listen",
                                   kLeases, kLeases));
  }
  const std::string id(path.substr(std::min(path.size(), kLeases.size() + 1)));
  const std::string& method = request.method;
  for (const auto& [name, value] : request.query) {
    if (name != "wait" || method != "GET" || id.empty()) {
      return Refuse(400, fmt::format("there is no parameter {} here", name));
    }
  }
  if (id.empty()) {
    if (method == "GET") return Json{{"command", "leases"}};
    if (method != "POST") return NotAllowed("GET, POST");
  } else if (method == "DELETE") {
    return Json{{"command", "end_lease"}, {"lease", id}};
  } else if (method == "GET") {
    Json command{{"command", "lease"}, {"lease", id}};
    if (const auto wait = request.query.find("wait"); wait != request.query.end()) {
      const std::string& text = wait->second;
      uint64_t seconds = 0;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
      if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
        return Refuse(400, "wait must be a number of seconds, 0 to 60");
      }
      command["wait"] = seconds;
    }
    return command;
  } else if (method != "PUT") {
    return NotAllowed("GET, PUT, DELETE");
  }
  auto fields = FieldsOf(request);
  if (!fields) return fields;
  (*fields)["command"] = id.empty() ? "create_lease" : "renew_lease";
  if (!id.empty()) (*fields)["lease"] = id;
  return fields;
}

}  // namespace

tl::expected<std::string, net::HttpResponse> LeaseCommand(const net::HttpRequest& request) {
  auto command = Command(request);
  if (!command) return tl::unexpected(std::move(command.error()));
  return command->dump(-1, ' ', false, Json::error_handler_t::replace);
}

net::HttpResponse LeaseResponse(const net::HttpRequest& request, std::string answer) {
  net::HttpResponse response;
  const Json said = Json::parse(answer, nullptr, false);
  response.body = std::move(answer) + '\n';
  if (!said.is_object()) {
    response.status = 500;
  } else if (!said.value("ok", false)) {
    const ErrorCode code = ErrorCodeNamed(said.value("code", ""));
    response.status = net::ErrorResponse(Error{code, ""}).status;
  } else if (request.method == "POST") {
    const std::string state = said.value("state", "");
    response.status = state == "queued" ? 202 : 201;
    response.fields.emplace_back("Location",
                                 fmt::format("{}/{}", kLeases, said.value("lease", "")));
  }
  return response;
}

}  // namespace baton::backend
