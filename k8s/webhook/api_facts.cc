#include "k8s/webhook/api_facts.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace baton::k8s {

ApiFacts::ApiFacts(Client& client) : client_(client) {
  ReflectorSink sink;
  sink.changed = [this](Json object) {
    const std::lock_guard lock(mutex_);
    namespaces_[TextAt(object, "metadata/name")] = std::move(object);
  };
  sink.gone = [this](const Json& object) {
    const std::lock_guard lock(mutex_);
    namespaces_.erase(TextAt(object, "metadata/name"));
  };
  sink.trouble = [](const std::string& why) { spdlog::warn("watching namespaces: {}", why); };
  watch_.emplace(client_, resources::kNamespaces, ReflectorOptions(), std::move(sink));
  ReflectorSink teams;
  teams.changed = [this](Json object) {
    const std::lock_guard lock(mutex_);
    teams_.Set(std::move(object));
    if (teams_listed_) teams_.Settle();
  };
  teams.gone = [this](const Json& object) {
    const std::lock_guard lock(mutex_);
    teams_.Remove(object);
    if (teams_listed_) teams_.Settle();
  };
  teams.synced = [this] {
    const std::lock_guard lock(mutex_);
    teams_listed_ = true;
    teams_.Settle();
  };
  teams.trouble = [](const std::string& why) { spdlog::warn("watching teams: {}", why); };
  team_watch_.emplace(client_, resources::kTeams, ReflectorOptions(), std::move(teams));
}

ApiFacts::~ApiFacts() {
  watch_.reset();
  team_watch_.reset();
}

Result<void> ApiFacts::AdmitEver(const devmgr::PodRequest& request) {
  const std::lock_guard lock(mutex_);
  return teams_.quotas().AdmitEver(request);
}

Result<Json> ApiFacts::Namespace(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = namespaces_.find(name);
    if (found != namespaces_.end()) return found->second;
  }
  auto object = client_.Get(resources::kNamespaces, {{}, name});
  if (!object) return Fail(ErrorCode::kUnavailable, object.error().message);
  return *std::move(object);
}

Result<Json> ApiFacts::PodGroup(const Resource& resource, const ObjectName& name) {
  auto object = client_.Get(resource, name);
  if (object) return *std::move(object);
  return Fail(object.error().not_found() ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
              object.error().message);
}

Result<std::vector<Json>> ApiFacts::List(const Resource& resource, const std::string& name_space) {
  ListOptions options;
  options.from_cache = true;
  auto list = client_.List(resource, name_space, options);
  if (!list) return Fail(ErrorCode::kUnavailable, list.error().message);
  std::vector<Json> objects;
  for (Json& item : (*list)["items"]) objects.push_back(std::move(item));
  return objects;
}

Result<std::vector<Json>> ApiFacts::Quotas(const std::string& name_space) {
  return List(resources::kResourceQuotas, name_space);
}

Result<std::vector<Json>> ApiFacts::Pods(const std::string& name_space) {
  return List(resources::kPods, name_space);
}

}  // namespace baton::k8s
