"""Baton on the one-node cluster: its images, its chart, simulated GPUs, pods that keep them busy, and
what the GPUs executed."""

import collections
import json
import pathlib
import re
import subprocess
import time

import images
from one_node import NODE, OneNode, find, wait_for

SYSTEM = "baton-system"
NOTEBOOK = "quay.io/jupyter/pytorch-notebook:cuda12-2024-10-14"  # of k8s/examples/notebook.yaml
BURN = ["baton-burn", "--kernel", "1ms", "--seconds", "1000000"]

Kernel = collections.namedtuple("Kernel", "pid start end")


class Baton(OneNode):
    def __init__(self, tree, build, work, gpus=2):
        super().__init__(work)
        self.tree = pathlib.Path(tree)
        self.build = pathlib.Path(build)
        self.devices = pathlib.Path(f"/dev/shm/baton-node-{self.work.name}")
        self.devices.mkdir(mode=0o777)
        self.devices.chmod(0o777)
        self.gpus = {}  # uuid: file
        for i in range(gpus):
            file = self.devices / f"gpu{i}"
            self.simgpu("create", file, "--model", "h100-80", "--records", 2_000_000)
            self.gpus[self.info(file)["uuid"]] = file
        (self.work / "gpus.json").write_text(json.dumps({
            "libraries": str(self.build / "lib/sim"), "devices": str(self.devices),
            "gpus": {uuid: file.name for uuid, file in self.gpus.items()}}))
        self.pods_by_pid = {}
        self.containers_by_pid = {}

    def stop(self):
        super().stop()
        for file in self.devices.glob("*"):
            file.unlink()
        self.devices.rmdir()

    # ------------------------------------------------------------------------------------- install

    def import_images(self):
        made = images.make(self.tree, self.build, self.work / "images", self.root)
        for archive in made.values():
            self.ctr("images", "import", archive)
        version = re.search(r"^appVersion: \"?([^\"\n]+)", (self.tree / "k8s/chart/baton/Chart.yaml").read_text(),
                            re.M).group(1)
        # As the documentation's commands and examples name them.
        self.ctr("images", "tag", "localhost/baton:1", f"ghcr.io/baton/baton:{version}")
        self.ctr("images", "tag", "localhost/burn:1", NOTEBOOK)

    def documented(self, heading):
        """The first block of commands under that heading of docs/kubernetes.md."""
        text = (self.tree / "docs/kubernetes.md").read_text()
        return text[text.index(f"\n{heading}\n"):].split("```sh\n", 1)[1].split("```", 1)[0]

    def shell(self, command, check=True, timeout=300):
        """A command as a user would type it, in a shell on the node."""
        kubectl, helm = (str(pathlib.Path(find(p)).parent) for p in ("kubectl", "helm"))
        # The user has the tree, and may write files beside it.
        home = self.work / "user"
        if not home.exists():
            home.mkdir()
            (home / "k8s").symlink_to(self.tree / "k8s")
        done = subprocess.run(
            self.enter() + ["env", f"KUBECONFIG={self.certs}/admin.kubeconfig", f"HOME={home}",
                            f"PATH={self.build}/bin:{kubectl}:{helm}:/usr/bin:/bin:/usr/sbin:/sbin", "bash", "-c",
                            f"set -e; cd {home}\n{command}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}")
        return done.stdout

    def await_baton(self):
        for workload in ["daemonset/baton-node", "deployment/baton-binder", "deployment/baton-webhook"]:
            self.kubectl("-n", SYSTEM, "rollout", "status", workload, "--timeout=120s")

    def baton(self, *arguments, check=True):
        """The operator's tool in the pod of the node's batond; of two in a rollout, in the one that answers."""
        status, said = 1, "there is no pod of the DaemonSet"
        for pod in self.system_pods("node"):
            status, said = self.kubectl("-n", SYSTEM, "exec", pod["metadata"]["name"], "-c", "batond", "--", "baton",
                                        *arguments, check=False)
            if status == 0:
                break
        if check and status != 0:
            raise RuntimeError(f"baton {' '.join(arguments)}: {said}")
        return said if check else (status, said)

    def status(self):
        """Of the batond that serves the node. Asked again only where kubectl exec did not reach the program, as while
        a kubelet that has just started knows of no pod, or lost its output; what batond answers stands."""
        for _ in range(10):
            status, said = self.baton("status", "--json", check=False)
            if status == 0 and "{" in said:
                return json.loads(said[said.index("{"):])
            if status != 0 and "unable to upgrade connection" not in said:
                break
            time.sleep(0.5)
        raise RuntimeError(f"baton status --json: {said}")

    def system_pods(self, part):
        return [p for p in self.get("pods", namespace=SYSTEM)
                if p["metadata"]["labels"].get("app.kubernetes.io/component") == part]

    # ---------------------------------------------------------------------------------------- pods

    def share_pod(self, name, gpu, namespace="default", command=None, pod=None, container=None, labels=None):
        main = {"name": "main", "image": "localhost/burn:1", "command": command or BURN, **(container or {})}
        spec = {"containers": [main], "terminationGracePeriodSeconds": 0, **(pod or {})}
        return json.dumps({
            "apiVersion": "baton.dev/v1alpha1", "kind": "SharePod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"gpu": gpu, "template": {"metadata": {"labels": {"tenant": "yes", **(labels or {})}},
                                              "spec": spec}}})

    def make(self, name, gpu, namespace="default", **more):
        self.apply(self.share_pod(name, gpu, namespace, **more), namespace)

    def patch(self, name, gpu, namespace="default", check=True):
        return self.kubectl("-n", namespace, "patch", "sharepod", name, "--type", "merge", "-p",
                            json.dumps({"spec": {"gpu": gpu}}), check=check)

    def condition(self, name, kind, namespace="default"):
        share = self.get("sharepod", name, namespace)
        found = [c for c in (share or {}).get("status", {}).get("conditions", []) if c["type"] == kind]
        return found[0] if found else {}

    def await_attached(self, *names, namespace="default", seconds=60):
        """Each has a pod of its own that runs, with a process at batond."""
        def attached():
            here = {row["name"] for row in self.status()["pods"] if row.get("clients")}
            return all(f"{namespace}/{name}" in here for name in names)
        wait_for(f"{names} to attach", attached, seconds, every=0.3)

    def uid(self, name, namespace="default"):
        pod = self.get("pod", name, namespace)
        return pod["metadata"]["uid"] if pod else None

    def remove_all(self, namespace="default"):
        self.kubectl("-n", namespace, "delete", "sharepods,deployments,jobs", "--all", "--wait=false")
        self.kubectl("-n", namespace, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        wait_for("pods to go", lambda: not self.get("pods", namespace=namespace), 60)

    # ---------------------------------------------------------------------------------------- GPUs

    def simgpu(self, *arguments):
        return subprocess.run([str(self.build / "bin/baton-simgpu"), *map(str, arguments)], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def info(self, file):
        return json.loads(self.simgpu("info", file))

    def now(self, file):
        """The device's clock, in ns."""
        return self.info(file)["now_ns"]

    def learn_pids(self):
        """Whose processes those are, by their cgroups; kept when they have gone."""
        for line in self.inside("bash", "-c", "grep -H kubepods /proc/[0-9]*/cgroup 2>/dev/null || true").splitlines():
            found = re.search(r"^/proc/(\d+)/.*/pod([0-9a-f-]{36})/([0-9a-f]{64})", line)
            if found:
                self.pods_by_pid[int(found.group(1))] = found.group(2)
                self.containers_by_pid[int(found.group(1))] = found.group(3)

    def kernels(self, file, since=0, until=None):
        """What the device executed, in the order of its starts."""
        rows = []
        for line in self.simgpu("records", file, "--csv").splitlines()[1:]:
            cells = line.split(",")
            kernel = Kernel(int(cells[1]), int(cells[7]), int(cells[8]))
            if kernel.end > since and (until is None or kernel.start < until):
                rows.append(kernel)
        return sorted(rows, key=lambda k: k.start)

    def shares(self, file, seconds, *whose):
        """The part of the device's time that each pod (uid), or container, had over the next seconds, in percent."""
        self.learn_pids()
        since = self.now(file)
        time.sleep(seconds)
        until = self.now(file)
        self.learn_pids()
        held = collections.Counter()
        kernels = self.kernels(file, since, until)
        for kernel in kernels:
            for owner in [self.pods_by_pid.get(kernel.pid), self.containers_by_pid.get(kernel.pid)]:
                held[owner] += min(kernel.end, until) - max(kernel.start, since)
        return [100.0 * held[owner] / (until - since) for owner in whose], self.overlaps(kernels)

    def overlaps(self, kernels):
        """How many kernels began while one of another pod ran."""
        count, open_until, owner = 0, 0, None
        for kernel in kernels:
            pod = self.pods_by_pid.get(kernel.pid, kernel.pid)
            if pod != owner and kernel.start < open_until:
                count += 1
            if kernel.end > open_until:
                open_until, owner = kernel.end, pod
        return count

    def longest_gap(self, file, since, until):
        """The longest time in which the device executed nothing, in seconds."""
        gap, last = 0, since
        for kernel in self.kernels(file, since, until):
            gap = max(gap, kernel.start - last)
            last = max(last, kernel.end)
        return max(gap, until - last) / 1e9

    def gpu_of(self, name, namespace="default"):
        pod = self.get("pod", name, namespace)
        placement = json.loads(pod["metadata"]["annotations"]["baton.dev/placement"])
        return placement["containers"][0]["vgpus"][0]["card"]

    def versions(self):
        kubelet = subprocess.run([f"{self.assets}/kubelet", "--version"], capture_output=True, text=True).stdout.strip()
        etcd = subprocess.run([f"{self.assets}/etcd", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
        return f"{kubelet} on {NODE}, {etcd}, {self.ctr('version').splitlines()[-2].strip()}"

    def show_state(self):
        for arguments in [("get", "sharepods,pods,events", "-A"), ("describe", "nodes")]:
            print(self.kubectl(*arguments, check=False)[1][-6000:])
        for part in ["node", "binder"]:
            for pod in self.system_pods(part):
                print(self.kubectl("-n", SYSTEM, "logs", pod["metadata"]["name"], "--all-containers", "--tail=25",
                                   check=False)[1][-4000:])
