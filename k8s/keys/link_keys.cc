#include "k8s/keys/link_keys.h"

#include <spdlog/spdlog.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/file.h"
#include "k8s/api/reflector.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "net/public_key.h"

namespace baton::k8s {
namespace {

const Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap", true};
constexpr const char* kDataKey = "public-key";
constexpr const char* kManager = "baton-keys";  // of the fields written here
constexpr size_t kFileMax = size_t{4} << 20;

Json ObjectWith(const Resource& resource, const ObjectName& name) {
  Json object{{"apiVersion", resource.ApiVersion()},
              {"kind", resource.kind},
              {"metadata", {{"name", name.name}}}};
  if (resource.namespaced) object["metadata"]["namespace"] = name.name_space;
  return object;
}

}  // namespace

// Tells a key, and keeps a file, in a thread of its own.
class LinkKeyKeeper {
 public:
  // `tell`: writes the public key to the API server. Of the file at `path` the text is Set().
  LinkKeyKeeper(const Client& client, LinkKeysOptions options, std::string path,
                std::function<ApiResult<Json>(const std::string& key)> tell)
      : client_(client),
        options_(std::move(options)),
        path_(std::move(path)),
        tell_(std::move(tell)),
        thread_([this] { Run(); }) {}
  ~LinkKeyKeeper() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Any thread.
  void Set(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
    changed_.notify_all();
  }

 private:
  void Run() {
    Instant next_tell = MonotonicNow(), next_write = next_tell;
    std::optional<std::string> written;
    const auto look = [&] {
      auto text = ReadFile(path_, kFileMax);
      written = text ? std::optional(std::move(*text)) : std::nullopt;
    };
    look();
    std::unique_lock lock(mutex_);
    while (!ending_) {
      const Instant now = MonotonicNow();
      if (text_ && text_ != written && now >= next_write) {
        const std::string text = *text_;
        lock.unlock();
        auto done = ReplaceFile(path_, text, 0644, true);
        Say(wrote_wrong_, done ? "" : done.error().message);
        if (done) written = text;
        next_write = done ? now : now + options_.retry;
        lock.lock();
        continue;
      }
      if (now >= next_tell) {
        lock.unlock();
        look();
        const std::string wrong = Tell();
        Say(told_wrong_, wrong);
        next_tell = now + (wrong.empty() ? options_.tell_every : options_.retry);
        lock.lock();
        continue;
      }
      const bool waits = text_ && text_ != written;
      const Duration rest = (waits ? std::min(next_tell, next_write) : next_tell) - now;
      changed_.wait_for(lock, rest);
    }
  }

  // Why it could not be told; empty: it was.
  std::string Tell() const {
    const auto key = net::ReadPublicKey(options_.public_key_file);
    if (!key) return key.error().message;
    const auto done = tell_(*key);
    return done || client_.stopped() ? "" : done.error().message;
  }

  static void Say(std::string& last, const std::string& wrong) {
    if (std::exchange(last, wrong) == wrong) return;
    if (wrong.empty()) {
      spdlog::info("keys: all is well again");
    } else {
      spdlog::warn("keys: {}; trying again", wrong);
    }
  }

  const Client& client_;
  const LinkKeysOptions options_;
  const std::string path_;
  const std::function<ApiResult<Json>(const std::string&)> tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> text_;  // that the file is to have; guarded, as is
  bool ending_ = false;
  // Of its thread: what is wrong, as last said.
  std::string wrote_wrong_, told_wrong_;
  std::thread thread_;
};

namespace {

ReflectorSink SinkOf(std::string_view plural, std::function<void(Json)> changed,
                     std::function<void(const Json&)> gone, std::function<void()> synced) {
  ReflectorSink sink;
  sink.changed = std::move(changed);
  sink.gone = std::move(gone);
  sink.synced = std::move(synced);
  sink.trouble = [plural = std::string(plural)](const std::string& why) {
    LogTrouble(plural, why);
  };
  return sink;
}

// Only names are looked at, of objects that can be long.
void ProjectToName(Json& node) {
  Json name{{"metadata",
             {{"name", TextAt(node, "metadata/name")},
              {"uid", UidOf(node)},
              {"resourceVersion", ResourceVersionOf(node)}}}};
  node = std::move(name);
}

}  // namespace

class NodeLinkKeys::Impl {
 public:
  Impl(Client& client, LinkKeysOptions options, std::string node, std::string central_key_file)
      : keeper_(client, options, std::move(central_key_file),
                [&client, node = std::move(node)](const std::string& key) {
                  Json object = ObjectWith(resources::kGpuNodes, {"", node});
                  object["metadata"]["annotations"] = {{PodKey(keys::kPublicKey), key}};
                  return client.Apply(resources::kGpuNodes, {"", node}, object, {}, true, kManager);
                }),
        watch_(client, kConfigMaps, Only(options.central_key),
               SinkOf(
                   "the central batond's key",
                   [this](const Json& map) {
                     const std::string key = TextAt(map, std::string("data/") + kDataKey);
                     if (net::IsPublicKey(key)) keeper_.Set(key + "\n");
                   },
                   [](const Json&) {}, [] {})) {}

 private:
  static ReflectorOptions Only(const ObjectName& name) {
    ReflectorOptions options;
    options.name_space = name.name_space;
    options.list.field_selector = "metadata.name=" + name.name;
    return options;
  }

  LinkKeyKeeper keeper_;
  Reflector watch_;
};

NodeLinkKeys::NodeLinkKeys(Client& client, LinkKeysOptions options, std::string node,
                           std::string central_key_file)
    : impl_(std::make_unique<Impl>(client, std::move(options), std::move(node),
                                   std::move(central_key_file))) {}
NodeLinkKeys::~NodeLinkKeys() = default;

class CentralLinkKeys::Impl {
 public:
  Impl(Client& client, const LinkKeysOptions& options, std::string nodes_file)
      : keeper_(client, options, std::move(nodes_file), [&client, options](const std::string& key) {
          Json object = ObjectWith(kConfigMaps, options.central_key);
          object["data"] = {{kDataKey, key}};
          return client.Apply(kConfigMaps, options.central_key, object, {}, true, kManager);
        }) {
    const auto synced = [this](bool& which) {
      return [this, &which] {
        const std::lock_guard lock(mutex_);
        which = true;
        Write();
      };
    };
    gpu_nodes_watch_.emplace(client, resources::kGpuNodes, ReflectorOptions{},
                             SinkOf(
                                 "GpuNodes",
                                 [this](const Json& object) {
                                   const std::lock_guard lock(mutex_);
                                   keys_[NameOf(object).name] = PublicKeyOf(object);
                                   Write();
                                 },
                                 [this](const Json& object) {
                                   const std::lock_guard lock(mutex_);
                                   keys_.erase(NameOf(object).name);
                                   Write();
                                 },
                                 synced(keys_synced_)));
    ReflectorOptions of_nodes;
    of_nodes.list.project = ProjectToName;
    nodes_watch_.emplace(client, resources::kNodes, of_nodes,
                         SinkOf(
                             "nodes",
                             [this](const Json& object) {
                               const std::lock_guard lock(mutex_);
                               nodes_.insert(NameOf(object).name);
                               Write();
                             },
                             [this](const Json& object) {
                               const std::lock_guard lock(mutex_);
                               nodes_.erase(NameOf(object).name);
                               Write();
                             },
                             synced(nodes_synced_)));
  }

 private:
  // With mutex_.
  void Write() {
    if (!keys_synced_ || !nodes_synced_) return;
    std::string text = "# Nodes that may connect, of their GpuNodes. Written by baton-k8s keys.\n";
    for (const auto& [node, key] : keys_) {
      if (!key.empty() && nodes_.contains(node)) text += node + " " + key + "\n";
    }
    if (std::exchange(text_, text) != text) keeper_.Set(text);
  }

  std::mutex mutex_;  // of what follows
  std::map<std::string, std::string> keys_;
  std::set<std::string> nodes_;
  bool keys_synced_ = false;
  bool nodes_synced_ = false;
  std::string text_;
  LinkKeyKeeper keeper_;
  std::optional<Reflector> gpu_nodes_watch_, nodes_watch_;
};

CentralLinkKeys::CentralLinkKeys(Client& client, LinkKeysOptions options, std::string nodes_file)
    : impl_(std::make_unique<Impl>(client, options, std::move(nodes_file))) {}
CentralLinkKeys::~CentralLinkKeys() = default;

}  // namespace baton::k8s
