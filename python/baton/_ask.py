"""One request to batond, and its answer."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, Optional

__all__ = ["BatonError", "ask", "socket_folder"]

_ANSWER_MAX = 64 << 20  # bytes


class BatonError(Exception):
    """A sentence that says what to do.

    code: "invalid", "not_found", "exists", "denied", "exhausted", "unavailable" or "internal".
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def socket_folder(given: Optional[str]) -> str:
    return given or os.environ.get("BATON_SOCKET_DIR") or "/run/baton"


def _connect(folder: str, timeout: float) -> socket.socket:
    last = OSError("no socket")
    for name in ("control.sock", "user.sock"):
        path = os.path.join(folder, name)
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor left
            raise BatonError("unavailable", f"no socket to ask batond: {error}") from error
        connection.settimeout(timeout)
        try:
            connection.connect(path)
            return connection
        except OSError as error:
            connection.close()
            if name == "user.sock" and not os.path.exists(path):
                break  # control.sock said why
            last = error
            if not isinstance(error, PermissionError):
                break
    if isinstance(last, PermissionError):
        raise BatonError(
            "denied",
            f"not allowed to open the sockets in {folder}; run this as root, or have the operator "
            "allow it ([users] in batond's configuration)",
        )
    raise BatonError("unavailable", f"no batond answers in {folder}: {last}")


def ask(
    command: str,
    *,
    socket_dir: Optional[str] = None,
    timeout: float = 10.0,
    **fields: Any,
) -> Dict[str, Any]:
    """The answer to a command of the control socket (docs/protocol.md), without "ok".

    Fields that are None are left out. `timeout`, in seconds, is for each step of the exchange.
    Raises BatonError.
    """
    request = {key: value for key, value in fields.items() if value is not None}
    request["command"] = command
    received = bytearray()
    with _connect(socket_folder(socket_dir), timeout) as connection:
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            while not received.endswith(b"\n"):
                piece = connection.recv(1 << 16)
                if not piece or len(received) > _ANSWER_MAX:
                    raise BatonError("unavailable", "batond closed the connection without an answer")
                received += piece
        except OSError as error:
            raise BatonError("unavailable", f"batond did not answer: {error}") from error
    try:
        answer = json.loads(received)
    except ValueError as error:
        raise BatonError("internal", "the answer is not JSON: is this batond's socket?") from error
    if not isinstance(answer, dict):
        raise BatonError("internal", "the answer is not an object: is this batond's socket?")
    if not answer.pop("ok", False):
        raise BatonError(
            str(answer.get("code", "internal")),
            str(answer.get("error", "batond refused without a reason")),
        )
    return answer
