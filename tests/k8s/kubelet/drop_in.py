"""What a cluster brings along runs as it is: pods by other projects' names, whole GPUs without NVIDIA's plugin, queues
and pod groups of batch schedulers, and kube-scheduler."""

import json
import os
import pathlib
import random
import subprocess
import time

import images
from baton import BURN, SYSTEM
from cases import near, text_of
from one_node import NODE, Skipped, wait_for

SLEEP = ["sleep", "1000000"]
BURN_TWO = BURN + ["--devices", "0,1"]
SHM = {"pod": {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]},
       "container": {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}}


def upgrade(cluster, *values):
    """The chart with these values alone."""
    cluster.shell("helm upgrade --install baton k8s/chart/baton -n baton-system --create-namespace --reset-values "
                  + " ".join(f"--set {value}" for value in values))
    cluster.await_baton()


def pod(name, limits=None, annotations=None, labels=None, scheduler=None, command=None, container=None, **spec):
    main = {"name": "main", "image": "localhost/burn:1", "command": command or BURN,
            "resources": {"limits": limits or {}}, **(container or {})}
    metadata = {"name": name, "annotations": annotations or {}, "labels": {"app": name, **(labels or {})}}
    named = {"schedulerName": scheduler} if scheduler else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [main], **named, **spec}}


def deployment(replicas, of):
    name = of["metadata"].pop("name")
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": of["metadata"], "spec": of["spec"]}}}


def hami(cores=None, memory=None, percent=None, gpus=1):
    limits = {"nvidia.com/gpu": gpus, "nvidia.com/gpumem": memory, "nvidia.com/gpumem-percentage": percent,
              "nvidia.com/gpucores": cores}
    return {name: str(value) for name, value in limits.items() if value is not None}


def volcano(memory, cores=None):
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory, "volcano.sh/vgpu-cores": cores}
    return {name: str(value) for name, value in limits.items() if value is not None}


def kai(name, fraction="0.5", **more):
    annotations = {"gpu-fraction": fraction, **more.pop("annotations", {})} if fraction else more.pop("annotations")
    return pod(name, annotations=annotations, labels={"kai.scheduler/queue": "default-queue"},
               scheduler="kai-scheduler", **more)


IDLE = {"image": "localhost/burn:1", "command": SLEEP}
# What the projects' published examples ask for (HAMi: examples/nvidia; Volcano: its vGPU guide and the examples of its
# device plugin; KAI-Scheduler: docs/gpu-sharing), and what their pods are to have: request, limit, memory (MiB, or "50%"
# of a GPU), GPUs. Where they sleep, or list GPUs, these compute; of ten replicas there are as many as two GPUs have room for.
EXAMPLES = {
    "hami": [
        ("default_use", [pod("a", hami(30, 3000, gpus=2), command=BURN_TWO)], [(30, 30, 3000, 2)]),
        ("use_memory_fraction", [pod("a", hami(30, percent=50, gpus=2), command=BURN_TWO)], [(30, 30, "50%", 2)]),
        ("use_sharing_card", [pod("a", hami(60, percent=40)), pod("b", hami(40, percent=60))],
         [(60, 60, "40%", 1), (40, 40, "60%", 1)]),
        ("example", [deployment(1, pod("a", hami(memory=3000), scheduler="default-scheduler",
                                       tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]))],
         [(1, 100, 3000, 1)]),
        ("sglang_gpu_sharing", [deployment(1, pod("a", hami(30, 12000), container=SHM["container"], **SHM["pod"]))],
         [(30, 30, 12000, 1)]),
        ("vllm_cross_vgpu", [deployment(1, pod("a", hami(30, percent=30, gpus=2), scheduler="default-scheduler", command=BURN_TWO,
                                               container=SHM["container"], **SHM["pod"]))], [(30, 30, "30%", 2)]),
        ("use_exclusive_card", [pod("a", hami(100, percent=100, gpus=2), command=BURN_TWO)], [(100, 100, "100%", 2)]),
        ("specify_scheduling_policy", [pod("a", hami(), annotations={
            "hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"})],
         [(100, 100, None, 1)]),
    ],
    "volcano": [
        ("vgpu-case01", [pod("a", volcano(1024), scheduler="volcano", restartPolicy="OnFailure")],
         [(1, 100, 1024, 1)]),
        ("vgpu-case02", [pod("a", volcano(10240), scheduler="volcano", restartPolicy="OnFailure")],
         [(1, 100, 10240, 1)]),
        ("vgpu-deployment", [deployment(8, pod("a", volcano(16384), scheduler="volcano"))],
         [(1, 100, 16384, 1)] * 8),
        ("hami-core", [pod("a", volcano(3000, 50), scheduler="volcano",
                           annotations={"volcano.sh/vgpu-mode": "hami-core"})], [(50, 50, 3000, 1)]),
    ],
    "kai": [
        ("gpu-sharing", [kai("a")], [(50, 100, "50%", 1)]),
        ("gpu-memory", [kai("a", fraction=None, annotations={"gpu-memory": "2000"})], [(1, 100, 2000, 1)]),
        ("gpu-sharing-init-container",
         [kai("a", annotations={"gpu-fraction-container-name": "gpu-init"}, command=SLEEP,
              initContainers=[{"name": "gpu-init", "image": "localhost/burn:1",
                               "command": [*BURN[:-1], "12"]}])], [(50, 100, "50%", 1)]),
        ("gpu-sharing-non-default-container",
         [kai("a", annotations={"gpu-fraction-container-name": "gpu-workload"}, containers=[
             {"name": "sidecar", **IDLE}, {"name": "gpu-workload", "image": "localhost/burn:1", "command": BURN},
             {"name": "another-sidecar", **IDLE}])], [(50, 100, "50%", 1)]),
        ("gpu-sharing-with-mps",
         [kai("a", container={"volumeMounts": [{"name": "mps", "mountPath": "/tmp/nvidia-mps"}]}, volumes=[
             {"name": "mps", "hostPath": {"path": "/tmp/nvidia-mps", "type": "DirectoryOrCreate"}}])],
         [(50, 100, "50%", 1)]),
    ],
}


def attached(cluster, count, space="default"):
    """The rows of batond for so many pods of the namespace, which compute: each with a process that has come, where it
    is not alone on its GPUs anyway."""
    def rows():
        found = [r for r in cluster.status()["pods"] if r["name"].startswith(f"{space}/")
                 and (r.get("clients") or r["mode"] == "exclusive")]
        return found if len(found) == count else None
    found = sorted(wait_for(f"{count} pods at batond", rows, 120, every=0.3), key=lambda r: r["name"])
    files = [cluster.gpus[g["uuid"]] for row in found for g in row["gpus"]]
    wait_for("their work", lambda: all(cluster.info(file)["processes"] for file in files), 60, every=0.3)
    time.sleep(1)
    return found


def has(cluster, row):
    """What batond gives it, as in EXAMPLES: memory in MiB, 0 where it has no cap."""
    return row["request"], row["limit"], row["memory"] // 2**20, len(row["gpus"])


def named(cluster, request, limit, memory, gpus):
    """The same of what an example names."""
    if isinstance(memory, str):
        whole = cluster.info(next(iter(cluster.gpus.values())))["memory"]
        memory = int(whole * int(memory[:-1]) // 100) // 2**20
    return request, limit, memory or 0, gpus


def of_pod(cluster, row, pods):
    """The uid of the row's pod: batond knows it by its name."""
    name = row["name"].split("/")[1]
    return next(p["metadata"]["uid"] for p in pods if p["metadata"]["name"] == name)


def measure(cluster, rows, seconds):
    """What each pod had of each of its GPUs, in percent: [(row, {uuid: share})]."""
    pods = cluster.get("pods")
    uids = [of_pod(cluster, row, pods) for row in rows]
    got = {}
    for uuid in {g["uuid"] for row in rows for g in row["gpus"]}:
        shares, overlaps = cluster.shares(cluster.gpus[uuid], seconds, *uids)
        assert overlaps == 0, overlaps
        for row, share in zip(rows, shares):
            if uuid in [g["uuid"] for g in row["gpus"]]:
                got.setdefault(row["name"], {})[uuid] = share
    return [(row, got[row["name"]]) for row in rows]


def foreign_names(cluster):
    """Published examples of HAMi, Volcano and KAI run with the shares that they name, and are said to."""
    upgrade(cluster, "webhook.foreignNames.hami=true", "webhook.foreignNames.volcano=true",
            "webhook.foreignNames.kai=true", "webhook.batchSchedulers.kai=true", "node.wholeCards=true")
    ran = []
    for family, examples in EXAMPLES.items():
        for name, manifests, wanted in examples:
            try:
                for manifest in manifests:
                    cluster.apply(json.dumps(manifest))
                rows = attached(cluster, len(wanted))
                given = sorted(has(cluster, row) for row in rows)
                assert given == sorted(named(cluster, *w) for w in wanted), given
                on_gpu = {uuid: sum(uuid in [g["uuid"] for g in row["gpus"]] for row in rows) for uuid in cluster.gpus}
                for row, shares in measure(cluster, rows, 3):
                    # Nobody's hook keeps a whole GPU busy where this machine is late.
                    within = 4 if row["mode"] == "exclusive" else 2
                    for uuid, share in shares.items():
                        # Beside equals it has an equal part of what nobody is guaranteed.
                        due = row["limit"] if row["limit"] < 100 else 100 / on_gpu[uuid]
                        assert abs(share - due) <= within, f"{row['name']}: {share:.1f} % of {uuid}, wanted {due}"
                for one in cluster.get("pods"):
                    said = one["metadata"]["annotations"].get("baton.dev/translated", "")
                    assert said or name == "specify_scheduling_policy", one["metadata"]["annotations"]
                if family == "kai":
                    assert {row["team"] for row in rows} == {"default-queue"}, rows
            except Exception as error:
                raise RuntimeError(f"{family}, {name}: {error}") from error
            cluster.remove_all()
            wait_for("batond to know", lambda: not cluster.status()["pods"], 60)
        ran.append(f"{family} {len(examples)}")
    beside = beside_each_other(cluster)
    volcanos_mig_pod(cluster)
    upgrade(cluster)
    return "examples: " + ", ".join(ran) + f" and one by MIG; of 50, 40 and 1 % on one GPU {text_of(beside)} %"


def beside_each_other(cluster):
    """Examples of KAI and HAMi that name no limit, and a SharePod, on the GPU that is left: each has its request, and its
    part of the rest by that."""
    cluster.apply(json.dumps(pod("whole", {"nvidia.com/gpu": "1"})))
    attached(cluster, 1)
    cluster.apply(json.dumps(kai("a")))
    cluster.make("b", {"request": "40"})
    cluster.apply(json.dumps(pod("c", hami(memory=3000))))
    rows = attached(cluster, 4)[:3]
    assert [has(cluster, row)[0] for row in rows] == [50, 40, 1], rows
    got = [share for _, shares in measure(cluster, rows, 8) for share in shares.values()]
    near("shares", got, [100 * request / 91 for request in (50, 40, 1)], 1)
    cluster.remove_all()
    wait_for("batond to know", lambda: not cluster.status()["pods"], 60)
    return got


def volcanos_mig_pod(cluster):
    """The guide's other example: the smallest instance that has its memory."""
    uuid, file = next(iter(cluster.gpus.items()))
    cluster.simgpu("nvml", file, "--mig", "on")
    upgrade(cluster, "webhook.foreignNames.volcano=true", "node.mig=true")
    wait_for("MIG in the GpuNode", lambda: any(c["uuid"] == uuid and c.get("migEnabled") for c in cluster.get(
        "gpunode", NODE)["status"]["cards"]), 60)
    cluster.apply(json.dumps(pod("mig-pod", volcano(3000), scheduler="volcano",
                                 annotations={"volcano.sh/vgpu-mode": "mig"})))
    wait_for("its work", lambda: cluster.info(file)["processes"], 60, every=0.3)
    made = cluster.info(file)["instances"]
    row = cluster.status()["pods"][0]
    assert row["mode"] == "mig" and row["gpus"][0]["device"].startswith("MIG-"), row
    assert [instance["profile"] for instance in made] == ["MIG 1g.10gb"], made
    cluster.remove_all()
    wait_for("the instance to go", lambda: not cluster.info(file)["instances"], 60)
    cluster.simgpu("nvml", file, "--mig", "off")


def whole_gpus(cluster):
    """Pods that ask for nvidia.com/gpu run without NVIDIA's plugin, each alone on its GPU, whoever ends meanwhile."""
    upgrade(cluster, "node.wholeCards=true")
    wait_for("nvidia.com/gpu of the node", lambda: cluster.get("node", NODE)["status"]["allocatable"].get(
        "nvidia.com/gpu") == str(len(cluster.gpus)), 60)

    def phase(name):
        return (cluster.get("pod", name) or {"status": {}})["status"].get("phase")

    def whole(name):
        cluster.apply(json.dumps(pod(name, {"nvidia.com/gpu": "1"})))

    whole("one")
    attached(cluster, 1)
    cluster.make("half", {"request": "50"})
    rows = attached(cluster, 2)
    assert [has(cluster, row) for row in rows] == [(50, 100, 0, 1), (100, 100, 0, 1)], rows
    assert rows[0]["gpus"][0]["uuid"] != rows[1]["gpus"][0]["uuid"], "a GPU is never both shared and whole"
    alone = rows[1]["gpus"][0]["uuid"]
    # Nobody waits for a token there: the time is the pod's, and it is no stranger's work.
    time.sleep(12)
    status = cluster.status()
    strangers = {gpu["uuid"]: gpu["unmanaged"] for gpu in status["gpus"]}
    one = next(row for row in status["pods"] if row["name"] == "default/one")
    assert one["held_ns"] > 10e9 and one["phase"] == "holding" and not strangers[alone], (one, strangers)
    whole("late")
    cluster.kill_server("kubelet")
    cluster.start_kubelet()
    cluster.kubectl("-n", SYSTEM, "rollout", "restart", "daemonset/baton-node")
    cluster.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/baton-node", "--timeout=120s")
    got, overlaps = cluster.shares(cluster.gpus[alone], 3, cluster.uid("one"))
    assert got[0] > 97 and overlaps == 0, got
    assert phase("late") == "Pending" and phase("one") == "Running"
    cluster.kubectl("delete", "sharepod", "half")
    wait_for("the one that waits", lambda: phase("late") == "Running", 60)
    attached(cluster, 2)
    cluster.remove_all()
    cluster.apply(json.dumps(pod("both", {"nvidia.com/gpu": "2"}, command=BURN_TWO)))
    assert [has(cluster, row) for row in attached(cluster, 1)] == [(100, 100, 0, 2)]
    cluster.remove_all()
    upgrade(cluster)
    wait_for("no whole GPUs", lambda: cluster.get("node", NODE)["status"]["allocatable"].get(
        "nvidia.com/gpu", "0") == "0", 60)
    return f"one beside a share: {got[0]:.1f} %"


# ------------------------------------------------------------------------------------------ batch schedulers


def both_schedulers(cluster):
    """Forty pods get the same GPUs by kube-scheduler with the extender as by the binder."""
    # What pods used before the second forty came is no matter here.
    upgrade(cluster, "extender.enabled=true", "extender.extraArgs={--use-distance=0}",
            "binder.extraArgs={--use-distance=0}")
    cluster.kubectl("-n", SYSTEM, "rollout", "status", "deployment/baton-extender", "--timeout=120s")
    address = cluster.system_pods("extender")[0]["status"]["podIP"]
    config = cluster.etc / "gpus-scheduler.json"
    config.write_text(json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": f"{cluster.certs}/scheduler.kubeconfig"},
        "profiles": [{"schedulerName": "gpus"}],
        "extenders": [{"urlPrefix": f"http://{address}:8888", "filterVerb": "filter", "prioritizeVerb": "prioritize",
                       "bindVerb": "bind", "weight": 100, "nodeCacheCapable": True,
                       "managedResources": [{"name": "baton.dev/gpu-share"}]}]}))
    with open(cluster.logs / "gpus-scheduler.log", "ab") as log:
        scheduler = subprocess.Popen(
            cluster.enter() + [f"{cluster.assets}/kube-scheduler", f"--config={config}", "--secure-port=10299"],
            stdout=log, stderr=log, start_new_session=True)
    draw = random.Random(40)
    asked = [(str(draw.choice([1, 2, 3, 4, 5, 7, 10])), f"{draw.randint(1, 24) * 256}Mi") for _ in range(40)]

    def placed_by(scheduler_name):
        """By number: the GPU, or None where there was no room."""
        gpus = []
        for number, (request, memory) in enumerate(asked):
            name = f"pod-{number}"
            cluster.apply(json.dumps(pod(name, {"baton.dev/gpu-share": request}, {
                "baton.dev/memory": memory}, scheduler=scheduler_name, command=SLEEP)))
            def decided(name=name):
                one = cluster.get("pod", name)
                conditions = {c["type"]: c["status"] for c in one["status"].get("conditions", [])}
                return one["spec"].get("nodeName") or conditions.get("PodScheduled") == "False"
            wait_for(f"{name} by {scheduler_name}", decided, 30, every=0.05)
            gpus.append(cluster.gpu_of(name) if cluster.get("pod", name)["spec"].get("nodeName") else None)
        return gpus

    try:
        by_extender = placed_by("gpus")
        cluster.remove_all()
        wait_for("batond to know", lambda: not cluster.status()["pods"], 60)
        # It learns from the pods that it sees what will come, and has seen the first forty already.
        cluster.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/baton-binder")
        cluster.await_baton()
        by_binder = placed_by("baton")
    finally:
        scheduler.kill()
        scheduler.wait()
    cluster.remove_all()
    upgrade(cluster)
    used = {uuid: by_binder.count(uuid) for uuid in cluster.gpus}
    differ = [i for i, both in enumerate(zip(by_extender, by_binder)) if both[0] != both[1]]
    assert not differ, f"{differ} differ: {by_extender}, {by_binder}"
    assert min(used.values()) > 0 and None not in by_binder, by_binder
    return " and ".join(map(str, used.values())) + " pods on the two GPUs, by both"


POD_GROUP = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.x-k8s.io",
                 "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1463"}},
    "spec": {"group": "scheduling.x-k8s.io", "scope": "Namespaced",
             "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
             "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


def pod_group(cluster, name, members):
    """Of the coscheduling plugin, whose own definition is not here."""
    cluster.apply(json.dumps(POD_GROUP))
    wait_for("PodGroups", lambda: cluster.kubectl("get", "podgroups", check=False)[0] == 0)
    cluster.apply(json.dumps({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
                              "metadata": {"name": name}, "spec": {"minMember": members}}))


def job(name, pods, of, labels=None):
    """So many pods, all of them to come."""
    del of["metadata"]["name"]
    of["spec"]["restartPolicy"] = "Never"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels or {}}, "spec": {
        "parallelism": pods, "completions": 2, "template": {"metadata": of["metadata"], "spec": of["spec"]}}}


def hours_of(cluster, team):
    """What the books have of it, once they have."""
    def booked():
        report = json.loads(cluster.baton("report", "--by", "team", "--last", "1h", "--json"))
        return [row for row in report["rows"] if row["key"] == team and row["held_hours"] > 0]
    return wait_for(f"hours of {team}", booked, 60)[0]["held_hours"]


def of_queue(name):
    """The label of a Job, or of a pod, for Kueue."""
    return {"kueue.x-k8s.io/queue-name": name}


def queues(cluster):
    """The queue of a Job by Kueue is the team in the books, and a PodGroup the gang of its pods."""
    upgrade(cluster, "webhook.batchSchedulers.kueue=true", "webhook.batchSchedulers.coscheduling=true")
    pod_group(cluster, "ranks", 2)
    # As Kueue leaves the Job's pods: by the name of its LocalQueue.
    labels = {**of_queue("research.vision"), "scheduling.x-k8s.io/pod-group": "ranks"}
    cluster.apply(json.dumps(job("train", 1, pod("rank", {"baton.dev/gpu-share": "40"}, labels=labels))))
    wait_for("the first rank to wait for the second", lambda: any(
        "of 2 pods of gang" in condition.get("message", "")
        for one in cluster.get("pods") for condition in one["status"].get("conditions", [])), 60)
    cluster.kubectl("patch", "job", "train", "-p", json.dumps({"spec": {"parallelism": 2}}))
    rows = attached(cluster, 2)
    assert {(row["team"], row["request"], row["gang_name"]) for row in rows} == {
        ("research/vision", 40.0, "default/ranks")}, rows
    assert rows[0]["gpus"][0]["uuid"] != rows[1]["gpus"][0]["uuid"]
    time.sleep(3)
    cluster.remove_all()
    hours = hours_of(cluster, "research/vision")
    cluster.kubectl("delete", "crd", POD_GROUP["metadata"]["name"], "--wait=false")
    upgrade(cluster)
    return f"booked for research/vision: {hours:.4f} h"


def kueue(cluster):
    """Kueue itself, with the documentation's quota: it admits Jobs by shares and whole GPUs, and its queue is the team."""
    folder = pathlib.Path(os.environ.get("BATON_NODE_KUEUE", "/nonexistent"))
    if not (folder / "manifests.yaml").exists():
        raise Skipped("set BATON_NODE_KUEUE (run --help)")
    upgrade(cluster, "webhook.batchSchedulers.kueue=true", "webhook.batchSchedulers.coscheduling=true",
            "node.wholeCards=true")
    text = (cluster.tree / "docs/kubernetes.md").read_text()
    block = text[text.index("\n### Quotas by Kueue\n"):].split("```yaml\n", 1)[1].split("```", 1)[0]
    configuration, quota = block.split("---\n")
    resources = configuration[configuration.index("resources:"):]
    start_kueue(cluster, folder, resources)
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "default-flavor"}}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "research.speech"},
             "spec": {"clusterQueue": "vision"}}
    for manifest in [json.dumps(flavor), quota.replace('"800"', '"100"'), json.dumps(queue)]:
        wait_for("Kueue's webhook", lambda manifest=manifest: cluster.apply(manifest, check=False)[0] == 0, 60)

    def has_begun(name):
        return not cluster.get("job", name)["spec"].get("suspend")

    def waits(name):
        """Kueue says that the quota has no room for it."""
        return any(owner["name"] == name and "insufficient unused quota for baton.dev/gpu-share" in c["message"]
                   for w in cluster.get("workloads") for owner in w["metadata"].get("ownerReferences", [])
                   for c in w["status"].get("conditions", []) if c["type"] == "QuotaReserved")

    pod_group(cluster, "ranks", 2)
    of_speech = of_queue("research.speech")  # in nobody else's books
    labels = {**of_speech, "scheduling.x-k8s.io/pod-group": "ranks"}
    cluster.apply(json.dumps(job("train", 2, pod("rank", {"baton.dev/gpu-share": "30"}, labels=labels), of_speech)))
    rows = attached(cluster, 2)
    assert {(row["team"], row["request"], row["gang_name"]) for row in rows} == {
        ("research/speech", 30.0, "default/ranks")}, rows
    cluster.apply(json.dumps(job("more", 1, pod("more", {"baton.dev/gpu-share": "60"}, labels=of_speech), of_speech)))
    wait_for("Kueue to refuse 60 % beside 60", lambda: waits("more"), 60)
    assert not has_begun("more") and has_begun("train")
    cluster.kubectl("delete", "job", "train")
    row, = attached(cluster, 1)
    assert has_begun("more") and (row["team"], row["request"]) == ("research/speech", 60), row
    cluster.apply(json.dumps(job("whole", 1, pod("whole", {"nvidia.com/gpu": "1"}, labels=of_speech), of_speech)))
    wait_for("Kueue to refuse a whole GPU beside 60 %", lambda: waits("whole"), 60)
    cluster.kubectl("delete", "job", "more")
    row, = attached(cluster, 1)
    assert (row["team"], row["mode"]) == ("research/speech", "exclusive"), row
    time.sleep(3)
    cluster.kubectl("delete", "job", "whole")
    wait_for("batond to know", lambda: not cluster.status()["pods"], 60)
    hours = hours_of(cluster, "research/speech")
    for kind in ["localqueue", "clusterqueue", "resourceflavor"]:
        cluster.kubectl("delete", kind, "--all", "--timeout=60s")
    cluster.kubectl("delete", "-f", "-", "--wait=false", "--ignore-not-found", text=(folder / "manifests.yaml").read_text())
    cluster.kubectl("delete", "crd", POD_GROUP["metadata"]["name"], "--wait=false")
    upgrade(cluster)
    return f"booked for research/speech: {hours:.4f} h"


def start_kueue(cluster, folder, resources):
    """Kueue's own manifests, with that part of its Configuration."""
    cluster.ctr("images", "import", images.of_program(folder / "kueue", "/manager", "localhost/kueue:1", cluster.work))
    manifests = (folder / "manifests.yaml").read_text()
    for line in manifests.splitlines():
        if "/kueue/kueue:" in line:
            manifests = manifests.replace(line, line.partition("image:")[0] + "image: localhost/kueue:1")
    indented = "".join("    " + line + "\n" for line in resources.splitlines())
    assert "    #resources:\n" in manifests
    manifests = manifests.replace("    #resources:\n", indented, 1)
    manifests = manifests.replace("imagePullPolicy: Always\n", "imagePullPolicy: IfNotPresent\n")
    cluster.kubectl("apply", "--server-side", "-f", "-", text=manifests)
    cluster.kubectl("-n", "kueue-system", "rollout", "status", "deployment/kueue-controller-manager", "--timeout=120s")


CASES = [foreign_names, whole_gpus, both_schedulers, queues, kueue]
