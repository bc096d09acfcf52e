"""`mcat adapt` from logs in N·m: what it learns, says and commands is in the machine's units."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import onnx
import pytest

from mcat.agents import open_policy
from mcat.agents.adaptation.config import AdaptConfig, AnchoredConfig
from mcat.agents.adaptation.run import adapt
from mcat.agents.policies.foreign.bounds import Bounds
from mcat.agents.policies.foreign.export import export_onnx
from mcat.agents.policies.foreign.imported import ImportedPolicy, layered
from mcat.datasets import Card, Channel, EpisodeStore, write_dataset
from mcat.envs import Task
from mcat.errors import UsageError
from mcat.transfer.adaptation import known_inputs
from tests.transfer.transfer_logs import own_robot

CARD = Card(
    observations=tuple(Channel(name, "rad") for name in ("q", "dq", "i")),
    actions=(Channel("tau0", "N·m", -8, 8), Channel("grip", "", 0, 0.7)),
    rate_hz=50,
)
CONFIG = AdaptConfig(
    offline_updates=30, batch_size=8, learner=AnchoredConfig(hidden=(8, 8)), updates_per_step=1
)
OBS = np.random.default_rng(0).normal(0, 3, (200, 3)).astype(np.float32)


def log():
    """Of a machine with rewards, as models know it: actions in [-1, 1]."""
    plain = own_robot(1)
    columns = {n: plain.column(n) for n in ("observations", "actions", "next_observations")}
    rewards = -np.abs(plain.column("observations")[:, 0])
    return EpisodeStore.from_arrays(**columns, rewards=rewards, episode_ends=plain.episode_ends)


@pytest.fixture
def logs(tmp_path):
    """The same in N·m, in a file."""
    store = log()
    columns = {n: store.column(n) for n in ("observations", "next_observations", "rewards")}
    raw = EpisodeStore.from_arrays(
        **columns, actions=CARD.from_unit(np.asarray(store.actions)),
        episode_ends=store.episode_ends,
    )  # fmt: skip
    write_dataset(tmp_path / "log.h5", raw, CARD.to_metadata())
    return str(tmp_path / "log.h5")


def linear(low, high):
    """A controller of somebody's own, cut to its bounds."""
    weight = np.array([[5, 1, 0], [0, 0.3, 0.1]], np.float32)
    layers = layered([(weight, np.float32([0, 0.2]))], "relu")
    return ImportedPolicy(
        layers, Bounds(np.float32(low), np.float32(high)), activation="relu", squashed=False
    )


def test_the_policy_commands_in_the_units_of_the_logs(tmp_path):
    told = adapt(CONFIG, tmp_path / "told", log(), card=CARD, quiet=True)
    untold = adapt(CONFIG, tmp_path / "untold", log(), quiet=True)
    policy, shares = open_policy(told.policy), open_policy(untold.policy)
    commands = policy(OBS)
    np.testing.assert_allclose(commands, CARD.from_unit(shares(OBS)), atol=1e-5)
    assert np.ptp(commands[:, 0]) > 1.5  # more than [-1, 1] would be
    low, high = CARD.limits
    assert (commands >= low).all()
    assert (commands.astype(np.float64) <= high).all()
    assert policy.card == CARD
    assert shares.card is None
    export_onnx(policy, tmp_path / "p.onnx")
    notes = {item.key: item.value for item in onnx.load(tmp_path / "p.onnx").metadata_props}
    assert notes["action_names"] == '["tau0", "grip"]'
    assert (notes["action_low"], notes["action_high"]) == ("[-8.0, 0.0]", "[8.0, 0.7]")
    assert notes["control_rate_hz"] == "50.0"
    assert open_policy(tmp_path / "p.onnx").card == CARD


def test_a_source_policy_in_these_units_is_taken_as_shares_of_the_bounds(logs, tmp_path):
    linear([-8, 0], [8, 0.7]).save(tmp_path / "own.safetensors")
    found = known_inputs(CONFIG, [logs], str(tmp_path / "own.safetensors"))
    assert found.card == CARD
    assert found.policy is found.plain
    np.testing.assert_allclose(found.logs.actions, log().actions, atol=1e-6)
    wanted = CARD.to_unit(linear([-8, 0], [8, 0.7])(OBS))
    assert np.abs(wanted).max() == 1
    np.testing.assert_array_equal(found.policy(OBS), wanted)
    assert "bounds" in found.made_of
    linear([-1, -1], [1, 1]).save(tmp_path / "shares.safetensors")
    with pytest.raises(UsageError, match=r"gives actions in \[-1, 1\], its machine has tau0 in N"):
        known_inputs(CONFIG, [logs], str(tmp_path / "shares.safetensors"))


class Arm(gym.Env):
    """Notes what it is sent."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self, high=8.0):
        self.action_space = gym.spaces.Box(
            np.float32([-high, 0]), np.float32([high, 0.7]), dtype=np.float32
        )
        self.sent = []

    def reset(self, *, seed=None, options=None):
        return np.zeros(3), {}

    def step(self, action):
        self.sent.append(action)
        return np.zeros(3), 0.0, False, len(self.sent) % 5 == 0, {}


gym.register("UnitArm-v0", entry_point=Arm, max_episode_steps=5)


def test_a_machine_with_other_bounds_is_refused_before_it_moves(logs, tmp_path):
    config = AdaptConfig(
        live="arm", steps=4, offline_updates=3, batch_size=8, learner=CONFIG.learner
    )
    weak = Arm(high=4.0)
    with pytest.raises(UsageError, match="takes from -4 to 4 for what is tau0 in N·m from -8 to 8"):
        adapt(config, tmp_path / "x", log(), card=CARD, live=weak, quiet=True)
    assert not weak.sent
    arm = Arm()
    adapt(config, tmp_path / "y", log(), card=CARD, live=arm, quiet=True)
    assert len(arm.sent) == 4
    assert all(arm.action_space.contains(action) for action in arm.sent)
    known_inputs(AdaptConfig(task=Task("UnitArm-v0")), [logs])
    with pytest.raises(UsageError, match="takes from -4 to 4"):
        known_inputs(AdaptConfig(task=Task("UnitArm-v0", arguments={"high": 4.0})), [logs])
