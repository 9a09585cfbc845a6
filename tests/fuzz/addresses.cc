// URLs and addresses, of configurations, kubeconfigs and requests; and cgroups, which say whose
// process asks.
#include <algorithm>

#include "config/options.h"
#include "net/message.h"
#include "net/options.h"
#include "net/url.h"
#include "node/pod_cgroup.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

FUZZ_TARGET(address) {
  const std::string text(input);
  if (const auto url = net::ParseHttpUrl(text, "the server")) {
    BATON_CHECK(!url->host.empty() && url->port != 0);
    BATON_CHECK(url->path.empty() || (url->path.front() == '/' && url->path.back() != '/'));
    const auto again =
        net::ParseHttpUrl((url->tls ? "https://" : "http://") + url->authority + url->path, "it");
    BATON_CHECK(again);
    BATON_CHECK(again->host == url->host && again->port == url->port && again->path == url->path);
  }
  if (const auto listen = net::ParseListen(text)) BATON_CHECK(!listen->host.empty());
}

FUZZ_TARGET(target) {
  const auto request = net::ParseTarget(input);
  if (!request) return;
  BATON_CHECK(request->path.front() == '/');
  BATON_CHECK(request->query.size() <= net::HttpRequest::kQueryMax);
  std::string written = net::PercentEncode(request->path);
  for (size_t at = written.find("%2F"); at != std::string::npos; at = written.find("%2F", at)) {
    written.replace(at, 3, "/");
  }
  char before = '?';
  for (const auto& [name, value] : request->query) {
    written += before + net::PercentEncode(name) + "=" + net::PercentEncode(value);
    before = '&';
  }
  if (written.size() > 4096) return;
  const auto again = net::ParseTarget(written);
  BATON_CHECK(again);
  BATON_CHECK(again->path == request->path && again->query == request->query);
}

FUZZ_TARGET(cgroup) {
  const std::string pod = node::KubernetesPodIn(input);
  BATON_CHECK(pod.empty() || node::IsKubernetesUid(pod));
  // The same group twice says no more; another pod's makes it nobody's.
  const std::string twice = std::string(input) + "\n" + std::string(input);
  BATON_CHECK(node::KubernetesPodIn(twice) == pod);
  if (!pod.empty() && pod != "other-one") {
    BATON_CHECK(
        node::KubernetesPodIn(std::string(input) + "\n0::/kubepods/podother-one/x").empty());
  }
  const std::string container = node::ContainerIn(input);
  BATON_CHECK(container.empty() || container.size() == 64);
  BATON_CHECK(node::ContainerIn(twice) == container);
  const std::string group = node::ContainerGroupIn(input);
  BATON_CHECK(group.empty() || (group.front() == '/' && group.find("/../") == std::string::npos));
  const std::string below = "0::/docker-" + container + ".scope/x\n" + std::string(input);
  BATON_CHECK(node::ContainerIn(below) == container);
  BATON_CHECK(container.empty() ||
              node::ContainerGroupIn(below) == "/docker-" + container + ".scope");
}

}  // namespace
}  // namespace baton::fuzz
