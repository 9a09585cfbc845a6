// What the stand-in API server knows: objects, their versions and what has changed. Answers as a
// real one does where the product looks at it. docs of the approximations stand at Patch().
//
// Not thread safe; never throws for what a request holds.
#ifndef BATON_TESTS_K8S_STAND_IN_STORE_H_
#define BATON_TESTS_K8S_STAND_IN_STORE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "k8s/api/object.h"

namespace baton::k8s::testing {

struct Stored {
  Json json;
  std::string text;  // the same, serialised once
};
using StoredPtr = std::shared_ptr<const Stored>;

struct Change {
  uint64_t version = 0;
  const char* type = "";  // ADDED, MODIFIED, DELETED
  StoredPtr now;          // DELETED: its last state, with the version of its deletion
  StoredPtr before;       // null: ADDED
};

// One served kind.
struct Kind {
  Resource resource;
  bool status = false;  // has the status subresource
  std::map<ObjectName, StoredPtr> objects;
  std::deque<Change> history;
  uint64_t floor = 0;  // watches from an older version are refused
  // What each manager has applied: it loses what it applies no more.
  std::map<ObjectName, std::map<std::string, Json>> applied;
  std::condition_variable changed;
  bool served = true;
  // Fields that are dropped wherever they are written, as of a feature gate that is off.
  std::set<std::string> unknown;
};

// An answer to a request: a status of HTTP and a body.
struct Reply {
  int status = 200;
  std::string body;
};

Reply Failure(int status, const std::string& reason, const std::string& message,
              uint32_t retry_after_s = 0);

// Label and field selectors. Nothing: not understood.
using Test = std::function<bool(const Json& object)>;
std::optional<Test> ParseLabelSelector(const std::string& text);
std::optional<Test> ParseFieldSelector(const std::string& text, const Resource& resource);

class Store {
 public:
  Store();

  void Serve(const Resource& resource, bool status);
  Kind* Find(const std::string& group, const std::string& plural);
  std::map<std::string, std::unique_ptr<Kind>>& kinds() { return kinds_; }

  uint64_t version() const { return version_; }
  // All versions older than now are gone.
  void Compact();

  // Past all checks, as etcd's owner could: creates or replaces, status and all.
  StoredPtr Put(Kind& kind, Json object);
  bool Erase(Kind& kind, const ObjectName& name);

  Reply Create(Kind& kind, const std::string& name_space, Json object, bool dry_run);
  Reply Update(Kind& kind, const ObjectName& name, Json object, const std::string& subresource,
               bool dry_run);
  // "application/json-patch+json" and so on. Lists of strategic patches and of applied objects
  // merge by `type`, `name` or `uid` where all elements have one; else they are replaced. Conflicts
  // between managers are not modelled, removals are.
  Reply Patch(Kind& kind, const ObjectName& name, const std::string& type, const Json& patch,
              const std::string& subresource, const std::string& manager, bool dry_run);
  Reply Delete(Kind& kind, const ObjectName& name, const Json& options, bool dry_run);
  Reply Bind(Kind& pods, const ObjectName& name, const Json& binding);
  // An Eviction: 429 where a pod of `budgeted` is asked for; else the condition DisruptionTarget,
  // and Delete().
  Reply Evict(Kind& pods, const ObjectName& name, const Json& eviction, bool dry_run);
  std::set<ObjectName> budgeted;  // pods that a PodDisruptionBudget keeps

  size_t history_max = 50'000;  // changes of a kind that watches may begin from
  // By which objects are dated.
  std::function<std::chrono::system_clock::time_point()> clock = std::chrono::system_clock::now;
  bool graceful = true;  // a bound pod that is deleted stays, until it is deleted with 0

 private:
  StoredPtr Commit(Kind& kind, const ObjectName& name, Json object, const char* type);
  Reply Replace(Kind& kind, const ObjectName& name, const StoredPtr& old, Json object,
                const std::string& subresource, bool dry_run);
  void ServeDefinition(Json& definition);
  std::string NowText() const;

  uint64_t version_ = 1;
  uint64_t serial_ = 0;
  std::map<std::string, std::unique_ptr<Kind>> kinds_;  // by "group/plural"
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_STAND_IN_STORE_H_
