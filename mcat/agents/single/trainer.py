"""One task being learned: the step, and a state that can be saved between any two of them.

A checkpoint may fall into the middle of an episode: it keeps the episode's seed, and the replay
has its actions, which is enough to bring it back (`Episode`).
"""

from __future__ import annotations

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
from mcat.agents.limits import MAX_UNSTABLE
from mcat.agents.policies.policy import save_policy
from mcat.agents.replay import saved_rows
from mcat.agents.runs.folder import Metrics, load_checkpoint, misfits
from mcat.agents.single.config import TrainConfig
from mcat.agents.single.episode import Episode
from mcat.agents.single.rewards import Rewards
from mcat.agents.single.stepwise import StepwiseRun
from mcat.config import to_json
from mcat.errors import DivergedError, MissingInputError, UnstableError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Notify, Progress, ignore
from mcat.provenance import provenance
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


class Trainer(StepwiseRun):
    """The state of a run between two steps, and the step."""

    kind, learner_key = "checkpoint", "agent"

    def __init__(self, config: TrainConfig, out: Path, env: Lockstep | None = None) -> None:
        spec = config.task.spec
        self.episode = Episode(config.task, env)
        sizes = spec.observation_size, spec.action_size
        columns = (*COLUMNS, *(SUCCESS_COLUMN,) * spec.can_succeed)
        super().__init__(config, out, sizes, config.replay_capacity, columns)
        self.config = config
        self.learner = make_learner(config.numbers, *sizes, self.generator)
        self.rewards = Rewards(config, self.replay)
        self.evaluator = Evaluator(config.task, config.evaluation_episodes, self.evaluation_seed)
        self.finished: list[list[float]] = []  # [return, length] since the last metrics row
        self.loss_sums = torch.zeros(2, dtype=torch.float64)
        self.loss_count = 0
        self.success_rate: float | None = None  # stays so for robots without a goal
        self.counters = (*_COUNTERS, *("success_rate",) * spec.can_succeed)
        self._begin_episode()

    def run(self, stop: Interrupts, *, quiet: bool = False) -> None:
        """Go on to the configured number of steps."""
        config = self.config
        self.begin()
        label = f"training {config.task.label()}"
        with (
            Metrics(self.log, until=self.step) as metrics,
            Progress(label, config.steps, "steps", done=self.step, quiet=quiet) as progress,
        ):
            while self.step < config.steps:
                self._one_step()
                self.tick()
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
        taken = self.episode.step(self._choose_action())
        self.remember(taken)
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
        action: NDArray[np.float32] = self.learner.explore(obs, noise, self.config.exploration)[0]
        return action

    def _learn(self) -> None:
        rng = self.rngs["sampling"]
        if self.learner.updates % RESCALE_EVERY == 0:
            self.rewards.measure(rng)
        batch = self.replay.sample(rng, self.config.batch_size)
        losses = self.learner.update(self.rewards.of(batch))
        self.loss_sums += torch.stack((losses.critic, losses.actor))
        self.loss_count += 1
        if self.learner.updates % CHECK_EVERY == 0:
            self._check_finite()

    def _check_finite(self) -> None:
        """One loss that was NaN or infinite makes its sum so, and soon every weight."""
        for name, values in (
            ("critic loss", self.loss_sums[0]),
            ("actor loss", self.loss_sums[1]),
            ("critics", nn.utils.parameters_to_vector(self.learner.critics.parameters())),
            ("actor", nn.utils.parameters_to_vector(self.learner.actor.parameters())),
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
        act = partial(self.learner.act, deployed=True)
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
        save_policy(path, self.learner.deployed, self.config.task, metadata, overwrite=True)

    def _policy_path(self, step: int) -> Path:
        return self.out / f"policy-{step}.safetensors"

    # --- checkpoints ----------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint from which `resume` goes on as if nothing had happened."""
        self._check_finite()
        state = {"episode_seed": self.episode.seed, "episode_length": self.episode.length}
        arrays: Arrays = {f"rewards/{name}": x for name, x in self.rewards.arrays().items()}
        arrays["loss_sums"] = self.loss_sums.numpy()
        self.write_checkpoint(self.step, arrays, state)

    def restore(self, notify: Notify = ignore) -> None:
        """Restore the newest sound checkpoint; a run stopped before its first starts again."""
        checkpoint = load_checkpoint(self.checkpoints, self.settings, notify)
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
            self.loss_sums.copy_(torch.from_numpy(tensors["loss_sums"]))
            seed, length = index(state["episode_seed"]), index(state["episode_length"])
            self.rewards.load_arrays(part("rewards/", tensors))
            self.read_checkpoint(tensors, state, notify)
        self.episode.replay_to(seed, self.replay.latest(length).action.numpy())
