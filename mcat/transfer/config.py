"""What `mcat translate` is asked to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mcat.agents.limits import require_bearable
from mcat.errors import UsageError, unknown
from mcat.safe_io import dump_json
from mcat.translator.recipes import RECIPES, Recipe

METHODS = ("ours", "cycle")


@dataclass(frozen=True, kw_only=True)
class TransferConfig:
    """What to translate, how, and where the result goes.

    Attributes:
        sources: Logs of the machine whose policy is to be transferred.
        targets: Logs of the changed machine.
        tasks: In place of these, logs of several machines, between any two of which to translate.
        method: "ours" or "cycle", the baseline of Zhang et al. 2020.
        preset: Name of a recipe.
        map: A first guess of what matches what, for machines with other spaces or rewards.
        policy: The source policy; None for the default one.
        episodes: Episodes to run of each policy; 0 for none.
        reward_aware: Also match the rewards that a model of them predicts.
        seed: Of training and of the episodes' starts.
        threads: Threads of torch, and processes that share the physics.
        out: The folder to make; None names it after the machines.
        overwrite: Replace a result that is there already.
        quiet: Show no progress.
    """

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    method: Literal["ours", "cycle"] = "ours"
    preset: str = "cpu"
    map: str | None = None
    policy: str | None = None
    episodes: int = 100
    reward_aware: bool = False
    seed: int = 0
    threads: int = 1
    out: Path | None = None
    overwrite: bool = False
    quiet: bool = False

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
        if self.episodes < 0 or self.seed < 0 or self.threads < 1:
            raise UsageError("episodes and seed must not be negative, threads at least 1")
        require_bearable({"episodes": self.episodes, "threads": self.threads})

    @property
    def recipe(self) -> Recipe:
        """The preset, with what was asked for beyond it."""
        recipe = RECIPES[self.preset]
        return replace(recipe, action=replace(recipe.action, reward_aware=self.reward_aware))

    def to_json(self) -> dict[str, Any]:
        """Config and recipe as JSON types."""
        values = asdict(self) | {"out": self.out and str(self.out), "recipe": asdict(self.recipe)}
        settings: dict[str, Any] = json.loads(dump_json(values))
        return settings
