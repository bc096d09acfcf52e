"""How far a transfer can be trusted, estimated from data through the forward model.

The bounds of `bound.py` need to know how far apart two machines' next states are. On data that
distance is estimated: at held-out states of the target, where would the source have gone, and
where does the target go with the action as it is, with the translated one, and with the best one
that could be found?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mcat.datasets.views import Episodes
from mcat.translator.context import ContextModel, held_out_errors, train_context
from mcat.translator.fit import LearnedTranslator
from mcat.translator.networks import take_step
from mcat.translator.windows import Windows, sample_windows, split_episodes
from mcat.types import PolicyFunction

ROWS, SEARCH_STEPS, SEARCH_RATE = 1024, 150, 0.03


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Distances between next states, in units of the spread of one-step changes.

    Attributes:
        untranslated: With the source's actions as they are.
        translated: With the translated ones.
        reachable: With the best actions that a direct search finds.
        model_error: What the two forward models are off by themselves, taken together; what is
            smaller is not seen.
        no_equivalent: Share of source actions for which even the best is farther than that.
        per_dimension_untranslated: The first for each dimension of the state.
        per_dimension_translated: The second for each dimension of the state.
    """

    untranslated: float
    translated: float
    reachable: float
    model_error: float
    no_equivalent: float
    per_dimension_untranslated: tuple[float, ...]
    per_dimension_translated: tuple[float, ...]

    def sentences(self) -> list[str]:
        """What it means, for the engineer who has to decide."""
        gap, closed = self.untranslated, self.untranslated - self.translated
        return [
            f"One step with the source's action takes the target {gap:.2f} away from where the"
            " source would go (1 = as far as the state usually moves in a step).",
            f"Translated, {self.translated:.2f} is left"
            f" ({100 * closed / max(gap, 1e-9):.0f} % closer);"
            f" the best action found in each state would leave {self.reachable:.2f}.",
            f"{100 * self.no_equivalent:.0f} % of the source's actions have no equivalent on the"
            " target: no action of it has that effect, as with a dead or weaker motor.",
            "All of this is what forward models of the two machines say, and they are off by"
            f" {self.model_error:.2f} themselves on data they have not seen.",
            self.verdict(),
        ]

    def verdict(self) -> str:
        """All of it in one sentence."""
        gap, closed = self.untranslated, self.untranslated - self.translated
        if gap < 1.5 * self.model_error:
            return "The machines hardly differ: expect no gain from translating."
        if closed < 0.05 * gap and gap - self.reachable < 0.2 * gap:
            return "Low trust: the target cannot do what the source did."
        if closed < 0.05 * gap:
            return (
                "Low trust: translating changes little. More data of the target, or of the policy"
                " to be moved, should help."
            )
        if self.no_equivalent > 0.5:
            return (
                "Limited trust: it helps where the target can follow, and it often cannot. Try it"
                " where failing is cheap."
            )
        if self.translated > 3 * self.model_error:
            return "Fair trust: more is left than the models' own error. Try it with care."
        return "Good trust: what is left is near the models' own error."


class _Question(NamedTuple):
    rows: Windows
    action: Tensor  # of the source
    wanted: Tensor  # change the source would make, in the target model's units
    feature: Tensor  # of the target


def estimate_trust(
    translator: LearnedTranslator,
    source: Episodes,
    target: Episodes,
    policy: PolicyFunction | None = None,
    *,
    seed: int = 0,
    quiet: bool = False,
) -> Trust:
    """Compare next states on the two machines at states of the target.

    Args:
        translator: What `fit_pair` made of these episodes with this seed.
        source: Trains a forward model that says where the source would have gone.
        target: Has the states; those of episodes that the translator's own model has not seen.
        policy: Whose actions are translated; without one, those in `target` are.
        seed: The translator's.
        quiet: Show no progress.
    """
    model = translator.model
    brief = replace(model.config, max_steps=max(1, model.config.max_steps // 2))
    there, trained = train_context([source], brief, asked_about=[target], seed=seed, quiet=quiet)
    _, unseen = split_episodes(target, np.random.default_rng(seed))
    rows = sample_windows(unseen, model.config, np.random.default_rng(seed), ROWS)
    action = rows.action
    if policy is not None:
        action = torch.from_numpy(np.asarray(policy(rows.obs.numpy()), np.float32))
    question = _Question(rows, action, _wanted(there, model, rows, action),
                         model.features[-1].expand(len(action), -1))  # fmt: skip
    with torch.no_grad():
        translated_action = translator.act(rows.obs, action)
        as_is = _distances(model, question, action)
        translated = _distances(model, question, translated_action)
    searched = _search(model, question, translated_action)
    best = _distances(model, question, searched).mean(dim=1)
    # The search starts at the translated action and may end worse in some rows.
    best = torch.stack((best, as_is.mean(dim=1), translated.mean(dim=1))).amin(dim=0)
    error = trained.error + float(held_out_errors(model, [rows]).mean())
    return Trust(
        untranslated=float(as_is.mean()),
        translated=float(translated.mean()),
        reachable=float(best.mean()),
        model_error=error,
        no_equivalent=float((best > error).float().mean()),
        per_dimension_untranslated=_per_dimension(model, as_is),
        per_dimension_translated=_per_dimension(model, translated),
    )


@torch.no_grad()
def _wanted(there: ContextModel, here: ContextModel, rows: Windows, action: Tensor) -> Tensor:
    """The change that the source's model expects, in units of the target's."""
    feature = there.features[0].expand(len(action), -1)
    mean, _ = there.predict(rows.obs, action, rows.past, feature)
    wanted: Tensor = here.change_scale(mean * there.change_scale.std + there.change_scale.mean)
    return wanted


def _distances(model: ContextModel, question: _Question, action: Tensor) -> Tensor:
    """|where the target goes - where the source would|, over the dimensions that move."""
    rows = question.rows
    mean, _ = model.predict(rows.obs, action, rows.past, question.feature)
    return (mean - question.wanted)[:, model.change_scale.moves].abs()


def _search(model: ContextModel, question: _Question, start: Tensor) -> Tensor:
    """Actions found by gradient steps on F itself, each row for its own."""
    free = start.clamp(-0.99, 0.99).atanh().requires_grad_()
    adam = torch.optim.Adam([free], SEARCH_RATE)
    for _ in range(SEARCH_STEPS):
        take_step(adam, _distances(model, question, torch.tanh(free)).mean(dim=1).sum())
    return torch.tanh(free).detach()


def _per_dimension(model: ContextModel, distances: Tensor) -> tuple[float, ...]:
    """With zeros for the dimensions that do not move."""
    full = torch.zeros(len(model.change_scale.moves))
    full[model.change_scale.moves] = distances.mean(dim=0)
    return tuple(full.tolist())
