"""How a program takes part in a race of scripts/gpu: it counts its steps while others count theirs.

It makes its steps from the same beginning twice, once before the race and once in it, and says what
they computed: the same bits, whoever shares the GPU.
"""

import argparse
import collections
import hashlib
import json
import os
import sys
import time

CHECKED = 20  # steps whose result is told
IN_FLIGHT = 3  # a program queues ahead, and learns of a step's end later


def parser(description, modes):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("mode", choices=modes)
    p.add_argument("--ready", help="a file to make when warm")
    p.add_argument("--go", help="a file with the end of the race, seconds since 1970")
    p.add_argument("--seconds", type=float, default=5, help="how long, without --go")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                   help="cpu tries this program where there is no GPU")
    return p


def unavailable(reason):
    """Ends the program as one that cannot run here."""
    print(f"unavailable: {reason}", file=sys.stderr)
    sys.exit(77)


def digest(*parts):
    """Of bytes: what a result is known by."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part)
    return h.hexdigest()[:16]


def race(args, step, reset, result):
    """step() launches one step and returns a function that waits for its end. reset() goes back to the
    beginning. result() is a digest of what the steps since then computed."""

    def checked():
        reset()
        for _ in range(CHECKED):
            wait = step()
        wait()
        return result()

    before = checked()
    if args.ready:
        with open(args.ready, "w"):
            pass
    end = time.time() + args.seconds
    if args.go:
        while not os.path.exists(args.go):
            time.sleep(0.005)
        with open(args.go) as f:
            end = float(f.read())
    begin = time.time()
    during = checked()
    steps = CHECKED
    waits = collections.deque()
    while time.time() < end:
        waits.append(step())
        if len(waits) > IN_FLIGHT:
            waits.popleft()()
            steps += 1
    elapsed = time.time() - begin
    for wait in waits:
        wait()
    if before != during:
        print(f"computed {before} before the race and {during} in it", file=sys.stderr)
        sys.exit(1)
    print(json.dumps({"mode": args.mode, "steps": steps, "elapsed": round(elapsed, 3), "result": during}))
