"""A two-joint arm on which every answer of the translator can be tried out.

Torques in [-1, 1], 50 Hz, episodes of 60 to 200 steps. States: two angles, two velocities and the
two angles that the arm should have now; those move on sine waves.
"""

from typing import NamedTuple

import numpy as np

from mcat.datasets import EpisodeStore

DT, SUBSTEPS = 0.02, 2
STRENGTH = np.array([6.0, 3.0])  # N m
MOTORS = {
    "unchanged": np.eye(2),
    "reversed": np.diag([-1.0, 1.0]),
    "weaker": np.diag([0.5, 0.5]),
    "swapped": np.eye(2)[::-1],
    "dead": np.diag([1.0, 0.0]),
}
"""What the motors of a machine make of its actions."""


class Waves(NamedTuple):
    """Where each of `n` arms should be at any time."""

    size: np.ndarray  # (n, 2)
    speed: np.ndarray
    phase: np.ndarray

    @classmethod
    def draw(cls, rng, n):
        return cls(rng.uniform(0.3, 1.0, (n, 2)), rng.uniform(1, 3, (n, 2)),
                   rng.uniform(0, 2 * np.pi, (n, 2)))  # fmt: skip

    def at(self, step):
        return self.size * np.sin(self.speed * step * DT + self.phase)


def track(observations):
    """The policy: good on the unchanged arm."""
    angle, velocity, wanted = np.split(np.asarray(observations), 3, axis=1)
    return np.clip([6.0, 6.0] * (wanted - angle) - [0.8, 0.5] * velocity, -1, 1)


def accelerate(angle, velocity, torque):
    """Two links with coupled inertia, friction and a soft spring towards the middle."""
    c, s = np.cos(angle[:, 1]), np.sin(angle[:, 1])
    m11, m12, m22 = 0.5 + 0.2 * c, 0.12 + 0.1 * c, np.full_like(c, 0.12)
    coriolis = (
        0.1
        * s[:, None]
        * np.stack(
            [-velocity[:, 1] * (2 * velocity[:, 0] + velocity[:, 1]), velocity[:, 0] ** 2], axis=1
        )
    )
    force = torque - coriolis - [0.6, 0.3] * velocity - [1.0, 0.5] * angle
    det = m11 * m22 - m12**2
    return np.stack(
        [(m22 * force[:, 0] - m12 * force[:, 1]) / det,
         (m11 * force[:, 1] - m12 * force[:, 0]) / det], axis=1,
    )  # fmt: skip


def run(motors, act, rng, episodes, steps, noise=0.0):
    """Observations `(episodes, steps + 1, 6)`, actions, and the true distance from the waves."""
    waves = Waves.draw(rng, episodes)
    angle, velocity = waves.at(0) + rng.normal(0, 0.1, (episodes, 2)), np.zeros((episodes, 2))
    seen, done, errors = [], [], []
    for step in range(steps + 1):
        # Velocities are as noisy as differences of angles over five steps.
        shaken = (rng.normal(0, noise, angle.shape), rng.normal(0, 14 * noise, angle.shape))
        seen.append(np.hstack([angle + shaken[0], velocity + shaken[1], waves.at(step)]))
        errors.append(np.abs(waves.at(step) - angle))
        done.append(act(seen[-1], step))
        for _ in range(SUBSTEPS):
            torque = np.clip(done[-1], -1, 1) @ motors * STRENGTH
            velocity = velocity + accelerate(angle, velocity, torque) * DT / SUBSTEPS
            angle = angle + velocity * DT / SUBSTEPS
    return np.stack(seen, axis=1), np.stack(done[:-1], axis=1), np.stack(errors, axis=1)


def log(motors, seed, *, episodes=120, noise=0.0, policy_share=1.0):
    """What was recorded while a share of the policy and smooth random torques acted."""
    rng = np.random.default_rng(seed)
    push = np.zeros((episodes, 2))
    share = policy_share * rng.integers(0, 2, (episodes, 1)) if policy_share < 1 else 1.0
    lengths = rng.integers(60, 201, episodes)

    def act(observations, step):
        nonlocal push
        push = 0.8 * push + rng.normal(0, 0.3, push.shape)
        return np.clip(share * track(observations) + push, -1, 1)

    seen, done, _ = run(motors, act, rng, episodes, 200, noise)
    inside = np.arange(200) < lengths[:, None]
    return EpisodeStore.from_arrays(
        observations=seen[:, :-1][inside],
        actions=done[inside],
        next_observations=seen[:, 1:][inside],
        episode_ends=np.cumsum(lengths),
    )


def tracking_error(motors, policy, noise=0.0):
    """Mean distance from the waves (rad) in ten episodes of 200 steps."""
    rng = np.random.default_rng(99)
    errors = run(motors, lambda seen, step: policy(seen.astype(np.float32)), rng, 10, 200, noise)[2]
    return float(errors[:, 50:].mean())
