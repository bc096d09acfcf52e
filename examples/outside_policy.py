"""A policy from elsewhere, moved to a changed machine by logs of both.

The policy is a swing-up controller written by hand; a network of any library would do, if it maps
observations (n, obs) to actions (n, act) in [-1, 1]. The machine is gymnasium's pendulum, on which
someone turned the motor round and put a weaker one.
"""

import gymnasium as gym
import numpy as np
import torch

from mcat.datasets import EpisodeStore
from mcat.translator import ActionConfig, ContextConfig, TransferredPolicy, estimate_trust, fit_pair

TORQUE = 2.0  # N m of an action of 1 on the old machine
CHANGED = -0.8  # what the new machine makes of it


def swing_up(observations):
    """Pumps energy until the pole can be caught: cos, sin and speed of its angle to a torque."""
    cos, sin, speed = observations.T
    energy = speed**2 / 6 + 5 * (cos - 1)  # 0 when it stands
    pump = np.clip(-energy, -1, 1) * np.sign(speed + 1e-9)
    catch = -(10 * np.arctan2(sin, cos) + 2 * speed) / TORQUE
    return np.clip(np.where(cos > 0.9, catch, pump), -1, 1)[:, None]


def episodes(policy, motor, *, count, noise=0.0, seed=0):
    """Run a policy; gives the log of what happened and the mean return."""
    env, rng, log = gym.make("Pendulum-v1"), np.random.default_rng(seed), EpisodeStore(3, 1)
    for number in range(count):
        seen, done, paid = [env.reset(seed=seed + number)[0]], [], []
        over = False
        while not over:
            action = np.clip(policy(seen[-1][None])[0] + noise * rng.normal(size=1), -1, 1)
            observation, reward, _, over, _ = env.step(motor * TORQUE * action)
            seen, done, paid = [*seen, observation], [*done, action], [*paid, reward]
        log.append_episode(observations=seen[:-1], actions=done, next_observations=seen[1:],
                           rewards=paid)  # fmt: skip
    return log, log.episode_returns().mean()


torch.set_num_threads(1)
# Logs with noise: without it nobody could know what other actions do.
old, _ = episodes(swing_up, 1.0, count=20, noise=0.5)
new, _ = episodes(swing_up, CHANGED, count=20, noise=0.5)
translator = fit_pair(
    old, new, quiet=True,
    context=ContextConfig(encoder_hidden=(32,), forward_hidden=(64, 64), max_steps=500),
    action=ActionConfig(hidden=(64, 64), embedding=32, steps=400),
)  # fmt: skip
moved = TransferredPolicy(swing_up, translator)

print("From the logs alone:", estimate_trust(translator, old, new, swing_up, quiet=True).verdict())
for label, policy, motor in (
    ("on the old machine", swing_up, 1.0),
    ("as it is on the new one", swing_up, CHANGED),
    ("translated on the new one", moved, CHANGED),
):
    print(f"{label}: return {episodes(policy, motor, count=10, seed=1000)[1]:.0f}")
