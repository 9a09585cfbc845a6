"""ResourceClaims: kube-scheduler gives them parts of GPUs, and the node's driver prepares them."""

import contextlib
import json

from baton import BURN, SYSTEM
from cases import near, restarts_of, share_count, text_of
from drop_in import deployment, pod, upgrade
from one_node import NODE, Skipped, wait_for

DRIVER = "gpu.baton.dev"


@contextlib.contextmanager
def claims_for_gpus(cluster):
    """The chart by the documentation's commands; in the end as it is by default, with nothing left."""
    if cluster.kubectl("get", "--raw", "/apis/resource.k8s.io/v1", check=False)[0] != 0:
        raise Skipped("the API server has no resource.k8s.io/v1 (Kubernetes 1.34)")
    upgrade(cluster)
    print(cluster.shell(cluster.documented("## ResourceClaims")), end="")
    cluster.await_baton()
    wait_for("the node's ResourceSlice", lambda: {d["attributes"]["uuid"]["string"] for d in devices(cluster)} == set(
        cluster.gpus), 60)
    yield
    cluster.remove_all()
    cluster.kubectl("delete", "resourceclaims,resourceclaimtemplates", "--all")
    wait_for("nothing to be left", lambda: not left(cluster), 60)
    upgrade(cluster)
    wait_for("the binder's GPUs", lambda: share_count(cluster) == "200", 60)


def devices(cluster):
    return [device for one in cluster.get("resourceslices") if one["spec"]["driver"] == DRIVER
            for device in one["spec"]["devices"]]


def left(cluster):
    """What there is of claims: files of the driver and for the runtime, and pods at batond."""
    files = cluster.inside("bash", "-c", f"ls /run/cdi/{DRIVER}* /var/lib/kubelet/plugins/{DRIVER}/claims/*.json 2>/dev/null || true")
    return files.split() + [row["name"] for row in cluster.status()["pods"]]


def template(cluster, name, gpu, share, memory="4Gi", kind="ResourceClaimTemplate"):
    """Of a part of that GPU."""
    of_gpu = {"cel": {"expression": f'device.attributes["{DRIVER}"].uuid == "{gpu}"'}}
    exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"share": str(share), "memory": memory}},
               "selectors": [of_gpu]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    cluster.apply(json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name},
                              "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec}))


def user(name, *templates, containers=None, **more):
    """A pod with a claim from each template, all of its one container if it does not say."""
    claims = [{"name": t, "resourceClaimTemplateName": t} for t in templates]
    of = containers or {"main": templates}
    return pod(name, resourceClaims=claims, containers=[
        {"name": container, "image": "localhost/burn:1", "command": BURN,
         "resources": {"claims": [{"name": claim} for claim in used]}} for container, used in of.items()],
        labels={"tenant": "yes"}, terminationGracePeriodSeconds=1, **more)


def phase(cluster, name):
    return (cluster.get("pod", name) or {"status": {}})["status"].get("phase")


def await_running(cluster, *names, seconds=90):
    """All run, and compute."""
    wait_for(f"{names} to run", lambda: all(phase(cluster, n) == "Running" for n in names), seconds)

    def computing():
        rows = {row["name"]: row for row in cluster.status()["pods"]}
        return all(rows.get(f"default/{n}", {}).get("clients") for n in names)
    wait_for(f"{names} to compute", computing, seconds, every=0.3)


def refused(cluster, name):
    """kube-scheduler has no device for it."""
    wait_for(f"{name} to be refused", lambda: any(
        c["type"] == "PodScheduled" and c["status"] == "False" and "cannot allocate all claims" in c["message"]
        for c in cluster.get("pod", name)["status"].get("conditions", [])), 30)


def three(cluster, gpu):
    """Pods of 50, 30 and 20 % of that GPU."""
    for name, share in [("a", 50), ("b", 30), ("c", 20)]:
        template(cluster, f"of-{name}", gpu, share)
        cluster.apply(json.dumps(user(name, f"of-{name}")))
    await_running(cluster, "a", "b", "c")
    return [cluster.uid(name) for name in "abc"]


def three_have(cluster, gpu, pods):
    """Their shares, within a point."""
    got, overlaps = cluster.shares(cluster.gpus[gpu], 8, *pods)
    near("shares", got, [50, 30, 20], 1)
    assert overlaps == 0, overlaps
    return text_of(got)


# ------------------------------------------------------------------------------------------------ cases


def documented_claim(cluster):
    """The example of docs/kubernetes.md, word for word but for its image: a share with a limit."""
    with claims_for_gpus(cluster):
        text = (cluster.tree / "docs/kubernetes.md").read_text()
        manifest = text[text.index("\n## ResourceClaims\n"):].split("```yaml\n", 1)[1].split("```", 1)[0]
        image = "image: pytorch/pytorch"
        assert image in manifest
        cluster.apply(manifest.replace(image, f"image: localhost/burn:1\n      command: {json.dumps(BURN)}"))
        await_running(cluster, "notebook")
        row = cluster.status()["pods"][0]
        assert (row["request"], row["limit"], row["memory"]) == (30, 60, 4 * 2**30), row
        got, _ = cluster.shares(cluster.gpus[row["gpus"][0]["uuid"]], 5, cluster.uid("notebook"))
        assert 58 <= got[0] <= 60.5, f"alone, at its limit: {got}"
    return f"alone {got[0]:.1f} %"


def shares_of_claims(cluster):
    """Claims have their parts: in pods of their own, of one pod, and together where containers use one claim."""
    full, other = cluster.gpus
    with claims_for_gpus(cluster):
        pods = three(cluster, full)
        # Nothing is left of the one GPU's time, and of the other's memory.
        template(cluster, "one-more", full, 1, "1Gi")
        cluster.apply(json.dumps(user("late", "one-more")))
        refused(cluster, "late")
        template(cluster, "large", other, 40)
        template(cluster, "small", other, 20, "60Gi")
        template(cluster, "common", other, 40, "8Gi", kind="ResourceClaim")
        cluster.apply(json.dumps(user("two", "large", "small", containers={"x": ["large"], "y": ["small"]})))
        both = user("both", containers={"p": ["common"], "q": ["common"]})
        both["spec"]["resourceClaims"] = [{"name": "common", "resourceClaimName": "common"}]
        cluster.apply(json.dumps(both))
        wait_for("the other GPU's pods", lambda: phase(cluster, "two") == phase(cluster, "both") == "Running", 90)
        wait_for("their processes", lambda: sum(len(row.get("clients", [])) for row in cluster.status()["pods"]) == 7, 60)
        rows = cluster.status()["pods"]
        asked = sorted((row["request"], row["memory"] >> 30) for row in rows if row["gpus"][0]["uuid"] == other)
        assert asked == [(20, 60), (40, 4), (40, 8)], rows
        said = three_have(cluster, full, pods)
        of_two = {s["name"]: s["containerID"].rpartition("/")[2]
                  for s in cluster.get("pod", "two")["status"]["containerStatuses"]}
        got, overlaps = cluster.shares(cluster.gpus[other], 8, of_two["x"], of_two["y"], cluster.uid("both"))
        near("of one pod, and together", got, [40, 20, 40], 1)
        assert overlaps == 0, overlaps
        # What one gives back the next one gets.
        cluster.kubectl("delete", "pod", "c")
        await_running(cluster, "late")
    return f"{said} %; of one pod {text_of(got[:2])} %, two containers together {got[2]:.1f} %"


def claims_outlive(cluster):
    """batond, agent, kubelet and the node restart: claims, shares and containers stay, and new pods come."""
    gpu = next(iter(cluster.gpus))

    def claims_of(names):
        return {n: cluster.get("pod", n)["status"]["resourceClaimStatuses"] for n in names}

    with claims_for_gpus(cluster):
        pods = three(cluster, gpu)
        claims = claims_of("abc")
        said = {}

        cluster.inside("pkill", "-KILL", "-x", "batond")
        wait_for("batond", lambda: cluster.baton("ping", check=False)[0] == 0, 30)
        await_running(cluster, "a", "b", "c")
        said["batond killed"] = three_have(cluster, gpu, pods)

        restarts = restarts_of(cluster)
        cluster.inside("pkill", "-KILL", "-f", "baton-k8s device-plugin")
        wait_for("the agent to be started again", lambda: restarts_of(cluster) == restarts + 1, 60)
        cluster.kill_server("kubelet")
        cluster.start_kubelet()
        said["agent and kubelet"] = three_have(cluster, gpu, pods)

        before = {p["metadata"]["uid"] for p in cluster.system_pods("node")}
        cluster.kubectl("-n", SYSTEM, "rollout", "restart", "daemonset/baton-node")
        cluster.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/baton-node", "--timeout=120s")
        wait_for("the old pod to go", lambda: not before & {p["metadata"]["uid"] for p in cluster.system_pods("node")},
                 60)
        said["node's pod replaced"] = three_have(cluster, gpu, pods)
        assert all(s["restartCount"] == 0 for n in "abc" for s in cluster.get("pod", n)["status"]["containerStatuses"])
        cluster.kubectl("delete", "pod", "c")
        cluster.apply(json.dumps(user("c", "of-c")))
        await_running(cluster, "c")
        claims["c"] = claims_of("c")["c"]

        cluster.reboot()
        wait_for("the node", cluster.is_ready, 60)
        wait_for("Baton", lambda: cluster.baton("ping", check=False)[0] == 0, 120)
        await_running(cluster, "a", "b", "c", seconds=120)
        assert claims_of("abc") == claims
        said["node restarted"] = three_have(cluster, gpu, [cluster.uid(n) for n in "abc"])
    return "; ".join(f"{what}: {shares}" for what, shares in said.items())


def claims_drained(cluster):
    """kubectl drain leaves nothing of them on the node; after uncordon they are back."""
    gpu = next(iter(cluster.gpus))
    with claims_for_gpus(cluster):
        for name, share in [("a", 50), ("b", 30), ("c", 20)]:
            template(cluster, f"of-{name}", gpu, share)
            cluster.apply(json.dumps(deployment(1, user(name, f"of-{name}"))))

        def pods():
            found = {p["metadata"]["labels"]["app"]: p for p in cluster.get("pods") if p["status"]["phase"] == "Running"}
            rows = {row["name"]: row for row in cluster.status()["pods"]}
            wanted = [found[n] for n in "abc"] if set(found) == set("abc") else []
            come = all(rows.get(f"default/{p['metadata']['name']}", {}).get("clients") for p in wanted)
            return [p["metadata"]["uid"] for p in wanted] if come else []

        before = wait_for("the pods", pods, 90, every=0.3)
        said = three_have(cluster, gpu, before)
        cluster.kubectl("drain", NODE, "--ignore-daemonsets", "--force", "--pod-selector=tenant=yes", "--timeout=60s")
        wait_for("nothing to be left", lambda: not left(cluster), 30)
        assert all(p["status"]["phase"] == "Pending" for p in cluster.get("pods"))
        cluster.kubectl("uncordon", NODE)
        after = wait_for("the pods to be back", pods, 90, every=0.3)
        assert not set(before) & set(after)
        said += " before, " + three_have(cluster, gpu, after) + " after"
        cluster.kubectl("delete", "deployments", "--all")
    return said


CASES = [documented_claim, shares_of_claims, claims_outlive, claims_drained]
