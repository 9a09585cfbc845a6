#include "tests/k8s/stand_in/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "k8s/api/timestamp.h"

namespace baton::k8s::testing {
namespace {

std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json& Meta(Json& object) {
  Json& meta = object["metadata"];
  if (!meta.is_object()) meta = Json::object();
  return meta;
}

Reply NotFound(const Kind& kind, const ObjectName& name) {
  const Resource& of = kind.resource;
  Json body{{"kind", "Status"},
            {"apiVersion", "v1"},
            {"metadata", Json::object()},
            {"status", "Failure"},
            {"message", fmt::format("{}{}{} \"{}\" not found", of.plural,
                                    of.group.empty() ? "" : ".", of.group, name.name)},
            {"reason", "NotFound"},
            {"details", {{"name", name.name}, {"kind", of.plural}}},
            {"code", 404}};
  if (!of.group.empty()) body["details"]["group"] = of.group;
  return {404, Dumped(body)};
}

Reply ConflictOf(const Kind& kind, const ObjectName& name, const std::string& why) {
  return Failure(409, "Conflict",
                 fmt::format("Operation cannot be fulfilled on {} \"{}\": {}", kind.resource.plural,
                             name.name, why));
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// At commas that stand in no parentheses.
std::vector<std::string> SplitTerms(const std::string& text) {
  std::vector<std::string> terms(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  for (std::string& term : terms) term = Trim(term);
  std::erase(terms, "");
  return terms;
}

// The key by which the elements of a list are told apart; empty: it has none.
std::string MergeKey(const Json& a, const Json& b) {
  for (const char* key : {"type", "name", "uid"}) {
    const auto all = [key](const Json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [key](const Json& one) {
               const auto at = one.is_object() ? one.find(key) : Json::const_iterator();
               return one.is_object() && at != one.end() && at->is_string();
             });
    };
    if (all(a) && all(b)) return key;
  }
  return {};
}

Json* Element(Json& list, const std::string& key, const Json& like) {
  for (Json& one : list) {
    if (one[key] == like[key]) return &one;
  }
  return nullptr;
}

// At any depth.
void DropFields(Json& object, const std::set<std::string>& fields) {
  if (!object.is_structured()) return;
  if (object.is_object()) {
    for (const std::string& field : fields) object.erase(field);
  }
  for (Json& member : object) DropFields(member, fields);
}

// `nulls`: a null removes (strategic patches).
void DeepMerge(Json& into, const Json& from, bool nulls) {
  if (into.is_object() && from.is_object()) {
    for (const auto& [key, value] : from.items()) {
      if (value.is_null() && nulls) {
        into.erase(key);
      } else if (!into.contains(key)) {
        into[key] = value;
      } else {
        DeepMerge(into[key], value, nulls);
      }
    }
    return;
  }
  if (into.is_array() && from.is_array() && !from.empty() && !into.empty()) {
    if (const std::string key = MergeKey(into, from); !key.empty()) {
      for (const Json& one : from) {
        Json* there = Element(into, key, one);
        if (one.value("$patch", Json()) == "delete") {
          if (there != nullptr) into.erase(into.begin() + (there - &into[0]));
        } else if (there == nullptr) {
          into.push_back(one);
        } else {
          DeepMerge(*there, one, nulls);
        }
      }
      return;
    }
  }
  into = from;
}

// Takes out of `object` what is in `last` and no more in `now`.
void Prune(Json& object, const Json& last, const Json& now) {
  if (object.is_object() && last.is_object()) {
    for (const auto& [key, value] : last.items()) {
      const auto at = object.find(key);
      if (at == object.end()) continue;
      const bool kept = now.is_object() && now.contains(key);
      if (kept) {
        Prune(*at, value, now[key]);
      } else if (at->is_object() && value.is_object()) {
        Prune(*at, value, Json());
        if (at->empty()) object.erase(at);
      } else if (const std::string by = MergeKey(*at, value); at->is_array() && !by.empty()) {
        Prune(*at, value, Json::array());
        if (at->empty()) object.erase(at);
      } else {
        object.erase(at);
      }
    }
    return;
  }
  if (!object.is_array() || !last.is_array()) return;
  const std::string key = MergeKey(object, last);
  if (key.empty() || !now.is_array() || (!now.empty() && MergeKey(now, last) != key)) return;
  Json copy = now;
  for (const Json& one : last) {
    Json* there = Element(object, key, one);
    if (there == nullptr) continue;
    if (const Json* still = Element(copy, key, one); still != nullptr) {
      Prune(*there, one, *still);
    } else {
      object.erase(object.begin() + (there - &object[0]));
    }
  }
}

}  // namespace

Reply Failure(int status, const std::string& reason, const std::string& message,
              uint32_t retry_after_s) {
  Json body{{"kind", "Status"},    {"apiVersion", "v1"}, {"metadata", Json::object()},
            {"status", "Failure"}, {"message", message}, {"reason", reason},
            {"code", status}};
  if (retry_after_s > 0) body["details"]["retryAfterSeconds"] = retry_after_s;
  return {status, Dumped(body)};
}

std::optional<Test> ParseLabelSelector(const std::string& text) {
  struct Term {
    std::string key;
    std::set<std::string> values;
    bool exists = false;  // only that
    bool negated = false;
  };
  std::vector<Term> terms;
  for (const std::string& one : SplitTerms(text)) {
    Term term;
    if (const size_t open = one.find('('); open != std::string::npos) {
      const bool negated = one.find(" notin ") != std::string::npos;
      const size_t word = one.find(negated ? " notin " : " in ");
      if (word == std::string::npos || one.back() != ')') return std::nullopt;
      term.key = Trim(one.substr(0, word));
      term.negated = negated;
      std::string values = one.substr(open + 1, one.size() - open - 2) + ",";
      for (size_t at; (at = values.find(',')) != std::string::npos; values.erase(0, at + 1)) {
        term.values.insert(Trim(values.substr(0, at)));
      }
    } else if (const size_t equal = one.find('='); equal != std::string::npos) {
      term.negated = equal > 0 && one[equal - 1] == '!';
      term.key = Trim(one.substr(0, term.negated ? equal - 1 : equal));
      const size_t value = equal + (one.compare(equal, 2, "==") == 0 ? 2 : 1);
      term.values.insert(Trim(one.substr(value)));
    } else {
      term.negated = one[0] == '!';
      term.key = one.substr(term.negated ? 1 : 0);
      term.exists = true;
    }
    if (term.key.empty()) return std::nullopt;
    terms.push_back(std::move(term));
  }
  return [terms](const Json& object) {
    const Json* labels = k8s::Find(object, "metadata/labels");
    for (const Term& term : terms) {
      const bool there = labels != nullptr && labels->is_object() && labels->contains(term.key);
      bool matches = there;
      if (there && !term.exists) {
        const Json& value = (*labels)[term.key];
        matches = value.is_string() && term.values.contains(value.get<std::string>());
      }
      if (matches == term.negated) return false;
    }
    return true;
  };
}

std::optional<Test> ParseFieldSelector(const std::string& text, const Resource& resource) {
  static const std::set<std::string> kOfPods{
      "spec.nodeName",           "spec.schedulerName",      "status.phase",
      "spec.restartPolicy",      "spec.serviceAccountName", "status.podIP",
      "status.nominatedNodeName"};
  struct Term {
    std::string pointer;
    std::string value;
    bool negated = false;
  };
  std::vector<Term> terms;
  for (const std::string& one : SplitTerms(text)) {
    const size_t equal = one.find('=');
    if (equal == std::string::npos || equal == 0) return std::nullopt;
    Term term;
    term.negated = one[equal - 1] == '!';
    term.pointer = Trim(one.substr(0, term.negated ? equal - 1 : equal));
    term.value = Trim(one.substr(equal + (one.compare(equal, 2, "==") == 0 ? 2 : 1)));
    const bool known = term.pointer == "metadata.name" || term.pointer == "metadata.namespace" ||
                       (resource.kind == "Pod" && kOfPods.contains(term.pointer)) ||
                       (resource.kind == "Node" && term.pointer == "spec.unschedulable") ||
                       (resource.kind == "Event");
    if (!known) return std::nullopt;
    std::replace(term.pointer.begin(), term.pointer.end(), '.', '/');
    terms.push_back(std::move(term));
  }
  return [terms](const Json& object) {
    for (const Term& term : terms) {
      if ((TextAt(object, term.pointer) == term.value) == term.negated) return false;
    }
    return true;
  };
}

std::string Store::NowText() const { return Timestamp(clock()); }

Store::Store() {
  const auto core = [this](const char* plural, const char* kind, bool namespaced, bool status) {
    Serve({"", "v1", plural, kind, namespaced}, status);
  };
  core("pods", "Pod", true, true);
  core("nodes", "Node", false, true);
  core("namespaces", "Namespace", false, true);
  core("services", "Service", true, true);
  core("persistentvolumeclaims", "PersistentVolumeClaim", true, true);
  core("persistentvolumes", "PersistentVolume", false, true);
  core("configmaps", "ConfigMap", true, false);
  core("secrets", "Secret", true, false);
  core("serviceaccounts", "ServiceAccount", true, false);
  core("events", "Event", true, false);
  Serve({"apps", "v1", "deployments", "Deployment", true}, true);
  Serve({"apps", "v1", "daemonsets", "DaemonSet", true}, true);
  Serve({"batch", "v1", "jobs", "Job", true}, true);
  Serve({"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true}, true);
  Serve({"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false}, false);
  Serve({"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false},
        false);
  Serve({"rbac.authorization.k8s.io", "v1", "roles", "Role", true}, false);
  Serve({"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true}, false);
  Serve(resources::kEvents, false);
  Serve(resources::kLeases, false);
  Serve(resources::kMutatingWebhooks, false);
  Serve(resources::kValidatingWebhooks, false);
  Serve(resources::kCustomResourceDefinitions, true);
  Serve(resources::kPriorityClasses, false);
  Serve(resources::kSharePods, true);
  Serve(resources::kGpuNodes, true);
  Serve(resources::kTeams, true);
}

void Store::Serve(const Resource& resource, bool status) {
  auto& kind = kinds_[resource.group + "/" + resource.plural];
  if (!kind) kind = std::make_unique<Kind>();
  kind->resource = resource;
  kind->status = status;
  kind->served = true;
}

Kind* Store::Find(const std::string& group, const std::string& plural) {
  const auto at = kinds_.find(group + "/" + plural);
  return at == kinds_.end() || !at->second->served ? nullptr : at->second.get();
}

void Store::Compact() {
  for (auto& [name, kind] : kinds_) {
    kind->history.clear();
    kind->floor = version_;
  }
}

StoredPtr Store::Commit(Kind& kind, const ObjectName& name, Json object, const char* type) {
  ++version_;
  Meta(object)["resourceVersion"] = std::to_string(version_);
  auto stored = std::make_shared<Stored>();
  stored->text = Dumped(object);
  stored->json = std::move(object);
  StoredPtr before;
  const bool deleted = std::string_view(type) == "DELETED";
  if (const auto at = kind.objects.find(name); at != kind.objects.end()) {
    before = at->second;
    if (deleted) {
      kind.objects.erase(at);
      kind.applied.erase(name);
    } else {
      at->second = stored;
    }
  } else {
    kind.objects.emplace(name, stored);
  }
  kind.history.push_back({version_, type, stored, before});
  while (kind.history.size() > history_max) {
    kind.floor = kind.history.front().version;
    kind.history.pop_front();
  }
  kind.changed.notify_all();
  return stored;
}

void Store::ServeDefinition(Json& definition) {
  const Json* version = k8s::Find(definition, "spec/versions/0");
  const Resource resource{
      TextAt(definition, "spec/group"), version != nullptr ? TextAt(*version, "name") : "v1",
      TextAt(definition, "spec/names/plural"), TextAt(definition, "spec/names/kind"),
      TextAt(definition, "spec/scope") != "Cluster"};
  Serve(resource, version != nullptr && k8s::Find(*version, "subresources/status") != nullptr);
  Json conditions = Json::array();
  for (const char* type : {"NamesAccepted", "Established"}) {
    conditions.push_back({{"type", type},
                          {"status", "True"},
                          {"reason", "StandIn"},
                          {"message", ""},
                          {"lastTransitionTime", NowText()}});
  }
  definition["status"] = {{"conditions", conditions},
                          {"acceptedNames", definition["spec"].value("names", Json::object())},
                          {"storedVersions", {resource.version}}};
}

StoredPtr Store::Put(Kind& kind, Json object) {
  if (!object.is_object()) object = Json::object();
  Json& meta = Meta(object);
  object.emplace("kind", kind.resource.kind);
  object.emplace("apiVersion", kind.resource.ApiVersion());
  if (kind.resource.namespaced && TextAt(object, "metadata/namespace").empty()) {
    meta["namespace"] = "default";
  }
  if (!kind.resource.namespaced) meta.erase("namespace");
  const ObjectName name = NameOf(object);
  const auto old = kind.objects.find(name);
  if (UidOf(object).empty()) {
    meta["uid"] = old != kind.objects.end()
                      ? UidOf(old->second->json)
                      : fmt::format("{:08x}-0000-4000-8000-{:012x}", 0xba700000u, ++serial_);
  }
  meta.emplace("creationTimestamp", NowText());
  meta.emplace("generation", 1);
  if (kind.resource.plural == "customresourcedefinitions") ServeDefinition(object);
  return Commit(kind, name, std::move(object), old == kind.objects.end() ? "ADDED" : "MODIFIED");
}

bool Store::Erase(Kind& kind, const ObjectName& name) {
  const auto at = kind.objects.find(name);
  if (at == kind.objects.end()) return false;
  Commit(kind, name, at->second->json, "DELETED");
  return true;
}

Reply Store::Create(Kind& kind, const std::string& name_space, Json object, bool dry_run) {
  if (!object.is_object()) return Failure(400, "BadRequest", "the body is no object");
  Json& meta = Meta(object);
  if (!TextAt(object, "metadata/resourceVersion").empty()) {
    return Failure(400, "BadRequest", "resourceVersion should not be set on objects to be created");
  }
  if (const std::string said = TextAt(object, "metadata/namespace");
      kind.resource.namespaced && !said.empty() && said != name_space) {
    return Failure(400, "BadRequest",
                   "the namespace of the provided object does not match the namespace sent on the "
                   "request");
  }
  if (kind.resource.namespaced) meta["namespace"] = name_space;
  std::string name = TextAt(object, "metadata/name");
  if (const std::string prefix = TextAt(object, "metadata/generateName");
      name.empty() && !prefix.empty()) {
    static constexpr char kLetters[] = "bcdfghjklmnpqrstvwxz2456789";
    uint64_t number = ++serial_ * 0x9e3779b97f4a7c15u;
    name = prefix;
    for (int i = 0; i < 5; ++i, number /= 27) name += kLetters[number % 27];
    meta["name"] = name;
  }
  if (name.empty()) return Failure(422, "Invalid", "metadata.name: Required value");
  const ObjectName full{kind.resource.namespaced ? name_space : std::string(), name};
  if (kind.objects.contains(full)) {
    return Failure(409, "AlreadyExists",
                   fmt::format("{} \"{}\" already exists", kind.resource.plural, name));
  }
  for (const char* own : {"uid", "creationTimestamp", "generation", "deletionTimestamp",
                          "deletionGracePeriodSeconds", "managedFields"}) {
    meta.erase(own);
  }
  if (kind.resource.kind == "Pod") {
    object["status"] = {{"phase", "Pending"}};
    Json& spec = object["spec"];
    if (!spec.is_object()) spec = Json::object();
    spec.emplace("schedulerName", "default-scheduler");
    spec.emplace("restartPolicy", "Always");
    spec.emplace("terminationGracePeriodSeconds", 30);
  } else if (kind.status && kind.resource.kind != "Node") {
    object.erase("status");
  }
  if (!kind.unknown.empty()) DropFields(object, kind.unknown);
  if (dry_run) return {201, Dumped(object)};
  return {201, Put(kind, std::move(object))->text};
}

Reply Store::Replace(Kind& kind, const ObjectName& name, const StoredPtr& old, Json object,
                     const std::string& subresource, bool dry_run) {
  if (!object.is_object()) return Failure(400, "BadRequest", "the body is no object");
  if (const std::string version = ResourceVersionOf(object);
      !version.empty() && version != ResourceVersionOf(old->json)) {
    return ConflictOf(kind, name,
                      "the object has been modified; please apply your changes to the latest "
                      "version and try again");
  }
  if (const std::string uid = UidOf(object); !uid.empty() && uid != UidOf(old->json)) {
    return ConflictOf(kind, name, "Precondition failed: UID in precondition: " + uid);
  }
  if (subresource == "status") {
    if (!kind.status) return NotFound(kind, name);
    Json status = object.contains("status") ? std::move(object["status"]) : Json();
    object = old->json;
    if (status.is_null()) {
      object.erase("status");
    } else {
      object["status"] = std::move(status);
    }
  } else {
    if (kind.status) {
      object.erase("status");
      if (old->json.contains("status")) object["status"] = old->json["status"];
    }
    Json& meta = Meta(object);
    const Json& before = old->json["metadata"];
    for (const char* own : {"name", "namespace", "uid", "creationTimestamp", "generation",
                            "deletionTimestamp", "deletionGracePeriodSeconds"}) {
      meta.erase(own);
      if (before.contains(own)) meta[own] = before[own];
    }
    if (kind.resource.kind == "Pod" && !TextAt(old->json, "spec/nodeName").empty() &&
        TextAt(object, "spec/nodeName") != TextAt(old->json, "spec/nodeName")) {
      return Failure(422, "Invalid", "spec.nodeName: Forbidden: may not be changed");
    }
  }
  object["kind"] = kind.resource.kind;
  object["apiVersion"] = old->json.value("apiVersion", kind.resource.ApiVersion());
  Meta(object)["resourceVersion"] = ResourceVersionOf(old->json);
  if (!kind.unknown.empty()) DropFields(object, kind.unknown);
  // What changes nothing is not written.
  if (object == old->json) return {200, old->text};
  const auto without = [](Json copy) {
    copy.erase("metadata");
    copy.erase("status");
    return copy;
  };
  if (subresource.empty() && without(object) != without(old->json)) {
    const Json& generation = old->json["metadata"].value("generation", Json(1));
    object["metadata"]["generation"] =
        generation.is_number_integer() ? generation.get<int64_t>() + 1 : 1;
  }
  if (dry_run) return {200, Dumped(object)};
  const Json* deleted = k8s::Find(object, "metadata/deletionTimestamp");
  const Json* finalizers = k8s::Find(object, "metadata/finalizers");
  const Json* grace = k8s::Find(object, "metadata/deletionGracePeriodSeconds");
  if (deleted != nullptr && (finalizers == nullptr || finalizers->empty()) &&
      (grace == nullptr || *grace == 0)) {
    return {200, Commit(kind, name, std::move(object), "DELETED")->text};
  }
  if (kind.resource.plural == "customresourcedefinitions") ServeDefinition(object);
  return {200, Commit(kind, name, std::move(object), "MODIFIED")->text};
}

Reply Store::Update(Kind& kind, const ObjectName& name, Json object, const std::string& subresource,
                    bool dry_run) {
  const auto at = kind.objects.find(name);
  if (at == kind.objects.end()) return NotFound(kind, name);
  return Replace(kind, name, at->second, std::move(object), subresource, dry_run);
}

Reply Store::Patch(Kind& kind, const ObjectName& name, const std::string& type, const Json& patch,
                   const std::string& subresource, const std::string& manager, bool dry_run) {
  const auto at = kind.objects.find(name);
  const bool apply = type == "application/apply-patch+yaml";
  if (apply && (!patch.is_object() || TextAt(patch, "metadata/name") != name.name)) {
    return Failure(400, "BadRequest", "an applied object needs apiVersion, kind and metadata.name");
  }
  if (at == kind.objects.end()) {
    if (!apply || !subresource.empty()) return NotFound(kind, name);
    Reply created = Create(kind, name.name_space, patch, dry_run);
    if (created.status == 201 && !dry_run) kind.applied[name][manager + "/"] = patch;
    return created;
  }
  const StoredPtr old = at->second;
  Json object = old->json;
  if (apply) {
    Json& last = kind.applied[name][manager + "/" + subresource];
    // The version is a precondition, and nobody's field.
    Prune(object, last, patch);
    DeepMerge(object, patch, false);
    if (!dry_run) last = patch;
    if (ResourceVersionOf(patch).empty()) {
      Meta(object)["resourceVersion"] = ResourceVersionOf(old->json);
    }
  } else if (type == "application/merge-patch+json") {
    object.merge_patch(patch);
  } else if (type == "application/strategic-merge-patch+json") {
    DeepMerge(object, patch, true);
  } else if (type == "application/json-patch+json") {
    try {
      object = object.patch(patch);
    } catch (const Json::exception& error) {
      return Failure(422, "Invalid", error.what());
    }
  } else {
    return Failure(415, "UnsupportedMediaType", "the body of a PATCH is of no known type: " + type);
  }
  return Replace(kind, name, old, std::move(object), subresource, dry_run);
}

Reply Store::Delete(Kind& kind, const ObjectName& name, const Json& options, bool dry_run) {
  const auto at = kind.objects.find(name);
  if (at == kind.objects.end()) return NotFound(kind, name);
  const StoredPtr old = at->second;
  for (const char* what : {"uid", "resourceVersion"}) {
    const std::string wanted = TextAt(options, std::string("preconditions/") + what);
    const std::string is = TextAt(old->json, std::string("metadata/") + what);
    if (!wanted.empty() && wanted != is) {
      return ConflictOf(kind, name,
                        fmt::format("Precondition failed: {} in precondition: {}, {} in object "
                                    "meta: {}",
                                    what, wanted, what, is));
    }
  }
  if (dry_run) return {200, old->text};
  int64_t grace = 0;
  if (kind.resource.kind == "Pod" && graceful) {
    grace = 30;
    if (const Json* own = k8s::Find(old->json, "spec/terminationGracePeriodSeconds");
        own != nullptr && own->is_number_integer()) {
      grace = own->get<int64_t>();
    }
    if (const Json* said = k8s::Find(options, "gracePeriodSeconds");
        said != nullptr && said->is_number_integer()) {
      grace = said->get<int64_t>();
    }
    const std::string phase = TextAt(old->json, "status/phase");
    if (TextAt(old->json, "spec/nodeName").empty() || phase == "Succeeded" || phase == "Failed") {
      grace = 0;
    }
  }
  const Json* finalizers = k8s::Find(old->json, "metadata/finalizers");
  const bool held = finalizers != nullptr && finalizers->is_array() && !finalizers->empty();
  if (grace <= 0 && !held) return {200, Commit(kind, name, old->json, "DELETED")->text};
  Json object = old->json;
  const Json* before = k8s::Find(object, "metadata/deletionGracePeriodSeconds");
  if (before != nullptr && *before <= grace) return {200, old->text};
  const auto when = clock() + std::chrono::seconds(grace);
  object["metadata"]["deletionTimestamp"] = Timestamp(when);
  object["metadata"]["deletionGracePeriodSeconds"] = grace;
  return {200, Commit(kind, name, std::move(object), "MODIFIED")->text};
}

Reply Store::Evict(Kind& pods, const ObjectName& name, const Json& eviction, bool dry_run) {
  const auto at = pods.objects.find(name);
  if (at == pods.objects.end()) return NotFound(pods, name);
  const Json* options = k8s::Find(eviction, "deleteOptions");
  const Json wanted = options == nullptr ? Json::object() : *options;
  if (budgeted.contains(name)) {
    const Json status{
        {"kind", "Status"},
        {"apiVersion", "v1"},
        {"status", "Failure"},
        {"reason", "TooManyRequests"},
        {"message", "Cannot evict pod as it would violate the pod's disruption budget."},
        {"details", {{"causes", Json::array({{{"reason", "DisruptionBudget"}}})}}},
        {"code", 429}};
    return {429, status.dump()};
  }
  const std::string uid = TextAt(wanted, "preconditions/uid");
  if (!dry_run && (uid.empty() || uid == UidOf(at->second->json))) {
    Json object = at->second->json;
    DeepMerge(object,
              {{"status",
                {{"conditions", Json::array({{{"type", "DisruptionTarget"},
                                              {"status", "True"},
                                              {"reason", "EvictionByEvictionAPI"},
                                              {"lastTransitionTime", NowText()}}})}}}},
              false);
    Commit(pods, name, std::move(object), "MODIFIED");
  }
  Reply deleted = Delete(pods, name, wanted, dry_run);
  if (deleted.status >= 300) return deleted;
  return {201,
          R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201})"};
}

Reply Store::Bind(Kind& pods, const ObjectName& name, const Json& binding) {
  const auto at = pods.objects.find(name);
  if (at == pods.objects.end()) return NotFound(pods, name);
  Json object = at->second->json;
  const std::string uid = UidOf(binding);
  if (!uid.empty() && uid != UidOf(object)) {
    return ConflictOf(pods, name,
                      "Precondition failed: UID in precondition: " + uid +
                          ", UID in object meta: " + UidOf(object));
  }
  const std::string node = TextAt(binding, "target/name");
  if (node.empty()) return Failure(422, "Invalid", "target.name: Required value");
  if (const std::string bound = TextAt(object, "spec/nodeName"); !bound.empty()) {
    return ConflictOf(pods, name,
                      fmt::format("pod {} is already assigned to node \"{}\"", name.name, bound));
  }
  if (k8s::Find(object, "metadata/deletionTimestamp") != nullptr) {
    return ConflictOf(pods, name, "pod " + name.name + " is being deleted, cannot be assigned");
  }
  object["spec"]["nodeName"] = node;
  if (const Json* annotations = k8s::Find(binding, "metadata/annotations");
      annotations != nullptr && annotations->is_object()) {
    Json& own = object["metadata"]["annotations"];
    if (!own.is_object()) own = Json::object();
    own.update(*annotations);
  }
  DeepMerge(object,
            {{"status",
              {{"conditions", Json::array({{{"type", "PodScheduled"},
                                            {"status", "True"},
                                            {"lastTransitionTime", NowText()}}})}}}},
            false);
  Commit(pods, name, std::move(object), "MODIFIED");
  return {201,
          R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201})"};
}

}  // namespace baton::k8s::testing
