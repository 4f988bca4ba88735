"""A server that runs ``noisychannel`` commands in processes that die, or meet errors, at a chosen moment.

It imports torch once, and forks for each command, so a command takes a fraction of a second. Each line of its input is
a request, each line of its output an answer, both JSON:

    {"words": [...], "directory": DIRECTORY, "fault": FAULT or null, "at": NUMBER, "after": SECONDS, "victim": FILE}
    {"status": exit code, or minus the signal, "errors": what was printed on standard error, "changes": NUMBER}

Every change of a file below ``directory`` is counted: a file opened for writing, flushed to disk, renamed, removed, a
directory made or removed. The fault happens before the change with the number ``at``:

    kill               SIGKILL, to this process and not to those that it has started
    torn               the same, but a file that is being flushed is cut in half first
    full, read-only    this change and all after it fail with the system's error
    vanish             the file ``victim`` is removed

``after``: SIGKILL after so many seconds, wherever the command is.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")
ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS}


class Faults:
    """Counts the changes of this process, and makes one of them fail."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.directory, self.fault, self.at = request["directory"], request.get("fault"), request.get("at")
        self.victim = request.get("victim")
        self.process, self.changes = os.getpid(), 0
        sys.addaudithook(self.hear)
        self.fsync = os.fsync
        os.fsync = self.flush
        if (seconds := request.get("after")) is not None:
            threading.Timer(seconds, self.die).start()

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or not str(arguments[0]).startswith(self.directory):
            return
        if event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR):
            self.change()

    def flush(self, descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(self.directory):
            self.change(lambda: os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2))
        self.fsync(descriptor)

    def change(self, tear: Callable[[], None] = lambda: None) -> None:
        self.changes += 1
        if self.at is None or self.changes < self.at or self.fault is None:
            return
        if self.fault in ERRORS:
            raise OSError(ERRORS[self.fault], os.strerror(ERRORS[self.fault]))
        fault, self.fault = self.fault, None
        if fault == "vanish":
            return os.unlink(self.victim)
        if fault == "torn":
            tear()
        self.die()

    def die(self) -> None:
        os.kill(self.process, signal.SIGKILL)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one command in a process of its own session, and wait for it."""
    from noisychannel.cli.main import main

    with tempfile.TemporaryFile("w+") as shown:
        read, write = os.pipe()
        if (process := os.fork()) == 0:
            os.setsid()
            os.close(read)
            os.dup2(shown.fileno(), 1)
            os.dup2(shown.fileno(), 2)
            faults = Faults(request)
            status = main(request["words"])
            os.write(write, str(faults.changes).encode())
            sys.stderr.flush()
            os._exit(status)
        os.close(write)
        _, waited = os.waitpid(process, 0)
        with os.fdopen(read) as answer:
            changes = answer.read()
        shown.seek(0)
        return {
            "status": os.waitstatus_to_exitcode(waited),
            "errors": shown.read(),
            "changes": int(changes) if changes else None,
        }


def serve() -> None:
    import torch

    import noisychannel.cli.train  # noqa: F401

    # An optimiser imports a second's worth of modules with its first step.
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.zeros(1)
    torch.optim.Adam([weight], fused=True).step()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
