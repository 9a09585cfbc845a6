"""Shares of a GPU from Python, by Baton.

    with baton.pod(request=30):
        subprocess.run(["./train"], check=True)

pod() is what `baton run` makes, lease() ends by itself, status() is `baton status --json`. They ask
batond by its unix sockets: control.sock, or user.sock where that one may not be opened. Nothing but
the standard library is needed.

Programs that are started while a pod is entered are in it. This process itself is in it if it was
started with libbaton.so preloaded and has not used CUDA yet: see Pod.in_this_process.
"""

from baton._ask import BatonError, ask
from baton._pod import Lease, Pod, lease, pod, status

__all__ = ["BatonError", "Lease", "Pod", "ask", "lease", "pod", "status"]
