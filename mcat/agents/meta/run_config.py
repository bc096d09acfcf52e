"""The settings of a meta-training run that every method has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from mcat.agents.configs import CreditConfig
from mcat.agents.lengths import check_limits
from mcat.envs.families import family as find_family
from mcat.envs.families import has_mirror_images, with_mirror_images
from mcat.envs.tasks import Family
from mcat.ranges import require_ranges

RESUME_MAY_CHANGE = frozenset({"steps"})  # anything else would make it another run


class MethodSettings(Protocol):
    """What the loop asks of a method's own numbers."""

    @property
    def credit(self) -> CreditConfig:
        """How rewards for TD learning are made from delayed payments."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What the numbers of a meta-training run depend on, whatever the method.

    Each method adds one group of its own, under its name.

    Attributes:
        family: Name of the task family, a TOML file with one, or `module:function`.
        delay: Steps between two payments of reward; None for the family's own.
        steps: Environment steps in all, over all tasks.
        seed: The root of all random numbers.
        episode_lengths: The shortest and the longest episode to collect; the lengths are drawn at
            random (see `lengths.draw_length`). One number means up to the horizon, None whole
            episodes. Evaluation always runs whole ones.
        mirror: Also learn on mirror images of the training tasks, where these are other machines
            than all of them: what is learned with one leg dead is then known of its counterpart.
            None for families in which legs are crippled, and for no other.
        mirror_replay: Where mirror images are learned on, also remember each episode as it looks in
            a mirror, under the task that it is there.
        evaluate_every: Iterations between two evaluations; the last one always has one.
        evaluation_episodes: Per task, training and test.
        threads: torch threads; the last bits depend on it.
    """

    method: ClassVar[str]  # of the registry, and of the group
    may_change: ClassVar[frozenset[str]] = RESUME_MAY_CHANGE

    family: str = "halfcheetah-armature"
    delay: int | None = None
    steps: int = 200_000
    seed: int = 0
    episode_lengths: tuple[int, ...] | None = None
    mirror: bool | None = False
    mirror_replay: bool = False
    evaluate_every: int = 5
    evaluation_episodes: int = 5
    threads: int = 1

    def __post_init__(self) -> None:
        counts = ("steps", "evaluate_every", "evaluation_episodes", "threads", "delay")
        require_ranges(self, at_least_1=counts, not_negative=["seed"])
        if self.episode_lengths is not None:
            check_limits(self.episode_lengths)
        _ = self.tasks  # refuses a family that is unknown, or has no mirror images

    @property
    def tasks(self) -> Family:
        """The family, with the run's delay and, if wanted, mirror images."""
        chosen = find_family(self.family)
        if self.delay is not None:
            chosen = chosen.replace(delay=self.delay)
        return with_mirror_images(chosen) if self._mirrors(chosen) else chosen

    @property
    def mirrors_replay(self) -> bool:
        """Whether each episode is remembered with its mirror image."""
        return self.mirror_replay and self._mirrors(find_family(self.family))

    def _mirrors(self, chosen: Family) -> bool:
        return has_mirror_images(chosen) if self.mirror is None else self.mirror

    @property
    def robot(self) -> str:
        """That of the family's tasks; Meta-World's have several, and it is the first one's."""
        return self.tasks.train[0].robot

    @property
    def own(self) -> MethodSettings:
        """The method's own group."""
        found: MethodSettings = getattr(self, self.method)
        return found
