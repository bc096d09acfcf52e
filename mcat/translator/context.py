"""The context encoder C and the forward model F, trained together (Eqs. 1 and 2).

C reads the last K steps and says which machine this is. F predicts the next state from state,
action and that context. The paper averages contexts over a task before they are used, but z_t also
knows what the state lacks, such as velocities nobody measured, and averaging throws that away. So F
also sees how the state moved in the last few steps before the very transition it is asked about.
It does not see the actions of those steps: with them it could tell the machine from its own past
instead of from the context, and would go on predicting the source when asked about the target.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.errors import DivergedError, UsageError
from mcat.progress import Progress
from mcat.translator.configs import ContextConfig, Hinge
from mcat.translator.networks import Normaliser, mlp, optimise, seeded
from mcat.translator.report import FitReport
from mcat.translator.windows import (
    Windows,
    past_of,
    sample_windows,
    shared_dimensions,
    split_episodes,
)

LOG_VARIANCE = (-10.0, 0.5)  # soft bounds, as in the authors' code


class ContextModel(nn.Module):
    """C, F and the scales of their inputs.

    Attributes:
        features: One averaged context per task, `(tasks, Z)`.
        shared: Dimensions of the state `(S,)` whose values the machines share, 1 or 0. Where one
            machine's values are never those of another, such as the height of another object, a
            model could only tell the machine by it, or extrapolate; so neither F nor H sees it.
    """

    features: Tensor
    shared: Tensor

    def __init__(self, obs_size: int, act_size: int, tasks: int, config: ContextConfig) -> None:
        super().__init__()
        self.config = config
        self.obs_scale, self.act_scale = Normaliser(obs_size), Normaliser(act_size)
        self.change_scale = Normaliser(obs_size)
        step = obs_size + act_size
        self.encoder = mlp(
            config.history * step,
            config.encoder_hidden,
            config.context_size,
            config.encoder_activation,
        )
        seen = step if config.recent_actions else obs_size
        self.input_size = step + config.recent * seen + config.context_size
        self.dynamics = mlp(
            self.input_size, config.forward_hidden, 2 * obs_size, config.forward_activation
        )
        self.register_buffer("features", torch.zeros(tasks, config.context_size))
        self.register_buffer("shared", torch.ones(obs_size))

    def encode(self, past: tuple[Tensor, Tensor]) -> Tensor:
        """C: the context `(n, Z)` of a past. Steps before an episode's start are zeros."""
        changes, actions = past
        steps = torch.cat((self._scaled(changes), actions), dim=2)
        context: Tensor = self.encoder(steps.flatten(1))
        return context

    def predict(
        self, obs: Tensor, action: Tensor, past: Tensor, context: Tensor
    ) -> tuple[Tensor, Tensor]:
        """F: mean and log variance `(n, S)` of the state's change, in normalised units."""
        mean, raw = self.dynamics(self.inputs(obs, action, past, context)).chunk(2, dim=1)
        return mean, bounded_log_variance(raw)

    def inputs(self, obs: Tensor, action: Tensor, past: Tensor, context: Tensor) -> Tensor:
        """What F sees, scaled and side by side."""
        size = len(self.shared)
        moved = (self._scaled(past[..., :size]) * self.shared).flatten(1)
        inputs = [self.scaled(obs), self.act_scale(action), context, moved]
        if self.config.recent_actions:
            inputs.append(self.act_scale(past[..., size:]).flatten(1))
        return torch.cat(inputs, dim=1)

    def scaled(self, obs: Tensor) -> Tensor:
        """States as networks see them."""
        scaled: Tensor = self.obs_scale(obs) * self.shared
        return scaled

    def _scaled(self, changes: Tensor) -> Tensor:
        """Changes scaled but not shifted: the zeros before an episode's start stay zeros."""
        return changes / self.change_scale.std


def bounded_log_variance(raw: Tensor) -> Tensor:
    """Softly keeps a log variance between -10 and 0.5."""
    low, high = LOG_VARIANCE
    upper = high - nn.functional.softplus(high - raw)
    return low + nn.functional.softplus(upper - low)


def forward_loss(
    mean: Tensor,
    log_variance: Tensor,
    change: Tensor,
    *,
    evenness: float = 0.0,
    histories: int | None = None,
) -> Tensor:
    """L_forw: the Gaussian negative log likelihood without its constants.

    Args:
        mean: F's, `(n, S)`.
        log_variance: F's.
        change: What happened, in the same units.
        evenness: Each term counts variance^evenness times as much, lest what is hard to predict is
            given up (Seitzer et al. 2022, "On the pitfalls of heteroscedastic uncertainty
            estimation").
        histories: From how many the n predictions are: half of the sum of their terms for each of
            these is Eq. 1. None for the mean of all terms (docs/decisions.md#the-forward-loss).
    """
    terms = (mean - change).square() * torch.exp(-log_variance) + log_variance
    weighed = terms * torch.exp(evenness * log_variance.detach())
    return weighed.mean() if histories is None else weighed.sum() / (2 * histories)


def contrastive_loss(
    one: Tensor, two: Tensor, *, same: bool, margin: float, hinge: Hinge = "squared"
) -> Tensor:
    """L_cont: contexts of one task together, of different tasks at least `margin` apart.

    The squared hinge is not that of Eq. 2 (docs/decisions.md#the-contrastive-loss).
    """
    distance = (one - two).square().sum(dim=1).clamp_min(1e-12).sqrt()
    if same or hinge == "squared":
        return (distance if same else (margin - distance).clamp_min(0)).square().mean()
    return (margin - distance).clamp_min(0).mean()


def train_context(
    tasks: Sequence[Episodes],
    config: ContextConfig,
    *,
    asked_about: Sequence[Episodes] = (),
    seed: int = 0,
    quiet: bool = False,
) -> tuple[ContextModel, FitReport]:
    """Fit C and F to the episodes of one or more tasks.

    A tenth of each task's episodes is held out; training stops when the error on them no longer
    falls, and the best model seen is kept. With `hold_out=False` nothing is, and the last one is
    (docs/decisions.md#held-out-data-and-early-stops).

    Args:
        tasks: What to learn from.
        config: How C and F are built and trained.
        asked_about: Episodes of other tasks whose states F will be asked about; not learned from,
            but they help to set its scales and tell what it can be asked.
        seed: Equal seeds give equal models.
        quiet: Show no progress.

    Returns:
        The model and how it got there; errors are mean |mean - change| in units of the spread of
        each dimension.
    """
    if config.recent_actions and len(tasks) > 1:
        raise UsageError("recent_actions is of one machine: several could be told apart by them")
    rng = np.random.default_rng(seed)
    splits = [split_episodes(task, rng) if config.hold_out else (task, task) for task in tasks]
    training, held_out = [s[0] for s in splits], [s[1] for s in splits]
    obs_size, act_size = tasks[0].observation_size, tasks[0].action_size
    with seeded(rng):
        model = ContextModel(obs_size, act_size, len(tasks), config)
    fit_scales(model, [*training, *asked_about])
    if config.shared_only:
        model.shared.copy_(shared_dimensions([*training, *asked_about]))
    tests = [sample_windows(task, config, rng, 2048) for task in held_out]
    adam = torch.optim.Adam(model.parameters(), config.learning_rate, fused=True)
    seen = "error of the forward model on what it learned from"
    title = "held-out error of the forward model" if config.hold_out else seen
    curve: list[tuple[int, float]] = []
    report, lowest = FitReport(curves={title: curve}), float("inf")
    best, waited = copy.deepcopy(model.state_dict()), 0
    step = passed = 0  # one step passes for ten where a tenth will do
    pace = 1
    with Progress("learning dynamics", config.max_steps, "steps", quiet=quiet) as progress:
        while passed < config.max_steps:
            if config.decay:
                left = 1 - passed / config.max_steps
                adam.param_groups[0]["lr"] = config.learning_rate * left
            loss = objective(model, *joint_losses(model, training, rng))
            optimise(adam, loss)
            step, before, passed = step + 1, passed, passed + pace
            looks = passed // config.evaluate_every > before // config.evaluate_every
            if not looks and passed < config.max_steps:
                continue
            if not torch.isfinite(loss):
                raise DivergedError(f"the forward loss became {loss.item()} at step {step}")
            errors = held_out_errors(model, tests)
            error = float(errors.mean())
            curve.append((step, error))
            waited = 0 if error < 0.99 * lowest else waited + 1
            if error < lowest or not config.hold_out:
                lowest, report.forward_error = error, errors.tolist()
                best = copy.deepcopy(model.state_dict())
            pace = 10 if error < (config.cut_below or 0.0) else 1
            progress.advance(min(config.evaluate_every, config.max_steps - progress.done),
                             note=f"{'held-out ' * config.hold_out}error {error:.4f}")  # fmt: skip
            if config.hold_out and waited >= config.patience:
                break
    model.load_state_dict(best)
    set_features(model, tasks, rng)
    report.numbers = {"forward steps": step, "forward error": lowest}
    return model.requires_grad_(False).eval(), report


def joint_losses(
    model: ContextModel, tasks: Sequence[Episodes], rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """L_forw of two batches and L_cont between them: half the time of one task, else of two."""
    config = model.config
    same = len(tasks) == 1 or rng.random() < 0.5
    first = int(rng.integers(len(tasks)))
    second = first if same else (first + int(rng.integers(1, len(tasks)))) % len(tasks)
    total, contexts = torch.zeros(()), []
    for task in (first, second):
        batch = sample_windows(tasks[task], config, rng, config.batch_size)
        contexts.append(model.encode(batch.context_past))
        context = contexts[-1][batch.window]
        mean, log_variance = model.predict(batch.obs, batch.action, batch.past, context)
        change = model.change_scale(batch.change)
        total = total + forward_loss(
            mean,
            log_variance,
            change,
            evenness=config.evenness,
            histories=len(contexts[-1]) if config.likelihood == "sum" else None,
        )
    return total, contrastive_loss(*contexts, same=same, margin=config.margin, hinge=config.hinge)


def objective(model: ContextModel, forward: Tensor, contrastive: Tensor) -> Tensor:
    """What C and F minimise."""
    config = model.config
    loss = forward + config.contrastive_weight * contrastive
    return loss + config.norm_penalty * weighed_norms(model) if config.norm_penalty else loss


def weighed_norms(model: ContextModel) -> Tensor:
    """The norms of all weights and biases, the first layers' once, the later ones' more often.

    F's last layer counts as two, one for its mean and one for its variance.
    """
    total = torch.zeros(())
    for network, last, parts in ((model.encoder, 3, 1), (model.dynamics, 4, 2)):
        layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
        for number, layer in enumerate(layers, start=1):
            at_end = number == len(layers)
            for weights in (layer.weight, layer.bias):
                norms = [part.norm() for part in weights.chunk(parts if at_end else 1)]
                total = total + (last if at_end else min(number, 3)) * torch.stack(norms).sum()
    return total


@torch.no_grad()
def held_out_errors(model: ContextModel, tests: Sequence[Windows]) -> Tensor:
    """Mean |mean - change| per dimension, in units of each dimension's spread."""
    errors = []
    for batch in tests:
        context = model.encode(batch.context_past)[batch.window]
        mean, _ = model.predict(batch.obs, batch.action, batch.past, context)
        errors.append((mean - model.change_scale(batch.change)).abs().mean(dim=0))
    return torch.stack(errors).mean(dim=0)


@torch.no_grad()
def set_features(model: ContextModel, tasks: Sequence[Episodes], rng: np.random.Generator) -> None:
    """Each task's feature is the mean context of many of its histories."""
    for number, task in enumerate(tasks):  # docs/decisions.md#the-feature-of-a-task
        steps = rng.integers(len(task), size=model.config.feature_samples)
        model.features[number] = model.encode(past_of(task, steps, model.config.history)).mean(
            dim=0
        )


def fit_scales(model: ContextModel, tasks: Sequence[Episodes]) -> None:
    """Fit the scales to all tasks together, so that a number means the same on each."""
    columns = {  # docs/decisions.md#how-inputs-are-scaled
        name: torch.from_numpy(np.concatenate([task.column(name) for task in tasks]))
        for name in ("observations", "actions", "next_observations")
    }
    model.obs_scale.fit(columns["observations"])
    model.act_scale.fit(columns["actions"])
    model.change_scale.fit(columns["next_observations"] - columns["observations"])
