"""Pods and leases as context managers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type, TypeVar, Union

from baton._ask import BatonError, ask, socket_folder

__all__ = ["Lease", "Pod", "lease", "pod", "status"]

_Self = TypeVar("_Self", bound="Pod")

# A driver may take its time to make a MIG instance.
_DEVICE_TIMEOUT = 120.0
_QUESTION = 30  # seconds for which batond keeps a question
_NAMES_MAX = 10_000


def _find_hook(given: Optional[str]) -> Optional[str]:
    """The path of libbaton.so; None: it is not installed."""
    named = given or os.environ.get("BATON_HOOK")
    if named:
        if not os.path.exists(named):
            raise BatonError("not_found", f"there is no {named}; correct `hook` or BATON_HOOK")
        return os.path.abspath(named)
    folders = ["/usr/lib", "/usr/local/lib"]
    program = shutil.which("baton")
    if program is not None:
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
        folders.insert(0, os.path.join(prefix, "lib"))
    for folder in folders:
        path = os.path.join(folder, "libbaton.so")
        if os.path.exists(path):
            return path
    return None


def _maps(*names: str) -> bool:
    """Whether this process has one of these libraries."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(os.path.basename(line.rstrip("\n")).startswith(names) for line in maps)
    except OSError:
        return False


class Pod:
    """A share of a GPU, from start() to close(), or while it is entered by `with`.

    While it is there os.environ is set so that programs which are started are in it, whoever starts
    them: do not enter two pods at the same time from different threads. A pod whose process is
    killed by SIGKILL stays until `baton rm`; a Lease does not.
    """

    def __init__(
        self,
        fields: Dict[str, Any],
        *,
        hook: Optional[str] = None,
        socket_dir: Optional[str] = None,
    ) -> None:
        self._fields = fields
        self._hook = hook
        self._socket_dir = socket_folder(socket_dir)
        self._saved: Dict[str, Optional[str]] = {}
        self._there = False
        self._visible = False
        self.name: str = ""
        self.ticket: str = ""
        self.gpus: List[str] = []  # uuids
        # What a program needs to be in the pod, beside the environment that there was.
        self.environment: Dict[str, str] = {}

    def start(self) -> None:
        """Makes the pod. Raises BatonError."""
        if self._there:
            raise BatonError("invalid", f"{self.name} has been started already")
        hook = _find_hook(self._hook)
        self._visible = _maps("libbaton.so") and not _maps("libcuda.so")
        answer = self._create()
        self._there = True
        self.name = answer["name"]
        self.ticket = answer["ticket"]
        self.gpus = list(answer["gpus"])
        if answer.get("hook", True):
            if hook is None:
                self.close()
                raise BatonError(
                    "not_found", "libbaton.so is not installed; set BATON_HOOK to its path"
                )
            preloaded = [one for one in os.environ.get("LD_PRELOAD", "").split(":") if one]
            self.environment = {
                "BATON_SOCKET": os.path.join(os.path.abspath(self._socket_dir), "baton.sock"),
                "BATON_AWAY": os.environ.get("BATON_AWAY", "wait"),
                "LD_PRELOAD": ":".join([hook] + [one for one in preloaded if one != hook]),
            }
        else:  # the hardware divides the GPU
            self.environment = {"BATON_DISABLE": "1"}
        own: Dict[str, str] = answer.get("environment", {})
        self.environment.update({k: v for k, v in own.items() if k != "BATON_SOCKET"})
        self.environment["BATON_TICKET"] = self.ticket
        self._saved = {key: os.environ.get(key) for key in self.environment}
        os.environ.update(self.environment)

    def close(self) -> None:
        """Deletes the pod: its programs can launch nothing more. A second time it does nothing.

        Where batond does not answer it warns.
        """
        if not self._there:
            return
        self._there = False
        for key, value in self._saved.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
        self._saved = {}
        try:
            self._delete()
        except BatonError as error:
            if error.code != "not_found":  # what was done in it counts all the same
                warnings.warn(f"{self.name} could not be given back: {error}", RuntimeWarning)

    @property
    def in_this_process(self) -> bool:
        """Whether CUDA that this process starts from now on is in the pod.

        True only if this process was started with libbaton.so in LD_PRELOAD, which nothing can make
        up for later, and had not loaded CUDA when the pod was made. The first CUDA call binds the
        process to the pod that it is in then, for good: a later pod has its child processes only.
        """
        return self._there and self._visible

    def run(
        self, command: Sequence[str], **how: Any
    ) -> "subprocess.CompletedProcess[Any]":
        """subprocess.run() in the pod, also when `env` is given."""
        env = how.pop("env", None)
        return subprocess.run(
            command, env={**(os.environ if env is None else env), **self.environment}, **how
        )

    def __enter__(self: _Self) -> _Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _ask(self, command: str, **fields: Any) -> Dict[str, Any]:
        timeout = fields.pop("timeout", _DEVICE_TIMEOUT)
        return ask(command, socket_dir=self._socket_dir, timeout=timeout, **fields)

    def _create(self) -> Dict[str, Any]:
        if self._fields.get("name"):
            return self._ask("create_pod", **self._fields)
        # The program's name, with a number where that is taken, as `baton run` does.
        program = os.path.basename(sys.argv[0] or "") or "python"
        fields = dict(self._fields)
        refusal = ""
        for number in range(1, _NAMES_MAX):
            fields["name"] = program if number == 1 else f"{program}-{number}"
            try:
                return self._ask("create_pod", **fields)
            except BatonError as error:
                # A refusal for the name names it. One that stays the same is for something else.
                if error.code != "exists" or str(error) == refusal:
                    raise
                refusal = str(error)
        raise BatonError("exists", f"all names from {program} to {program}-{_NAMES_MAX} are taken")

    def _delete(self) -> None:
        self._ask("delete_pod", name=self.name)


class Lease(Pod):
    """A pod that ends by itself, unless it is renewed; see docs/leases.md."""

    def __init__(
        self,
        fields: Dict[str, Any],
        seconds: int,
        *,
        renew: bool = True,
        wait: Union[bool, float] = True,
        hook: Optional[str] = None,
        socket_dir: Optional[str] = None,
    ) -> None:
        super().__init__(fields, hook=hook, socket_dir=socket_dir)
        self.id: str = ""
        self.until: str = ""  # RFC 3339
        self.cost: Optional[float] = None  # of the request for that time, where there is a price
        self.currency: str = ""
        self._seconds = seconds
        self._renews = renew
        self._wait = wait
        self._over = threading.Event()

    def start(self) -> None:
        super().start()
        if self._renews:
            self._over.clear()
            threading.Thread(target=self._keep, name="baton lease", daemon=True).start()

    def close(self) -> None:
        """Gives the share back."""
        self._over.set()
        super().close()

    def renew(self, seconds: Optional[int] = None) -> None:
        """Ends so many seconds from now; None: as long as it was last granted for.

        Raises BatonError; its code is "not_found" once the lease has ended.
        """
        self._take(self._ask("renew_lease", lease=self.id, seconds=seconds, timeout=10.0))

    def ended(self, timeout: int = 0) -> Optional[str]:
        """Why it has ended, for which it waits for so many seconds, 60 at most. None: it has not."""
        told = self._ask("lease", lease=self.id, wait=timeout, timeout=timeout + 10.0)
        return str(told["why"]) if told["state"] == "ended" else None

    def _take(self, answer: Dict[str, Any]) -> None:
        self.until = answer.get("until", "")
        self.cost = answer.get("cost")
        self.currency = answer.get("currency", "")

    def _create(self) -> Dict[str, Any]:
        waits = self._wait is not False
        end = None if self._wait is True else time.monotonic() + float(self._wait)
        answer = self._ask("create_lease", seconds=self._seconds, queue=waits, **self._fields)
        self.id = answer["lease"]
        try:
            while answer["state"] == "queued":
                left = float(_QUESTION) if end is None else end - time.monotonic()
                if left <= 0:
                    raise BatonError(
                        "exhausted", f"no room yet; it is expected at {answer.get('until')}"
                    )
                # A daemon that has many such questions answers at once.
                time.sleep(min(0.2, left))
                answer = self._ask("lease", lease=self.id, wait=min(int(left), _QUESTION))
        except BaseException:
            with contextlib.suppress(BatonError):
                self._delete()
            raise
        if answer["state"] != "granted":
            raise BatonError("unavailable", f"it was not granted: {answer.get('why')}")
        self._take(answer)
        return answer

    def _delete(self) -> None:
        self._ask("end_lease", lease=self.id)

    def _keep(self) -> None:
        """Renews, in a thread of its own, until the lease is given back or has ended."""
        while not self._over.wait(min(self._seconds / 3, 20)):
            try:
                self.renew(self._seconds)
            except BatonError as error:
                if error.code == "not_found":
                    return  # a daemon that is away is asked again


def pod(
    request: Optional[float] = None,
    *,
    limit: Optional[float] = None,
    memory: Union[int, str, None] = None,
    name: Optional[str] = None,
    hook: Optional[str] = None,
    socket_dir: Optional[str] = None,
    **fields: Any,
) -> Pod:
    """A pod, as `baton run` makes one: `with baton.pod(request=30): ...`.

    request, limit: percent of a GPU. memory: bytes, or "4GiB", or "25%" of each GPU. name: default
    the program's. fields: all that docs/pod-fields.md has, such as priority="high", gpus=["0"],
    team="research/vision". hook: path of libbaton.so. socket_dir: default $BATON_SOCKET_DIR, else
    /run/baton.
    """
    return Pod(
        _fields(request=request, limit=limit, memory=memory, name=name, **fields),
        hook=hook,
        socket_dir=socket_dir,
    )


def lease(
    request: Optional[float] = None,
    seconds: int = 60,
    *,
    limit: Optional[float] = None,
    memory: Union[int, str, None] = None,
    name: Optional[str] = None,
    renew: bool = True,
    wait: Union[bool, float] = True,
    hook: Optional[str] = None,
    socket_dir: Optional[str] = None,
    **fields: Any,
) -> Lease:
    """A pod that ends so many seconds after it was granted, unless it is renewed.

    renew: a thread renews it while it is entered; then it ends so many seconds after this process
    at the latest, however that ends. wait: for room, as long as other leases are in the way; False:
    not at all; a number: so many seconds. The rest as of pod().
    """
    return Lease(
        _fields(request=request, limit=limit, memory=memory, name=name, **fields),
        seconds,
        renew=renew,
        wait=wait,
        hook=hook,
        socket_dir=socket_dir,
    )


def status(*, socket_dir: Optional[str] = None) -> Dict[str, Any]:
    """What `baton status --json` prints: "daemon", "gpus", "pods", "clients", "nodes", "events"."""
    return ask("status", socket_dir=socket_dir, timeout=60.0)


def _fields(**fields: Any) -> Dict[str, Any]:
    # batond knows the name: in a container there may be another one, or none.
    fields.setdefault("uid", os.getuid())
    return {key: value for key, value in fields.items() if value is not None}
