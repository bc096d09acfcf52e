"""Ants in a mirror: exactly those machines whose left and right have changed places."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from mcat.agents.meta.config import PRESETS, MetaTrainConfig
from mcat.envs import Task
from mcat.envs.families import family, with_mirror_images
from mcat.envs.locomotion import build
from mcat.errors import UsageError

IMAGES = [
    ({}, {}),
    ({"cripple": 0}, {"cripple": 3}),
    ({"cripple": 1}, {"cripple": 2}),
    ({"cripple": 2, "control_cost": 0.1}, {"cripple": 1, "control_cost": 0.1}),
    ({"cripple": 3}, {"cripple": 0}),
    ({"damping": 4.0}, {"damping": 0.25}),
]


def simulation(**parameters):
    return build("ant", **Task("ant", **parameters).params)


@pytest.mark.parametrize(("machine", "image"), IMAGES)
def test_a_machine_in_the_mirror_is_its_image(machine, image):
    seen, other = simulation(view="mirror", **machine), simulation(**image)
    seen.reset(np.random.default_rng(1))
    start = np.empty(27)
    seen.observe(start)
    x, y = seen.data.qpos[:2]
    other.data.qpos[:] = np.concatenate([[x, -y], start[:13]])
    other.data.qvel[:] = start[13:]
    mujoco.mj_forward(other.model, other.data)
    rng, found = np.random.default_rng(2), np.empty((2, 27))
    for _ in range(30):
        action = rng.uniform(-1, 1, 8)
        rewards = [simulated.advance(action.copy()) for simulated in (seen, other)]
        for simulated, row in zip((seen, other), found, strict=True):
            simulated.observe(row)
        assert rewards[0] == pytest.approx(rewards[1], abs=1e-8)
        assert found[0] == pytest.approx(found[1], abs=1e-8)
    assert seen.data.qpos[1] == pytest.approx(-other.data.qpos[1], abs=1e-8)


def test_the_mirror_of_the_mirror_is_the_machine():
    mirror = simulation(view="mirror").mirror
    for order, sign in (mirror[:2], mirror[2:]):
        values = np.random.default_rng(0).standard_normal(len(order))
        assert np.array_equal((values[order] * sign)[order] * sign, values)
        assert not np.array_equal(values[order] * sign, values)


def test_images_are_added_where_they_are_other_machines():
    crippled = with_mirror_images(family("ant-cripple"))
    assert crippled.train[:4] == family("ant-cripple").train
    assert crippled.train[4:] == (Task("ant", cripple=0, view="mirror", delay=500),)
    assert crippled.test == family("ant-cripple").test
    damped = with_mirror_images(family("ant-damping")).train[4:]
    assert [task.params["damping"] for task in damped] == [10, 20, 30]  # 1 is its own image
    released = with_mirror_images(family("ant-damping-released")).train[4:]
    assert [task.params["damping"] for task in released] == [10, 20, 30]
    with pytest.raises(UsageError, match="hopper has no mirror image"):
        with_mirror_images(family("hopper-size"))


def test_fast_looks_into_the_mirror_only_where_legs_are_crippled():
    def learned_on(preset, name, **changes):
        return len(replace(PRESETS[preset], family=name, **changes).tasks.train)

    assert learned_on("fast", "ant-cripple") == 5
    assert learned_on("fast", "ant-cripple", mirror=False) == 4
    assert learned_on("fast", "ant-cripple", delay=7) == 5
    assert learned_on("fast", "ant-damping") == 4
    assert learned_on("fast", "ant-damping", mirror=True) == 7
    assert learned_on("fast", "hopper-size") == 5
    for preset in ("cpu", "paper", "released", "smoke"):
        assert learned_on(preset, "ant-cripple") == 4
    with pytest.raises(UsageError, match="has no mirror image"):
        MetaTrainConfig(family="hopper-size", mirror=True)
