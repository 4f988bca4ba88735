"""From names of runs to a server that answers: what ``noisychannel serve`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from noisychannel.errors import BadInputError
from noisychannel.packaged import DEMO
from noisychannel.processes import loaded_for_good
from noisychannel.reporting import Reporter
from noisychannel.runs import RunDirectory
from noisychannel.serve.app import create_app
from noisychannel.serve.limits import Limits
from noisychannel.serve.served_run import ServedRun
from noisychannel.serve.server import RunsServer
from noisychannel.web.guard import allowed_hosts
from noisychannel.web.server import address_of, answer_requests, bind


@dataclass(frozen=True)
class Hosting:
    """Where and how to serve."""

    host: str
    port: int
    token: str | None
    limits: Limits
    reporter: Reporter

    def serve(self, runs: Sequence[str], device: str, ready: Callable[[str], None]) -> None:
        """Serve runs until a signal. ``ready`` is called with the address."""
        directories = named_runs(runs)
        with bind(self.host, self.port) as bound:
            hosts = allowed_hosts(self.host, bound)
            if hosts is None and self.token is None:
                self.reporter.warn(f"--host {self.host}: other machines can use this server, and there is no token")
            served = [ServedRun(name, run, device, self.limits, self.reporter) for name, run in directories.items()]
            app = create_app(served, self.limits, self.token, hosts, self.reporter.warn)
            server = RunsServer(app, self.limits, lambda: ready(address_of(bound)), self.reporter.warn)
            with loaded_for_good():
                answer_requests(server, bound)


def named_runs(words: Sequence[str]) -> dict[str, RunDirectory]:
    """Runs by name, from words such as ``runs/mine`` and ``nouns=runs/other``; the run of the package without any."""
    found: dict[str, RunDirectory] = {}
    for word in words or [DEMO]:
        name, equals, path = word.partition("=")
        if not equals or Path(word).exists():
            name, path = Path(word).resolve().name, word
        if not name or not path:
            raise BadInputError(f"{word}: give a run directory, or NAME=RUN")
        run = RunDirectory.open_finished(Path(path))
        if name in found:
            raise BadInputError(f"{word}: there are two runs called {name}; name one otherwise, such as other={path}")
        if groups := [group for group in run.header().groups if group]:
            first = run.group(groups[0]).path
            raise BadInputError(f"{path}: is a run with groups; serve one of them, such as {first}")
        found[name] = run
    return found
