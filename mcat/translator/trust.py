"""How far a transfer can be trusted, estimated from logs alone.

At states of the source that no model has seen: where would the source's action have led there, and
where does the target go with that action, with the translated one, and with the best one that a
search finds? Forward models answer, two of each machine. The translator was fitted to one of the
target's and the other is the judge, lest mistakes that the translator exploits count as success.

Everything is in units of what the source's actions do: 1 is how far from each other two of them
lead. How fast a log was sampled, and what moves whatever one does, is of no account then.

The models' own error is how far the two of a machine disagree about the very questions asked, and
what a straight line through the errors on held-out steps still finds of the actions. Noise is
neither: it averages out.

A translator's model that was fitted with nothing held out has seen what it is tried on; the others
have not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.datasets.checks import CONSTANT
from mcat.datasets.views import Episodes
from mcat.translator.configs import ContextConfig
from mcat.translator.context import ContextModel, train_context
from mcat.translator.fit import LearnedTranslator
from mcat.translator.grade import FAR, Trust
from mcat.translator.limits import require_actions
from mcat.translator.networks import optimise
from mcat.translator.windows import recent_steps, split_episodes, translated_past
from mcat.types import PolicyFunction

ROWS, SEARCH_STEPS, SEARCH_RATE = 1024, 150, 0.03
STRETCHES, STUDENT = 10, 2.26  # an interval of 95 % from as many means


class _Rows(NamedTuple):
    """Steps of a log, in their order."""

    obs: Tensor
    action: Tensor
    change: Tensor
    past: Tensor
    before: Tensor | None

    @classmethod
    def of(cls, task: Episodes, config: ContextConfig) -> _Rows:
        steps = np.unique(np.linspace(0, len(task) - 1, ROWS).astype(np.int64))
        rows = task.transitions(steps)
        obs, after = (torch.from_numpy(x) for x in (rows.observations, rows.next_observations))
        past = recent_steps(task, steps, config)
        return cls(obs, torch.from_numpy(rows.actions), after - obs, *past)


class _Models(NamedTuple):
    """Two forward models of each machine; the translator was fitted to `fitted`."""

    homes: tuple[ContextModel, ContextModel]
    fitted: ContextModel
    judge: ContextModel

    def change(self, model: ContextModel, rows: _Rows, action: Tensor) -> Tensor:
        """Where `model` says that actions lead, in units that all four share."""
        mean, _ = model.predict(
            rows.obs, action, rows.past, model.features[-1].expand(len(action), -1)
        )
        return self.shared(mean * model.change_scale.std + model.change_scale.mean)

    def shared(self, change: Tensor) -> Tensor:
        """A change in those units, without the dimensions that do not move."""
        scale = self.fitted.change_scale
        return (change / scale.std)[:, scale.moves]


def estimate_trust(
    translator: LearnedTranslator,
    source: Episodes,
    target: Episodes,
    policy: PolicyFunction | None = None,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> Trust:
    """Compare next states on the two machines.

    Args:
        translator: What `fit_pair` made of these episodes with this seed.
        source: Trains two models that say where the source's actions lead, and has the states.
        target: Trains the judge.
        policy: Whose actions are translated; without one, those in `source` are.
        seed: The translator's.
        quiet: Show no progress.
    """
    known, unseen = _split(source, seed)
    models = _train(translator.model, known, source, target, seed, quiet)
    # On the target each model is tried on what it has not seen itself.
    tests = [split_episodes(target, np.random.default_rng(seed + k))[1] for k in range(2)]
    rows, *target_rows = (_Rows.of(log, translator.model.config) for log in (unseen, *tests))
    action = rows.action
    if policy is not None:
        action = torch.from_numpy(require_actions(policy(rows.obs.numpy()), *action.shape))
    with torch.no_grad():
        wanted = [models.change(home, rows, action) for home in models.homes]
        goal = (wanted[0] + wanted[1]) / 2
        elsewhere = action.roll(len(action) // 2, dims=0)
        other = sum(models.change(home, rows, elsewhere) for home in models.homes) / 2
        effect = float(_squares(goal - other).mean() / 2) + 1e-12
        translated = translator.translate_tensors(rows.obs, action)
        past = translated_past(rows.past, rows.before, translator.translate_tensors)
    moved = rows._replace(past=past)
    best = _search(models, moved, translated, goal)
    tried = (("as is", rows, action), ("moved", moved, translated), ("best", moved, best))
    with torch.no_grad():
        off, by_judge = (
            {name: models.change(model, where, chosen) - goal for name, where, chosen in tried}
            for model in (models.fitted, models.judge)
        )
        errors = [
            models.shared(log.change) - models.change(model, log, log.action)
            for model, log in zip(
                (models.homes[0], models.fitted, models.judge), (rows, *target_rows), strict=True
            )
        ]
    unsure = max(float(_squares(off[k] - by_judge[k]).mean()) / 2 for k in ("as is", "moved"))
    unsure += float(_squares(wanted[0] - wanted[1]).mean()) / 4  # of the mean of two
    missed = _linear_part(errors[0], rows.action) + _linear_part(errors[1], target_rows[0].action)
    ignorance = (unsure + missed) / effect
    home, fitted, judge = (float(_squares(error).mean()) for error in errors)

    def size(distance: Tensor) -> float:
        return float((_squares(distance).mean() / effect).sqrt())

    nearest = torch.minimum(_squares(off["best"]), _squares(by_judge["best"])) / effect
    return Trust(
        untranslated=size(by_judge["as is"]),
        translated=size(by_judge["moved"]),
        reachable=size(by_judge["best"]),
        closer=_interval(*((_squares(by_judge[k]) / effect).numpy() for k in ("as is", "moved"))),
        model_error=ignorance**0.5,
        missed=(missed / effect) ** 0.5,
        scatter=max(0.0, (home + fitted) / 2 / effect - ignorance) ** 0.5,
        improving=1 - (fitted / max(judge, 1e-12)) ** 0.5,
        variety=min(_variety(log, seed) for log in (source, target)),
        no_equivalent=float((nearest > max(FAR**2, 4 * ignorance)).float().mean()),
        per_dimension_untranslated=_per_dimension(models, by_judge["as is"], effect),
        per_dimension_translated=_per_dimension(models, by_judge["moved"], effect),
    )


def _split(source: Episodes, seed: int) -> tuple[Episodes, Episodes]:
    """What the source's models may learn from, and what they are asked about.

    Of two episodes both are learned from, one of them to know when to stop.
    """
    known, unseen = split_episodes(source, np.random.default_rng(seed))
    return known if known.num_episodes > 1 else source, unseen


def _train(
    fitted: ContextModel,
    known: Episodes,
    source: Episodes,
    target: Episodes,
    seed: int,
    quiet: bool,
) -> _Models:
    brief = replace(fitted.config, max_steps=max(1, fitted.config.max_steps // 2), hold_out=True)

    def another(log: Episodes, other: Episodes, seed: int) -> ContextModel:
        return train_context([log], brief, asked_about=[other], seed=seed, quiet=quiet)[0]

    homes = another(known, target, seed), another(known, target, seed + 1)
    return _Models(homes, fitted, another(target, source, seed + 1))


def _squares(distances: Tensor) -> Tensor:
    """Squared length of each row."""
    return distances.square().sum(dim=1)


def _search(models: _Models, rows: _Rows, start: Tensor, goal: Tensor) -> Tensor:
    """Actions found by gradient steps on F itself, each row for its own."""
    free = start.clamp(-0.99, 0.99).atanh().requires_grad_()
    adam = torch.optim.Adam([free], SEARCH_RATE)
    for _ in range(SEARCH_STEPS):
        reached = models.change(models.fitted, rows, torch.tanh(free))
        optimise(adam, _squares(reached - goal).sqrt().sum())
    return torch.tanh(free).detach()


def _linear_part(errors: Tensor, action: Tensor) -> float:
    """How much of the squared errors a straight line through the actions explains, not by chance.

    A model that has learned what actions do leaves nothing of it.
    """
    wrong, act = errors.double().numpy(), action.double().numpy()
    wrong, act = wrong - wrong.mean(axis=0), act - act.mean(axis=0)
    found = act @ np.linalg.lstsq(act, wrong, rcond=None)[0]
    rows, lines = act.shape
    chance = np.square(wrong - found).sum(axis=0) * lines / max(1, rows - lines - 1)
    explained = np.square(found).sum(axis=0) - chance
    return float(explained.clip(0).sum() / rows)


def _variety(log: Episodes, seed: int) -> float:
    """Share of the actions' variance that a function of the state, fitted to one half, leaves.

    Where actions follow from states, models may ascribe to one what the other did, and agree.
    """
    steps = np.unique(np.linspace(0, len(log) - 1, 4 * ROWS).astype(np.int64))
    states, actions = (log.column(k)[steps].astype(float) for k in ("observations", "actions"))
    states = (states - states.mean(axis=0)) / states.std(axis=0).clip(CONSTANT)
    rng = np.random.default_rng(seed)
    kinks = max(1, min(200, len(steps) // 20))
    bent = states @ rng.normal(size=(states.shape[1], kinks)) / states.shape[1] ** 0.5
    bent = (bent + rng.uniform(-2, 2, kinks)).clip(0)
    seen = np.hstack([np.ones((len(steps), 1)), states, bent])
    half = len(steps) // 2
    ridge = 1e-4 * half * np.eye(seen.shape[1])
    fitted = np.linalg.solve(seen[:half].T @ seen[:half] + ridge, seen[:half].T @ actions[:half])
    left = np.square(actions[half:] - seen[half:] @ fitted).mean(axis=0)
    moves = actions.std(axis=0) > CONSTANT
    share = left[moves] / actions.var(axis=0)[moves]
    return float(share.clip(0, 1).mean()) if moves.any() else 0.0


def _interval(before: NDArray[np.float32], after: NDArray[np.float32]) -> tuple[float, float]:
    """95 % interval of how much smaller the distances are, from stretches of the log."""
    gains = [
        float(np.sqrt(was.mean()) - np.sqrt(now.mean()))
        for was, now in zip(*(np.array_split(x, STRETCHES) for x in (before, after)), strict=True)
        if len(was)
    ]
    half = STUDENT * float(np.std(gains, ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else np.inf
    return float(np.mean(gains)) - half, float(np.mean(gains)) + half


def _per_dimension(models: _Models, distances: Tensor, effect: float) -> tuple[float, ...]:
    """Root mean square distances by dimension, 0 for those that do not move."""
    moves = models.fitted.change_scale.moves
    full = torch.zeros(len(moves))
    full[moves] = (distances.square().mean(dim=0) / effect).sqrt()
    return tuple(full.tolist())
