// The chart as it is rendered, for tests: its documents as JSON, and what belongs to what in them.
#ifndef BATON_TESTS_K8S_CHART_MANIFESTS_H_
#define BATON_TESTS_K8S_CHART_MANIFESTS_H_

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace baton::k8s {

using Json = nlohmann::json;

inline const std::string kSource = BATON_SOURCE;
inline const std::string kChart = kSource + "/k8s/chart/baton";

inline std::string Text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// YAML as Kubernetes reads it: what is quoted is a text.
inline Json ToJson(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& member : node) {
        object[member.first.as<std::string>()] = ToJson(member.second);
      }
      return object;
    }
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const auto& entry : node) list.push_back(ToJson(entry));
      return list;
    }
    case YAML::NodeType::Scalar: {
      if (node.Tag() == "!") return node.Scalar();
      bool flag = false;
      if (YAML::convert<bool>::decode(node, flag)) return flag;
      int64_t whole = 0;
      if (YAML::convert<int64_t>::decode(node, whole)) return whole;
      double number = 0;
      if (YAML::convert<double>::decode(node, number)) return number;
      return node.Scalar();
    }
    default:
      return nullptr;
  }
}

inline std::vector<Json> Documents(const std::string& path) {
  std::vector<Json> documents;
  for (const YAML::Node& node : YAML::LoadAll(Text(path))) {
    if (node.IsMap()) documents.push_back(ToJson(node));
  }
  return documents;
}

// The member at a path such as "spec/template/spec"; null: there is none.
inline Json At(const Json& object, const std::string& path) {
  const Json* at = &object;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '/');) {
    if (!at->is_object() || !at->contains(part)) return nullptr;
    at = &at->at(part);
  }
  return *at;
}

inline std::string Name(const Json& object) {
  return At(object, "metadata/name").is_string() ? At(object, "metadata/name") : "?";
}

inline bool IsPartOf(const Json& selector, const Json& labels) {
  if (!selector.is_object() || selector.empty()) return false;
  for (const auto& [key, value] : selector.items()) {
    if (!labels.is_object() || labels.value(key, Json()) != value) return false;
  }
  return true;
}

// The chart with default values, with one batond for all nodes, and with all that it can make.
inline std::string Rendered(const std::string& name) {
  return kSource + (name == "everything" ? "/tests/k8s/chart/" : "/k8s/manifests/") + name +
         ".yaml";
}

// The values of everything.yaml.
inline Json ValuesOfEverything() {
  return Documents(kSource + "/tests/k8s/chart/everything.values.yaml").at(0);
}

// What a shell command prints, and its status.
inline std::pair<int, std::string> Shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, ""};
  std::string said;
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    said.append(buffer.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said};
}

class Manifests : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    all_ = Documents(Rendered(GetParam()));
    ASSERT_GT(all_.size(), 20u);
  }
  std::vector<Json> Of(const std::set<std::string>& kinds) const {
    std::vector<Json> some;
    for (const Json& object : all_) {
      if (kinds.contains(object.value("kind", ""))) some.push_back(object);
    }
    return some;
  }
  std::vector<Json> Workloads() const { return Of({"Deployment", "DaemonSet"}); }
  bool Has(const std::string& kind, const std::string& name) const {
    for (const Json& object : Of({kind})) {
      if (Name(object) == name) return true;
    }
    return false;
  }
  // Containers of a workload, init containers first.
  static std::vector<Json> Containers(const Json& workload) {
    std::vector<Json> containers;
    for (const char* list : {"initContainers", "containers"}) {
      const Json found = At(workload, std::string("spec/template/spec/") + list);
      if (found.is_array()) containers.insert(containers.end(), found.begin(), found.end());
    }
    return containers;
  }
  bool SomePodHas(const Json& selector) const {
    for (const Json& workload : Workloads()) {
      if (IsPartOf(selector, At(workload, "spec/template/metadata/labels"))) return true;
    }
    return false;
  }

  // Ports of the containers of the pods that a selector meets.
  std::vector<Json> PortsOfPods(const Json& selector) const {
    std::vector<Json> ports;
    for (const Json& workload : Workloads()) {
      if (!IsPartOf(selector, At(workload, "spec/template/metadata/labels"))) continue;
      for (const Json& container : Containers(workload)) {
        const Json open = container.value("ports", Json::array());
        ports.insert(ports.end(), open.begin(), open.end());
      }
    }
    return ports;
  }
  static bool Names(const std::vector<Json>& ports, const Json& name) {
    return std::any_of(ports.begin(), ports.end(),
                       [&](const Json& port) { return port.at("name") == name; });
  }

  std::vector<Json> all_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_CHART_MANIFESTS_H_
