#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tests/k8s/stand_in/api_server_impl.h"

namespace baton::k8s::testing {

// Needs the lock.
void ApiServer::Impl::Understand(Asked& asked) {
  std::vector<std::string> parts;
  for (size_t at = 1; at <= asked.path.size();) {
    const size_t end = std::min(asked.path.find('/', at), asked.path.size());
    if (end > at) parts.push_back(Decoded(asked.path.substr(at, end - at), false));
    at = end + 1;
  }
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    asked.group = parts[1];
    at = 3;
  } else {
    asked.verb = "get";
    return;
  }
  if (parts[at] == "namespaces" && parts.size() > at + 2 && parts[at + 2] != "status" &&
      parts[at + 2] != "finalize") {
    asked.name_space = parts[at + 1];
    at += 2;
  }
  asked.kind = store_.Find(asked.group, parts[at]);
  if (parts.size() > at + 1) asked.name = parts[at + 1];
  if (parts.size() > at + 2) asked.subresource = parts[at + 2];
  const std::string watch = asked.Query("watch");
  asked.verb = asked.method == "GET"      ? (!asked.name.empty()               ? "get"
                                             : watch == "1" || watch == "true" ? "watch"
                                                                               : "list")
               : asked.method == "POST"   ? "create"
               : asked.method == "PUT"    ? "update"
               : asked.method == "DELETE" ? "delete"
               : asked.method == "PATCH"
                   ? (asked.type.find("apply-patch") != std::string::npos ? "apply" : "patch")
                   : "unknown";
  ++counts_[asked.verb + " " + parts[at] +
            (asked.subresource.empty() ? "" : "/" + asked.subresource)];
  if (asked.verb == "list" && asked.query.contains("resourceVersion")) {
    ++counts_["cached list " + parts[at]];
  }
}

// Needs the lock.
Reply ApiServer::Impl::Do(const Asked& asked) {
  if (asked.kind == nullptr) return Discover(asked);
  Kind& kind = *asked.kind;
  const ObjectName name{kind.resource.namespaced ? asked.name_space : std::string(), asked.name};
  if (asked.verb == "list") return ListOf(asked);
  if (asked.verb == "get") {
    const auto at = kind.objects.find(name);
    if (at == kind.objects.end()) {
      return Failure(404, "NotFound",
                     fmt::format("{} \"{}\" not found", kind.resource.plural, asked.name));
    }
    return {200, at->second->text};
  }
  Json body = asked.body.empty() ? Json::object() : Json::parse(asked.body, nullptr, false);
  if (body.is_discarded()) return Failure(400, "BadRequest", "the body is no JSON");
  if (asked.verb == "create") {
    const bool pod = kind.resource.kind == "Pod";
    if (pod && asked.subresource == "binding") return store_.Bind(kind, name, body);
    if (pod && asked.subresource == "eviction")
      return store_.Evict(kind, name, body, asked.dry_run());
    if (!asked.name.empty()) {
      return Failure(405, "MethodNotAllowed", "the server does not allow this method here");
    }
    return store_.Create(kind, asked.name_space, std::move(body), asked.dry_run());
  }
  if (asked.name.empty()) {
    return Failure(405, "MethodNotAllowed", "the server does not allow this method here");
  }
  if (asked.verb == "update") {
    return store_.Update(kind, name, std::move(body), asked.subresource, asked.dry_run());
  }
  if (asked.verb == "delete") {
    if (const std::string grace = asked.Query("gracePeriodSeconds"); !grace.empty()) {
      body["gracePeriodSeconds"] = std::atoll(grace.c_str());
    }
    return store_.Delete(kind, name, body, asked.dry_run());
  }
  if (asked.verb == "patch" || asked.verb == "apply") {
    return store_.Patch(kind, name, asked.type.substr(0, asked.type.find(';')), body,
                        asked.subresource, asked.Query("fieldManager"), asked.dry_run());
  }
  return Failure(405, "MethodNotAllowed", "the server does not allow this method here");
}

// Needs the lock.
Reply ApiServer::Impl::ListOf(const Asked& asked) {
  Kind& kind = *asked.kind;
  const auto labels = ParseLabelSelector(asked.Query("labelSelector"));
  const auto fields = ParseFieldSelector(asked.Query("fieldSelector"), kind.resource);
  if (!labels || !fields) return Failure(400, "BadRequest", "unable to parse the selector");
  Pages pages;
  if (const std::string token = asked.Query("continue"); !token.empty()) {
    const auto at = pages_.find(token);
    if (at == pages_.end() || at->second.version < kind.floor) {
      return Failure(410, "Expired", "The provided continue parameter is too old");
    }
    pages = at->second;
  } else {
    pages.version = store_.version();
    for (const auto& [name, object] : kind.objects) {
      if ((!kind.resource.namespaced || asked.name_space.empty() ||
           name.name_space == asked.name_space) &&
          (*labels)(object->json) && (*fields)(object->json)) {
        pages.objects.push_back(object);
      }
    }
  }
  const size_t limit = std::strtoull(asked.Query("limit").c_str(), nullptr, 10);
  const size_t end =
      limit == 0 ? pages.objects.size() : std::min(pages.objects.size(), pages.next + limit);
  std::string items;
  for (size_t i = pages.next; i < end; ++i) {
    if (!items.empty()) items += ',';
    items += pages.objects[i]->text;
  }
  std::string more;
  if (end < pages.objects.size()) {
    const std::string token = fmt::format("page-{}", ++page_serial_);
    more = fmt::format(R"(,"continue":"{}","remainingItemCount":{})", token,
                       pages.objects.size() - end);
    pages.next = end;
    if (pages_.size() > 100) pages_.clear();
    pages_[token] = std::move(pages);
  }
  return {
      200,
      fmt::format(
          R"({{"kind":"{}List","apiVersion":"{}","metadata":{{"resourceVersion":"{}"{}}},"items":[{}]}})",
          kind.resource.kind, kind.resource.ApiVersion(), pages.version, more, items)};
}

// Needs the lock.
Reply ApiServer::Impl::Discover(const Asked& asked) {
  std::string path = asked.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/version") {
    return {200, R"({"major":"1","minor":"32","gitVersion":"v1.32.0-stand-in"})"};
  }
  if (path == "/healthz" || path == "/livez" || path == "/readyz") return {200, "ok"};
  if (path == "/api") return {200, R"({"kind":"APIVersions","versions":["v1"]})"};
  std::map<std::string, std::string> groups;
  for (const auto& [name, kind] : store_.kinds()) {
    if (kind->served && !kind->resource.group.empty()) {
      groups[kind->resource.group] = kind->resource.version;
    }
  }
  const auto group_of = [](const std::string& group, const std::string& version) {
    const Json one{{"groupVersion", group + "/" + version}, {"version", version}};
    return Json{{"name", group}, {"versions", Json::array({one})}, {"preferredVersion", one}};
  };
  if (path == "/apis") {
    Json list{{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", Json::array()}};
    for (const auto& [group, version] : groups) list["groups"].push_back(group_of(group, version));
    return {200, list.dump()};
  }
  for (const auto& [group, version] : groups) {
    if (path == "/apis/" + group) {
      Json one = group_of(group, version);
      one["kind"] = "APIGroup";
      one["apiVersion"] = "v1";
      return {200, one.dump()};
    }
  }
  Json list{{"kind", "APIResourceList"}, {"apiVersion", "v1"}, {"resources", Json::array()}};
  for (const auto& [name, kind] : store_.kinds()) {
    const Resource& resource = kind->resource;
    const std::string prefix = resource.group.empty() ? "/api/" : "/apis/";
    if (!kind->served || path != prefix + resource.ApiVersion()) continue;
    list["groupVersion"] = resource.ApiVersion();
    std::string singular = resource.kind;
    std::transform(singular.begin(), singular.end(), singular.begin(), ::tolower);
    const Json one{{"name", resource.plural},
                   {"singularName", singular},
                   {"namespaced", resource.namespaced},
                   {"kind", resource.kind},
                   {"verbs", {"create", "delete", "get", "list", "patch", "update", "watch"}}};
    list["resources"].push_back(one);
    if (kind->status) {
      Json status = one;
      status["name"] = resource.plural + "/status";
      status["verbs"] = {"get", "patch", "update"};
      list["resources"].push_back(status);
    }
  }
  if (!list["resources"].empty()) return {200, list.dump()};
  return Failure(404, "NotFound", "the server could not find the requested resource");
}

}  // namespace baton::k8s::testing
