"""Runs as tasks of a Ray cluster whose nodes see the sweep's folder (Ray Core; `mcat-rl[ray]`).

Ray runs code of whoever reaches its port: keep that on loopback or behind its token. A node that
dies takes its runs with it; Ray starts them again elsewhere, and they go on from their folders.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcat.errors import MissingInputError, StorageError, UsageError, install
from mcat.sweeps.attempt import attempt
from mcat.sweeps.endings import Ending, keep, write_ending
from mcat.sweeps.folder import Sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import RunState, is_made

KILLED = -9  # what is noted of a task whose node or worker is no more


def attempt_on_node(folder: str, name: str) -> Ending:
    """One attempt, in a worker of a node."""
    return attempt(Path(folder), name)


def require_listening(address: str | None) -> None:
    """Find out in seconds what Ray takes minutes for: that nobody is there.

    Raises:
        StorageError: if so.
        UsageError: if it is no address.
    """
    if address in (None, "auto", "local") or "://" in str(address):
        return
    host, _, port = str(address).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--address takes HOST:PORT or auto, not '{address}'")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise StorageError(f"no Ray cluster at {address}: {error.strerror or error}") from None


class RayEngine:
    """An `Engine` of Ray tasks; when the driver dies, Ray ends them. No address: a new cluster."""

    def __init__(self, sweep: Sweep, jobs: int | None = None, address: str | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise MissingInputError(f"--engine ray needs Ray: {install('ray')}") from None
        self.sweep, self.jobs = sweep, jobs
        self.ray: Any = ray
        require_listening(address)
        try:
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False, include_dashboard=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise StorageError(
                f"no Ray cluster at {address or 'this machine'}: {str(error).splitlines()[0]}"
            ) from error
        resources = sweep.resources
        self._task = ray.remote(
            num_cpus=resources.cpus, memory=resources.memory_bytes, max_retries=resources.retries
        )(attempt_on_node)
        self._tasks: dict[Any, PlannedRun] = {}

    def room(self, adopted: Sequence[RunState]) -> int:
        """What `jobs`, or the cores of all nodes, leave; Ray itself queues what is too much."""
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        most = self.jobs or max(1, cores // self.sweep.resources.cpus)
        return most - len(self._tasks) - len(adopted)

    def start(self, run: PlannedRun) -> None:
        """Hand it to Ray."""
        self._tasks[self._task.remote(str(self.sweep.folder), run.name)] = run

    def ended(self) -> list[tuple[PlannedRun, Ending]]:
        """What Ray says is over, and how."""
        if not self._tasks:
            return []
        ready, _ = self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [(run := self._tasks.pop(task), self._ending(task, run)) for task in ready]

    def _ending(self, task: Any, run: PlannedRun) -> Ending:
        try:
            ending: Ending = self.ray.get(task)
        except self.ray.exceptions.RayError:
            made = is_made(self.sweep, run)
            return write_ending(self.sweep, run, 0 if made else KILLED, made=made)
        keep(self.sweep, run, ending)  # its node may have had no room for it
        return ending

    def running(self) -> list[PlannedRun]:
        """Those that Ray has."""
        return list(self._tasks.values())

    def stop(self, run: PlannedRun) -> None:
        """Leave a mark that its node looks for."""
        self.sweep.stop_mark(run).touch()
