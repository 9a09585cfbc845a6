"""nvidia_runtime.py RUNC GPUS RUNC-ARGUMENTS...: stands in for NVIDIA's container runtime. The simulated
GPUs that NVIDIA_VISIBLE_DEVICES names, or the GPUs of the MIG instances that it names, are mounted into
the container, with the simulator's libraries and, as the driver's capability `compute` says, MPS's program.

GPUS is a file: {"libraries": folder, "devices": folder, "gpus": {uuid: file}}."""

import ctypes
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


def gpu_of(device, have):
    """The uuid of the GPU that has this MIG instance, as NVML knows it; None: there is no such instance."""
    # Read as the library is loaded.
    os.environ["BATON_SIM_DEVICES"] = ":".join(have["devices"] + "/" + file for file in have["gpus"].values())
    nvml = ctypes.CDLL(have["libraries"] + "/libnvidia-ml.so.1")
    instance, gpu, uuid = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
    known = (nvml.nvmlInit_v2() == 0
             and nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(instance)) == 0
             and nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, ctypes.byref(gpu)) == 0
             and nvml.nvmlDeviceGetUUID(gpu, uuid, len(uuid)) == 0)
    return uuid.value.decode() if known else None


def value_of(config, variable, default=""):
    """What the container's environment says last."""
    values = [e.partition("=")[2] for e in config["process"].get("env", []) if e.startswith(variable + "=")]
    return values[-1] if values else default


def add_gpus(config, wanted, have):
    gpus = have["gpus"]
    uuids = list(gpus) if wanted == "all" else wanted.split(",")
    uuids = [gpu_of(uuid, have) if uuid.startswith("MIG-") else uuid for uuid in uuids]
    for uuid in uuids:
        if uuid not in gpus:
            sys.exit(f"nvidia-container-cli: device error: {wanted}: unknown device")
    mounts = config.setdefault("mounts", [])
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"]:
        mounts.append({"destination": "/usr/lib/x86_64-linux-gnu/" + library, "type": "bind",
                       "source": os.path.realpath(have["libraries"] + "/" + library), "options": ["rbind", "ro"]})
    if "compute" in value_of(config, "NVIDIA_DRIVER_CAPABILITIES", "utility,compute").split(","):
        mounts.append({"destination": "/usr/bin/nvidia-cuda-mps-control", "type": "bind",
                       "source": os.path.realpath(have["libraries"] + "/nvidia-cuda-mps-control"),
                       "options": ["rbind", "ro"]})
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
    wanted = value_of(config, "NVIDIA_VISIBLE_DEVICES")
    if wanted not in ("", "void", "none"):
        with open(gpus_file, encoding="utf-8") as file:
            add_gpus(config, wanted, json.load(file))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
os.execv(runc, [runc] + arguments)
