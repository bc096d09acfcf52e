"""Small logs of simulated machines and of ones that mcat cannot simulate."""

import numpy as np

from mcat.agents.policies.names import find_policy
from mcat.datasets import EpisodeStore, write_dataset
from mcat.datasets.collect import CollectConfig, collect
from mcat.envs import Task

HORIZON = 30


def cheetah(armature, **changes):
    return Task("halfcheetah", armature=armature, horizon=HORIZON, **changes)


def collect_logs(folder):
    """Short episodes of three cheetahs, and of a robot of somebody's own."""
    for armature in (0.1, 0.35, 0.5):
        task = cheetah(armature)
        good = find_policy("good", cheetah(0.1), np.random.default_rng(0))
        config = CollectConfig(task=task, steps=600, noise=(0.3, 0.3), seed=int(armature * 10))
        collect(config, good, folder / f"cheetah{armature}.h5", quiet=True)
    for number, name in enumerate(("own-a", "own-b")):
        write_dataset(folder / f"{name}.h5", own_robot(number), {})
    return folder


def own_robot(seed, *, states=3, actions=2, episodes=20, steps=30, scale=1.0):
    """A linear machine whose motors get weaker with every seed."""
    rng = np.random.default_rng(seed)
    motors = np.random.default_rng(7).normal(size=(actions, states)) / (1 + seed)
    action = rng.uniform(-scale, scale, (episodes, steps, actions))
    state = [rng.normal(size=(episodes, states))]
    for t in range(steps):
        state.append(0.8 * state[-1] + action[:, t] @ motors)
    state = np.stack(state, axis=1)
    return EpisodeStore.from_arrays(
        observations=state[:, :-1].reshape(-1, states),
        actions=action.reshape(-1, actions),
        next_observations=state[:, 1:].reshape(-1, states),
        episode_ends=np.arange(1, episodes + 1) * steps,
    )
