#include "k8s/api/cluster_config.h"

#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "base/file.h"
#include "k8s/api/base64.h"
#include "net/url.h"

namespace baton::k8s {
namespace {

constexpr size_t kKubeconfigMax = size_t{4} << 20;

std::string EnvironmentText(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

std::string Trimmed(std::string text) {
  const char* const blank = " \t\r\n";
  text.erase(text.find_last_not_of(blank) + 1);
  return text.erase(0, text.find_first_not_of(blank));
}

// One kubeconfig, whose errors name its path.
class Kubeconfig {
 public:
  explicit Kubeconfig(std::string path) : path_(std::move(path)) {}

  // Throws YAML::Exception.
  Result<ClusterConfig> Read(const std::string& text, std::string context) {
    const YAML::Node file = YAML::Load(text);
    if (!file.IsMap()) return Invalid("holds no kubeconfig");
    if (context.empty()) context = Text(file, "current-context");
    if (context.empty()) {
      return Invalid(
          "has no current-context; set one (kubectl config use-context NAME), or name "
          "one with --context");
    }
    auto chosen = Named(file, "contexts", "context", context);
    if (!chosen) return tl::unexpected(chosen.error());
    auto cluster = Named(file, "clusters", "cluster", Text(*chosen, "cluster"));
    if (!cluster) return tl::unexpected(cluster.error());

    ClusterConfig config;
    if (auto space = Text(*chosen, "namespace"); !space.empty()) config.name_space = space;
    config.server = Text(*cluster, "server");
    if (config.server.empty()) return Invalid("has a cluster without a server");
    if (auto url = net::ParseHttpUrl(config.server, kApiServer); !url)
      return Invalid("says: " + url.error().message);
    if (!Text(*cluster, "proxy-url").empty()) {
      return Invalid("wants a proxy (proxy-url), which is not supported");
    }
    config.tls.server_name = Text(*cluster, "tls-server-name");
    config.tls.insecure = Text(*cluster, "insecure-skip-tls-verify") == "true";
    const std::string user_name = Text(*chosen, "user");
    YAML::Node user(YAML::NodeType::Map);
    if (!user_name.empty()) {
      auto found = Named(file, "users", "user", user_name);
      if (!found) return tl::unexpected(found.error());
      user = *found;
    }
    for (const char* plugin : {"exec", "auth-provider"}) {
      if (user[plugin].IsDefined() && !user[plugin].IsNull()) {
        return Invalid("wants a plugin for the user '" + user_name + "' (" + plugin +
                       "), which is not supported; use a token or a certificate, for example of a "
                       "service account (kubectl create token NAME)");
      }
    }
    for (const char* other : {"username", "as"}) {
      if (!Text(user, other).empty()) {
        return Invalid(std::string("gives the user '") + user_name + "' by '" + other +
                       "', which is not supported; use a token or a certificate");
      }
    }
    for (auto [node, key, data, file_path] :
         {std::tuple{&*cluster, "certificate-authority", &config.tls.ca, &config.tls.ca_file},
          std::tuple{&user, "client-certificate", &config.tls.certificate,
                     &config.tls.certificate_file},
          std::tuple{&user, "client-key", &config.tls.key, &config.tls.key_file}}) {
      if (std::string coded = Text(*node, std::string(key) + "-data"); !coded.empty()) {
        std::erase_if(coded,
                      [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
        *data = FromBase64(coded);
        if (data->empty()) {
          return Fail(ErrorCode::kInvalid, std::string(key) + "-data of " + path_ +
                                               " is not base64; was it cut when it was copied?");
        }
      } else {
        *file_path = Beside(Text(*node, key));
      }
    }
    config.token = Text(user, "token");
    config.token_file = Beside(Text(user, "tokenFile"));
    return config;
  }

 private:
  tl::unexpected<Error> Invalid(const std::string& why) const {
    return Fail(ErrorCode::kInvalid, "the kubeconfig " + path_ + " " + why);
  }
  static std::string Text(const YAML::Node& map, const std::string& key) {
    if (!map.IsMap()) return {};
    const YAML::Node value = map[key];
    return value.IsDefined() && value.IsScalar() ? value.Scalar() : std::string();
  }
  // Of the list `list` the entry `name`'s part `part`.
  Result<YAML::Node> Named(const YAML::Node& file, const std::string& list, const std::string& part,
                           const std::string& name) const {
    const YAML::Node entries = file[list];
    if (entries.IsDefined() && entries.IsSequence()) {
      for (const YAML::Node& entry : entries) {
        if (Text(entry, "name") == name && entry[part].IsDefined() && entry[part].IsMap()) {
          return YAML::Node(entry[part]);
        }
      }
    }
    return Invalid("has no " + part + " '" + name + "'");
  }
  std::string Beside(const std::string& file) const {
    if (file.empty() || file.front() == '/') return file;
    return (std::filesystem::path(path_).parent_path() / file).string();
  }

  const std::string path_;
};

}  // namespace

Result<ClusterConfig> InClusterConfig(const std::string& root) {
  const std::string folder = root + "/var/run/secrets/kubernetes.io/serviceaccount/";
  const std::string host = EnvironmentText("KUBERNETES_SERVICE_HOST");
  const std::string port = EnvironmentText("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Fail(ErrorCode::kNotFound,
                "this runs in no pod: KUBERNETES_SERVICE_HOST and _PORT are not set; name a "
                "kubeconfig with --kubeconfig");
  }
  ClusterConfig config;
  config.server =
      "https://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
  if (auto url = net::ParseHttpUrl(config.server, kApiServer); !url)
    return tl::unexpected(url.error());
  config.token_file = folder + "token";
  config.tls.ca_file = folder + "ca.crt";
  auto token = ReadFile(config.token_file, 1 << 20);
  if (!token) {
    token.error().code = ErrorCode::kNotFound;
    token.error().message += "; does the pod set automountServiceAccountToken to false?";
    return tl::unexpected(token.error());
  }
  if (auto ca = ReadFile(config.tls.ca_file, 1 << 20); !ca) {
    ca.error().code = ErrorCode::kNotFound;
    return tl::unexpected(ca.error());
  }
  if (auto space = ReadFile(folder + "namespace", 1 << 10); space) {
    if (auto name = Trimmed(*space); !name.empty()) config.name_space = name;
  }
  return config;
}

Result<ClusterConfig> KubeconfigContext(const std::string& path, const std::string& context) {
  auto text = ReadFile(path, kKubeconfigMax);
  if (!text) return tl::unexpected(text.error());
  try {
    return Kubeconfig(path).Read(*text, context);
  } catch (const YAML::Exception& error) {
    return Fail(ErrorCode::kInvalid, "the kubeconfig " + path + " is damaged: " + error.what());
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInvalid, "the kubeconfig " + path + " cannot be read: " + error.what());
  }
}

Result<ClusterConfig> FindClusterConfig(const std::string& kubeconfig, const std::string& context) {
  if (!kubeconfig.empty()) return KubeconfigContext(kubeconfig, context);
  if (context.empty()) {
    auto in_cluster = InClusterConfig();
    // In a pod whose token is missing nothing else is tried: it would be somebody else's.
    if (in_cluster || !EnvironmentText("KUBERNETES_SERVICE_HOST").empty()) return in_cluster;
  }
  std::string paths = EnvironmentText("KUBECONFIG");
  while (!paths.empty()) {
    const size_t colon = paths.find(':');
    const std::string first = paths.substr(0, colon);
    if (!first.empty()) return KubeconfigContext(first, context);
    paths.erase(0, colon == std::string::npos ? colon : colon + 1);
  }
  const std::string home = EnvironmentText("HOME");
  const std::string path = home + "/.kube/config";
  std::error_code error;
  if (home.empty() || !std::filesystem::exists(path, error)) {
    return Fail(ErrorCode::kNotFound,
                "there is no cluster to be found: this is no pod, KUBECONFIG is not set, and there "
                "is no ~/.kube/config; name a kubeconfig with --kubeconfig");
  }
  return KubeconfigContext(path, context);
}

}  // namespace baton::k8s
