"""What a round would have been in a mirror: a robot with a left and a right side has it for free.

Doubles the data of crippled ants (docs/decisions.md#deviations-of-preset-fast).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mcat.datasets.arrays import DTYPES
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.views import Episodes
from mcat.envs.families import mirror_twins
from mcat.envs.tasks import Task

Images = Callable[[Episodes], EpisodeStore]


def mirror_images(tasks: Sequence[Task]) -> Images:
    """What makes of episodes on `tasks`, by number, those of their mirror images.

    An episode on a task whose image is none of `tasks` has no image.
    """
    from mcat.envs.locomotion import ant_mirror

    mirror = ant_mirror()
    twins = np.array([-1 if twin is None else twin for twin in mirror_twins(tasks)])

    def images(episodes: Episodes) -> EpisodeStore:
        seen = episodes.select(np.flatnonzero(twins[episodes.tasks] >= 0))
        columns = {name: seen.column(name) for name in DTYPES}
        for name in ("observations", "next_observations"):
            columns[name] = mirror.observations(columns[name])
        columns["actions"] = mirror.actions(columns["actions"])
        ends = np.cumsum(seen.lengths)
        return EpisodeStore.from_arrays(**columns, episode_ends=ends, tasks=twins[seen.tasks])

    return images
