#include "k8s/webhook/api_facts.h"

#include <algorithm>
#include <utility>

namespace baton::k8s {
namespace {

// Global defaults of PriorityClasses, their values by name.
using DefaultClasses = std::map<std::string, int64_t>;

void SetDefaultClass(const Json& priority_class, DefaultClasses& classes) {
  const std::string name = TextAt(priority_class, "metadata/name");
  const Json* is = Find(priority_class, "globalDefault");
  if (is == nullptr || *is != Json(true)) {
    classes.erase(name);
    return;
  }
  const Json* value = Find(priority_class, "value");
  classes[name] = value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
}

// Of several the API server takes the lowest.
std::string DefaultOf(const DefaultClasses& classes) {
  const auto lowest =
      std::min_element(classes.begin(), classes.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return lowest == classes.end() ? "" : lowest->first;
}

}  // namespace

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
  sink.trouble = [](const std::string& why) { LogTrouble("namespaces", why); };
  watch_.emplace(client_, resources::kNamespaces, ReflectorOptions(), std::move(sink));
  ReflectorSink classes;
  classes.changed = [this](const Json& object) {
    const std::lock_guard lock(mutex_);
    SetDefaultClass(object, default_classes_);
  };
  classes.gone = [this](const Json& object) {
    const std::lock_guard lock(mutex_);
    default_classes_.erase(TextAt(object, "metadata/name"));
  };
  classes.synced = [this] {
    const std::lock_guard lock(mutex_);
    classes_listed_ = true;
  };
  classes.trouble = [](const std::string& why) { LogTrouble("priority classes", why); };
  class_watch_.emplace(client_, resources::kPriorityClasses, ReflectorOptions(),
                       std::move(classes));
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
  teams.trouble = [](const std::string& why) { LogTrouble("teams", why); };
  team_watch_.emplace(client_, resources::kTeams, ReflectorOptions(), std::move(teams));
}

ApiFacts::~ApiFacts() {
  watch_.reset();
  class_watch_.reset();
  team_watch_.reset();
}

Result<std::string> ApiFacts::DefaultPriorityClass() {
  {
    const std::lock_guard lock(mutex_);
    if (classes_listed_) return DefaultOf(default_classes_);
  }
  ListOptions options;
  options.from_cache = true;
  auto list = client_.List(resources::kPriorityClasses, "", options);
  if (!list) {
    // By the roles of an earlier chart it may not.
    if (list.error().status == 403 || list.error().not_found()) return "";
    return Fail(ErrorCode::kUnavailable, list.error().message);
  }
  DefaultClasses classes;
  for (const Json& item : (*list)["items"]) SetDefaultClass(item, classes);
  return DefaultOf(classes);
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
