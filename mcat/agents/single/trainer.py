"""One task being learned: the step, and a state that can be saved between any two of them.

A checkpoint may fall into the middle of an episode: it keeps the episode's seed, and the replay
has its actions, which is enough to bring it back (`Episode`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mcat.agents.evaluation import Evaluator
from mcat.agents.learners import make_learner
from mcat.agents.lengths import draw_length
from mcat.agents.policies.policy import save_policy
from mcat.agents.replay import Replay, saved_rows
from mcat.agents.runs.folder import (
    CsvLog,
    Metrics,
    load_checkpoint,
    misfits,
    save_checkpoint,
    take_over,
)
from mcat.agents.single.config import TrainConfig
from mcat.agents.single.episode import Episode
from mcat.agents.single.rewards import Rewards
from mcat.config import to_json
from mcat.errors import DivergedError, MissingInputError, UnstableError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Notify, Progress, ignore
from mcat.provenance import provenance
from mcat.safe_io import io_errors
from mcat.tensor_files import Arrays, part

if TYPE_CHECKING:
    from mcat.envs.lockstep import Lockstep

COLUMNS = (
    "step",
    "charts/episodes",
    "charts/episodic_return",  # mean over the training episodes that ended since the last row
    "charts/episodic_length",
    "eval/return",
    "eval/return_std",
    "losses/critic",  # mean since the last row
    "losses/actor",
    "charts/SPS",
    "time/seconds",
    "time/cpu",
)
SUCCESS_COLUMN = "eval/success/train"  # more, for robots with a goal; as in meta-training
RESCALE_EVERY = 1000  # updates between looks at the size of rewards
CHECK_EVERY = 100  # updates between looks at losses and weights
MAX_UNSTABLE = 10  # episodes in a row that may end by diverging physics
# The plain values of a `Trainer` that a checkpoint keeps.
_COUNTERS = (
    "step",
    "seconds",
    "cpu_seconds",
    "unstable",
    "limit",
    "finished",
    "episodes",
    "loss_count",
    "latest_returns",
)


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """Where a finished run left what it made.

    Attributes:
        success_rate: Of the last policy; None for robots without a goal.
    """

    out: Path
    policies: tuple[Path, ...]
    mean_return: float
    success_rate: float | None = None


class Trainer:
    """The state of a run between two steps, and the step."""

    def __init__(self, config: TrainConfig, out: Path, env: Lockstep | None = None) -> None:
        self.config, self.out = config, out
        self.episode = Episode(config.task, env)
        spec = config.task.spec
        # One stream per consumer, so that none depends on how much another has drawn.
        agent, acting, sampling, episodes, evaluation = np.random.SeedSequence(config.seed).spawn(5)
        generator = torch.Generator().manual_seed(int(agent.generate_state(1, np.uint64)[0] >> 1))
        sizes = spec.observation_size, spec.action_size
        self.agent = make_learner(config.numbers, *sizes, generator)
        self.replay = Replay(*sizes, config.replay_capacity)
        self.rewards = Rewards(config, self.replay)
        self.rngs = {
            "acting": np.random.default_rng(acting),
            "sampling": np.random.default_rng(sampling),
            "episodes": np.random.default_rng(episodes),
        }
        self.evaluator = Evaluator(
            config.task, config.evaluation_episodes, int(evaluation.generate_state(1)[0] >> 1)
        )
        self.step = 0
        self.seconds = self.cpu_seconds = 0.0  # of all processes that worked on this run
        self.unstable = 0  # diverged episodes in a row
        self.finished: list[list[float]] = []  # [return, length] since the last metrics row
        self.episodes = 0
        self.loss_sums = torch.zeros(2, dtype=torch.float64)
        self.loss_count = 0
        self.latest_returns: list[float] = []
        self.success_rate: float | None = None  # stays so for robots without a goal
        self._counters = (*_COUNTERS, *("success_rate",) * spec.can_succeed)
        self.checkpoints = self.out / "checkpoints"
        self.segments = self.out / "replay"
        columns = (*COLUMNS, *(SUCCESS_COLUMN,) * spec.can_succeed)
        self.log = CsvLog(self.out / "metrics.csv", columns)
        self._begin_episode()

    def run(self, stop: Interrupts, *, quiet: bool = False) -> None:
        """Go on to the configured number of steps."""
        config = self.config
        with io_errors(self.out, "write"):
            self.checkpoints.mkdir(exist_ok=True)
            self.segments.mkdir(exist_ok=True)
        started, before = time.monotonic(), self.seconds
        began, spent = time.process_time(), self.cpu_seconds
        label = f"training {config.task.label()}"
        with (
            Metrics(self.log, until=self.step) as metrics,
            Progress(label, config.steps, "steps", done=self.step, quiet=quiet) as progress,
        ):
            while self.step < config.steps:
                self._one_step()
                self.seconds = before + time.monotonic() - started
                self.cpu_seconds = spent + time.process_time() - began
                if self.step % config.evaluate_every == 0 or self._is_snapshot():
                    self._evaluate(metrics)
                    progress.note(f"return {np.mean(self.latest_returns):,.0f}")
                if self._is_snapshot():
                    self._save_snapshot()
                if self.step % config.checkpoint_every == 0 or self.step == config.steps:
                    self.save()
                progress.advance(1)
                if stop.requested and self.step < config.steps:
                    self.save()
                    raise stop.error(
                        f"stopped after {self.step} steps, all saved:"
                        f" mcat train --resume {self.out} goes on"
                    )

    def result(self) -> TrainResult:
        """The result of a finished run."""
        steps = sorted({*self.config.snapshots, self.config.steps})
        paths = map(self._policy_path, steps)
        return TrainResult(
            out=self.out,
            # A snapshot asked for on resuming may lie before the step the run had reached.
            policies=tuple(path for path in paths if path.is_file()),
            mean_return=float(np.mean(self.latest_returns)),
            success_rate=self.success_rate,
        )

    # --- one step -------------------------------------------------------------------------

    def _one_step(self) -> None:
        """Act once, remember it, learn once."""
        self.step += 1
        action = self._choose_action()
        taken = self.episode.step(action)
        if taken.fault is None:
            self.replay.add(taken.obs, action, taken.reward, taken.next_obs, taken.terminal)
            self.replay.save_segment(self.segments)
        if self.step > self.config.start_steps:
            self._learn()
        if taken.over or self.episode.length >= self.limit:
            self._end_episode(taken.fault)

    def _choose_action(self) -> NDArray[np.float32]:
        rng, size = self.rngs["acting"], self.config.task.spec.action_size
        if self.step <= self.config.start_steps:
            return rng.uniform(-1, 1, size).astype(np.float32)
        noise = rng.standard_normal((1, size), dtype=np.float32)
        obs = self.episode.obs[np.newaxis]
        action: NDArray[np.float32] = self.agent.explore(obs, noise, self.config.exploration)[0]
        return action

    def _learn(self) -> None:
        rng = self.rngs["sampling"]
        if self.agent.updates % RESCALE_EVERY == 0:
            self.rewards.measure(rng)
        batch = self.replay.sample(rng, self.config.batch_size)
        losses = self.agent.update(self.rewards.of(batch))
        self.loss_sums += torch.stack((losses.critic, losses.actor))
        self.loss_count += 1
        if self.agent.updates % CHECK_EVERY == 0:
            self._check_finite()

    def _check_finite(self) -> None:
        """One loss that was NaN or infinite makes its sum so, and soon every weight."""
        for name, values in (
            ("critic loss", self.loss_sums[0]),
            ("actor loss", self.loss_sums[1]),
            ("critics", nn.utils.parameters_to_vector(self.agent.critics.parameters())),
            ("actor", nn.utils.parameters_to_vector(self.agent.actor.parameters())),
        ):
            if not values.isfinite().all():
                raise DivergedError(
                    f"the {name} became NaN or infinite before step {self.step}: the last good"
                    f" checkpoint is in {self.checkpoints}; try a lower learning rate"
                )

    def _begin_episode(self) -> None:
        task, rng = self.config.task, self.rngs["episodes"]
        self.episode.start(int(rng.integers(2**31)))
        self.limit = task.horizon
        if self.config.episode_lengths is not None:
            self.limit = draw_length(
                self.config.episode_lengths, horizon=task.horizon, delay=task.delay, rng=rng
            )

    def _end_episode(self, fault: str | None) -> None:
        self.finished.append([self.episode.earned, self.episode.length])
        self.episodes += 1
        if fault is None:
            self.rewards.take_in(self.episode.length)
        self.unstable = self.unstable + 1 if fault else 0
        if self.unstable == MAX_UNSTABLE:
            raise UnstableError(
                f"the last {MAX_UNSTABLE} episodes of {self.config.task.label()} diverged"
                f" ({fault}): choose milder physics"
            )
        self._begin_episode()

    # --- what a run leaves behind ---------------------------------------------------------

    def _is_snapshot(self) -> bool:
        return self.step in self.config.snapshots or self.step == self.config.steps

    def _evaluate(self, metrics: Metrics) -> None:
        self._check_finite()
        act = partial(self.agent.act, deployed=True)
        returns, successes = self.evaluator.outcomes(act)
        self.latest_returns = returns.tolist()
        self.success_rate = None if successes is None else float(successes.mean())
        finished = np.array(self.finished or [[np.nan, np.nan]]).mean(axis=0)
        critic, actor = (self.loss_sums / max(self.loss_count, 1)).tolist()
        row = {
            "step": self.step,
            "charts/episodes": self.episodes,
            "charts/episodic_return": float(finished[0]),
            "charts/episodic_length": float(finished[1]),
            "eval/return": float(np.mean(self.latest_returns)),
            "eval/return_std": float(np.std(self.latest_returns)),
            "losses/critic": critic,
            "losses/actor": actor,
            "charts/SPS": self.step / self.seconds,
            "time/seconds": self.seconds,
            "time/cpu": self.cpu_seconds,
        }
        if self.success_rate is not None:
            row[SUCCESS_COLUMN] = self.success_rate
        metrics.add(row)
        self.finished, self.loss_count = [], 0
        self.loss_sums.zero_()

    def _save_snapshot(self) -> None:
        metadata = {
            "step": self.step,
            "mean_return": float(np.mean(self.latest_returns)),
            "returns": self.latest_returns,
            "seed": self.config.seed,
            "config": to_json(self.config),
            **provenance(),
        }
        path = self._policy_path(self.step)
        save_policy(path, self.agent.deployed, self.config.task, metadata, overwrite=True)

    def _policy_path(self, step: int) -> Path:
        return self.out / f"policy-{step}.safetensors"

    # --- checkpoints ----------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint from which `resume` goes on as if nothing had happened."""
        self._check_finite()
        tensors: Arrays = {
            f"agent/{name}": tensor.detach().numpy()
            for name, tensor in self.agent.tensors().items()
        }
        tensors |= {f"rewards/{name}": array for name, array in self.rewards.arrays().items()}
        tensors["replay.tail"] = self.replay.tail()
        tensors["loss_sums"] = self.loss_sums.numpy()
        state = {
            "kind": "checkpoint",
            "rngs": {name: rng.bit_generator.state for name, rng in self.rngs.items()},
            "replay_added": self.replay.added,
            "replay_seals": self.replay.seals,
            "episode_seed": self.episode.seed,
            "episode_length": self.episode.length,
            "log": self.log.text,
            **{name: getattr(self, name) for name in self._counters},
        }
        save_checkpoint(self.checkpoints, self.step, tensors, state, self.config.settings)

    def restore(self, notify: Notify = ignore) -> None:
        """Restore the newest sound checkpoint; a run stopped before its first starts again."""
        checkpoint = load_checkpoint(self.checkpoints, self.config.settings, notify)
        if checkpoint is None:
            if saved_rows(self.segments) > self.config.checkpoint_every:
                raise MissingInputError(
                    f"{self.checkpoints} is empty, but the run has come further: restore it from a"
                    " copy, or start another run"
                )
            return
        tensors, state = checkpoint
        with misfits(self.checkpoints):
            step, steps = state["step"], self.config.steps
            gone = step == steps and not self._policy_path(step).is_file()
            if step > steps or gone:
                but = f", but {self._policy_path(step).name} is not there" if gone else ""
                raise UsageError(
                    f"{self.out} has made {step} steps already{but}: ask for more by --steps"
                )
            for name, rng in self.rngs.items():
                rng.bit_generator.state = state["rngs"][name]
            take_over(self, self._counters, state)
            self.loss_sums.copy_(torch.from_numpy(tensors.pop("loss_sums")))
            self.replay.load(
                self.segments, state["replay_added"], tensors.pop("replay.tail"),
                state["replay_seals"],
            )  # fmt: skip
            seed, length = index(state["episode_seed"]), index(state["episode_length"])
            agent, rewards = (part(f"{name}/", tensors) for name in ("agent", "rewards"))
            self.agent.load_tensors({name: torch.from_numpy(a) for name, a in agent.items()})
            self.rewards.load_arrays(rewards)
            self.log.restore(state["log"], notify)
        self.episode.replay_to(seed, self.replay.latest(length).action.numpy())
