"""Small machines whose right translation is known."""

import numpy as np

from mcat.datasets import EpisodeStore
from mcat.translator.state.correspondence import Correspondence

STATES, ACTIONS = 4, 3
PUSH = np.linalg.qr(np.random.default_rng(1).normal(size=(STATES, ACTIONS)))[0].T
# What the target's motors do to an action before it acts.
CHANGES = {
    "swapped": np.eye(ACTIONS)[[1, 2, 0]],
    "stronger": np.diag([2.0, 1.5, 1.25]),
    "reversed": np.diag([-1.0, 1.0, -1.0]),
}


def step(states, actions, push=PUSH):
    """The next states s' = 0.8 s + a · push."""
    return 0.8 * states + actions @ push


def linear_system(motors, seed, episodes=40, steps=50, *, push=PUSH, drive=None):
    """Episodes from random states under uniformly random actions, which act as `a · motors`.

    With `drive` actions are random ones of another machine, mapped by this matrix.
    """
    rng = np.random.default_rng(seed)
    drive = np.eye(len(motors)) if drive is None else drive
    actions = rng.uniform(-1, 1, (episodes, steps, drive.shape[1])) @ drive.T
    states = np.empty((episodes, steps + 1, push.shape[1]))
    states[:, 0] = rng.normal(size=states[:, 0].shape)
    for t in range(steps):
        states[:, t + 1] = step(states[:, t], actions[:, t] @ motors, push)
    return EpisodeStore.from_arrays(
        observations=states[:, :-1].reshape(-1, push.shape[1]),
        actions=actions.reshape(-1, len(motors)),
        next_observations=states[:, 1:].reshape(-1, push.shape[1]),
        episode_ends=np.arange(1, episodes + 1) * steps,
    )


# A body with a rear and a front limb: the limbs move themselves and the body.
# States: body, rear, front; actions: rear, front.
TWO_LIMBS = np.array([[0.4, 1.0, 0.0], [0.4, 0.0, 1.0]])
# The same with two rear limbs, each of which moves the body half as much, and a front limb that
# moves everything by half. States: body, rear, second rear, front; actions: rear, rear, front.
THREE_LIMBS = np.array([[0.2, 1.0, 0.0, 0.0], [0.2, 0.0, 1.0, 0.0], [0.2, 0.0, 0.0, 0.5]])
LIMBS = Correspondence.from_indices(
    state_to_source=[0, 1, 3],
    state_to_target=[0, 1, 1, 2],
    action_to_target=[0, 0, 1],
    action_to_source=[0, 2],
)
