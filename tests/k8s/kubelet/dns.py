"""dns.py ADDRESS KUBECTL KUBECONFIG: answers NAME.NAMESPACE.svc... with the addresses of the pods behind
the service, so that a node needs no kube-proxy. Other names do not exist."""

import json
import socket
import struct
import subprocess
import sys
import time

ADDRESS, KUBECTL, KUBECONFIG = sys.argv[1:]
known = {}  # (name, namespace): (addresses, when)


def addresses_of(name, namespace):
    found, when = known.get((name, namespace), ([], -10.0))
    if time.monotonic() - when < 1:
        return found
    said = subprocess.run([KUBECTL, "--kubeconfig", KUBECONFIG, "-n", namespace, "get", "endpoints", name,
                           "-o", "json", "--request-timeout=5s"], capture_output=True, text=True)
    found = []
    if said.returncode == 0:
        for subset in json.loads(said.stdout).get("subsets") or []:
            found += [a["ip"] for a in subset.get("addresses") or []]
    known[(name, namespace)] = (found, time.monotonic())
    return found


def answer(query):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += query[at] + 1
    end = at + 5
    kind = struct.unpack(">H", query[at + 1:at + 3])[0]
    found = addresses_of(labels[0], labels[1]) if len(labels) > 2 and labels[2] == "svc" else []
    rows = found if kind == 1 else []
    head = query[:2] + struct.pack(">HHHHH", 0x8180 if found else 0x8183, 1, len(rows), 0, 0)
    return head + query[12:end] + b"".join(
        b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(row) for row in rows)


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((ADDRESS, 53))
while True:
    packet, peer = server.recvfrom(1500)
    try:
        server.sendto(answer(packet), peer)
    except (IndexError, struct.error, UnicodeDecodeError, OSError):
        pass
