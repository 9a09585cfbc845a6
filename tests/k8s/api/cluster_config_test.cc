// Where the cluster is and who we are there.
#include "k8s/api/cluster_config.h"

#include <cstdlib>
#include <map>
#include <optional>

#include "base/random.h"
#include "tests/k8s/api/fixture.h"

namespace baton::k8s::testing {
namespace {

// Sets variables, and puts them back.
class Environment {
 public:
  void Set(const char* name, const std::string& value) {
    if (!before_.contains(name)) {
      const char* old = std::getenv(name);
      before_[name] = old != nullptr ? std::optional<std::string>(old) : std::nullopt;
    }
    if (value.empty()) {
      unsetenv(name);
    } else {
      setenv(name, value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

constexpr char kAccount[] = "var/run/secrets/kubernetes.io/serviceaccount/";

std::string Kubeconfig(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: work\n"
         "contexts:\n"
         "- {name: work, context: {cluster: c, user: u, namespace: vision}}\n"
         "- {name: lost, context: {cluster: nowhere, user: u}}\n"
         "clusters:\n- name: c\n  cluster: {" +
         cluster + "}\nusers:\n- name: u\n  user: {" + user + "}\n";
}

TEST(ClusterConfigTest, ServiceAccountIsUsedInAPod) {
  const TempFolder folder;
  Environment environment;
  environment.Set("KUBERNETES_SERVICE_HOST", "fd00::1");
  environment.Set("KUBERNETES_SERVICE_PORT", "443");
  const auto without = InClusterConfig(folder.path());
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, ErrorCode::kNotFound);
  EXPECT_NE(without.error().message.find("automountServiceAccountToken"), std::string::npos);
  folder.Write(std::string(kAccount) + "token", "t");
  folder.Write(std::string(kAccount) + "ca.crt", "c");
  folder.Write(std::string(kAccount) + "namespace", "baton-system\n");
  const auto config = InClusterConfig(folder.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "https://[fd00::1]:443");
  EXPECT_EQ(config->name_space, "baton-system");
  EXPECT_EQ(config->token_file, folder.path() + "/" + kAccount + "token");
  environment.Set("KUBERNETES_SERVICE_HOST", "");
  EXPECT_EQ(InClusterConfig(folder.path()).error().code, ErrorCode::kNotFound);
}

TEST(ClusterConfigTest, KubeconfigHasDataOrRelativeFiles) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "a/config",
      Kubeconfig("server: 'https://h:6443', certificate-authority: ca.crt, tls-server-name: n",
                 "client-certificate-data: 'aGVs\n    bG8=', client-key: /abs/key, "
                 "tokenFile: token, token: t"));
  const auto config = KubeconfigContext(path);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "https://h:6443");
  EXPECT_EQ(config->tls.server_name, "n");
  EXPECT_EQ(config->tls.ca_file, folder.path() + "/a/ca.crt");
  EXPECT_EQ(config->tls.certificate, "hello");
  EXPECT_EQ(config->tls.key_file, "/abs/key");
  EXPECT_EQ(config->token, "t");
  EXPECT_EQ(config->token_file, folder.path() + "/a/token");
  EXPECT_EQ(config->name_space, "vision");
  EXPECT_FALSE(config->tls.insecure);
}

TEST(ClusterConfigTest, UnsupportedKubeconfigFieldsAreErrors) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& text, const std::string& context = {}) {
    const auto config = KubeconfigContext(folder.Write("config", text), context);
    EXPECT_FALSE(config);
    if (config) return std::string();
    EXPECT_EQ(config.error().code, ErrorCode::kInvalid);
    return config.error().message;
  };
  const std::string server = "server: 'https://h:6443'";
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(refusal(Kubeconfig(server, "exec: {command: aws}")), "exec");
  says(refusal(Kubeconfig(server, "auth-provider: {name: gcp}")), "auth-provider");
  says(refusal(Kubeconfig(server, "username: a, password: b")), "username");
  says(refusal(Kubeconfig(server + ", proxy-url: 'http://p'", "token: t")), "proxy");
  says(refusal(Kubeconfig("server: 'ftp://h'", "token: t")), "https://");
  says(refusal(Kubeconfig("insecure-skip-tls-verify: true", "token: t")), "without a server");
  says(refusal(Kubeconfig(server, "client-key-data: '***'")), "client-key-data");
  says(refusal(Kubeconfig(server, "token: t"), "lost"), "nowhere");
  says(refusal(Kubeconfig(server, "token: t"), "absent"), "absent");
  says(refusal("contexts: []"), "current-context");
  says(refusal("{ this is: [no YAML"), "damaged");
  says(refusal("- just\n- a list"), "no kubeconfig");
  says(refusal("[]"), "no kubeconfig");
  says(refusal(""), "no kubeconfig");
  EXPECT_EQ(KubeconfigContext(folder.path() + "/none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(KubeconfigContext(folder.path()).error().code, ErrorCode::kInvalid);
}

// Damage at random never does worse than an error.
TEST(ClusterConfigTest, DamagedKubeconfigsAreErrors) {
  const uint64_t seed = static_cast<uint64_t>(Nanos(MonotonicNow()));
  std::printf("seed %lu\n", seed);
  Random random(seed);
  const TempFolder folder;
  const std::string good =
      Kubeconfig("server: 'https://h:6443', certificate-authority-data: aGVsbG8=", "token: t");
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    for (int64_t i = random.Between(1, 4); i > 0; --i) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(text.size()) - 1));
      switch (random.Between(0, 2)) {
        case 0:
          text[at] = static_cast<char>(random.Between(0, 255));
          break;
        case 1:
          text.erase(at, static_cast<size_t>(random.Between(1, 20)));
          break;
        default:
          text.insert(at, 1, "[]{}:,&*!|>'\"%@`\t"[random.Between(0, 16)]);
      }
      if (text.empty()) break;
    }
    if (const auto config = KubeconfigContext(folder.Write("config", text)); !config) {
      EXPECT_FALSE(config.error().message.empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(ClusterConfigTest, SourcesAreTriedInTheDocumentedOrder) {
  const TempFolder folder;
  Environment environment;
  environment.Set("KUBERNETES_SERVICE_HOST", "");
  environment.Set("KUBECONFIG", "");
  environment.Set("HOME", folder.path());
  EXPECT_EQ(FindClusterConfig("", "").error().code, ErrorCode::kNotFound);
  folder.Write(".kube/config", Kubeconfig("server: 'https://home:1'", "token: t"));
  EXPECT_EQ(FindClusterConfig("", "")->server, "https://home:1");
  const std::string first =
      folder.Write("first", Kubeconfig("server: 'https://first:1'", "token: t"));
  environment.Set("KUBECONFIG", ":" + first + ":/other");
  EXPECT_EQ(FindClusterConfig("", "")->server, "https://first:1");
  const std::string given =
      folder.Write("given", Kubeconfig("server: 'https://given:1'", "token: t"));
  EXPECT_EQ(FindClusterConfig(given, "work")->server, "https://given:1");
  // In a pod whose account is missing nothing else is taken for it.
  environment.Set("KUBERNETES_SERVICE_HOST", "10.0.0.1");
  environment.Set("KUBERNETES_SERVICE_PORT", "443");
  EXPECT_FALSE(FindClusterConfig("", ""));
}

}  // namespace
}  // namespace baton::k8s::testing
