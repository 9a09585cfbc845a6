#include "k8s/api/reflector.h"

#include <spdlog/spdlog.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "k8s/api/backoff.h"

namespace baton::k8s {
namespace {

// A watch that ends as soon as it began is not begun again at once.
constexpr Duration kShortWatch = std::chrono::seconds(1);
// After so many watches in a row that told nothing before they broke, a list tells where we are:
// the version may be one that this server never had, restored from a backup.
constexpr int kDumbWatchesMax = 5;

// Nobody here reads who wrote which field, and in many objects that is half of the text. A PUT
// without it leaves it as it is.
void DropManagedFields(Json& object) {
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
}

}  // namespace

bool IsAbsent(const std::string& trouble) {
  // As ErrorOf() says it: behind the request, whose address may have such a number too.
  return trouble.find(": 404 ") != std::string::npos || trouble.find(": 403 ") != std::string::npos;
}

void LogTrouble(std::string_view plural, const std::string& trouble) {
  // An API server sends no bookmarks of kinds of which nothing ever changes.
  const bool idle = trouble.find("nothing was heard") != std::string::npos;
  spdlog::log(idle ? spdlog::level::debug : spdlog::level::warn, "watching {}: {}", plural,
              trouble);
}

struct Reflector::State {
  State(Client& the_client, Resource the_resource, ReflectorOptions the_options,
        ReflectorSink the_sink)
      : client(the_client),
        resource(std::move(the_resource)),
        options(std::move(the_options)),
        sink(std::move(the_sink)),
        backoff(options.backoff_min, options.backoff_max, std::random_device{}()) {
    options.list.stop = stop.get_token();
    options.list.project = [project = std::move(options.list.project)](Json& object) {
      DropManagedFields(object);
      if (project) project(object);
    };
  }

  bool ended() const { return stop.stop_requested() || client.stopped(); }

  bool List();
  bool OnEvent(std::string_view type, Json object);
  void Trouble(const std::string& why) {
    // Else an API server that was away, and has no such kind, would have told the first only.
    const std::string kind = IsAbsent(why) ? "absent" : "away";
    if (std::exchange(trouble, kind) != kind && sink.trouble) sink.trouble(why);
  }
  void Well() {
    trouble.clear();
    backoff.Reset();
  }
  void Pause(Duration at_least = Duration(0)) {
    const Duration pause = std::max(backoff.Next(), at_least);
    std::unique_lock lock(mutex);
    // Stop() of the client wakes nobody here: it is looked at often enough.
    const Instant until = MonotonicNow() + pause;
    while (!ended() && MonotonicNow() < until) {
      const Duration left =
          std::min<Duration>(until - MonotonicNow(), std::chrono::milliseconds(50));
      changed.wait_for(lock, std::max(left, Duration(1)));
    }
  }

  Client& client;
  const Resource resource;
  ReflectorOptions options;
  const ReflectorSink sink;
  std::stop_source stop;
  std::mutex mutex;
  std::condition_variable changed;
  Backoff backoff;
  std::string trouble;       // its kind, as told; empty: all is well
  std::string version;       // where the next watch begins; empty: list first
  std::string seen_version;  // the newest that was heard of
  // Of an object that was told, what a later list or event is compared with.
  struct Known {
    std::string uid;
    std::string version;
  };
  std::map<ObjectName, Known> known;

  void Gone(const ObjectName& name, const Known& was) {
    if (!sink.gone) return;
    Json metadata{{"name", name.name}, {"uid", was.uid}, {"resourceVersion", was.version}};
    if (!name.name_space.empty()) metadata["namespace"] = name.name_space;
    sink.gone({{"kind", resource.kind},
               {"apiVersion", resource.ApiVersion()},
               {"metadata", std::move(metadata)}});
  }
};

// Whether the list was told.
bool Reflector::State::List() {
  options.list.not_older_than = seen_version;
  auto list = client.List(resource, options.name_space, options.list);
  if (ended()) return false;
  if (!list) {
    // A server that was restored from a backup never comes to that version.
    if (list.error().status == 504 || list.error().gone()) seen_version.clear();
    Trouble(list.error().message);
    Pause(list.error().retry_after);
    return false;
  }
  Well();
  std::map<ObjectName, Known> now;
  for (const Json& item : (*list)["items"]) {
    ObjectName name = NameOf(item);
    if (!name.name.empty()) {
      now.insert_or_assign(std::move(name), Known{UidOf(item), ResourceVersionOf(item)});
    }
  }
  // What is gone first: its room may be what the new ones get.
  std::map<ObjectName, Known> before = std::exchange(known, std::move(now));
  for (auto at = before.begin(); at != before.end();) {
    const auto same = known.find(at->first);
    if (same != known.end() && same->second.uid == at->second.uid) {
      ++at;
      continue;
    }
    Gone(at->first, at->second);
    at = before.erase(at);
  }
  for (Json& item : (*list)["items"]) {
    const auto is = known.find(NameOf(item));
    // Of two of one name, which no server lists, the last counts.
    if (is == known.end() || is->second.uid != UidOf(item)) continue;
    const auto old = before.find(is->first);
    if (old != before.end() && old->second.version == is->second.version) continue;
    if (sink.changed) sink.changed(std::move(item));
  }
  version = seen_version = TextAt(*list, "metadata/resourceVersion");
  if (sink.synced) sink.synced();
  return true;
}

bool Reflector::State::OnEvent(std::string_view type, Json object) {
  if (ended()) return false;
  if (type == "ERROR") return false;
  Well();
  if (type != "BOOKMARK" && options.list.project) options.list.project(object);
  std::string seen = ResourceVersionOf(object);
  if (type != "BOOKMARK") {
    ObjectName name = NameOf(object);
    const auto at = known.find(name);
    std::string uid = UidOf(object);
    if (type == "DELETED") {
      if (at != known.end() && at->second.uid == uid) {
        known.erase(at);
        if (sink.gone) sink.gone(std::move(object));
      }
    } else if (!name.name.empty()) {
      if (at == known.end()) {
        known.emplace(std::move(name), Known{std::move(uid), seen});
        if (sink.changed) sink.changed(std::move(object));
      } else if (at->second.version != seen) {
        if (at->second.uid != uid) Gone(at->first, at->second);
        at->second = {std::move(uid), seen};
        if (sink.changed) sink.changed(std::move(object));
      }
    }
  }
  if (!seen.empty()) version = seen_version = std::move(seen);
  return !ended();
}

Reflector::Reflector(Client& client, Resource resource, ReflectorOptions options,
                     ReflectorSink sink)
    : state_(std::make_unique<State>(client, std::move(resource), std::move(options),
                                     std::move(sink))) {
  thread_ = std::thread([this] { Run(); });
}

Reflector::~Reflector() {
  state_->stop.request_stop();
  state_->changed.notify_all();
  thread_.join();
}

void Reflector::Run() {
  State& state = *state_;
  int dumb_watches = 0;
  while (!state.ended()) {
    if (state.version.empty() && !state.List()) continue;
    const Instant began = MonotonicNow();
    const std::string from = state.version;
    const auto watched = state.client.Watch(
        state.resource, state.options.name_space, state.options.list, state.version,
        state.options.silence, [&state](std::string_view type, Json object) {
          return state.OnEvent(type, std::move(object));
        });
    if (state.ended()) return;
    if (watched) {
      if (state.version == from && MonotonicNow() - began < kShortWatch) {
        state.Pause();
      } else {
        state.Well();
      }
      continue;
    }
    const ApiError& error = watched.error();
    dumb_watches = state.version == from ? dumb_watches + 1 : 0;
    if (dumb_watches == kDumbWatchesMax) {
      dumb_watches = 0;
      state.version.clear();
    }
    // Gone is the way of the API to ask for a list. Anything else that is not the network's may
    // mean that events were missed, or that the kind is no longer served.
    if (error.gone() || error.status != 0 || error.reason == "BadAnswer") {
      // Not when the server only has no time: lists are what it has the least time for.
      if (error.status != 429 && error.status != 503) state.version.clear();
    }
    if (!error.gone()) {
      state.Trouble(error.message);
      state.Pause(error.retry_after);
    } else if (state.version == from || MonotonicNow() - began < kShortWatch) {
      state.Pause();
    }
  }
}

}  // namespace baton::k8s
