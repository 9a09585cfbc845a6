#include "tests/k8s/end_to_end/real_api_server.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "k8s/api/client.h"

namespace baton::k8s {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

const char* Assets() {
  const char* folder = std::getenv("KUBEBUILDER_ASSETS");
  return folder == nullptr ? "" : folder;
}

bool Runnable(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

std::string KubectlPath() {
  const std::string own = std::string(Assets()) + "/kubectl";
  return Runnable(own) ? own : "kubectl";
}

// A port that is free now.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

bool WriteSigningKey(const std::string& path) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  BIO* file = BIO_new_file(path.c_str(), "w");
  // "EC PRIVATE KEY": kube-apiserver finds the public key in no other form of it.
  const bool written =
      key != nullptr && file != nullptr &&
      PEM_write_bio_PrivateKey_traditional(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1;
  BIO_free(file);
  EVP_PKEY_free(key);
  return written;
}

std::string Tail(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() > 2000 ? all.substr(all.size() - 2000) : all;
}

}  // namespace

std::optional<std::string> RealApiServer::WhyNot() {
  const std::string folder = Assets();
  if (folder.empty()) {
    return "KUBEBUILDER_ASSETS is not set: it names a folder with etcd and kube-apiserver";
  }
  for (const char* name : {"etcd", "kube-apiserver"}) {
    if (!Runnable(folder + "/" + name)) {
      return "KUBEBUILDER_ASSETS (" + folder + ") has no program " + name;
    }
  }
  return std::nullopt;
}

Result<std::unique_ptr<RealApiServer>> RealApiServer::Start(const std::string& folder) {
  const std::string assets = Assets();
  auto server = std::unique_ptr<RealApiServer>(new RealApiServer);
  server->folder_ = folder;
  server->kubectl_ = KubectlPath();
  fs::create_directories(folder + "/certs");

  const std::string etcd_url = "http://127.0.0.1:" + std::to_string(FreePort());
  const std::string peer_url = "http://127.0.0.1:" + std::to_string(FreePort());
  auto etcd = bench::Process::Spawn(
      {.command = {assets + "/etcd", "--data-dir", folder + "/etcd", "--unsafe-no-fsync",
                   "--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url,
                   "--listen-peer-urls", peer_url},
       .environment = {},
       .unset = {},
       .stdout_path = folder + "/etcd.log",
       .stderr_path = folder + "/etcd.log"});
  if (!etcd) return tl::unexpected(etcd.error());
  server->etcd_ = std::make_unique<bench::Process>(std::move(*etcd));

  // Static tokens: "token,user,uid,groups".
  std::ofstream tokens(folder + "/tokens.csv");
  tokens << "token-admin,admin,1,system:masters\n";
  server->tokens_["admin"] = "token-admin";
  for (const char* who :
       {"baton-binder", "baton-webhook", "baton-extender", "baton-node", "nobody"}) {
    const std::string token = std::string("token-") + who;
    tokens << token << ",system:serviceaccount:baton-system:" << who << "," << who
           << ",\"system:serviceaccounts,system:serviceaccounts:baton-system\"\n";
    server->tokens_[who] = token;
  }
  tokens.close();
  if (!WriteSigningKey(folder + "/sa.key")) {
    return Fail(ErrorCode::kInternal, "no signing key could be made");
  }
  const int port = FreePort();
  server->server_ = "https://127.0.0.1:" + std::to_string(port);
  auto api = bench::Process::Spawn(
      {.command = {assets + "/kube-apiserver", "--etcd-servers", etcd_url, "--bind-address",
                   "127.0.0.1", "--endpoint-reconciler-type", "none", "--secure-port",
                   std::to_string(port), "--cert-dir", folder + "/certs",
                   "--service-cluster-ip-range", "10.0.0.0/24", "--service-account-issuer",
                   "https://kubernetes.default.svc", "--service-account-key-file",
                   folder + "/sa.key", "--service-account-signing-key-file", folder + "/sa.key",
                   "--token-auth-file", folder + "/tokens.csv", "--authorization-mode", "RBAC",
                   // Nobody makes service accounts' tokens here, nor takes the taints away.
                   "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
                   "--allow-privileged"},
       .environment = {},
       .unset = {},
       .stdout_path = folder + "/kube-apiserver.log",
       .stderr_path = folder + "/kube-apiserver.log"});
  if (!api) return tl::unexpected(api.error());
  server->api_server_ = std::make_unique<bench::Process>(std::move(*api));

  const Instant end = MonotonicNow() + seconds(60);
  std::string trouble = "it has made no certificate";
  while (MonotonicNow() < end) {
    if (!server->api_server_->running()) {
      return Fail(ErrorCode::kInternal,
                  "kube-apiserver ended: " + Tail(folder + "/kube-apiserver.log"));
    }
    if (fs::exists(folder + "/certs/apiserver.crt")) {
      ClientOptions patience;
      patience.timeout = seconds(2);
      auto client = Client::Make(server->admin(), patience);
      if (!client) return tl::unexpected(client.error());
      const auto version = (*client)->GetPath("/version");
      const auto ready = (*client)->Get(resources::kNamespaces, {"", "default"});
      if (version && ready) {
        server->version_ = TextAt(*version, "gitVersion");
        return server;
      }
      trouble = version ? ready.error().message : version.error().message;
    }
    usleep(200'000);
  }
  return Fail(ErrorCode::kUnavailable, "kube-apiserver was not ready in time: " + trouble + "\n" +
                                           Tail(folder + "/kube-apiserver.log"));
}

RealApiServer::~RealApiServer() {
  if (api_server_) api_server_->Stop(seconds(10));
  if (etcd_) etcd_->Stop(seconds(5));
}

ClusterConfig RealApiServer::ConfigOf(const std::string& who) const {
  ClusterConfig config;
  config.server = server_;
  config.tls.ca_file = folder_ + "/certs/apiserver.crt";
  config.token = tokens_.at(who);
  return config;
}

std::string RealApiServer::KubeconfigOf(const std::string& who) const {
  const std::string path = folder_ + "/" + who + ".kubeconfig";
  std::ofstream(path) << "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
                      << "clusters:\n- name: test\n  cluster:\n    server: " << server_
                      << "\n    certificate-authority: " << folder_ << "/certs/apiserver.crt\n"
                      << "users:\n- name: test\n  user: {token: " << tokens_.at(who) << "}\n"
                      << "contexts:\n- name: test\n  context: {cluster: test, user: test}\n";
  return path;
}

std::pair<int, std::string> RealApiServer::Kubectl(
    const std::vector<std::string>& arguments) const {
  static int runs = 0;
  const std::string out = folder_ + "/kubectl-" + std::to_string(++runs) + ".out";
  std::vector<std::string> command = {kubectl_, "--kubeconfig", KubeconfigOf("admin"),
                                      "--cache-dir", folder_ + "/kubectl-cache"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto process = bench::Process::Spawn(
      {.command = command, .environment = {}, .unset = {}, .stdout_path = out, .stderr_path = out});
  if (!process) return {127, process.error().message};
  const auto status = process->Wait(seconds(120));
  std::ifstream file(out);
  std::stringstream text;
  text << file.rdbuf();
  return {status.value_or(124), text.str()};
}

std::pair<int, std::string> RealApiServer::KubectlFile(std::vector<std::string> arguments,
                                                       const std::string& text) const {
  static int files = 0;
  const std::string path = folder_ + "/apply-" + std::to_string(++files) + ".yaml";
  std::ofstream(path) << text;
  arguments.insert(arguments.end(), {"-f", path});
  return Kubectl(arguments);
}

}  // namespace baton::k8s
