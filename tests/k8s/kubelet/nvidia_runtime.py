"""nvidia_runtime.py RUNC GPUS RUNC-ARGUMENTS...: stands in for NVIDIA's container runtime. The simulated
GPUs that NVIDIA_VISIBLE_DEVICES names are mounted into the container, with the simulator's libraries.

GPUS is a file: {"libraries": folder, "devices": folder, "gpus": {uuid: file}}."""

import json
import os
import sys

runc, gpus_file, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]


def bundle():
    for i, word in enumerate(arguments):
        if word in ("--bundle", "-b"):
            return arguments[i + 1]
        if word.startswith("--bundle="):
            return word.partition("=")[2]
    return "."


def add_gpus(config, wanted, have):
    gpus = have["gpus"]
    uuids = list(gpus) if wanted == "all" else wanted.split(",")
    for uuid in uuids:
        if uuid not in gpus:
            sys.exit(f"nvidia-container-cli: device error: {uuid}: unknown device")
    mounts = config.setdefault("mounts", [])
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"]:
        mounts.append({"destination": "/usr/lib/x86_64-linux-gnu/" + library, "type": "bind",
                       "source": os.path.realpath(have["libraries"] + "/" + library), "options": ["rbind", "ro"]})
    mounts.append({"destination": "/dev/simgpu", "type": "bind", "source": have["devices"],
                   "options": ["rbind", "rw"]})
    environment = [e for e in config["process"]["env"] if not e.startswith("BATON_SIM_DEVICES=")]
    files = ":".join("/dev/simgpu/" + gpus[uuid] for uuid in uuids)
    config["process"]["env"] = environment + ["BATON_SIM_DEVICES=" + files]
    # The simulator tells processes apart by their pids, as a driver in the kernel does.
    config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != "pid"]


if "create" in arguments:
    path = bundle() + "/config.json"
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    values = [e.partition("=")[2] for e in config["process"].get("env", [])
              if e.startswith("NVIDIA_VISIBLE_DEVICES=")]
    if values and values[-1] not in ("", "void", "none"):
        with open(gpus_file, encoding="utf-8") as file:
            add_gpus(config, values[-1], json.load(file))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
os.execv(runc, [runc] + arguments)
