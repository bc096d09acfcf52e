"""The meta-training loop that every method shares: collect, learn, evaluate, log, save.

A checkpoint follows every iteration, and an iteration is a function of the checkpoint before it.
So a run that was stopped at any moment goes on from there as if nothing had happened, and a signal
costs at most the iteration it falls into.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.lengths import endless_pieces
from mcat.agents.limits import MAX_UNSTABLE
from mcat.agents.meta.algorithm import SHARED, Algorithm, Round, TaskSet
from mcat.agents.meta.evaluation import SUCCESS_COLUMNS, Evaluation
from mcat.agents.meta.monitor import PhaseMonitor
from mcat.agents.meta.rounds import load_rounds, save_round
from mcat.agents.meta.run_config import RunConfig
from mcat.agents.runs.folder import (
    CsvLog,
    Metrics,
    load_checkpoint,
    misfits,
    save_checkpoint,
    settings_of,
    take_over,
)
from mcat.agents.runs.record import BEST_POLICY_FILE, POLICY_FILE
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import Taken, roll_out
from mcat.envs.lockstep import Lockstep, require_rows
from mcat.errors import MissingInputError, UnstableError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Notify, Progress, ignore
from mcat.safe_io import io_errors, is_file
from mcat.tensor_files import Arrays

EPISODE_COLUMNS = ("step", "iteration", "task", "driver", "length", "return")
# The plain values of a `MetaTrainer` that a checkpoint keeps.
_COUNTERS = ("step", "iteration", "seconds", "cpu_seconds", "best", "earned", "unstable", "seals")


@dataclass(frozen=True, kw_only=True)
class MetaTrainResult:
    """Where a finished run left what it made, and what its policy earns.

    Attributes:
        train_success: The part of the episodes on training tasks that were at their goal after
            any of their steps; None for robots without a goal.
        test_success: The same on test tasks.
    """

    out: Path
    policy: Path
    train_return: float
    test_return: float | None
    train_success: float | None = None
    test_success: float | None = None


class MetaTrainer:
    """A run between two iterations, and the iteration."""

    def __init__(
        self, config: RunConfig, task_set: TaskSet, algorithm: Algorithm, out: Path
    ) -> None:
        horizon, delay = task_set.horizon, task_set.delay
        by_model = config.own.credit.kind in ("ridge", "learned", "auto")
        if config.episode_lengths is not None and horizon % delay and not by_model:
            raise UsageError(
                f"episodes of random length leave steps unpaid where the horizon, {horizon}, is no"
                f" multiple of the delay, {delay}: add --credit auto or --episode-lengths none"
            )
        self.config, self.task_set, self.algorithm, self.out = config, task_set, algorithm, out
        self.env = task_set.make(range(len(task_set.train)))
        self.evaluation = Evaluation(
            task_set, config.evaluation_episodes, config.seed, algorithm.trials
        )
        self.step = self.iteration = 0
        self.seconds = self.cpu_seconds = 0.0  # of all processes that worked on this run
        self.best: float | None = None  # eval/train of the best policy so far
        self.earned: dict[str, float] = {}  # by the latest evaluation
        self.unstable = [0] * len(task_set.train)  # rounds in a row that diverged
        self.seals: list[str] = []  # of all rounds, by which they are known again
        self.checkpoints, self.rounds = out / "checkpoints", out / "replay"
        more = ("success",) * task_set.can_succeed
        self.logs = {
            "metrics": CsvLog(out / "metrics.csv", self._columns),
            "episodes": CsvLog(out / "episodes.csv", EPISODE_COLUMNS + more),
        }

    def act_in(self, env: Lockstep) -> None:
        """Collect there, a row for each training task, not in environments made of the tasks.

        Raises:
            UsageError: if its rows are others.
        """
        tasks = self.task_set
        sizes = tasks.observation_size, tasks.action_size
        require_rows(env, len(tasks.train), tasks.horizon, sizes)
        self.env = env

    def run(self, stop: Interrupts, *, quiet: bool = False) -> MetaTrainResult:
        """Go on to the configured number of steps, if they are not made already."""
        config = self.config
        with io_errors(self.out, "write"):
            self.checkpoints.mkdir(exist_ok=True)
            self.rounds.mkdir(exist_ok=True)
        label = f"meta-training {config.family}"
        with (
            Metrics(self.logs["metrics"], until=self.step) as metrics,
            Progress(label, config.steps, done=self.step, quiet=quiet) as progress,
        ):
            while self.step < config.steps:
                monitor = PhaseMonitor(self.out, stop, progress, f"iteration {self.iteration + 1}")
                new, row = self._iterate(monitor)
                metrics.add(row)
                self.logs["episodes"].add(*self._episode_rows(new))
                self.seals.append(save_round(self.rounds, self.iteration, new))
                self._save()
                progress.advance(self.step - progress.done, note=self._note(new))
        if not is_file(self.out / POLICY_FILE):  # somebody removed it from a finished run
            self._save_policy()
        return MetaTrainResult(
            out=self.out,
            policy=self.out / POLICY_FILE,
            train_return=self.earned["eval/train"],
            test_return=self.earned.get("eval/test"),
            train_success=self.earned.get(f"{SUCCESS_COLUMNS}/train"),
            test_success=self.earned.get(f"{SUCCESS_COLUMNS}/test"),
        )

    # --- one iteration --------------------------------------------------------------------

    def _iterate(self, monitor: PhaseMonitor) -> tuple[Round, dict[str, float]]:
        """Collect, learn and, now and then, evaluate; returns the round and its metrics."""
        began = time.process_time()
        prepared = self.algorithm.prepare(monitor)
        monitor("collect", 0, 1)
        new = self._collect(monitor)
        self._remember(new)
        learned = self.algorithm.learn(monitor) | prepared
        self.step, self.iteration = new.step, self.iteration + 1
        evaluated = dict.fromkeys(self.evaluation.columns, float("nan"))
        if self.iteration % self.config.evaluate_every == 0 or self.step >= self.config.steps:
            monitor("evaluate", 0, 1)
            self.earned = evaluated = self.evaluation.run(self.algorithm)
            self._save_policy()
        seconds = monitor.end()
        self.seconds += sum(seconds.values())
        self.cpu_seconds += time.process_time() - began
        others = set(self.task_set.train)
        return new, {
            "step": self.step,
            "iteration": self.iteration,
            "collect/return": float(np.mean(new.paces(self.task_set.horizon))),
            "collect/transferred": float(np.mean([driver in others for driver in new.drivers])),
            **evaluated,
            **learned,
            **{f"time/{phase}": seconds.get(phase, 0.0) for phase in self.phases},
            "time/seconds": self.seconds,
            "time/cpu": self.cpu_seconds,
            "charts/SPS": self.step / self.seconds,
        }

    def _collect(self, monitor: PhaseMonitor) -> Round:
        """As many steps of each training task as a whole episode has, in one piece or several.

        Tasks whose episodes end by themselves begin new ones; their last one is not cut
        (docs/decisions.md#what-an-iteration-collects-and-updates).
        """
        drivers = self.algorithm.plan()
        episodes = EpisodeStore(self.task_set.observation_size, self.task_set.action_size)
        drove: list[str] = []
        successes: list[bool] = []
        steps = np.zeros(len(drivers), dtype=np.int64)
        seed = np.random.SeedSequence(self.config.seed, spawn_key=(1, self.iteration))
        limits = self.config.episode_lengths
        horizon, delay = self.task_set.horizon, self.task_set.delay
        for length, piece in endless_pieces(limits, horizon=horizon, delay=delay, seed=seed):
            acting = steps < horizon
            if not acting.any():
                break
            reached = np.zeros(len(drivers), dtype=bool)
            found = roll_out(
                self.env,
                self.algorithm.explorer(drivers),
                seed=piece,
                noise=(0.0, 0.0),
                episodes=acting,
                steps=length,
                after=partial(self._after_step, monitor, reached),
            )
            for task, episode in zip(np.flatnonzero(acting).tolist(), found, strict=True):
                self._watch_stability(task, stable=episode is not None)
                steps[task] += length if episode is None else len(episode["rewards"])
                if episode:
                    episodes.append_episode(**episode, task=task)
                    drove.append(drivers[task])
                    successes.append(bool(reached[task]))
        if not len(episodes):
            raise UnstableError("the episodes of all tasks diverged: choose milder physics")
        step = self.step + int(steps.sum())
        known = tuple(successes) if self.task_set.can_succeed else None
        return Round(step=step, episodes=episodes, drivers=tuple(drove), successes=known)

    def _after_step(self, monitor: PhaseMonitor, reached: NDArray[np.bool_], taken: Taken) -> None:
        """Note in `reached` who is at the goal, and let the algorithm learn."""
        reached |= taken.running & taken.at_goal
        self.algorithm.after_step(taken, monitor)

    def _watch_stability(self, task: int, *, stable: bool) -> None:
        self.unstable[task] = 0 if stable else self.unstable[task] + 1
        if self.unstable[task] == MAX_UNSTABLE:
            raise UnstableError(
                f"the last {MAX_UNSTABLE} episodes of {self.task_set.train[task]} diverged:"
                " choose milder physics"
            )

    def _remember(self, new: Round) -> None:
        images = self.task_set.images and self.task_set.images(new.episodes)
        self.algorithm.remember(replace(new, images=images))

    # --- what a run leaves behind ---------------------------------------------------------

    @property
    def phases(self) -> tuple[str, ...]:
        """What time is told of."""
        return ("collect", *self.algorithm.phases, "evaluate")

    @property
    def _columns(self) -> tuple[str, ...]:
        return (
            "step",
            "iteration",
            "collect/return",
            "collect/transferred",
            *self.evaluation.columns,
            *self.algorithm.metrics,
            *(f"time/{phase}" for phase in self.phases),
            "time/seconds",
            "time/cpu",
            "charts/SPS",
        )

    def _episode_rows(self, new: Round) -> list[dict[str, float | str]]:
        rows: list[dict[str, float | str]] = [
            {
                "step": self.step,
                "iteration": self.iteration,
                "task": self.task_set.train[task],
                "driver": driver,
                "length": int(length),
                "return": float(value),
            }
            for task, driver, length, value in zip(
                new.episodes.tasks, new.drivers, new.episodes.lengths, new.returns, strict=True
            )
        ]
        for row, success in zip(rows, new.successes or (), strict=False):
            row["success"] = int(success)
        return rows

    def _note(self, new: Round) -> str:
        """What each task earned and who drove it, in a line."""
        short = {name: name.partition("-")[2] or name for name in self.task_set.train}
        parts = [f"iteration {self.iteration}"]
        paces, tasks = new.paces(self.task_set.horizon), new.episodes.tasks
        for task, driver in dict(zip(tasks.tolist(), new.drivers, strict=True)).items():
            value = paces[tasks == task].mean()
            by = "" if driver == SHARED else f" by {short.get(driver, driver)}"
            parts.append(f"{short[self.task_set.train[task]]}{by}: {value:,.0f}")
        if self.earned:
            parts.append(f"train {self.earned['eval/train']:,.0f}")
        if "eval/test" in self.earned:
            parts.append(f"test {self.earned['eval/test']:,.0f}")
        return " · ".join(parts)

    def _save_policy(self) -> None:
        metadata = {
            "step": self.step,
            "family": self.config.family,
            "seed": self.config.seed,
            "returns": self.earned,
        }
        self.algorithm.save_policy(self.out / POLICY_FILE, metadata)
        self.evaluation.save_contexts(self.out, self.step)
        if self.best is None or self.earned["eval/train"] > self.best:
            self.best = self.earned["eval/train"]
            self.algorithm.save_policy(self.out / BEST_POLICY_FILE, metadata)

    def _save(self) -> None:
        """Write a checkpoint from which `restore` goes on as if nothing had happened."""
        tensors: Arrays = {
            name: tensor.detach().numpy() for name, tensor in self.algorithm.tensors().items()
        }
        state = {
            "kind": "metatrain checkpoint",
            "algorithm": self.algorithm.state(),
            "logs": {name: log.text for name, log in self.logs.items()},
            **{name: getattr(self, name) for name in _COUNTERS},
        }
        save_checkpoint(self.checkpoints, self.step, tensors, state, settings_of(self.config))

    def restore(self, notify: Notify = ignore, *, logs: bool = True) -> None:
        """Return to the newest sound checkpoint; before the first one the run starts again.

        Args:
            notify: Told what is odd.
            logs: Bring the tables to that state too; else nothing in the folder is touched.
        """
        checkpoint = load_checkpoint(self.checkpoints, settings_of(self.config), notify)
        if checkpoint is None:
            if len(list(self.rounds.glob("round-*"))) > 1:  # the first was followed by one
                raise MissingInputError(
                    f"{self.checkpoints} is empty, but the run has come further: restore it from a"
                    " copy, or start another run"
                )
            return
        arrays, state = checkpoint
        with misfits(self.checkpoints):
            take_over(self, _COUNTERS, state)
            for old in load_rounds(self.rounds, self.seals):
                self._remember(old)
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            self.algorithm.load(tensors, state["algorithm"])
            for name, log in self.logs.items() if logs else ():
                log.restore(state["logs"][name], notify)
