"""An adaptation between two updates: first from logs alone, then from logs and real steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from operator import index
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.adaptation.known import Known
from mcat.agents.adaptation.learner import Anchored
from mcat.agents.adaptation.machine import Live, Machine, open_machine
from mcat.agents.adaptation.policy_file import save_adapted
from mcat.agents.adaptation.rewards import AdaptRewards
from mcat.agents.evaluation import Evaluator
from mcat.agents.learner import Batch, Losses
from mcat.agents.limits import MAX_UNSTABLE
from mcat.agents.policies.policy import Policy
from mcat.agents.replay import SEGMENT
from mcat.agents.runs.folder import Metrics, load_checkpoint, misfits
from mcat.agents.runs.record import POLICY_FILE
from mcat.agents.single.stepwise import StepwiseRun
from mcat.datasets.cards import Card
from mcat.errors import DivergedError, UnstableError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Notify, Progress, ignore
from mcat.tensor_files import Arrays, part

COLUMNS = ("step", "updates", "charts/episodes", "charts/episodic_return", "eval/return",
           "eval/return_std", "losses/critic", "losses/actor", "anchor/policy", "time/seconds",
           "time/cpu")  # fmt: skip
_COUNTERS = ("step", "seconds", "cpu_seconds", "looked", "unstable", "episodes", "finished",
             "latest_returns", "sums", "count")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AdaptResult:
    """What an adaptation made.

    Attributes:
        out: Its folder.
        policy: The file of the policy.
        step: Real steps that were made.
        mean_return: What the policy earns in the simulator; None if nobody looked.
    """

    out: Path
    policy: Path
    step: int
    mean_return: float | None


class Adapter(StepwiseRun):
    """The state of an adaptation, and its two kinds of steps."""

    kind, learner_key, counters = "adapt checkpoint", "learner", _COUNTERS
    learner: Anchored

    def __init__(
        self,
        config: AdaptConfig,
        known: Known,
        rewards: AdaptRewards,
        out: Path,
        live: Live | None = None,
        card: Card | None = None,
    ) -> None:
        sizes = known.rows.obs.shape[1], known.rows.action.shape[1]
        capacity = SEGMENT * max(1, -(-config.steps // SEGMENT))
        super().__init__(config, out, sizes, capacity, COLUMNS)
        self.config, self.known, self.rewards, self.card = config, known, rewards, card
        self.learner = Anchored(*sizes, config.learner, self.generator)
        self._open_machine = cache(partial(open_machine, config, live, out, sizes))  # when needed
        self.running = False  # an episode
        self.evaluator: Evaluator | None = None
        if config.task is not None and config.episodes_to_look:
            self.evaluator = Evaluator(config.task, config.episodes_to_look, config.evaluation_seed)
        self.looked = -1  # real steps at the last row of metrics
        self.finished: list[float] = []  # returns of real episodes since the last row
        self.sums, self.count = [0.0, 0.0, 0.0], 0  # losses, and how often the policy was better
        self._saved = 0  # updates at the last checkpoint

    def run(self, stop: Interrupts, *, quiet: bool = False) -> AdaptResult:
        """Go on to the end."""
        config = self.config
        self.begin()
        total = config.offline_updates + config.steps * config.updates_per_step
        with (
            Metrics(self.log, until=self.step) as metrics,
            Progress("adapting", total, "updates", done=self._done, quiet=quiet) as shown,
        ):
            while not self._is_over or self.looked < self.step:
                if self.learner.updates < config.offline_updates:
                    self._learn_from_logs()
                elif self._is_due:
                    self._look(metrics)
                    shown.note(self._told())
                else:
                    self._one_step()
                self.tick()
                shown.advance(self._done - shown.done)
                if self.learner.updates >= self._saved + config.checkpoint_every:
                    self.save()
                elif stop.requested:
                    self.save()
                    raise stop.error(
                        f"stopped after {self.step} real steps, all saved in {self.out}: the same"
                        " command with --resume goes on"
                    )
            self.save()
        self._write_policy()
        return AdaptResult(
            out=self.out,
            policy=self.out / POLICY_FILE,
            step=self.step,
            mean_return=_mean(self.latest_returns),
        )

    @property
    def _is_over(self) -> bool:
        offline = self.learner.updates >= self.config.offline_updates
        return offline and self.step >= self.config.steps

    @property
    def _is_due(self) -> bool:
        """Whether to note what it earns: after the logs, now and then, and at the end."""
        now = self.step % self.config.evaluate_every == 0 or self._is_over
        return now and self.looked < self.step

    @property
    def _done(self) -> int:
        offline = min(self.learner.updates, self.config.offline_updates)
        return offline + self.step * self.config.updates_per_step

    def _told(self) -> str:
        earned = _mean(self.latest_returns)
        return f"{self.step:,} real steps" + ("" if earned is None else f": {earned:,.0f}")

    # --- learning -------------------------------------------------------------------------

    def _learn_from_logs(self) -> None:
        """One update near what was done, or near what the policy would have done."""
        batch, anchor = self._draw_logs(self.config.batch_size)
        self._note(self.learner.update_near(batch, anchor))

    def _draw_logs(self, size: int) -> tuple[Batch, torch.Tensor]:
        """Transitions of the logs, and what to stay near to in each."""
        batch, proposed = self.known.draw(self.rngs["sampling"], size)
        if proposed is None or self.config.anchor == "logged":
            return batch, batch.action
        if self.config.anchor == "policy":
            return batch, proposed
        anchor = self.learner.better_of(batch.obs, batch.action, proposed)
        self.sums[2] += float((anchor == proposed).all(1).float().mean())
        return batch, anchor

    def _one_step(self) -> None:
        """Act once, then learn from logs and real steps."""
        machine = self._open_machine()
        if not self.running:
            machine.start(int(self.rngs["episodes"].integers(2**31)))
            self.running = True
        self.step += 1
        taken = machine.step(self._choose_action(machine.obs))
        self.remember(taken)
        if self.replay.added and self.step > self.config.random_steps:
            for _ in range(self.config.updates_per_step):
                self._learn_from_both()
        if taken.over:
            self._end_episode(machine, taken.fault, cut=taken.cut)

    def _end_episode(self, machine: Machine, fault: str | None, *, cut: bool) -> None:
        self.running = False
        self.unstable = self.unstable + 1 if fault else 0
        if self.unstable == MAX_UNSTABLE:
            raise UnstableError(f"the last {MAX_UNSTABLE} episodes ended by a fault ({fault})")
        if not cut:
            self.finished.append(machine.earned)
            self.episodes += 1
        length = machine.length - (fault is not None)
        if length and self.rewards.take_in(self.replay.latest(length), whole=not (cut or fault)):
            self.known = self.known.with_rewards(self.rewards.of_logs())

    def _choose_action(self, obs: NDArray[np.float64]) -> NDArray[np.float32]:
        rng, size = self.rngs["acting"], self.known.rows.action.shape[1]
        if self.step <= self.config.random_steps:
            return rng.uniform(-1, 1, size).astype(np.float32)
        noise = rng.standard_normal(size, dtype=np.float32)
        seen = self.known.scale.of(torch.from_numpy(obs.astype(np.float32))[None])
        action: NDArray[np.float32] = self.learner.act(seen.numpy())[0]
        return (action + np.float32(self.config.exploration) * noise).clip(-1, 1)

    def _learn_from_both(self) -> None:
        """One update on logs and real steps, at the configured share."""
        config = self.config
        logged, weight = round(config.log_share * config.batch_size), config.online_anchor
        near: torch.Tensor | None = None
        if logged and weight:
            old, near = self._draw_logs(logged)
        else:
            old, _ = self.known.draw(self.rngs["sampling"], logged)
        new = self.replay.sample(self.rngs["sampling"], config.batch_size - logged)
        new = self.known.scale.batch(new._replace(reward=self.rewards.of(new)))
        batch = Batch(*(torch.cat(pair) for pair in zip(old, new, strict=True)))
        self._note(self.learner.update_near(batch, near, weight))

    def _note(self, losses: Losses) -> None:
        self.sums[0] += float(losses.critic)
        self.sums[1] += float(losses.actor)
        self.count += 1
        if not np.isfinite(self.sums).all():
            raise DivergedError(
                f"a loss became NaN or infinite after {self.learner.updates} updates: the last good"
                f" checkpoint is in {self.checkpoints}; try a lower learning rate"
            )

    # --- what a run leaves behind ---------------------------------------------------------

    def _look(self, metrics: Metrics) -> None:
        """Measure, and write down, what the policy earns now; save it."""
        actor = self.known.scale.fold(self.learner.deployed)
        self.latest_returns = []
        if self.evaluator is not None and self.config.task is not None:
            policy = Policy(actor, self.config.task, {})
            self.latest_returns = self.evaluator.returns(policy).tolist()
        critic, drawn, chosen = (value / max(self.count, 1) for value in self.sums)
        returns = self.latest_returns or [np.nan]
        metrics.add(
            {
                "step": self.step,
                "updates": self.learner.updates,
                "charts/episodes": self.episodes,
                "charts/episodic_return": float(np.mean(self.finished or [np.nan])),
                "eval/return": float(np.mean(returns)),
                "eval/return_std": float(np.std(returns)),
                "losses/critic": critic,
                "losses/actor": drawn,
                "anchor/policy": chosen,
                "time/seconds": self.seconds,
                "time/cpu": self.cpu_seconds,
            }
        )
        self.finished, self.sums, self.count = [], [0.0, 0.0, 0.0], 0
        self.looked = self.step
        self._write_policy()

    def _write_policy(self) -> None:
        actor = self.known.scale.fold(self.learner.deployed)
        facts = {"step": self.step, "mean_return": _mean(self.latest_returns)}
        save_adapted(self.out / POLICY_FILE, actor, self.config, facts, self.card)

    def save(self) -> None:
        """Write a checkpoint from which `restore` goes on as if nothing had happened."""
        machine = self._open_machine() if self.running else None
        state = {"episode": None if machine is None else [machine.seed, machine.length]}
        arrays: Arrays = {f"rewards/{name}": x for name, x in self.rewards.arrays().items()}
        self._saved = self.learner.updates
        self.write_checkpoint(self._saved, arrays, state)

    def restore(self, notify: Notify = ignore) -> None:
        """Return to the newest sound checkpoint; before the first one the run starts again."""
        checkpoint = load_checkpoint(self.checkpoints, self.settings, notify)
        if checkpoint is None:
            return
        tensors, state = checkpoint
        with misfits(self.checkpoints):
            if state["step"] > self.config.steps:
                raise UsageError(
                    f"{self.out} has made {state['step']} real steps already: ask for more by"
                    " --steps"
                )
            self.read_checkpoint(tensors, state, notify)
            self.rewards.load_arrays(part("rewards/", tensors))
            self.known = self.known.with_rewards(self.rewards.of_logs())
            self._saved = self.learner.updates
            if self.step < self.config.steps and self.step:
                seed, length = map(index, state["episode"] or (0, 0))
                actions = self.replay.latest(length).action.numpy()
                goes_on = self._open_machine().return_to(self.step, seed, actions)
                self.running = goes_on and state["episode"] is not None


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
