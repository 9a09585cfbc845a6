"""What Baton promises on a real kubelet. Each case cleans up after itself, and returns what it measured."""

import json
import statistics
import time

from baton import BURN, NOTEBOOK, SYSTEM
from one_node import NODE, wait_for

# The daemon's own goal: no time without tokens above these (seconds).
GAP_MEDIAN, GAP_WORST = 0.3, 1.0


def near(what, got, wanted, within):
    assert all(abs(g - w) <= within for g, w in zip(got, wanted, strict=True)), f"{what}: {got}, wanted {wanted}"


def text_of(values):
    return " / ".join(f"{v:.1f}" for v in values)


def three(cluster):
    """60/30/10 on one GPU, attached; their uids and the GPU's file."""
    for name, request in [("a", "60"), ("b", "30"), ("c", "10")]:
        cluster.make(name, {"request": request, "memory": "2Gi", "affinity": "together"})
    cluster.await_attached("a", "b", "c")
    cluster.learn_pids()
    return [cluster.uid(n) for n in "abc"], cluster.gpus[cluster.gpu_of("a")]


# -------------------------------------------------------------------------------------------- the way in


def documented_install(cluster):
    """The commands of docs/kubernetes.md, word for word, from nothing to a running share."""
    # In a further round it is there.
    cluster.helm("uninstall", "baton", "--namespace", SYSTEM, "--wait", "--ignore-not-found")
    # Where kubectl watches, a user presses Ctrl-C once the share runs.
    for command in cluster.documented("## Install").splitlines():
        said = cluster.shell(command.replace(" --watch", ""))
        print(f"$ {command}\n{said}", end="")
    cluster.await_baton()
    wait_for("the notebook's share", lambda: float((cluster.get("sharepod", "notebook") or {}).get("status", {}).get(
        "achieved", "0")) > 10, 90)
    print(cluster.shell("kubectl get sharepods && kubectl get gpunodes"), end="")
    cluster.shell(cluster.documented("### Live changes").splitlines()[0])
    wait_for("the patch", lambda: any(p["name"] == "default/notebook" and p["request"] == 20 and p["limit"] == 30
                                      for p in cluster.status()["pods"]), 10)
    cluster.remove_all()


def shares(cluster):
    """60/30/10 on one GPU."""
    pods, file = three(cluster)
    got, overlaps = cluster.shares(file, 10, *pods)
    near("shares", got, [60, 30, 10], 1.5)
    assert overlaps == 0, overlaps
    def told():
        return [float(cluster.get("sharepod", n)["status"].get("achieved", "0")) for n in "abc"]
    wait_for("the status", lambda: all(abs(t - w) < 5 for t, w in zip(told(), [60, 30, 10])), 90)
    cluster.remove_all()
    return f"{text_of(got)} %, no overlap"


def patch(cluster):
    """A patched share is in force within a second, and the pods keep running."""
    pods, file = three(cluster)
    for name, request in [("a", "20"), ("b", "30"), ("c", "50")]:
        cluster.patch(name, {"request": request})
    time.sleep(1)
    got, overlaps = cluster.shares(file, 6, *pods)
    near("shares", got, [20, 30, 50], 2)
    assert overlaps == 0, overlaps
    assert [cluster.uid(n) for n in "abc"] == pods
    cluster.remove_all()
    return f"{text_of(got)} %"


def gang_on_two_gpus(cluster):
    """Pods of one gang are on different GPUs."""
    for name in ["g0", "g1"]:
        cluster.make(name, {"request": "30", "gang": {"name": "g", "size": 2}})
    cluster.await_attached("g0", "g1")
    assert cluster.gpu_of("g0") != cluster.gpu_of("g1")
    cluster.remove_all()


# ------------------------------------------------------------------------------------- pods that come back


def again(cluster, before, names):
    """Each has another pod that runs and is attached."""
    def others():
        now = {n: cluster.uid(n) for n in names}
        return all(now[n] and now[n] != before[n] for n in names)
    wait_for("other pods", others, 90)
    cluster.await_attached(*names, seconds=90)
    # A process may attach before its kubelet has said that it runs.
    wait_for("SharePods to be Running",
             lambda: all(cluster.get("sharepod", n)["status"].get("phase") == "Running" for n in names), 5)


def delete_pod(cluster):
    """kubectl delete pod: the SharePod gets another."""
    cluster.make("one", {"request": "30"})
    cluster.await_attached("one")
    before = {"one": cluster.uid("one")}
    cluster.kubectl("delete", "pod", "one")
    again(cluster, before, ["one"])
    cluster.remove_all()


def drain(cluster):
    """kubectl drain, then uncordon: SharePods wait meanwhile, and come back."""
    names = ["a", "b", "c"]
    three(cluster)
    before = {n: cluster.uid(n) for n in names}
    cluster.kubectl("drain", NODE, "--ignore-daemonsets", "--force", "--delete-emptydir-data",
                    "--pod-selector=tenant=yes", "--timeout=60s")
    wait_for("them to be pending", lambda: all(cluster.get("sharepod", n)["status"].get("phase") == "Pending"
                                               for n in names), 30)
    cluster.kubectl("uncordon", NODE)
    again(cluster, before, names)
    cluster.remove_all()


def taint_removed(cluster):
    """A SharePod that waits for a taint to go runs when it has gone."""
    cluster.kubectl("taint", "node", NODE, "test=yes:NoSchedule")
    try:
        cluster.make("late", {"request": "30"})
        wait_for("the reason", lambda: "untolerated taint" in cluster.condition("late", "Placed").get("message", ""),
                 30)
    finally:
        cluster.kubectl("taint", "node", NODE, "test:NoSchedule-")
    cluster.await_attached("late")
    cluster.remove_all()


def preempt(cluster):
    """A higher PriorityClass takes room, and who lost it comes back when there is room again."""
    cluster.apply('{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"first"},"value":1000}')
    cluster.kubectl("label", "namespace", "default", "baton.dev/allow-priority-class=true", "--overwrite")
    for name in ["low0", "low1"]:
        cluster.make(name, {"request": "80"})
    cluster.await_attached("low0", "low1")
    before = {n: cluster.uid(n) for n in ["low0", "low1"]}
    cluster.make("high", {"request": "80"}, pod={"priorityClassName": "first"})
    cluster.await_attached("high")
    lost = [n for n in before if cluster.uid(n) != before[n]]
    assert len(lost) == 1, lost
    cluster.kubectl("delete", "sharepod", "high")
    again(cluster, before, lost)
    cluster.kubectl("label", "namespace", "default", "baton.dev/allow-priority-class-")
    cluster.remove_all()


def reboot(cluster):
    """The node restarts: all SharePods and Baton's own parts run again."""
    three(cluster)
    cluster.reboot()
    wait_for("the node", cluster.is_ready, 60)
    wait_for("Baton", lambda: cluster.baton("ping", check=False)[0] == 0, 120)
    cluster.await_baton()
    cluster.await_attached("a", "b", "c", seconds=120)
    for name in "abc":
        assert cluster.get("sharepod", name)["status"]["phase"] == "Running", name
    cluster.remove_all()


# ------------------------------------------------------------------------------------ parts that are killed


def pid_named(cluster, name):
    """Of the daemon, not of what keeps it running; as the node counts processes."""
    return wait_for(name, lambda: cluster.inside("pgrep", "-x", name, check=False).split(), 5, every=0.01)[0]


def killed_ten_times(cluster, name, pods, file):
    """Within a minute; the longest time without work after each."""
    gaps = []
    for _ in range(10):
        at = time.monotonic()
        since = cluster.now(file)
        cluster.inside("kill", "-9", pid_named(cluster, name))
        time.sleep(max(0.0, 6 - (time.monotonic() - at)))
        gaps.append(cluster.longest_gap(file, since, cluster.now(file)))
    assert [cluster.uid(n) for n in "abc"] == pods
    assert cluster.overlaps(cluster.kernels(file)) == 0
    return judge(gaps)


def judge(gaps):
    assert statistics.median(gaps) <= GAP_MEDIAN and max(gaps) <= GAP_WORST, gaps
    return f"gaps of {statistics.median(gaps) * 1000:.0f} ms (median), {max(gaps) * 1000:.0f} ms (worst of {len(gaps)})"


def batond_killed(cluster):
    """batond is killed ten times in a minute: tokens are back within milliseconds."""
    pods, file = three(cluster)
    restarts = restarts_of(cluster)
    said = killed_ten_times(cluster, "batond", pods, file)
    assert restarts_of(cluster) == restarts, "the kubelet saw nothing of it"
    cluster.remove_all()
    return said


def restarts_of(cluster, part="node"):
    return sum(s["restartCount"] for p in cluster.system_pods(part) for s in p["status"].get("containerStatuses", []))


def rollout(cluster):
    """The DaemonSet is rolled out: the next batond stands by until the one before has ended."""
    pods, file = three(cluster)
    gaps = []
    for _ in range(3):
        before = {p["metadata"]["uid"] for p in cluster.system_pods("node")}
        since = cluster.now(file)
        cluster.kubectl("-n", SYSTEM, "rollout", "restart", "daemonset/baton-node")
        cluster.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/baton-node", "--timeout=120s")
        wait_for("the old pod to go", lambda: not before & {p["metadata"]["uid"] for p in cluster.system_pods("node")},
                 60)
        wait_for("the new batond", lambda: len(cluster.status()["pods"]) == 3, 30)
        time.sleep(1)
        gaps.append(cluster.longest_gap(file, since, cluster.now(file)))
    assert [cluster.uid(n) for n in "abc"] == pods
    cluster.learn_pids()
    got, overlaps = cluster.shares(file, 6, *pods)
    near("shares", got, [60, 30, 10], 2)
    assert overlaps == 0
    # New pods come too: the kubelet knows the plugin of the new pod.
    cluster.make("late", {"request": "30"})
    cluster.await_attached("late")
    cluster.remove_all()
    return judge(gaps)


def kubelet_killed(cluster):
    """The kubelet is killed and started again: no pod notices, and new pods come."""
    pods, file = three(cluster)
    since = cluster.now(file)
    cluster.kill_server("kubelet")
    time.sleep(3)
    cluster.start_server("kubelet")
    wait_for("the plugin to register", lambda: share_count(cluster) == "200", 60)
    gap = cluster.longest_gap(file, since, cluster.now(file))
    assert gap < GAP_MEDIAN, gap
    assert [cluster.uid(n) for n in "abc"] == pods
    cluster.make("late", {"request": "30"})
    cluster.await_attached("late")
    cluster.remove_all()
    return f"longest gap {gap * 1000:.0f} ms"


def share_count(cluster):
    return cluster.get("node", NODE)["status"]["allocatable"].get("baton.dev/gpu-share")


def plugin_killed(cluster):
    """The node's agent, with the device plugin, is killed: running pods notice nothing, and new ones come."""
    pods, file = three(cluster)
    since = cluster.now(file)
    restarts = restarts_of(cluster)
    cluster.inside("pkill", "-KILL", "-f", "baton-k8s device-plugin")
    wait_for("the agent to be started again", lambda: restarts_of(cluster) == restarts + 1, 60)
    wait_for("the plugin to register", lambda: share_count(cluster) == "200", 60)
    assert cluster.longest_gap(file, since, cluster.now(file)) < GAP_MEDIAN
    assert [cluster.uid(n) for n in "abc"] == pods
    cluster.make("late", {"request": "30"})
    cluster.await_attached("late")
    cluster.remove_all()


# -------------------------------------------------------------------------------------------------- tenants

RESTRICTED = {"pod": {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000,
                                          "seccompProfile": {"type": "RuntimeDefault"}}},
              "container": {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}}


def restricted(cluster):
    """In a namespace that enforces `restricted`: SharePods and plain pods, not as root, no hostPath."""
    space = "strict"
    namespace(cluster, space, {"pod-security.kubernetes.io/enforce": "restricted"})
    # An entrypoint that sets LD_PRELOAD anew keeps the hook.
    cluster.make("one", {"request": "30", "memory": "2Gi"}, space,
                 command=["env", "LD_PRELOAD="] + BURN, **RESTRICTED)
    plain = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
             "spec": {"selector": {"matchLabels": {"app": "web"}},
                      "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                          **RESTRICTED["pod"], "terminationGracePeriodSeconds": 0, "containers": [{
                              "name": "main", "image": "localhost/burn:1", "command": BURN,
                              **RESTRICTED["container"],
                              "resources": {"limits": {"baton.dev/gpu-share": "40"}}}]}}}}
    cluster.apply(json.dumps(plain), space)
    cluster.await_attached("one", namespace=space)
    web = wait_for("the Deployment's pod", lambda: [p for p in cluster.get("pods", namespace=space)
                                                    if p["metadata"]["name"].startswith("web-")])[0]
    cluster.await_attached(web["metadata"]["name"], namespace=space)
    for pod in cluster.get("pods", namespace=space):
        assert not any("hostPath" in v for v in pod["spec"]["volumes"]), pod["spec"]["volumes"]
        name = pod["metadata"]["name"]
        said = cluster.kubectl("-n", space, "exec", name, "--", "sh", "-c",
                               "id -u; cat /etc/ld.so.preload; ls /run/baton; touch /usr/local/lib/baton/x 2>&1 || true; "
                               "touch /run/baton/x 2>&1 || true")
        assert said.startswith("1000\n/usr/local/lib/baton/libbaton.so\n"), said
        assert said.count("Read-only file system") + said.count("Permission denied") == 2, said
        assert "control.sock" not in said, said
    cluster.remove_all(space)
    cluster.kubectl("delete", "namespace", space)


def pods_of_before(cluster):
    """A pod with the hostPath volumes that webhooks of before put in runs as it did."""
    old = [{"name": "baton-socket", "hostPath": {"path": "/run/baton", "type": "Directory"}},
           {"name": "baton-hook", "hostPath": {"path": "/var/lib/baton/hook", "type": "Directory"}}]
    mounts = [{"name": "baton-socket", "mountPath": "/run/baton", "readOnly": True},
              {"name": "baton-hook", "mountPath": "/usr/local/lib/baton", "readOnly": True},
              {"name": "baton-hook", "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload", "readOnly": True}]
    cluster.make("old", {"request": "30"}, pod={"volumes": old}, container={"volumeMounts": mounts})
    cluster.await_attached("old")
    cluster.remove_all()


def namespace(cluster, name, labels=None):
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace",
                              "metadata": {"name": name, "labels": labels or {}}}))
    wait_for("its service account", lambda: cluster.get("serviceaccount", "default", name))


def hostile_tenant(cluster):
    """Who may do anything in one namespace reaches nobody's pods in another."""
    namespace(cluster, "victim")
    namespace(cluster, "evil")
    cluster.kubectl("-n", "evil", "create", "rolebinding", "eve", "--clusterrole=edit", "--user=eve")
    for name in ["v0", "v1"]:
        cluster.make(name, {"request": "60", "memory": "2Gi"}, "victim")
    cluster.await_attached("v0", "v1", namespace="victim")
    before = [cluster.uid(n, "victim") for n in ["v0", "v1"]]
    attempts = 0

    def refused(manifest, words, verb="create"):
        nonlocal attempts
        attempts += 1
        status, said = cluster.kubectl(verb, "-n", "evil", "-f", "-", text=manifest, who="eve", check=False)
        assert status != 0 and words in said, said

    def pod(volumes, mounts, **more):
        return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **more}, "spec": {
            "volumes": volumes, "containers": [{"name": "main", "image": "localhost/burn:1", "volumeMounts": mounts}]}})

    # Baton's folders of the node, however they are spelled, in a pod that asks for no GPU.
    write = [{"name": "x", "mountPath": "/x"}]
    for path in ["/var/lib/baton/hook", "/var//lib/./baton/hook/", "/var/lib/baton/hook/libbaton.so", "/run/baton",
                 "/var/run/baton", "/run/./baton/"]:
        refused(pod([{"name": "x", "hostPath": {"path": path}}], write), "Baton's folders of the node")
    for path in ["/var/lib/baton", "/var/lib/baton/pods.json", "/run/baton-locks", "//run//baton-locks"]:
        refused(pod([{"name": "x", "hostPath": {"path": path}}], [{**write[0], "readOnly": True}]),
                "Baton's own folders of the node")
    # Read-only, and then writable by an ephemeral container.
    cluster.kubectl("create", "-n", "evil", "-f", "-", who="eve", text=pod(
        [{"name": "x", "hostPath": {"path": "/var/lib/baton/hook"}}], [{**write[0], "readOnly": True}]))
    attempts += 1
    status, said = cluster.kubectl(
        "patch", "-n", "evil", "pod", "p", "--subresource=ephemeralcontainers", "-p", json.dumps(
            {"spec": {"ephemeralContainers": [{"name": "debug", "image": "localhost/burn:1", "volumeMounts": write}]}}),
        check=False)
    assert status != 0 and "Baton's folders of the node" in said, said
    # Another pod's GPU, by the annotations that only Baton may write.
    card = cluster.gpu_of("v0", "victim")
    limits = {"limits": {"baton.dev/gpu-share": "10"}}
    forged = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "f", "annotations": {
        "main.container.baton.dev/visible-devices": card}}, "spec": {"containers": [
            {"name": "main", "image": "localhost/burn:1", "resources": limits}]}})
    refused(forged, "baton.dev/visible-devices")
    # Room by the token's priority: not without the operator's word, and with it nobody loses a pod.
    greedy = cluster.share_pod("greedy", {"request": "100", "priority": "high"}, "evil")
    refused(greedy, "'high' is not allowed in namespace evil")
    cluster.kubectl("label", "namespace", "evil", "baton.dev/allow-high-priority=true")
    attempts += 1
    cluster.apply(greedy, "evil", who="eve")
    wait_for("the reason", lambda: cluster.condition("greedy", "Placed", "evil").get("status") == "False", 30)
    # The victim's ticket, in a pod of one's own.
    attempts += 1
    stolen = f"{before[0]}/main"
    cluster.make("thief", {"request": "10"}, "evil", command=["env", f"BATON_TICKET={stolen}"] + BURN)
    wait_for("the thief to run", lambda: (cluster.get("pod", "thief", "evil") or {}).get("status", {}).get("phase")
             == "Running", 60)
    time.sleep(3)
    rows = {row["name"]: row for row in cluster.status()["pods"]}
    assert len(rows["victim/v0"]["clients"]) == 1, rows["victim/v0"]
    # Objects of others.
    for arguments in [("delete", "sharepod", "v0"), ("delete", "pod", "v0"), ("get", "sharepods"),
                      ("patch", "sharepod", "v0", "--type=merge", "-p", '{"spec":{"gpu":{"request":"1"}}}')]:
        attempts += 1
        status, said = cluster.kubectl("-n", "victim", *arguments, who="eve", check=False)
        assert status != 0 and "forbidden" in said, said
    assert [cluster.uid(n, "victim") for n in ["v0", "v1"]] == before
    for space in ["evil", "victim"]:
        cluster.remove_all(space)
        cluster.kubectl("delete", "namespace", space)
    return f"{attempts} attempts"


def quota(cluster):
    """A ResourceQuota bounds what a namespace's SharePods get, as they are made and as they change."""
    namespace(cluster, "small")
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu"},
                              "spec": {"hard": {"requests.baton.dev/gpu-share": "50"}}}), "small")
    wait_for("the quota", lambda: cluster.get("resourcequota", "gpu", "small").get("status", {}).get("hard"))
    cluster.make("one", {"request": "40"}, "small")
    cluster.await_attached("one", namespace="small")
    cluster.make("two", {"request": "20"}, "small")
    wait_for("the refusal", lambda: "exceeded quota" in cluster.condition("two", "Placed", "small").get("message", ""),
             30)
    cluster.kubectl("delete", "sharepod", "two", "-n", "small")
    too_much = json.dumps({"spec": {"gpu": {"request": "95"}}})
    status, said = cluster.kubectl("patch", "sharepod", "one", "-n", "small", "--type=merge", "-p", too_much, check=False)
    assert status != 0 and "quota" in said, said
    # The pod is no way around it; what the quota allows is carried out.
    of_main = {"metadata": {"annotations": {"main.container.baton.dev/request": "95"}}}
    for kind, change in [("pod", of_main),
                         ("sharepod", {"spec": {"gpu": {"request": "49"}}})]:
        status, said = cluster.kubectl("patch", kind, "one", "-n", "small", "--type=merge", "-p", json.dumps(change),
                                       check=False)
        assert (status == 0) == (kind == "sharepod"), said
    wait_for("the change within the quota", lambda: any(
        p["namespace"] == "small" and p["request"] == 49 for p in cluster.status()["pods"]), 10)
    cluster.remove_all("small")
    cluster.kubectl("delete", "namespace", "small")


# ------------------------------------------------------------------------------------------ divided GPUs


def divided(cluster):
    """Pods by MIG and MPS have their part before they start, and it goes with them, whoever ends meanwhile."""
    by_mig, by_mps = cluster.gpus
    file = cluster.gpus[by_mig]
    mps_folder = "/run/baton/mps"

    def make(name, mode, memory, share="40"):
        cluster.apply(json.dumps({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"baton.dev/mode": mode, "baton.dev/memory": memory}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                "name": "main", "image": "localhost/burn:1", "command": BURN,
                "resources": {"limits": {"baton.dev/gpu-share": share}}}]}}))

    def runs(name):
        status = (cluster.get("pod", name) or {}).get("status", {})
        return status.get("phase") == "Running" and status["containerStatuses"][0]["restartCount"] == 0

    def inside(name, *command):
        return cluster.kubectl("exec", name, "--", *command)

    def environment(name):
        return dict(line.partition("=")[::2] for line in inside(name, "env").splitlines())

    def instances():
        return cluster.info(file)["instances"]

    def daemons():
        # By the kernel's name for nvidia-cuda-mps-control, which its servers have not; none that is dead already.
        return cluster.inside("pgrep", "-r", "S,R,D", "-x", "nvidia-cuda-mps", check=False).split()

    def card():
        cards = cluster.get("gpunode", NODE)["status"]["cards"]
        return next(c for c in cards if c["uuid"] == by_mig)

    def told():
        """What batond and the GpuNode say was made, by pod and by ticket."""
        rows = {row["name"]: (row["mode"], row["gpus"][0].get("device")) for row in cluster.status()["pods"]}
        made = cluster.get("gpunode", NODE)["status"].get("devices", [])
        return rows, {entry["ticket"]: entry["devices"] for entry in made}

    def as_made(devices):
        """That is what there is: these, by pod, and nothing else."""
        modes = {name: "mig" if device.startswith("MIG-") else "mps" for name, device in devices.items()}
        tickets = {f"{cluster.uid(name)}/main": [device] for name, device in devices.items()}
        rows = {f"default/{name}": (modes[name], device) for name, device in devices.items()}
        migs = list(modes.values()).count("mig")
        # The GpuNode tells of instances that are nobody's here: none.
        return (told() == (rows, tickets) and len(instances()) == migs and not card().get("instances")
                and len(daemons()) == (1 if "mps" in modes.values() else 0))

    cluster.simgpu("nvml", file, "--mig", "on")
    cluster.shell("helm upgrade --install baton k8s/chart/baton -n baton-system --create-namespace --reset-values "
                  "--set node.mig=true --set node.mps=true --wait")
    cluster.await_baton()
    wait_for("MIG in the GpuNode", lambda: card().get("migEnabled"), 60)

    # Each has its part: the runtime knows the instance, and the daemon hears the pod.
    make("mig", "mig", "15Gi")
    make("other", "mig", "15Gi")
    make("mps", "mps", "8Gi")
    for name in ["mig", "other", "mps"]:
        wait_for(f"{name} to run", lambda name=name: runs(name), 60)
    devices = {"mps": f"{mps_folder}/{by_mps}/pipe"}
    for name in ["mig", "other"]:
        has = environment(name)
        devices[name] = has["NVIDIA_VISIBLE_DEVICES"]
        assert devices[name].startswith("MIG-") and has["CUDA_VISIBLE_DEVICES"] == devices[name], has
    has = environment("mps")
    assert has["CUDA_MPS_PIPE_DIRECTORY"] == devices["mps"] and has["CUDA_VISIBLE_DEVICES"] == by_mps, has
    wait_for("what was made", lambda: as_made(devices), 30)
    wait_for("them to use it", lambda: len(cluster.info(file)["processes"]) == 2, 30)

    def reaches_daemon():
        return inside("mps", "nvidia-cuda-mps-control", "--sim-client", "0.1").strip()
    assert reaches_daemon() == "40.0 8192"
    inside("mps", "touch", "/dev/shm/of-the-pod")
    cluster.inside("test", "-e", "/run/baton/mps-memory/of-the-pod")
    cluster.inside("rm", "/run/baton/mps-memory/of-the-pod")
    begin = time.monotonic()
    cluster.kubectl("delete", "pod", "other")
    del devices["other"]
    wait_for("its instance to go", lambda: as_made(devices), 60)
    said = [f"gone {time.monotonic() - begin:.1f} s after the pod's deletion"]

    # The node's pod is replaced, and killed while a pod goes. MPS's daemons end with it, a moment after the next one
    # has begun, and are made again.
    make("other", "mig", "15Gi")
    wait_for("the other to run", lambda: runs("other"), 60)
    for event in ["replaced", "replaced", "killed"]:
        before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.system_pods("node")}
        if event == "replaced":
            cluster.kubectl("-n", SYSTEM, "rollout", "restart", "daemonset/baton-node")
            cluster.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/baton-node", "--timeout=120s")
            devices["other"] = environment("other")["CUDA_VISIBLE_DEVICES"]
        else:
            cluster.kubectl("-n", SYSTEM, "delete", "pod", *before, "--grace-period=0", "--force")
            cluster.kubectl("delete", "pod", "other")
            del devices["other"]
        wait_for("the old pod to go", lambda before=before: not set(before.values()) & {
            p["metadata"]["uid"] for p in cluster.system_pods("node")}, 60)
        wait_for("batond", lambda: cluster.baton("ping", check=False)[0] == 0, 60)
        begin = time.monotonic()
        time.sleep(2)
        wait_for("what was made before", lambda: as_made(devices), 60)
        said.append(f"{time.monotonic() - begin:.1f} s after the node's pod was {event}")
        assert runs("mps") and reaches_daemon() == "40.0 8192"
        assert runs("mig") and environment("mig")["CUDA_VISIBLE_DEVICES"] == devices["mig"]

    # The kubelet is away while the last pods are deleted.
    cluster.kill_server("kubelet")
    cluster.kubectl("delete", "pod", "mig", "mps", "--wait=false")
    cluster.start_kubelet()
    begin = time.monotonic()
    wait_for("all to be gone", lambda: not cluster.get("pods") and as_made({}), 60)
    said.append(f"{time.monotonic() - begin:.1f} s after the kubelet's return")

    # Whose mode is open: the first takes turns, under the hook, and for the second only an instance is left.
    for name in ["turns", "instance"]:
        make(name, "auto", "15Gi", "80")
        wait_for(f"{name} to run", lambda name=name: runs(name), 60)
    has = environment("turns")
    assert has["BATON_TICKET"] == f"{cluster.uid('turns')}/main" and has["CUDA_VISIBLE_DEVICES"] == by_mps, has
    has = environment("instance")
    assert has["BATON_TICKET"] == "" and has["CUDA_VISIBLE_DEVICES"].startswith("MIG-"), has
    wait_for("both at work", lambda: len(cluster.info(file)["processes"]) == 1 and [
        len(p["clients"]) for p in cluster.status()["pods"] if p["name"] == "default/turns"] == [1], 30)
    cluster.kubectl("delete", "pod", "turns", "instance")
    wait_for("both to be gone", lambda: as_made({}), 60)
    cluster.simgpu("nvml", file, "--mig", "off")
    cluster.shell("helm upgrade baton k8s/chart/baton -n baton-system --reset-values")
    cluster.await_baton()
    wait_for("the GPU in turns", lambda: not card().get("migEnabled") and share_count(cluster) == "200", 60)
    return "nothing left: " + ", ".join(said)


# -------------------------------------------------------------------------------------------------- central


def central(cluster):
    """One batond for the cluster, by the documentation's commands, with keys that nobody made: first its books
    alone, then its tokens: shares, ten kills of it, rollouts, a kill of the relay; then back to a batond on the
    node."""
    volume = cluster.work / "central-volume"
    volume.mkdir(exist_ok=True)
    cluster.inside("chown", "65532:65532", volume)
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "central"}, "spec": {
        "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(volume)},
        "persistentVolumeReclaimPolicy": "Retain"}}))

    def keys():
        node = cluster.get("gpunode", NODE)["metadata"]["annotations"]["baton.dev/public-key"]
        return node, cluster.get("configmap", "baton-central-key", namespace=SYSTEM)["data"]["public-key"]

    cluster.shell(cluster.documented("## One batond for the cluster"))
    cluster.await_baton()
    pods, file = three(cluster)
    begin = time.monotonic()
    wait_for("the pod in the central books", lambda: "default/a" in cluster.kubectl(
        "-n", SYSTEM, "exec", "deploy/baton-central", "-c", "batond", "--", "baton", "report", "--by", "node,pod"), 60)
    booked = f"booked after {time.monotonic() - begin:.0f} s"
    cluster.remove_all()
    made = keys()
    cluster.shell("helm upgrade baton k8s/chart/baton -n baton-system --set mode=central")
    cluster.kubectl("-n", SYSTEM, "rollout", "status", "deployment/baton-central", "--timeout=120s")
    cluster.await_baton()
    assert keys() == made, "an upgrade changes no key"
    pods, file = three(cluster)
    got, overlaps = cluster.shares(file, 8, *pods)
    near("shares", got, [60, 30, 10], 1)
    assert overlaps == 0
    said = [f"{text_of(got)} %", booked, "killed: " + killed_ten_times(cluster, "batond", pods, file)]
    gaps = []
    for _ in range(3):
        before = {p["metadata"]["uid"] for p in cluster.system_pods("central")}
        since = cluster.now(file)
        cluster.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/baton-central")
        cluster.kubectl("-n", SYSTEM, "rollout", "status", "deployment/baton-central", "--timeout=120s")
        wait_for("the old pod to go",
                 lambda: not before & {p["metadata"]["uid"] for p in cluster.system_pods("central")}, 60)
        time.sleep(3)
        gaps.append(cluster.longest_gap(file, since, cluster.now(file)))
    said.append("rollout: " + judge(gaps))
    said.append("relay killed: " + killed_ten_times(cluster, "baton-frontend", pods, file))
    cluster.remove_all()
    cluster.shell("helm upgrade baton k8s/chart/baton -n baton-system --reset-values")
    cluster.await_baton()
    wait_for("batond", lambda: cluster.baton("ping", check=False)[0] == 0, 60)
    cluster.kubectl("delete", "pv", "central", "--wait=false")
    cluster.kubectl("-n", SYSTEM, "delete", "pvc", "baton-central", "--ignore-not-found", "--wait=false")
    return "; ".join(said)


CASES = [documented_install, shares, patch, gang_on_two_gpus, delete_pod, drain, taint_removed, preempt, batond_killed,
         rollout, kubelet_killed, plugin_killed, restricted, pods_of_before, hostile_tenant, quota, reboot, divided,
         central]
