#include "tests/k8s/end_to_end/node_stand_in.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace baton::k8s {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// One of them is enough: batond reads all lines of /proc/PID/cgroup.
std::string CgroupRoot() {
  for (const char* root : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
    if (access((std::string(root) + "/cgroup.procs").c_str(), W_OK) == 0) return root;
  }
  return {};
}

// "$(NAME)" becomes the variable's value where it is known, "$$" a dollar.
std::string Expand(const std::string& text, const std::map<std::string, std::string>& known) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i];
    } else if (text[i + 1] == '$') {
      out += '$';
      ++i;
    } else if (text[i + 1] == '(') {
      const size_t end = text.find(')', i);
      const auto value =
          end == std::string::npos ? known.end() : known.find(text.substr(i + 2, end - i - 2));
      if (value == known.end()) {
        out += text[i];
      } else {
        out += value->second;
        i = end;
      }
    } else {
      out += text[i];
    }
  }
  return out;
}

// Of fieldRef: "metadata.uid", "metadata.annotations['key']".
std::string FieldOf(const Json& pod, const std::string& path) {
  const size_t bracket = path.find("['");
  if (bracket != std::string::npos) {
    const Json* table =
        Find(pod, path.substr(0, bracket) == "metadata.labels" ? "metadata/labels"
                                                               : "metadata/annotations");
    const std::string key = path.substr(bracket + 2, path.size() - bracket - 4);
    return table == nullptr ? "" : table->value(key, "");
  }
  std::string pointer = path;
  for (char& c : pointer) c = c == '.' ? '/' : c;
  return TextAt(pod, pointer);
}

}  // namespace

NodeStandIn::NodeStandIn(ClusterConfig config, NodeStandInOptions options)
    : options_(std::move(options)) {
  auto client = Client::Make(std::move(config));
  if (!client) throw std::runtime_error(client.error().message);
  client_ = std::move(*client);
  thread_ = std::thread([this] { Run(); });
}

NodeStandIn::~NodeStandIn() {
  stopped_ = true;
  thread_.join();
}

bool NodeStandIn::HasCgroups() { return !CgroupRoot().empty(); }

pid_t NodeStandIn::PidOf(const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(pod);
  if (found == pods_.end() || found->second.containers.empty()) return -1;
  return found->second.containers[0]->pid();
}

std::map<std::string, std::string> NodeStandIn::EnvironmentOf(const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(pod);
  return found == pods_.end() ? std::map<std::string, std::string>{} : found->second.environment;
}

void NodeStandIn::Run() {
  while (!stopped_) {
    Look();
    usleep(50'000);
  }
  const std::lock_guard lock(mutex_);
  for (auto& [name, pod] : pods_) End(pod);
}

void NodeStandIn::Look() {
  ListOptions mine;
  mine.field_selector = "spec.nodeName=" + options_.node;
  const auto list = client_->List(resources::kPods, "", mine);
  if (!list) return;
  std::set<std::string> there;
  for (const Json& pod : list->at("items")) {
    const std::string name = NameOf(pod).Text();
    there.insert(name);
    const std::lock_guard lock(mutex_);
    auto found = pods_.find(name);
    if (found != pods_.end() && found->second.uid != UidOf(pod)) {
      End(found->second);
      pods_.erase(found);
      found = pods_.end();
    }
    const std::string phase = TextAt(pod, "status/phase", "Pending");
    const bool ended = phase == "Succeeded" || phase == "Failed";
    if (Find(pod, "metadata/deletionTimestamp") != nullptr) {
      if (found != pods_.end()) End(found->second);
      if (ended) {
        client_->Delete(resources::kPods, NameOf(pod), UidOf(pod), 0);
      } else {
        // Its object goes when this is seen to be there: the next time.
        const auto how = found != pods_.end() ? PhaseOf(found->second) : std::nullopt;
        Tell(NameOf(pod), {{"phase", how.value_or("Failed")}});
      }
    } else if (found == pods_.end() && phase == "Pending") {
      if (options_.refuse_every > 0 && ++came_ % options_.refuse_every == 0) {
        Tell(NameOf(pod), {{"phase", "Failed"},
                           {"reason", "UnexpectedAdmissionError"},
                           {"message", "Allocate failed, which is unexpected"}});
        ++refused_;
      } else {
        Begin(name, pod);
      }
    } else if (found != pods_.end() && !found->second.told) {
      if (const auto how = PhaseOf(found->second)) {
        Tell(NameOf(pod), {{"phase", *how}});
        found->second.told = true;
      }
    }
  }
  const std::lock_guard lock(mutex_);
  for (auto pod = pods_.begin(); pod != pods_.end();) {
    if (there.contains(pod->first)) {
      ++pod;
      continue;
    }
    End(pod->second);
    pod = pods_.erase(pod);
  }
}

void NodeStandIn::Begin(const std::string& name, const Json& pod) {
  Running running;
  running.uid = UidOf(pod);
  for (const Json& container : pod.at("spec").at("containers")) {
    std::map<std::string, std::string> environment;
    for (const Json& variable : container.value("env", Json::array())) {
      const std::string field = TextAt(variable, "valueFrom/fieldRef/fieldPath");
      environment[variable.at("name")] =
          field.empty() ? Expand(variable.value("value", ""), environment) : FieldOf(pod, field);
    }
    std::vector<std::string> command;
    for (const char* part : {"command", "args"}) {
      for (const Json& word : container.value(part, Json::array())) {
        command.push_back(Expand(word.get<std::string>(), environment));
      }
    }
    for (const HookMount& mount : HookMounts(options_.mounts)) {
      const std::string& inside = mount.container_path;
      for (auto& [key, value] : environment) {
        if (value.compare(0, inside.size() + 1, inside + "/") == 0) {
          value = mount.host_path + value.substr(inside.size());
        }
      }
    }
    running.environment = environment;
    std::vector<std::pair<std::string, std::string>> all = options_.environment;
    // A sanitizer's runtime wants to be first; a preloaded hook is by design.
    all.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
    all.insert(all.end(), environment.begin(), environment.end());
    const std::string root = CgroupRoot();
    if (!root.empty()) {
      const std::string of_pod = root + "/kubepods/burstable/pod" + running.uid;
      const std::string of_container = of_pod + "/" + container.value("name", "");
      fs::create_directories(of_container);
      running.cgroups.insert(running.cgroups.begin(), of_container);
      running.cgroups.push_back(of_pod);
      command.insert(
          command.begin(),
          {"/bin/sh", "-c", "echo $$ > '" + of_container + "/cgroup.procs' && exec \"$0\" \"$@\""});
    }
    std::string file = options_.folder + "/" + name + "." + container.value("name", "");
    for (size_t i = options_.folder.size() + 1; i < file.size(); ++i) {
      if (file[i] == '/') file[i] = '.';
    }
    auto process = bench::Process::Spawn({.command = command,
                                          .environment = all,
                                          .unset = {},
                                          .stdout_path = file + ".out",
                                          .stderr_path = file + ".err"});
    if (!process) {
      std::fprintf(stderr, "node stand-in: %s: %s\n", name.c_str(),
                   process.error().message.c_str());
      continue;
    }
    running.containers.push_back(std::make_unique<bench::Process>(std::move(*process)));
  }
  Tell(NameOf(pod), {{"phase", "Running"}});
  pods_[name] = std::move(running);
}

void NodeStandIn::End(Running& pod) {
  for (const auto& container : pod.containers) container->Stop(seconds(2));
  for (const std::string& folder : pod.cgroups) rmdir(folder.c_str());
}

std::optional<std::string> NodeStandIn::PhaseOf(Running& pod) {
  bool failed = false;
  for (const auto& container : pod.containers) {
    const auto status = container->Wait(Duration::zero());
    if (!status) return std::nullopt;
    failed |= *status != 0;
  }
  return failed ? "Failed" : "Succeeded";
}

void NodeStandIn::Tell(const ObjectName& name, const Json& status) {
  client_->Patch(resources::kPods, name, PatchKind::kMerge, {{"status", status}}, "status");
}

}  // namespace baton::k8s
