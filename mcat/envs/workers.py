"""Where the physics of a `TaskVectorEnv` happens: in the calling process and in workers beside it.

Python lets one thread run at a time, and handing over takes as long as half a step of a small
robot, so cores are used by processes. They share an array with a row per sub-environment. Waking a
process that sleeps also takes longer than a step or two: whoever waits spins for a while first.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Semaphore
from typing import Any

import numpy as np
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray

from mcat.envs.env import simulate
from mcat.envs.tasks import Task
from mcat.errors import McatError, UsageError, short

SPIN_SECONDS = 1e-4  # of looking before sleeping; on a busy machine they are lost
POLL_SECONDS = 0.2  # between two looks whether the other side is still there
TIMEOUT = 60.0  # seconds without any progress after which a worker counts as stopped
GRACE = 2.0  # seconds a worker that is shut down has to end by itself

STAY, STEP, RESET, SEED, QUIT = range(5)
"""Orders to a sub-environment; RESET goes on with its generator, SEED makes a new one."""


def shared_row_type(tasks: Sequence[Task]) -> np.dtype[np.void]:
    """The type of a shared row: what is asked of one sub-environment, and what it answers."""
    spec = tasks[0].spec  # all have spaces of this size
    return np.dtype(
        [
            ("order", np.int8),
            ("seed", np.uint64),
            ("action", np.float64, (spec.action_size,)),
            ("observation", np.float64, (spec.observation_size,)),
            ("reward", np.float64),
            ("measured", np.float64, (len(spec.info),)),
            ("fault", "S32"),
            ("beat", np.uint8),  # 0 or 1, turned over with each move
        ],
        align=True,
    )


class EnvSlice:
    """Some of the sub-environments, moved one after another as their shared rows say."""

    def __init__(self, tasks: Sequence[Task], rows: NDArray[np.void]) -> None:
        self._generators = [np.random.default_rng() for _ in tasks]
        self._orders, self._seeds = rows["order"], rows["seed"]
        self._actions, self._observations = list(rows["action"]), list(rows["observation"])
        self._rewards, self._faults = rows["reward"], rows["fault"]
        self._measured, self._beats = list(rows["measured"]), rows["beat"]
        self.simulations = []
        for i, task in enumerate(tasks):
            self.simulations.append(simulate(task))
            self._beats[i] = 1

    def move(self) -> bool:
        """Carry out the orders; False says that this was the last time."""
        for i, order in enumerate(self._orders.tolist()):
            simulation = self.simulations[i]
            if order == STAY:
                continue
            if order == QUIT:
                return False
            if order == STEP:
                self._rewards[i] = simulation.step(self._actions[i], self._observations[i])
                if simulation.fault is not None:
                    self._faults[i] = simulation.fault
            else:
                if order == SEED:
                    self._generators[i] = np_random(int(self._seeds[i]))[0]
                simulation.reset(self._generators[i])
                simulation.observe(self._observations[i])
                self._faults[i] = b""
            for place, value in enumerate(simulation.info().values()):
                self._measured[i][place] = value
            self._beats[i] ^= 1
        return True


class WorkerProcess:
    """A process with a slice of its own. It ends with its owner, however that ends.

    If it makes no progress for `timeout` seconds, whoever waits for it is told.
    """

    def __init__(self, tasks: Sequence[Task], memory: Any, share: slice, timeout: float) -> None:
        context = multiprocessing.get_context()
        self._go, self._done = context.Semaphore(0), context.Semaphore(0)
        turns = (self._go, self._done)
        self._process = context.Process(target=_serve, args=(tasks, memory, share, *turns))
        self._process.start()
        self._tasks, self._busy = tasks[share], False
        rows = shared_rows(memory, tasks)[share]
        self._beats, self._last_beats = rows["beat"], b""
        self._timeout, self._idle = timeout, 0.0
        self.close = multiprocessing.util.Finalize(
            self, _shutdown, (rows["order"], self._go, self._process), exitpriority=10
        )

    def start(self) -> None:
        """Let the process carry out its orders."""
        if self._busy:  # an interrupt came between
            self.finish()
        self._busy = True
        self._go.release()

    def finish(self) -> None:
        """Wait until the orders are carried out."""
        self._idle = 0.0
        if not _wait(self._done, self._works):
            code = self._process.exitcode
            if code == 0:
                raise McatError("this environment was closed: make a new one")
            if code == UsageError.exit_code:
                for task in self._tasks:
                    simulate(task)  # is refused here as it was there
            raise McatError(
                f"a process that shared the physics ended with code {code}:"
                " out of memory? workers=1 does without it"
            )
        self._busy = False

    def _works(self) -> bool:
        """Whether it lives; raises if it has stood still for too long.

        That is counted in looks, not by the clock: a job that was suspended as a whole goes on.
        """
        beats = self._beats.tobytes()
        self._idle = self._idle + POLL_SECONDS if beats == self._last_beats else 0.0
        self._last_beats = beats
        alive = self._process.is_alive()
        if alive and self._idle >= self._timeout:
            raise McatError(
                f"process {self._process.pid}, which shares the physics, has done nothing for"
                f" {self._idle:.0f} s: is it stopped, or swapped out? workers=1 does without it,"
                " MCAT_WORKER_TIMEOUT=600 waits longer"
            )
        return alive


def timeout_or_default(seconds: float | None) -> float:
    """How long a worker may stand still: as asked, else MCAT_WORKER_TIMEOUT, else a minute."""
    given = os.environ.get("MCAT_WORKER_TIMEOUT", TIMEOUT) if seconds is None else seconds
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not number > 0:
        name = "MCAT_WORKER_TIMEOUT" if seconds is None else "timeout"
        raise UsageError(f"{name} must be a number of seconds above 0, got {short(given)}")
    return number


def shared_rows(memory: Any, tasks: Sequence[Task]) -> NDArray[np.void]:
    """The shared rows of these tasks, kept in `memory`."""
    return np.frombuffer(memory, shared_row_type(tasks))


def _serve(
    tasks: Sequence[Task], memory: Any, share: slice, go: Semaphore, done: Semaphore
) -> None:
    """What a worker does all its life."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to whole groups, meant for the owner
        signal.signal(number, signal.SIG_IGN)
    owner = multiprocessing.parent_process()
    assert owner is not None
    if multiprocessing.get_start_method() == "fork":
        # What the owner has open, such as a locked file, must not stay open when it is gone.
        os.closerange(3, owner.sentinel)
        os.closerange(owner.sentinel + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        env_slice = EnvSlice(tasks[share], shared_rows(memory, tasks)[share])
    except UsageError as error:  # the owner will find out
        sys.exit(error.exit_code)
    while _wait(go, owner.is_alive) and env_slice.move():
        done.release()


def _wait(turn: Semaphore, other_lives: Callable[[], bool]) -> bool:
    """Wait for one's turn; False if it will never come."""
    until = time.perf_counter() + SPIN_SECONDS
    while time.perf_counter() < until:
        if turn.acquire(block=False):
            return True
    while not turn.acquire(timeout=POLL_SECONDS):
        if not other_lives():
            return turn.acquire(block=False)
    return True


def _shutdown(
    orders: NDArray[np.int8], go: Semaphore, process: multiprocessing.process.BaseProcess
) -> None:
    orders.fill(QUIT)
    go.release()
    until = time.monotonic() + GRACE
    while process.is_alive():  # `join` waits for ever: the worker closed what tells of its end
        if time.monotonic() > until:  # stopped, or in the middle of something long
            process.kill()
        time.sleep(0.002)
    process.join()
