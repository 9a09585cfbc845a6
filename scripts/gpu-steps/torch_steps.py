#!/usr/bin/env python3
"""PyTorch as a pod: training steps in three ways, matrix products, a small language model under CUDA
graphs, and what a program does that its memory cap refuses. Exit status 77 where PyTorch or a GPU is missing."""

import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same result each time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stepping  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    stepping.unavailable(f"this Python has no torch ({e})")


def bytes_of(tensor):
    return tensor.detach().to("cpu").contiguous().view(torch.uint8).numpy().tobytes()


def waiter(device):
    """Waits for what was launched so far."""
    if device == "cpu":
        return lambda: None
    event = torch.cuda.Event()
    event.record()
    return event.synchronize


def captured(call):
    """`call` as one CUDA graph, after a warm-up on another stream, as PyTorch's manual asks."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def train(args):
    """A few layers on one batch, plain gradient descent."""
    small = args.device == "cpu"
    width, rows = (64, 32) if small else (2048, 1024)
    torch.manual_seed(1)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).to(args.device)
    x = torch.randn(rows, width).to(args.device)
    y = torch.randn(rows, width).to(args.device)
    start = [p.detach().clone() for p in model.parameters()]

    def loss_of(x, y):
        return F.mse_loss(model(x), y)

    if args.mode == "compile":
        if not hasattr(torch, "compile"):
            stepping.unavailable(f"torch {torch.__version__} has no torch.compile")
        loss_of = torch.compile(loss_of)

    def once():
        loss_of(x, y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-0.01)
                p.grad.zero_()

    once()  # makes the gradients, and compiles
    if args.mode == "graphs":
        if small:
            stepping.unavailable("CUDA graphs need a GPU")
        once = captured(once)

    def step():
        once()
        return waiter(args.device)

    def reset():
        with torch.no_grad():
            for p, s in zip(model.parameters(), start):
                p.copy_(s)

    stepping.race(args, step, reset,
                  lambda: stepping.digest(*(bytes_of(p) for p in model.parameters())))


def products(args):
    """Products of large matrices one after the other: what takes the most power."""
    small = args.device == "cpu"
    width, kind = (64, torch.float32) if small else (4096, torch.bfloat16)
    torch.manual_seed(3)
    start = torch.randn(width, width).to(args.device, kind)
    factor = (torch.randn(width, width) / width ** 0.5).to(args.device, kind)
    now, after = start.clone(), torch.empty_like(start)

    def step():
        nonlocal now, after
        torch.matmul(now, factor, out=after)
        now, after = after, now
        return waiter(args.device)

    def reset():
        now.copy_(start)

    stepping.race(args, step, reset, lambda: stepping.digest(bytes_of(now)))


def language_model(args):
    """A decoder with a cache of keys and values that makes a token a step, each step one CUDA graph."""
    small = args.device == "cpu"
    width, heads, depth, words, length = (64, 4, 2, 256, 64) if small else (1024, 16, 8, 8192, 512)
    torch.manual_seed(2)
    kind = torch.float32 if small else torch.float16

    def weight(*shape):
        return (torch.randn(*shape) * 0.02).to(args.device, kind)

    embedding, positions = weight(words, width), weight(length, width)
    blocks = [(weight(3 * width, width), weight(width, width), weight(4 * width, width),
               weight(width, 4 * width)) for _ in range(depth)]
    keys = torch.zeros(depth, heads, length, width // heads, device=args.device, dtype=kind)
    values = torch.zeros_like(keys)
    token = torch.zeros(1, dtype=torch.long, device=args.device)
    at = torch.zeros(1, dtype=torch.long, device=args.device)
    said = torch.zeros(length, dtype=torch.long, device=args.device)
    places = torch.arange(length, device=args.device)

    def once():
        h = embedding.index_select(0, token) + positions.index_select(0, at)
        unseen = (places > at).view(1, 1, length)
        for i, (qkv, out, up, down) in enumerate(blocks):
            q, k, v = F.linear(F.layer_norm(h, (width,)), qkv).view(3, heads, 1, -1)
            keys[i].index_copy_(1, at, k)
            values[i].index_copy_(1, at, v)
            scores = (q @ keys[i].transpose(1, 2)) * (width // heads) ** -0.5
            attention = scores.masked_fill(unseen, float("-inf")).softmax(-1) @ values[i]
            h = h + F.linear(attention.transpose(0, 1).reshape(1, width), out)
            h = h + F.linear(F.gelu(F.linear(F.layer_norm(h, (width,)), up)), down)
        token.copy_((F.layer_norm(h, (width,)) @ embedding.t()).argmax(-1))
        said.index_copy_(0, at, token)
        at.copy_((at + 1) % length)

    with torch.no_grad():
        if not small:
            once = captured(once)

        def step():
            once()
            return waiter(args.device)

        def reset():
            for t in (keys, values, token, at, said):
                t.zero_()

        stepping.race(args, step, reset, lambda: stepping.digest(bytes_of(said)))


def out_of_memory(args):
    """Allocates to the end. The program must get PyTorch's own error, and go on."""
    if args.device == "cpu":
        stepping.unavailable("a memory cap is of a GPU")
    free, total = torch.cuda.mem_get_info()
    kept, error = [], None
    try:
        while True:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except Exception as e:  # the name is what is asked for
        error, sentence = type(e).__name__, str(e).splitlines()[0]
    got = len(kept) * (64 << 20)
    kept.clear()
    torch.cuda.empty_cache()
    after = int(torch.ones(1 << 20, device="cuda").sum().item())
    print(json.dumps({"free": free, "total": total, "got": got, "error": error, "said": sentence,
                      "after": after == 1 << 20}))


def main():
    args = stepping.parser(__doc__, ["eager", "graphs", "compile", "products", "model", "oom"]).parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        stepping.unavailable("PyTorch finds no GPU")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}", file=sys.stderr)
    torch.use_deterministic_algorithms(True)
    if args.mode == "model":
        language_model(args)
    elif args.mode == "products":
        products(args)
    elif args.mode == "oom":
        out_of_memory(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
