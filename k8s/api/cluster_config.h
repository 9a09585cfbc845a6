// Where the API server is and who we are there: a service account's files, or a kubeconfig.
#ifndef BATON_K8S_API_CLUSTER_CONFIG_H_
#define BATON_K8S_API_CLUSTER_CONFIG_H_

#include <string>

#include "base/result.h"
#include "net/tls.h"

namespace baton::k8s {

// What errors call it.
inline constexpr char kApiServer[] = "the API server";

struct ClusterConfig {
  std::string server;  // "https://10.96.0.1:443"; "http://" for a stand-in on loopback only
  // Authorities, the name to verify, and the client's certificate; the kubeconfig's words for them
  // are certificate-authority, tls-server-name, insecure-skip-tls-verify, client-certificate.
  net::ClientTlsOptions tls;
  // A bearer token; the file is read again once a minute and after each 401, since the kubelet
  // replaces it.
  std::string token;
  std::string token_file;
  std::string name_space = "default";  // the context's, or the service account's own
};

// /var/run/secrets/kubernetes.io/serviceaccount and KUBERNETES_SERVICE_HOST, _PORT. `root` stands
// before that path (tests). kNotFound: not in a pod.
Result<ClusterConfig> InClusterConfig(const std::string& root = "");
// A kubeconfig's context (empty: its current one): certificates, tokens, token files, as data or
// files (relative ones beside the kubeconfig). kInvalid names what is wrong, and says so where it
// wants a plugin (exec, auth-provider), which is not supported.
Result<ClusterConfig> KubeconfigContext(const std::string& path, const std::string& context = "");
// What a program should use: `kubeconfig` where it is given, else in a pod the service account,
// else $KUBECONFIG (its first file), else ~/.kube/config.
Result<ClusterConfig> FindClusterConfig(const std::string& kubeconfig, const std::string& context);

}  // namespace baton::k8s

#endif  // BATON_K8S_API_CLUSTER_CONFIG_H_
