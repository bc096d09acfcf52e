"""Registers one gymnasium id per robot."""

from __future__ import annotations

from mcat.envs.robots import ROBOTS


def register_all() -> None:
    """Make every robot available through `gymnasium.make` and `gymnasium.make_vec`.

    No `max_episode_steps`: gymnasium would put its TimeLimit outside our delayed reward and lose
    what is still owed at the end. `mcat.envs.env:make` builds both in the right order.
    """
    from gymnasium.envs.registration import register, registry

    for robot in ROBOTS.values():
        if robot.env_id not in registry:
            register(
                id=robot.env_id,
                entry_point="mcat.envs.env:make",
                vector_entry_point="mcat.envs.vector:make_vector",
                kwargs={"robot": robot.name},
            )
