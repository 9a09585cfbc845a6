#!/usr/bin/env python3
"""JAX as a pod: training steps, and what a program does that its memory cap refuses. Exit status 77
where JAX or a GPU is missing."""

import functools
import json
import os
import sys

# Kernels that are chosen by timing would differ from run to run.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stepping  # noqa: E402


def train(args, jax, numpy):
    width, rows = (64, 32) if args.device == "cpu" else (2048, 1024)
    random = numpy.random.default_rng(1)

    def normal(*shape):
        return jax.numpy.asarray(random.standard_normal(shape, dtype=numpy.float32))

    start = [normal(width, width) * width**-0.5 for _ in range(4)]
    x, y = normal(rows, width), normal(rows, width)

    def loss(weights):
        h = x
        for w in weights:
            h = jax.nn.gelu(h @ w)
        return jax.numpy.mean((h - y) ** 2)

    @functools.partial(jax.jit)
    def once(weights):
        return [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights))]

    state = {"weights": start}

    def step():
        state["weights"] = once(state["weights"])
        last = state["weights"][-1]
        return last.block_until_ready

    def reset():
        state["weights"] = start

    stepping.race(args, step, reset,
                  lambda: stepping.digest(*(numpy.asarray(w).tobytes() for w in state["weights"])))


def out_of_memory(args, jax, numpy):
    if args.device == "cpu":
        stepping.unavailable("a memory cap is of a GPU")
    kept, error = [], None
    try:
        while True:
            kept.append(jax.device_put(numpy.zeros(64 << 18, numpy.float32)).block_until_ready())
    except Exception as e:  # the name is what is asked for
        error, sentence = type(e).__name__, str(e).splitlines()[0]
    got = len(kept) * (64 << 20)
    kept.clear()
    after = float(jax.numpy.ones(1 << 20).sum())
    print(json.dumps({"got": got, "error": error, "said": sentence, "after": after == 1 << 20}))


def main():
    args = stepping.parser(__doc__, ["steps", "oom"]).parse_args()
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax
        import jax.nn
        import jax.numpy
        import numpy
    except ImportError as e:
        stepping.unavailable(f"this Python has no jax ({e})")
    try:
        platform = jax.devices()[0].platform
    except RuntimeError as e:
        stepping.unavailable(f"JAX finds no GPU ({e})")
    if args.device == "cuda" and platform not in ("gpu", "cuda"):
        stepping.unavailable(f"JAX finds no GPU, but {platform}")
    print(f"jax {jax.__version__}", file=sys.stderr)
    (train if args.mode == "steps" else out_of_memory)(args, jax, numpy)


if __name__ == "__main__":
    main()
