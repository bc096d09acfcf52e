"""An adaptation between two updates: first from logs alone, then from logs and real steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.adaptation.config import RESUME_MAY_CHANGE, AdaptConfig
from mcat.agents.adaptation.known import Known
from mcat.agents.adaptation.learner import Anchored
from mcat.agents.evaluation import Evaluator
from mcat.agents.learner import Batch, Losses
from mcat.agents.policies.policy import save_policy
from mcat.agents.replay import SEGMENT, Replay
from mcat.agents.runs.folder import (
    CsvLog,
    Metrics,
    load_checkpoint,
    misfits,
    save_checkpoint,
    take_over,
)
from mcat.agents.runs.record import POLICY_FILE
from mcat.agents.single.episode import Episode
from mcat.config import to_json
from mcat.errors import DivergedError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Notify, Progress, ignore
from mcat.provenance import provenance
from mcat.safe_io import io_errors
from mcat.tensor_files import Arrays

COLUMNS = ("step", "updates", "charts/episodic_return", "eval/return", "eval/return_std",
           "losses/critic", "losses/actor", "anchor/translated", "time/seconds",
           "time/cpu")  # fmt: skip
SAVE_EVERY = 2_500  # updates between two checkpoints
_COUNTERS = ("step", "seconds", "cpu_seconds", "finished", "latest_returns", "sums", "count")


@dataclass(frozen=True, kw_only=True)
class AdaptResult:
    """Where an adaptation left its policy, and what that earns; None if nobody looked."""

    out: Path
    policy: Path
    mean_return: float | None


class Adapter:
    """The state of an adaptation, and its two kinds of steps.

    Args:
        config: The settings.
        known: Logs, and translated actions in them.
        out: The folder of the run.
    """

    def __init__(self, config: AdaptConfig, known: Known, out: Path) -> None:
        self.config, self.known, self.out = config, known, out
        sizes = known.rows.obs.shape[1], known.rows.action.shape[1]
        # One stream per consumer, so that none depends on how much another has drawn.
        agent, acting, sampling, episodes, looking = np.random.SeedSequence(config.seed).spawn(5)
        generator = torch.Generator().manual_seed(int(agent.generate_state(1, np.uint64)[0] >> 1))
        self.learner = Anchored(*sizes, config.learner, generator)
        self.rngs = {
            "acting": np.random.default_rng(acting),
            "sampling": np.random.default_rng(sampling),
            "episodes": np.random.default_rng(episodes),
        }
        self.replay = Replay(*sizes, SEGMENT * max(1, -(-config.steps // SEGMENT)))
        self.episode: Episode | None = None  # none is touched before the first real step
        self.evaluator: Evaluator | None = None
        if config.task is not None and config.evaluation_episodes:
            start = int(looking.generate_state(1)[0] >> 1)
            self.evaluator = Evaluator(config.task, config.evaluation_episodes, start)
        self.step = 0  # real ones
        self.seconds = self.cpu_seconds = 0.0
        self.finished: list[float] = []  # returns of real episodes since the last row
        self.latest_returns: list[float] = []
        self.sums, self.count = [0.0, 0.0, 0.0], 0  # losses, and how often translation was better
        self.checkpoints, self.segments = out / "checkpoints", out / "replay"
        self.log = CsvLog(out / "metrics.csv", COLUMNS)

    def run(self, stop: Interrupts, *, quiet: bool = False) -> AdaptResult:
        """Go on to the end."""
        config = self.config
        with io_errors(self.out, "write"):
            self.checkpoints.mkdir(exist_ok=True)
            self.segments.mkdir(exist_ok=True)
        started, before = time.monotonic(), self.seconds
        began, spent = time.process_time(), self.cpu_seconds
        total = config.offline_updates + config.steps * config.updates_per_step
        with (
            Metrics(self.log, until=self.step) as metrics,
            Progress("adapting", total, "updates", done=self.learner.updates, quiet=quiet) as shown,
        ):
            while not self._is_over:
                if self.learner.updates < config.offline_updates:
                    self._learn_from_logs()
                else:
                    self._one_step()
                self.seconds = before + time.monotonic() - started
                self.cpu_seconds = spent + time.process_time() - began
                if self._is_due():
                    self._look(metrics)
                    shown.note(f"{self.step:,} real steps: {np.mean(self.latest_returns):,.0f}")
                shown.advance(self.learner.updates - shown.done)
                if self.learner.updates % SAVE_EVERY == 0 or self._is_over:
                    self.save()
                elif stop.requested:
                    self.save()
                    raise stop.error(f"stopped, all saved: mcat adapt --resume {self.out} goes on")
        return AdaptResult(
            out=self.out,
            policy=self.out / POLICY_FILE,
            mean_return=float(np.mean(self.latest_returns)) if self.latest_returns else None,
        )

    @property
    def _is_over(self) -> bool:
        offline = self.learner.updates >= self.config.offline_updates
        return offline and self.step >= self.config.steps

    def _is_due(self) -> bool:
        """Whether to look at what it earns: after the logs, now and then, and at the end."""
        if self.learner.updates < self.config.offline_updates:
            return False
        return self.step % self.config.evaluate_every == 0 or self._is_over

    # --- learning -------------------------------------------------------------------------

    def _learn_from_logs(self) -> None:
        """One update near the better of what was done and what the source would have done."""
        rng, rows = self.rngs["sampling"], self.known.rows
        drawn = torch.from_numpy(rng.integers(len(self.known), size=self.config.batch_size))
        batch = Batch(*(column[drawn] for column in rows))
        anchor = batch.action
        if self.known.translated is not None:
            other = self.known.translated[drawn]
            anchor = self.learner.better_of(batch.obs, batch.action, other)
            self.sums[2] += float((anchor == other).all(1).float().mean())
        self._note(self.learner.update_near(batch, anchor))

    def _one_step(self) -> None:
        """Act once, then learn from logs and real steps."""
        episode = self._running_episode()
        self.step += 1
        action = self._choose_action(episode.obs)
        taken = episode.step(action)
        if taken.fault is None:
            self.replay.add(taken.obs, action, taken.reward, taken.next_obs, taken.terminal)
            self.replay.save_segment(self.segments)
        for _ in range(self.config.updates_per_step):
            self._note(self.learner.update(self._mixed_batch()))
        if taken.over:
            self.finished.append(episode.earned)
            episode.start(int(self.rngs["episodes"].integers(2**31)))

    def _running_episode(self) -> Episode:
        if self.episode is None:
            assert self.config.task is not None, "real steps need a machine"
            self.episode = Episode(self.config.task)
            self.episode.start(int(self.rngs["episodes"].integers(2**31)))
        return self.episode

    def _choose_action(self, obs: NDArray[np.float64]) -> NDArray[np.float32]:
        seen = self.known.scale.of(torch.from_numpy(obs.astype(np.float32))[None])
        noise = self.rngs["acting"].standard_normal(self.replay_actions, dtype=np.float32)
        action: NDArray[np.float32] = self.learner.act(seen.numpy())[0]
        return (action + self.config.exploration * noise).clip(-1, 1)

    @property
    def replay_actions(self) -> int:
        """Numbers in an action."""
        return self.known.rows.action.shape[1]

    def _mixed_batch(self) -> Batch:
        """Logs and real steps, at the configured share."""
        rng, scale = self.rngs["sampling"], self.known.scale
        logged = round(self.config.log_share * self.config.batch_size)
        drawn = torch.from_numpy(rng.integers(len(self.known), size=logged))
        old = Batch(*(column[drawn] for column in self.known.rows))
        new = self.replay.sample(rng, self.config.batch_size - logged)
        new = new._replace(
            obs=scale.of(new.obs), next_obs=scale.of(new.next_obs), reward=new.reward / scale.reward
        )
        return Batch(*(torch.cat(pair) for pair in zip(old, new, strict=True)))

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
        scale = self.known.scale
        actor = scale.fold(self.learner.deployed)
        self.latest_returns = []
        if self.evaluator is not None:
            act = partial(_act, actor)
            self.latest_returns = self.evaluator.returns(act).tolist()
        critic, policy, translated = (value / max(self.count, 1) for value in self.sums)
        returns = self.latest_returns or [np.nan]
        metrics.add(
            {
                "step": self.step,
                "updates": self.learner.updates,
                "charts/episodic_return": float(np.mean(self.finished or [np.nan])),
                "eval/return": float(np.mean(returns)),
                "eval/return_std": float(np.std(returns)),
                "losses/critic": critic,
                "losses/actor": policy,
                "anchor/translated": translated,
                "time/seconds": self.seconds,
                "time/cpu": self.cpu_seconds,
            }
        )
        self.finished, self.sums, self.count = [], [0.0, 0.0, 0.0], 0
        if self.config.task is not None:
            metadata = {
                "step": self.step,
                "mean_return": float(np.mean(returns)) if self.latest_returns else None,
                "seed": self.config.seed,
                **provenance(),
            }
            path = self.out / POLICY_FILE
            save_policy(path, actor, self.config.task, metadata, overwrite=True)

    @property
    def _settings(self) -> dict[str, Any]:
        values = to_json(self.config)
        return {key: value for key, value in values.items() if key not in RESUME_MAY_CHANGE}

    def save(self) -> None:
        """Write a checkpoint from which `restore` goes on as if nothing had happened."""
        tensors: Arrays = {k: v.detach().numpy() for k, v in self.learner.tensors().items()}
        tensors["replay.tail"] = self.replay.tail()
        episode = self.episode
        state = {
            "kind": "adapt checkpoint",
            "rngs": {name: rng.bit_generator.state for name, rng in self.rngs.items()},
            "replay_added": self.replay.added,
            "replay_seals": self.replay.seals,
            "episode": None if episode is None else [episode.seed, episode.length],
            "log": self.log.text,
            **{name: getattr(self, name) for name in _COUNTERS},
        }
        save_checkpoint(self.checkpoints, self.learner.updates, tensors, state, self._settings)

    def restore(self, notify: Notify = ignore) -> None:
        """Return to the newest sound checkpoint; before the first one the run starts again."""
        checkpoint = load_checkpoint(self.checkpoints, self._settings, notify)
        if checkpoint is None:
            return
        tensors, state = checkpoint
        with misfits(self.checkpoints):
            if state["step"] > self.config.steps:
                raise UsageError(f"{self.out} has made {state['step']} real steps already")
            take_over(self, _COUNTERS, state)
            for name, rng in self.rngs.items():
                rng.bit_generator.state = state["rngs"][name]
            tail = tensors.pop("replay.tail")
            self.replay.load(self.segments, state["replay_added"], tail, state["replay_seals"])
            self.learner.load_tensors({k: torch.from_numpy(v) for k, v in tensors.items()})
            if state["episode"] is not None:
                assert self.config.task is not None
                seed, length = map(index, state["episode"])
                self.episode = Episode(self.config.task)
                self.episode.replay_to(seed, self.replay.latest_actions(length))
            self.log.restore(state["log"], notify)


@torch.no_grad()
def _act(actor: Any, obs: NDArray[Any]) -> NDArray[np.float32]:
    rows = torch.from_numpy(np.asarray(obs, np.float32))
    actions: NDArray[np.float32] = torch.tanh(actor(rows)[0]).numpy()
    return actions
