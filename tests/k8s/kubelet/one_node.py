"""A Kubernetes cluster of one node on this machine, in namespaces of its own: etcd, kube-apiserver,
controller manager, scheduler, kubelet and containerd as processes, without Docker and without
anything installed. It ends with the process that made it.

The node has no way to other machines: its network is a pair of virtual interfaces. There is no
kube-proxy: pods reach the API server at its service address, which is on the node's loopback, and
services by name, for names are answered with the addresses of the pods behind them (dns.py).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
NODE = "node1"
NODE_IP = "10.99.0.1"
API_IP = "10.96.0.1"  # of the service kubernetes.default
DNS_IP = "10.96.0.10"
SERVERS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"]
HOST_FOLDERS = ["/var/lib/kubelet", "/var/lib/baton", "/var/log/pods", "/var/log/containers"]


def why_not():
    """What is missing on this machine, as a sentence; None: nothing is."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    missing = [s for s in SERVERS if not os.access(f"{assets}/{s}", os.X_OK)]
    if not assets or missing:
        return (
            "set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager, "
            "kube-scheduler and kubelet" + (f" ({assets} lacks {', '.join(missing)})" if assets else "")
        )
    root = os.environ.get("BATON_NODE_ROOT", "")
    wanted = ["usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc",
              "usr/lib/cni/ptp", "usr/lib/cni/host-local", "usr/lib/cni/loopback", "bin/busybox",
              "usr/sbin/debootstrap"]
    missing = [w for w in wanted if not os.path.exists(f"{root}/{w}")]
    if not root or missing:
        return (
            "set BATON_NODE_ROOT to a folder into which Debian's containerd, runc, "
            "containernetworking-plugins, busybox-static and debootstrap are unpacked "
            "(apt-get download, dpkg -x)" + (f" ({root} lacks {', '.join(missing)})" if root else "")
        )
    for program in ["kubectl", "helm", "openssl", "ip", "unshare", "nsenter", "setpriv"]:
        if find(program) is None:
            return f"{program} was not found"
    if os.geteuid() != 0:
        return "only root can make the namespaces of a node"
    return None


def find(program):
    inside = os.environ.get("KUBEBUILDER_ASSETS", "") + "/" + program
    return inside if os.access(inside, os.X_OK) else shutil.which(program)


class Skipped(Exception):
    """Of a case: what it needs is not here; says what."""


def wait_for(what, condition, seconds=60.0, every=0.1):
    """Until the condition holds; its last value is returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(every)


class OneNode:
    def __init__(self, work, keep_output=False):
        self.work = pathlib.Path(work)
        self.root = pathlib.Path(os.environ["BATON_NODE_ROOT"])
        self.assets = pathlib.Path(os.environ["KUBEBUILDER_ASSETS"])
        self.logs = self.work / "log"
        self.certs = self.work / "certs"
        self.etc = self.work / "etc"
        for folder in [self.logs, self.certs, self.etc / "cni"]:
            folder.mkdir(parents=True, exist_ok=True)
        self.servers = {}
        self.holder = None
        self.pid = None
        self.made = []

    # ------------------------------------------------------------------------------------ commands

    def inside(self, *command, check=True, **options):
        """Runs a command in the node's namespaces and returns what it wrote."""
        done = subprocess.run(self.enter() + list(map(str, command)), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, **options)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}")
        return done.stdout

    def enter(self):
        return ["nsenter", "--target", str(self.pid), "--mount", "--net", "--ipc", "--pid", "--uts", "--"]

    def kubectl(self, *arguments, check=True, text=None, who=None, timeout=120):
        command = [find("kubectl"), "--kubeconfig", str(self.certs / "admin.kubeconfig")]
        if who:
            command += ["--as", who]
        done = subprocess.run(self.enter() + command + list(map(str, arguments)), input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stdout}")
        return done.stdout if check else (done.returncode, done.stdout)

    def get(self, kind, name=None, namespace="default"):
        """An object, or the list's items; None: there is none of that name."""
        arguments = ["get", kind, "-o", "json", "-n", namespace] + ([name] if name else [])
        status, said = self.kubectl(*arguments, check=False)
        if status != 0:
            if name and "NotFound" in said:
                return None
            raise RuntimeError(said)
        found = json.loads(said[said.index("{"):])
        return found if name else found["items"]

    def apply(self, manifest, namespace="default", **options):
        return self.kubectl("apply", "-n", namespace, "-f", "-", text=manifest, **options)

    def helm(self, *arguments, check=True):
        return self.inside(find("helm"), "--kubeconfig", self.certs / "admin.kubeconfig", *arguments,
                           check=check, env={**os.environ, "HOME": str(self.work)})

    # ------------------------------------------------------------------------------------- servers

    def start(self):
        self.make_namespaces()
        self.make_certificates()
        self.make_configuration()
        for name in ["etcd", "kube-apiserver"]:
            self.start_server(name)
        wait_for("the API server", lambda: self.kubectl("get", "--raw", "/readyz", check=False)[0] == 0)
        for name in ["kube-controller-manager", "kube-scheduler", "containerd", "dns"]:
            self.start_server(name)
        wait_for("containerd", lambda: self.ctr("version", check=False).count("Version:") == 2)

    def start_kubelet(self):
        """Once more where it ends, as systemd would: containerd answers before it serves kubelets."""
        self.start_server("kubelet")

        def serves():
            if self.servers["kubelet"].poll() is not None:
                self.start_server("kubelet")
            return self.inside("bash", "-c", "echo > /dev/tcp/127.0.0.1/10248 && echo yes", check=False) == "yes\n"

        wait_for("the kubelet", serves, every=0.5)
        wait_for("the node", self.is_ready, 90)

    def is_ready(self):
        node = self.get("node", NODE)
        return node is not None and any(c["type"] == "Ready" and c["status"] == "True"
                                        for c in node["status"].get("conditions", []))

    def start_server(self, name):
        path = f"{self.root}/usr/bin:{self.root}/usr/sbin:{os.environ['PATH']}"
        with open(self.logs / f"{name}.log", "ab") as log:
            self.servers[name] = subprocess.Popen(self.enter() + self.command_of(name), stdout=log, stderr=log,
                                                  env={**os.environ, "PATH": path}, start_new_session=True)

    def pid_of(self, name):
        """Of a server, in the node's own count of processes."""
        binary = {"containerd": f"{self.root}/usr/bin/containerd"}.get(name, f"{self.assets}/{name}")
        for line in self.inside("ps", "-e", "-o", "pid=,args=").splitlines():
            pid, _, arguments = line.strip().partition(" ")
            if arguments.strip().split(" ")[0] == binary:
                return int(pid)
        return None

    def kill_server(self, name, with_signal="KILL"):
        pid = self.pid_of(name)
        self.inside("kill", f"-{with_signal}", pid)
        self.servers[name].wait(timeout=30)

    def ctr(self, *arguments, check=True):
        return self.inside(f"{self.root}/usr/bin/ctr", "--address", "/run/containerd/containerd.sock",
                           "--namespace", "k8s.io", *arguments, check=check)

    def command_of(self, name):
        c, a = self.certs, self.assets
        if name == "etcd":
            return [f"{a}/etcd", "--data-dir", f"{self.work}/etcd", "--unsafe-no-fsync",
                    "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls",
                    "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380"]
        if name == "kube-apiserver":
            return [f"{a}/kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
                    f"--advertise-address={NODE_IP}", "--bind-address=0.0.0.0", "--secure-port=443",
                    f"--tls-cert-file={c}/apiserver.crt", f"--tls-private-key-file={c}/apiserver.key",
                    f"--client-ca-file={c}/ca.crt", f"--kubelet-client-certificate={c}/admin.crt",
                    f"--kubelet-client-key={c}/admin.key", f"--kubelet-certificate-authority={c}/ca.crt",
                    "--service-cluster-ip-range=10.96.0.0/16",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={c}/sa.pub",
                    f"--service-account-signing-key-file={c}/sa.key", "--authorization-mode=Node,RBAC",
                    "--enable-admission-plugins=NodeRestriction", "--enable-aggregator-routing=true",
                    "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true"]
        if name == "kube-controller-manager":
            return [f"{a}/kube-controller-manager", *self.as_client("kcm"),
                    f"--service-account-private-key-file={c}/sa.key", f"--root-ca-file={c}/ca.crt",
                    "--use-service-account-credentials", "--leader-elect=false",
                    f"--cluster-signing-cert-file={c}/ca.crt", f"--cluster-signing-key-file={c}/ca.key",
                    "--node-monitor-grace-period=20s"]
        if name == "kube-scheduler":
            return [f"{a}/kube-scheduler", *self.as_client("scheduler"), "--leader-elect=false"]
        if name == "kubelet":
            return [f"{a}/kubelet", f"--config={self.etc}/kubelet.yaml",
                    f"--kubeconfig={c}/node.kubeconfig", f"--hostname-override={NODE}",
                    f"--node-ip={NODE_IP}", "--root-dir=/var/lib/kubelet", f"--cert-dir={self.work}/kubelet-pki",
                    "--node-labels=baton.dev/gpu=true", "-v=2"]
        if name == "containerd":
            return [f"{self.root}/usr/bin/containerd", "-c", f"{self.etc}/containerd.toml"]
        if name == "dns":
            return [sys.executable, f"{HERE}/dns.py", DNS_IP, find("kubectl"), f"{c}/admin.kubeconfig"]
        raise ValueError(name)

    def as_client(self, who):
        config = f"{self.certs}/{who}.kubeconfig"
        return [f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}"]

    # --------------------------------------------------------------------------------------- setup

    def make_namespaces(self):
        # Mount points: those that this machine lacks are taken away again.
        self.made = [folder for folder in HOST_FOLDERS if not os.path.exists(folder)]
        folders = " ".join(HOST_FOLDERS)
        script = f"""set -e
mount --make-rshared /
hostname {NODE}
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns /run/containerd
mount --make-rshared /run
for folder in {folders}; do
  mkdir -p "$folder" "{self.work}/fs$folder"
  mount --bind "{self.work}/fs$folder" "$folder"
  mount --make-rshared "$folder"
done
cp /proc/sys/kernel/random/boot_id "{self.work}/boot_id"
mount --bind "{self.work}/boot_id" /proc/sys/kernel/random/boot_id
ip link set lo up
ip address add {API_IP}/32 dev lo
ip address add {DNS_IP}/32 dev lo
ip link add eth0 type veth peer name eth0-other
ip address add {NODE_IP}/24 dev eth0
ip link set eth0 up
ip link set eth0-other up
ip route add default dev eth0
echo 1 > /proc/sys/net/ipv4/ip_forward
echo made
exec sleep infinity
"""
        # Whatever runs in the node dies with its first process, and that one with this process.
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--ipc", "--pid", "--uts", "--fork", "--kill-child",
             "--mount-proc", "--propagation", "private", "bash", "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self.holder.stdout.readline()
        if said.strip() != "made":
            raise RuntimeError("the node's namespaces cannot be made: " + said)
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text()
        self.pid = int(children.split()[0])

    def make_certificates(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *map(str, arguments)], cwd=self.certs, check=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-days", 30, "-subj",
                "/CN=one-node")
        openssl("genrsa", "-out", "sa.key", 2048)
        openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        names = f"IP:{API_IP},IP:{NODE_IP},IP:127.0.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:{NODE}"
        for who, subject in [("apiserver", "/CN=kube-apiserver"), ("kubelet", f"/CN={NODE}"),
                             ("admin", "/O=system:masters/CN=admin"), ("kcm", "/CN=system:kube-controller-manager"),
                             ("scheduler", "/CN=system:kube-scheduler"),
                             ("node", f"/O=system:nodes/CN=system:node:{NODE}")]:
            openssl("req", *curve, "-keyout", f"{who}.key", "-out", f"{who}.csr", "-subj", subject)
            (self.certs / f"{who}.ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
            openssl("x509", "-req", "-in", f"{who}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                    "-out", f"{who}.crt", "-days", 30, "-extfile", f"{who}.ext")
            (self.certs / f"{who}.kubeconfig").write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": f"https://{API_IP}:443",
                                                        "certificate-authority": f"{self.certs}/ca.crt"}}],
                "users": [{"name": "it", "user": {"client-certificate": f"{self.certs}/{who}.crt",
                                                  "client-key": f"{self.certs}/{who}.key"}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}))

    def make_configuration(self):
        (self.etc / "resolv.conf").write_text(f"nameserver {DNS_IP}\n")
        (self.etc / "cni/10-pods.conf").write_text(json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "type": "ptp",
            "ipam": {"type": "host-local", "subnet": "10.88.0.0/16", "dataDir": f"{self.work}/ipam",
                     "routes": [{"dst": "0.0.0.0/0"}]}}))
        runtime = self.work / "nvidia-container-runtime"
        runtime.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE}/nvidia_runtime.py {self.root}/usr/sbin/runc "
                           f"{self.work}/gpus.json \"$@\"\n")
        runtime.chmod(0o755)
        (self.etc / "containerd.toml").write_text(f"""version = 2
root = "{self.work}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true  # there may be no CAP_SYS_RESOURCE here
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{self.root}/usr/lib/cni"
    conf_dir = "{self.etc}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "nvidia"  # as the documentation expects it
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{self.root}/usr/sbin/runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "{runtime}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.work}/opt"
""")
        (self.etc / "kubelet.yaml").write_text(f"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {NODE_IP}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {self.certs}/ca.crt}}
authorization: {{mode: AlwaysAllow}}
tlsCertFile: {self.certs}/kubelet.crt
tlsPrivateKeyFile: {self.certs}/kubelet.key
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
failCgroupV1: false  # newer kubelets want version 2
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evictionHard: {{memory.available: "10Mi", nodefs.available: "1%", imagefs.available: "1%"}}
imageGCHighThresholdPercent: 100
resolvConf: {self.etc}/resolv.conf
volumePluginDir: {self.work}/volume-plugins
nodeStatusUpdateFrequency: 5s
clusterDNS: [{DNS_IP}]
clusterDomain: cluster.local
""")

    # -------------------------------------------------------------------------------------- events

    def reboot(self):
        """As far as a kubelet can tell: all containers are dead, /run is empty, the boot is another."""
        for name in ["kubelet", "containerd"]:
            self.kill_server(name)
        self.kill_pods()
        remove_cgroups()
        self.inside("bash", "-c", """
for m in $(grep -oE ' (/run/(containerd|netns)|/var/lib/kubelet/pods)/[^ ]+' /proc/mounts | sort -r); do
  umount -l "$m" 2>/dev/null; done
rm -rf /run/containerd /run/netns /run/baton /run/baton-locks /run/cdi
mkdir -p /run/containerd /run/netns
for d in $(ip -o link | grep -oE 'veth[0-9a-f]{8}'); do ip link delete "$d"; done
true""")
        shutil.rmtree(self.work / "ipam", ignore_errors=True)
        pathlib.Path(self.work / "boot_id").write_text(subprocess.run(
            ["cat", "/proc/sys/kernel/random/uuid"], capture_output=True, text=True, check=True).stdout)
        self.start_server("containerd")
        wait_for("containerd", lambda: self.ctr("version", check=False).count("Version:") == 2)
        self.start_kubelet()

    def kill_pods(self):
        """Shims first: they would clean up, which no power cut does."""
        self.inside("bash", "-c", """
for p in $(ps -e -o pid=,args= | grep '[c]ontainerd-shim-runc-v2 -namespace k8s.io' | awk '{print $1}'); do
  kill -9 "$p"; done
for round in 1 2 3; do
  for f in $(find /sys/fs/cgroup -path '*kubepods*' -name cgroup.procs); do
    for p in $(cat "$f" 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
  done
  sleep 0.1
done
true""")

    def stop(self):
        if self.pid is None:
            return
        try:
            self.kill_pods()
        except (RuntimeError, OSError):
            pass
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        for server in self.servers.values():
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
        self.pid = None
        for folder in self.made:
            pathlib.Path(folder).rmdir()
        remove_cgroups()


def remove_cgroups():
    """A kubelet that starts asks containerd for 3 s about each container that has one."""
    for top in pathlib.Path("/sys/fs/cgroup").glob("**/kubepods"):
        for folder in sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True):
            remove_cgroup(folder)
        remove_cgroup(top)


def remove_cgroup(folder):
    for _ in range(20):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)
