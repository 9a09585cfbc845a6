#include "ledger/terms.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/team_path.h"

namespace baton::ledger {
namespace {

using nlohmann::json;

constexpr const char* kConfigured = "configure";

std::string StringIn(const json& pod, const char* key) {
  const auto found = pod.find(key);
  return found != pod.end() && found->is_string() ? found->get<std::string>() : "";
}

// A percentage as millionths.
int64_t MillionthsIn(const json& pod, const char* key, int64_t otherwise) {
  const auto found = pod.find(key);
  if (found == pod.end() || !found->is_number()) return otherwise;
  return std::llround(std::clamp(found->get<double>(), 0.0, 100.0) * 1e4);
}

Term TermOf(const std::string& path, const json& pod) {
  Term term;
  term.pod = path;
  const std::string space = StringIn(pod, "namespace");
  const bool in_space = !space.empty() && path.starts_with(space + "/");
  term.name = in_space ? path.substr(space.size() + 1) : path;
  term.team = TeamPath(StringIn(pod, "team"));
  term.limit = MillionthsIn(pod, "limit", term.limit);
  const std::string priority = StringIn(pod, "priority");
  if (priority == "high" || priority == "idle") term.priority = priority;
  if (term.priority != "idle") term.request = MillionthsIn(pod, "request", 0);
  if (const auto memory = pod.find("memory"); memory != pod.end()) {
    term.memory = memory->is_string() ? memory->get<std::string>() : memory->dump();
  }
  term.asked = pod.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto gpus = pod.find("gpus");
  if (gpus != pod.end() && gpus->is_array()) {
    for (const json& gpu : *gpus) {
      if (gpu.is_string()) term.gpus.push_back(gpu.get<std::string>());
    }
  }
  return term;
}

bool AsksTheSame(const Term& a, const Term& b) {
  const auto all = [](const Term& t) {
    return std::tie(t.team, t.gpus, t.request, t.limit, t.priority, t.memory);
  };
  return all(a) == all(b);
}

// The terms of one pod, whose changes are by time.
std::vector<Term> OfPod(const std::string& path, const std::vector<const Change*>& changes,
                        const json& now) {
  std::vector<Term> terms;
  bool open = false;  // the last one has no end yet
  const auto begin = [&](const json& pod, const Change* change) {
    Term term = TermOf(path, pod);
    if (change != nullptr) {
      term.from = change->at;
      term.who = change->who;
      term.action = change->action;
      // A file says which GPUs to choose from, not which it was; and a pod's entry in it and its
      // making by it, which fills in its GPUs and the usual memory cap, are one.
      Term* last = open ? &terms.back() : nullptr;
      if (change->action == kConfigured) {
        term.gpus = last != nullptr ? last->gpus : std::vector<std::string>();
        if (last != nullptr && change->was.empty() && last->who == change->who) {
          term.memory = last->memory;
        }
      } else if (last != nullptr && change->who == kConfiguration && last->action == kConfigured) {
        if (last->gpus.empty()) last->gpus = term.gpus;
        if (last->memory.empty()) last->memory = term.memory;
      }
    }
    if (open && AsksTheSame(terms.back(), term)) return;
    if (open) terms.back().to = term.from;
    terms.push_back(std::move(term));
    open = true;
  };
  if (!changes.empty()) {
    const json was = ObjectIn(changes.front()->was);
    if (!was.is_null()) begin(was, nullptr);
    if (open && changes.front()->action == kConfigured) terms.back().gpus.clear();
  } else if (!now.is_null()) {
    begin(now, nullptr);
  }
  for (const Change* change : changes) {
    const json is = ObjectIn(change->is);
    if (!is.is_null()) {
      begin(is, change);
    } else if (open) {
      terms.back().to = change->at;
      open = false;
    }
  }
  if (open) terms.back().present = !now.is_null();
  if (now.is_null() || !open) return terms;
  // Where it is now it has been since its file or a change put it there.
  const Term last = TermOf(path, now);
  for (auto term = terms.rbegin(); term != terms.rend() && term->gpus.empty(); ++term) {
    term->gpus = last.gpus;
  }
  return terms;
}

// Daemons that share a database write one log, and each may have a pod of this name.
struct PodOfNode {
  std::string node;
  std::vector<const Change*> changes;
  json now;  // null: it is not there
};

using Uuids = std::set<std::string>;

Uuids GpusIn(const json& pod) {
  Uuids uuids;
  const auto gpus = pod.is_object() ? pod.find("gpus") : pod.end();
  if (gpus == pod.end() || !gpus->is_array()) return uuids;
  for (const json& gpu : *gpus) {
    if (gpu.is_string()) uuids.insert(gpu.get<std::string>());
  }
  return uuids;
}

// A file says which GPUs to choose from, not which it was.
Uuids GpusOf(const Change& change) {
  Uuids gpus;
  if (change.action == kConfigured) return gpus;
  for (const std::string* text : {&change.was, &change.is}) gpus.merge(GpusIn(ObjectIn(*text)));
  return gpus;
}

Uuids GpusOf(const PodOfNode& pod) {
  Uuids gpus;
  for (const Change* change : pod.changes) gpus.merge(GpusOf(*change));
  return gpus;
}

// That node's pod. A node that was renamed is known by its GPUs, which `gpus()` says; it is asked
// only where there is another node. `only`: where GPUs are not known on one side, the only pod that
// there is will do.
template <class Gpus>
PodOfNode& FindOrAdd(std::vector<PodOfNode>& pods, const std::string& node, Gpus gpus, bool only) {
  auto found = std::find_if(pods.begin(), pods.end(),
                            [&](const PodOfNode& pod) { return pod.node == node; });
  if (found == pods.end() && !pods.empty()) {
    const Uuids own = gpus();
    found = std::find_if(pods.begin(), pods.end(), [&](const PodOfNode& pod) {
      const Uuids others = GpusOf(pod);
      if (only && pods.size() == 1 && (own.empty() || others.empty())) return true;
      return std::any_of(own.begin(), own.end(),
                         [&](const std::string& gpu) { return others.contains(gpu); });
    });
  }
  if (found != pods.end()) return *found;
  pods.push_back({node, {}, {}});
  return pods.back();
}

}  // namespace

json ObjectIn(const std::string& text) {
  json object = text.empty() ? json() : json::parse(text, nullptr, false);
  return object.is_object() ? object : json();
}

std::vector<Term> TermsOf(const std::vector<Change>& changes,
                          const std::map<std::string, std::string>& present,
                          const std::string& node) {
  std::map<std::string, std::vector<const Change*>> by_path;
  for (const Change& change : changes) {
    if (change.kind != "pod" || change.action == "more") continue;
    std::string path = change.object;
    if (change.action == kConfigured) {  // a file names its pods without their namespace
      const json pod = ObjectIn(change.is.empty() ? change.was : change.is);
      const std::string space = pod.is_null() ? "" : StringIn(pod, "namespace");
      if (!space.empty()) path.insert(0, space + "/");
    }
    by_path[path].push_back(&change);
  }
  for (const auto& [path, pod] : present) by_path[path];
  std::vector<Term> terms;
  for (auto& [path, all] : by_path) {
    std::reverse(all.begin(), all.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const Change* a, const Change* b) { return a->at < b->at; });
    std::vector<PodOfNode> pods;
    for (const Change* change : all) {
      PodOfNode& pod = FindOrAdd(
          pods, change->node, [&] { return GpusOf(*change); }, false);
      pod.node = change->node;
      pod.changes.push_back(change);
    }
    const auto found = present.find(path);
    const json now = found == present.end() ? json() : ObjectIn(found->second);
    if (!now.is_null())
      FindOrAdd(
          pods, node, [&] { return GpusIn(now); }, true)
          .now = now;
    for (const PodOfNode& pod : pods) {
      for (Term& term : OfPod(path, pod.changes, pod.now)) terms.push_back(std::move(term));
    }
  }
  return terms;
}

}  // namespace baton::ledger
