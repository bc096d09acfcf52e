"""What `mcat translate` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from mcat.agents.limits import require_bearable
from mcat.config import overlay, to_json
from mcat.errors import UsageError, unknown
from mcat.ranges import require_ranges
from mcat.translator.configs import Loss
from mcat.translator.recipes import RECIPES, Recipe

METHODS = ("ours", "cycle")


def alternative_updates(preset: str) -> int:
    """How long a clone of the target's logs, or offline RL on them, is learned."""
    return {"quick": 3_000, "smoke": 50}.get(preset, 10_000)


@dataclass(frozen=True, kw_only=True)
class TransferConfig:
    """What to translate, and how.

    Attributes:
        sources: Logs of the machine whose policy is to be transferred.
        targets: Logs of the changed machine.
        tasks: In place of these, logs of several machines, between any two of which to translate.
        method: "ours" or "cycle", the baseline of Zhang et al. 2020.
        preset: Name of a recipe.
        transfer_loss: L_trans, "l1" or "nll" as in `ActionConfig`; None for the recipe's.
        map: A first guess of what matches what, for machines with other spaces or rewards.
        policy: The source policy; None for the default one.
        episodes: Episodes to run of each policy; 0 for none.
        alternatives: Where episodes are run, also clone the target's logs, learn from their rewards
            offline, and run the policies that come out.
        best_of: Parts of the training after each of which the translator is tried on the target
            too, so that the best can be reported beside the last as the paper does; 0 for none.
        reward_aware: Also match the rewards that a model of them predicts.
        seed: Of training and of the episodes' starts; no two seeds share a start.
        threads: Threads of torch; the last bits depend on it.
        recipe_changes: Numbers of the recipe that are not the preset's, by dotted keys such as
            "action.steps".
    """

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    method: Literal["ours", "cycle"] = "ours"
    preset: str = "cpu"
    transfer_loss: Loss | None = None
    map: str | None = None
    policy: str | None = None
    episodes: int = 100
    alternatives: bool = True
    best_of: int = 0
    reward_aware: bool = False
    seed: int = 0
    threads: int = 1
    recipe_changes: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if bool(self.tasks) == bool(self.sources or self.targets):
            raise UsageError("give logs either as --src and --tgt or as one --task per machine")
        if not self.tasks and not (self.sources and self.targets):
            raise UsageError("give logs of both machines: --src and --tgt")
        if len(self.tasks) == 1:
            raise UsageError("give at least two --task: there is nothing to translate between")
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        if self.preset not in RECIPES:
            raise unknown("preset", self.preset, RECIPES)
        if self.tasks and (self.map is not None or self.method != "ours"):
            raise UsageError("--map and --method cycle take a pair: give --src and --tgt")
        if self.reward_aware and (self.map is not None or self.method != "ours"):
            raise UsageError("--reward-aware goes with --method ours and without --map")
        if self.transfer_loss not in (None, *get_args(Loss)):
            raise unknown("transfer loss", self.transfer_loss, get_args(Loss))
        if self.transfer_loss is not None and self.method != "ours":
            raise UsageError("--transfer-loss is of H: the baseline (--method cycle) has none")
        if self.preset == "released" and (self.map is not None or self.reward_aware):
            raise UsageError(
                "--preset released has neither --map nor --reward-aware: the authors published"
                " neither"
            )
        if self.best_of and (self.tasks or self.map is not None or not self.episodes):
            raise UsageError("best_of takes a pair without a map, and episodes to judge it by")
        not_negative = ("best_of", "episodes", "seed")
        require_ranges(self, not_negative=not_negative, at_least_1=["threads"])
        require_bearable(self.to_json())
        pairs_only = self.recipe.context.recent_actions or self.recipe.action.horizon > 1
        if self.tasks and pairs_only:
            raise UsageError("recent_actions and a horizon beyond 1 take a pair: give --src, --tgt")
        if self.recipe.action.reward_aware != self.reward_aware:
            raise UsageError("recipe.action.reward_aware is not set by itself: use --reward-aware")

    @property
    def recipe(self) -> Recipe:
        """The preset, with what was asked for beyond it."""
        recipe = RECIPES[self.preset]
        recipe = recipe.of_many() if self.tasks else recipe
        loss, state_loss = (
            self.transfer_loss or part.loss for part in (recipe.action, recipe.state)
        )
        asked = replace(
            recipe,
            action=replace(recipe.action, reward_aware=self.reward_aware, loss=loss),
            state=replace(recipe.state, loss=state_loss),
            many_context=None,
            many_action=None,
        )
        return replace(
            overlay(asked, dict(self.recipe_changes)),
            many_context=recipe.many_context,
            many_action=recipe.many_action,
        )

    def to_json(self) -> dict[str, Any]:
        """Config and recipe as JSON types."""
        own = to_json(self)
        del own["recipe_changes"]  # the recipe has them
        return own | {"recipe": to_json(self.recipe)}
