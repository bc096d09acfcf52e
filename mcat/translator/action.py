"""The action translator H (Eq. 3): the target's action that does what the source's did.

H is trained through the frozen forward model: the next state that F predicts for the translated
action on the target should be the one that followed the original action on the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.errors import DivergedError, UsageError
from mcat.progress import Progress
from mcat.translator.configs import ActionConfig, Loss
from mcat.translator.context import ContextModel
from mcat.translator.networks import clip, ends_epoch, mlp, optimise, seeded, zero_last_layer
from mcat.translator.report import FitReport
from mcat.translator.reward import RewardModel
from mcat.translator.rollout import sample_stretches
from mcat.translator.windows import Windows, sample_windows, translated_past


class ActionTranslator(nn.Module):
    """H: from states (see `seen`) and source actions in [-1, 1] to target actions.

    With a `context_size` it serves any pair of tasks and takes the features of source and target
    (docs/decisions.md#the-network-of-h).
    """

    def __init__(
        self, obs_size: int, act_size: int, config: ActionConfig, context_size: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.conditioned = context_size > 0
        inputs = [obs_size, act_size] + [context_size] * 2 * bool(context_size)
        self.embed = nn.ModuleList(
            nn.Sequential(nn.Linear(size, config.embedding), nn.ReLU()) for size in inputs
        )
        self.trunk = mlp(len(inputs) * config.embedding, config.hidden, act_size, "relu")
        if config.residual:
            zero_last_layer(self.trunk)

    def forward(self, obs: Tensor, action: Tensor, *contexts: Tensor) -> Tensor:
        """Translated actions `(n, A)`."""
        inputs = (obs, action, *contexts)
        parts = [embed(x) for embed, x in zip(self.embed, inputs, strict=True)]
        out: Tensor = self.trunk(torch.cat(parts, dim=1))
        return clip(action + out) if self.config.residual else torch.tanh(out)

    def seen(self, model: ContextModel, obs: Tensor) -> Tensor:
        """States as H takes them."""
        return obs if self.config.raw_states else model.scaled(obs)


def distances(mean: Tensor, log_variance: Tensor, change: Tensor, loss: Loss) -> Tensor:
    """How far F is from a change, for each dimension: |difference|, or -2 log F by a constant."""
    if loss == "l1":
        return (mean - change).abs()
    return (mean - change).square() * torch.exp(-log_variance) + log_variance


class SourceTargets(NamedTuple):
    """Transitions of one task, and the tasks on which to do the same; numbered as in the model."""

    task: int
    episodes: Episodes
    targets: Sequence[int]


class TranslationBatch(NamedTuple):
    """Source transitions, and the features `(n, Z)` of their task and of the one asked about."""

    rows: Windows
    source: Tensor
    target: Tensor


class ActionTraining:
    """Fits H to the transitions of some sources; C, F and R stay as they are.

    With more than one source or target H is told the features of both tasks. A batch is of one
    source, and each of its rows draws its own target.
    """

    def __init__(
        self,
        model: ContextModel,
        sources: Sequence[SourceTargets],
        config: ActionConfig,
        *,
        reward: RewardModel | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.reward, self.config = model, reward, config
        self.sources = sources
        # A batch is of transitions.
        self._windows = replace(model.config, all_future=False, likelihood="mean")
        self.rng = np.random.default_rng(seed)
        sizes = sources[0].episodes.observation_size, sources[0].episodes.action_size
        with seeded(self.rng):
            conditioned = sum(len(source.targets) for source in sources) > 1
            if conditioned and config.horizon > 1:
                raise UsageError("a horizon beyond 1 is of a pair, not of several machines")
            self.network = ActionTranslator(
                *sizes, config, model.config.context_size if conditioned else 0
            )
        self.adam = self._fresh_adam()
        self.weigh()

    def run(
        self,
        *,
        quiet: bool = False,
        epochs: int = 1,
        on_epoch: Callable[[int], None] | None = None,
    ) -> FitReport:
        """Take all steps, then freeze the network.

        A mismatch is mean |F - wanted change| in units of each dimension's spread, over the
        dimensions that move.

        Args:
            quiet: Show no progress.
            epochs: Equal parts of the training, for the hook alone.
            on_epoch: Called with the number of each at its end.
        """
        config = self.config
        tests = [self.sample(source, 4096) for source in self.sources]
        untranslated = float(np.mean([self.mismatch(t, t.rows.action) for t in tests]))
        curve: list[tuple[int, float]] = []
        report = FitReport(curves={"mismatch of translated actions": curve})
        with Progress("learning to translate", config.steps, "steps", quiet=quiet) as progress:
            for step in range(1, config.steps + 1):
                if config.starts_fresh(step - 1):
                    self.adam = self._fresh_adam()
                self.adam.param_groups[0]["lr"] = config.rate(step - 1)
                loss = self.step()
                progress.advance(1)
                if on_epoch is not None and ends_epoch(step, config.steps, epochs):
                    on_epoch(step * epochs // config.steps)
                if step % 250 and step != config.steps:
                    continue
                if not torch.isfinite(loss):
                    raise DivergedError(f"the translation loss became {loss.item()} at step {step}")
                now = [self.after_translation(test) for test in tests]
                with torch.no_grad():
                    pairs = [(test, self.translate(test)) for test in now]
                left = float(np.mean([self.mismatch(t, a) for t, a in pairs]))
                moved = float(np.mean([(a - t.rows.action).abs().mean() for t, a in pairs]))
                report.numbers = {"untranslated": untranslated, "translated": left, "moved": moved}
                curve.append((step, left))
                progress.note(f"mismatch {left:.4f} of {untranslated:.4f}")
        self.network.requires_grad_(False).eval()
        return report

    def step(self) -> Tensor:
        """One step on H; returns the loss before it."""
        source = self.sources[int(self.rng.integers(len(self.sources)))]
        if self.config.horizon > 1:
            loss = self._loss_of_stretches(source)
        else:
            loss = self.loss(self.after_translation(self.sample(source, self.config.batch_size)))
        optimise(self.adam, loss)
        return loss.detach()

    def sample(self, source: SourceTargets, n: int) -> TranslationBatch:
        """Transitions of one source, each with a target."""
        rows = sample_windows(source.episodes, self._windows, self.rng, n)
        features = self.model.features
        targets = torch.from_numpy(self.rng.choice(np.asarray(source.targets), n))
        return TranslationBatch(rows, features[source.task].expand(n, -1), features[targets])

    def after_translation(self, batch: TranslationBatch) -> TranslationBatch:
        """The same if H had translated the steps before, too: so F finds it on the target."""
        rows = batch.rows
        past = translated_past(rows.past, rows.before, self._translated)
        return batch._replace(rows=rows._replace(past=past))

    def _translated(self, obs: Tensor, action: Tensor) -> Tensor:
        new: Tensor = self.network(self.network.seen(self.model, obs), action)
        return new

    def _loss_of_stretches(self, source: SourceTargets) -> Tensor:
        """L_trans at the end of several steps of F in a row, and the cost on the way."""
        config, model = self.config, self.model
        stretches = sample_stretches(
            source.episodes, model.config, self.rng, config.batch_size, config.horizon
        )
        feature = model.features[source.targets[0]]
        missed, left = stretches.follow(model, self._translated, feature)
        return (missed @ self.weights).mean() + config.proximity * left

    def translate(self, batch: TranslationBatch) -> Tensor:
        """The actions into which H translates those of `batch`."""
        contexts = (batch.source, batch.target) if self.network.conditioned else ()
        rows = batch.rows
        new: Tensor = self.network(self.network.seen(self.model, rows.obs), rows.action, *contexts)
        return new

    def loss(self, batch: TranslationBatch) -> Tensor:
        """L_trans plus what it costs to leave the source action."""
        config, rows = self.config, batch.rows
        new = self.translate(batch)
        error = self.state_error(batch, new)
        if self.reward is not None:  # L_trans,r divided by λ
            reward_error = self.reward.error(self.model, rows, new, batch.target)
            # Of the printed -log F, a sum, "nll" is the mean over dimensions, twice.
            sums = int(self.model.change_scale.moves.sum()) / 2 if config.loss == "nll" else 1
            error = error + reward_error / (config.state_weight * sums)
        return error + config.proximity * (new - rows.action).abs().mean()

    def state_error(self, batch: TranslationBatch, action: Tensor) -> Tensor:
        """The translation loss L_trans (Eq. 3)."""
        rows, change = batch.rows, self.model.change_scale(batch.rows.change)
        mean, log_variance = self.model.predict(rows.obs, action, rows.past, batch.target)
        errors = distances(mean, log_variance, change, self.config.loss)
        error: Tensor = (errors @ self.weights).mean()
        return error

    @torch.no_grad()
    def mismatch(self, batch: TranslationBatch, action: Tensor) -> float:
        """Mean |F - wanted change|, dimensions weighed as in L_trans."""
        rows, change = batch.rows, self.model.change_scale(batch.rows.change)
        mean, _ = self.model.predict(rows.obs, action, rows.past, batch.target)
        return float(((mean - change).abs() @ self.weights).mean())

    @torch.no_grad()
    def weigh(self) -> None:
        """Settle what each dimension counts in L_trans under the present F; they sum to 1."""
        weights = self.model.change_scale.moves.float()
        if self.config.weighed:
            reach = [self._reach(self.sample(source, 4096)) for source in self.sources]
            weights = weights * torch.stack(reach).sum(dim=0)
        self.weights = weights / weights.sum().clamp_min(1e-12)

    def _fresh_adam(self) -> torch.optim.Adam:
        return torch.optim.Adam(self.network.parameters(), self.config.learning_rate, fused=True)

    def _reach(self, batch: TranslationBatch) -> Tensor:
        """How far another action would have moved each dimension, on average."""
        rows = batch.rows
        mean, other = (
            self.model.predict(rows.obs, action, rows.past, batch.target)[0]
            for action in (rows.action, rows.action.roll(1, dims=0))
        )
        reach: Tensor = (mean - other).abs().mean(dim=0)
        return reach
