// Which Kubernetes pod and which container a process belongs to, by where it was put in the cgroup
// tree. A tenant cannot move itself there; it can at most make groups below its own container's.
// Pure.
#ifndef BATON_NODE_POD_CGROUP_H_
#define BATON_NODE_POD_CGROUP_H_

#include <string>
#include <string_view>

namespace baton::node {

// The longest uid of a pod that is looked for, in bytes; a uuid has 36.
inline constexpr size_t kKubernetesUidMax = 64;

// Letters, digits and dashes, 1 to kKubernetesUidMax of them.
bool IsKubernetesUid(std::string_view text);

// `text`: a /proc/PID/cgroup. The pod's uid; empty: it is in none, or its hierarchies (cgroup v1)
// name several. Known are the kubelet's two drivers,
//
//   /kubepods/burstable/pod<uid>/<container>/...
//   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid, _ for ->.slice/...
//
// with or without the class in between, the same below `kubelet` (kind), and as both look from
// within another pod's cgroup namespace: with "..", and without the ancestors that both share. Only
// the first part below that hierarchy counts: what is deeper is named by tenants.
std::string KubernetesPodIn(std::string_view text);

// The id of the container, 64 hexadecimal digits, as containerd, CRI-O, Docker and Podman name its
// group: "cri-containerd-<id>.scope", "docker-<id>.scope", "<id>". The outermost one of the first
// hierarchy that has one; empty: none has.
std::string ContainerIn(std::string_view text);

// The path of that container's group in the unified hierarchy (cgroup v2), from its root; empty:
// there is none, or it cannot be seen from here (another cgroup namespace). What is below it was
// made by tenants.
std::string ContainerGroupIn(std::string_view text);

}  // namespace baton::node

#endif  // BATON_NODE_POD_CGROUP_H_
