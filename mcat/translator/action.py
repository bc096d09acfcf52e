"""The action translator H (Eq. 3): the target's action that does what the source's did.

H is trained through the frozen forward model: the next state that F predicts for the translated
action on the target should be the one that followed the original action on the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.errors import DivergedError, UsageError
from mcat.progress import Progress
from mcat.translator.context import ContextModel, Windows, forward_loss, sample_windows
from mcat.translator.networks import mlp

Loss = Literal["l1", "nll"]


@dataclass(frozen=True, kw_only=True)
class ActionConfig:
    """How H is built and trained.

    Attributes:
        residual: H adds to the source action, starting with nothing; else it makes a new one.
        proximity: Cost of |translated - source action|, in units of the normalised L1 error. It
            keeps H from exploiting F's mistakes far from the actions it has seen.
        loss: "l1" to F's mean, or "nll" under F's Gaussian, which H can lower by steering to where
            F is confidently wrong (A6).
    """

    residual: bool = True
    proximity: float = 0.1
    loss: Loss = "l1"
    embedding: int = 128
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 3e-4
    batch_size: int = 512
    steps: int = 3000

    def __post_init__(self) -> None:
        if self.proximity < 0 or self.steps < 1 or self.batch_size < 1:
            raise UsageError("proximity must not be negative, steps and batch_size positive")


class ActionTranslator(nn.Module):
    """H: from normalised states and source actions in [-1, 1] to target actions."""

    def __init__(self, obs_size: int, act_size: int, config: ActionConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_obs = nn.Sequential(nn.Linear(obs_size, config.embedding), nn.ReLU())
        self.embed_action = nn.Sequential(nn.Linear(act_size, config.embedding), nn.ReLU())
        self.trunk = mlp(2 * config.embedding, config.hidden, act_size, "relu")
        if config.residual:
            nn.init.zeros_(self.trunk[-1].weight)  # type: ignore[arg-type]
            nn.init.zeros_(self.trunk[-1].bias)  # type: ignore[arg-type]

    def propose(self, obs: Tensor, action: Tensor) -> Tensor:
        """The action before it is clipped to the action space."""
        parts = self.embed_obs(obs), self.embed_action(action)
        out: Tensor = self.trunk(torch.cat(parts, dim=1))
        return action + out if self.config.residual else torch.tanh(out)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Translated actions `(n, A)`."""
        return self.propose(obs, action).clamp(-1, 1)


@dataclass
class TranslationReport:
    """How H was trained.

    Attributes:
        curve: (step, mismatch) now and then; the mismatch is mean |F - wanted change| in units of
            each dimension's spread, over the dimensions that move.
        untranslated: The mismatch of the source actions as they are.
        translated: The mismatch of the translated ones.
        moved: Mean |translated - source action|.
    """

    curve: list[tuple[int, float]] = field(default_factory=list)
    untranslated: float = float("nan")
    translated: float = float("nan")
    moved: float = float("nan")


def train_action(
    model: ContextModel,
    source: Episodes,
    target: int,
    config: ActionConfig,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> tuple[ActionTranslator, TranslationReport]:
    """Fit H from `source` to the task of number `target` in `model`; C and F stay as they are."""
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):  # torch.nn draws initial weights from global state
        torch.manual_seed(int(rng.integers(2**31)))
        translator = ActionTranslator(source.observation_size, source.action_size, config)
    adam = torch.optim.Adam(translator.parameters(), config.learning_rate)
    report = TranslationReport()
    test = sample_windows(source, model.config, rng, 4096)
    report.untranslated = _mismatch(model, target, test, test.action)
    with Progress("learning to translate", config.steps, "steps", quiet=quiet) as progress:
        for step in range(1, config.steps + 1):
            batch = sample_windows(source, model.config, rng, config.batch_size)
            loss = _loss(model, translator, target, batch)
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            progress.advance(1)
            if step % 250 and step != config.steps:
                continue
            if not torch.isfinite(loss):
                raise DivergedError(f"the translation loss became {loss.item()} at step {step}")
            with torch.no_grad():
                new = translator(model.obs_scale(test.obs), test.action)
            report.translated = _mismatch(model, target, test, new)
            report.moved = float((new - test.action).abs().mean())
            report.curve.append((step, report.translated))
            progress.note(f"mismatch {report.translated:.4f} of {report.untranslated:.4f}")
    return translator.requires_grad_(False).eval(), report


def _loss(model: ContextModel, translator: ActionTranslator, target: int, batch: Windows) -> Tensor:
    """L_trans plus what it costs to leave the source action, and the action space.

    F sees the clipped action but its gradient reaches the unclipped one: most good actions sit at
    the limits, where the clip's own gradient would vanish as soon as they are overshot. The cost
    of overshooting calls those back.
    """
    proposed = translator.propose(model.obs_scale(batch.obs), batch.action)
    overshoot = (proposed - proposed.clamp(-1, 1)).abs().mean()
    new = proposed + (proposed.clamp(-1, 1) - proposed).detach()
    mean, log_variance = _predict(model, target, batch, new)
    change, moves = model.change_scale(batch.change), model.change_scale.moves
    if translator.config.loss == "l1":
        error = (mean - change)[:, moves].abs().mean()
    else:
        error = forward_loss(mean[:, moves], log_variance[:, moves], change[:, moves])
    moved = (new - batch.action).abs().mean()
    total: Tensor = error + translator.config.proximity * moved + overshoot
    return total


def _predict(
    model: ContextModel, target: int, batch: Windows, action: Tensor
) -> tuple[Tensor, Tensor]:
    """F on the target machine, in the situations of `batch`."""
    feature = model.features[target].expand(len(action), -1)
    return model.predict(batch.obs, action, batch.past, feature)


@torch.no_grad()
def _mismatch(model: ContextModel, target: int, batch: Windows, action: Tensor) -> float:
    """Mean |F - wanted change| over the dimensions that move."""
    mean, _ = _predict(model, target, batch, action)
    difference = mean - model.change_scale(batch.change)
    return float(difference[:, model.change_scale.moves].abs().mean())
