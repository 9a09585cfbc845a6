"""The images of the node: Baton's as the Dockerfile says, a tenant's with a workload, and pause."""

import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

MIRROR = os.environ.get("BATON_DEBIAN_MIRROR", "http://deb.debian.org/debian")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def make(tree, build, work, root):
    """Archives for `ctr images import`, by the image's name."""
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    packages = collect(tree, build, work)
    base = base_layer(packages, root)
    baton = pack(work / "image", work / "baton.tar")
    tenant_files = work / "tenant/usr/local/bin"
    tenant_files.mkdir(parents=True, exist_ok=True)
    shutil.copy(build / "bin/baton-burn", tenant_files)
    shutil.copy(build / "bin/baton", tenant_files)
    # What the image of k8s/examples/notebook.yaml starts.
    notebook = tenant_files / "start-notebook.py"
    notebook.write_text("#!/bin/sh\nexec baton-burn --kernel 1ms --seconds 1000000\n")
    notebook.chmod(0o755)
    tenant = pack(work / "tenant", work / "tenant.tar")
    pause_files = work / "pause/bin"
    pause_files.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"{root}/bin/busybox", pause_files / "sleep")
    pause = pack(work / "pause", work / "pause.tar")
    return {
        name: archive(work / file, name, config, layers)
        for name, file, config, layers in [
            ("localhost/pause:1", "pause-image.tar", {"Entrypoint": ["/bin/sleep", "999999999"]}, [pause]),
            ("localhost/baton:1", "baton-image.tar", docker_config(tree), [base, baton]),
            ("localhost/burn:1", "tenant-image.tar", {"Cmd": ["sleep", "infinity"], "Env": [PATH]}, [base, tenant]),
        ]
    }


def of_program(program, path, name, work):
    """An image with this one static program, as that path, for a user who is not root."""
    files = pathlib.Path(work) / "program"
    file = files / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, file)
    file.chmod(0o755)
    return archive(files.with_suffix(".image.tar"), name, {"Entrypoint": [path], "User": "65532:65532"},
                   [pack(files, files.with_suffix(".tar"))])


def docker_config(tree):
    """USER and CMD of the Dockerfile's last stage."""
    text = (tree / "Dockerfile").read_text()
    user = re.search(r"^USER (\S+)$", text, re.M).group(1)
    command = json.loads(re.search(r"^CMD (\[.*\])$", text, re.M).group(1))
    return {"User": user, "Cmd": command, "Env": [PATH]}


def collect(tree, build, work):
    """Runs the Dockerfile's own command that collects programs and packages."""
    text = (tree / "Dockerfile").read_text()
    command = re.search(r"^RUN (set -eu;(?:.*\\\n)*.*)$", text, re.M).group(1).replace("\\\n", "\n")
    image = work / "image"
    shutil.rmtree(image, ignore_errors=True)
    for there, here in [("cd build/release", f"cd {build}"), ("/src/", f"{tree}/"), ("/image", str(image)),
                        ("/packages", f"{work}/packages")]:
        assert there in command, there
        command = command.replace(there, here)
    subprocess.run(["sh", "-c", command], check=True, cwd=tree)
    return sorted(set((work / "packages").read_text().split()))


def base_layer(packages, root):
    """Debian 12 with the packages. Kept in the user's cache: it takes a minute and needs a mirror."""
    key = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:16]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "baton/node"
    layer = cache / f"debian-{key}.tar"
    if layer.exists():
        return layer
    cache.mkdir(parents=True, exist_ok=True)
    files = cache / f"debian-{key}.{os.getpid()}"
    env = {**os.environ, "DEBOOTSTRAP_DIR": f"{root}/usr/share/debootstrap"}
    try:
        subprocess.run([f"{root}/usr/sbin/debootstrap", "--variant=minbase", "--include=" + ",".join(packages),
                        "bookworm", str(files), MIRROR], check=True, env=env, stdout=subprocess.DEVNULL)
        for folder in ["var/cache", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/locale"]:
            shutil.rmtree(files / folder, ignore_errors=True)
        shutil.rmtree(files / "dev")
        (files / "dev").mkdir()
        pack(files, cache / f"{files.name}.tar").rename(layer)
    finally:
        shutil.rmtree(files, ignore_errors=True)
    return layer


def pack(folder, file):
    subprocess.run(["tar", "--create", "--file", str(file), "--owner=0", "--group=0", "--numeric-owner",
                    "--directory", str(folder), "."], check=True)
    return file


def digest(file):
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()


def archive(file, name, config, layers):
    """An OCI image layout in a tar archive."""
    digests = [digest(layer) for layer in layers]
    image = json.dumps({"architecture": ARCHITECTURE, "os": "linux", "config": config,
                        "rootfs": {"type": "layers", "diff_ids": digests}}).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": sha(image), "size": len(image)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": d, "size": l.stat().st_size}
                   for d, l in zip(digests, layers)]}).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": sha(manifest), "size": len(manifest),
        "annotations": {"io.containerd.image.name": name}}]}).encode()
    with tarfile.open(file, "w") as tar:
        def add(path, content):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))

        add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add("index.json", index)
        add("blobs/" + sha(image).replace(":", "/"), image)
        add("blobs/" + sha(manifest).replace(":", "/"), manifest)
        for d, layer in zip(digests, layers):
            tar.add(layer, "blobs/" + d.replace(":", "/"))
    return file


def sha(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()
