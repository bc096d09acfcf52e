"""Actors of stable-baselines3 and CleanRL: the same actions, and no pickle is ever run."""

import io
from collections import OrderedDict
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from mcat.agents.policies.foreign.imported import ImportedPolicy
from mcat.agents.policies.foreign.others import import_policy
from mcat.agents.policies.foreign.state_dicts import read_saved
from mcat.agents.policies.names import find_policy, open_policy
from mcat.datasets import Card, Channel
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError
from tests.agents.policies.foreign.sb3_models import trained

OBS = np.random.default_rng(0).normal(0, 2, (200, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("TD3", {}),
        ("SAC", {}),
        ("PPO", {}),
        ("DDPG", {}),
        ("A2C", {"policy_kwargs": {"activation_fn": nn.ReLU}}),
        ("SAC", {"policy_kwargs": {"activation_fn": nn.ELU}}),
        ("PPO", {"net": ()}),
        ("PPO", {"net": (8,)}),
    ],
)
def test_actions_are_those_of_predict(name, settings, tmp_path):
    model = trained(name, **settings)
    model.save(tmp_path / "model.zip")
    policy = import_policy(tmp_path / "model.zip")
    wanted, _ = model.predict(OBS, deterministic=True)
    assert np.ptp(wanted) > 1e-3
    np.testing.assert_allclose(policy(OBS), wanted, atol=1e-6)
    np.testing.assert_allclose(policy(OBS[7]), wanted[7], atol=1e-6)
    assert str(policy.bounds) == "[-2, 2]"
    policy.save(tmp_path / "p.safetensors")
    again = open_policy(tmp_path / "p.safetensors")
    assert np.array_equal(again(OBS), policy(OBS))
    assert again.sha256 == policy.sha256
    assert again.metadata["from"].startswith("stable-baselines3")


def test_bounds_of_each_action_are_its_own(tmp_path):
    class Arm(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,))
        action_space = gym.spaces.Box(np.float32([-0.1, -3]), np.float32([0.7, 1 / 3]))

        def reset(self, **options):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return self.observation_space.sample(), 0.0, False, True, {}

    for name in ("SAC", "PPO"):
        model = trained(name, Arm())
        model.save(tmp_path / "arm.zip")
        policy = import_policy(tmp_path / "arm.zip")
        wanted, _ = model.predict(OBS, deterministic=True)
        np.testing.assert_allclose(policy(OBS), wanted, atol=1e-6)
        assert str(policy.bounds) == "[-3, 0.7], some of them less"


def test_observations_are_scaled_as_by_vecnormalize(tmp_path):
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(make_vec_env("Pendulum-v1", 1), clip_obs=1.5)
    model = trained("PPO", env)
    model.save(tmp_path / "ppo.zip")
    env.save(tmp_path / "env.pkl")
    rms = env.obs_rms
    np.savez(tmp_path / "obs.npz", mean=rms.mean, var=rms.var, clip=env.clip_obs)
    policy = import_policy(tmp_path / "ppo.zip", normalize=tmp_path / "obs.npz")
    wanted, _ = model.predict(env.normalize_obs(OBS), deterministic=True)
    np.testing.assert_allclose(policy(OBS), wanted, atol=1e-6)
    plain = import_policy(tmp_path / "ppo.zip")
    assert np.abs(plain(OBS) - wanted).max() > 1e-2
    policy.save(tmp_path / "p.safetensors")
    assert np.array_equal(ImportedPolicy.load(tmp_path / "p.safetensors")(OBS), policy(OBS))
    with pytest.raises(DataError, match="VecNormalize is a pickle, which is never loaded"):
        import_policy(tmp_path / "ppo.zip", normalize=tmp_path / "env.pkl")


# --- CleanRL ------------------------------------------------------------------------------------


class SACActor(nn.Module):
    """The names and the forward pass of CleanRL's SAC; its TD3 has fc_mu in place of fc_mean."""

    def __init__(self, last="fc_mean"):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 16), nn.Linear(16, 8)
        self.last = last
        setattr(self, last, nn.Linear(8, 2))
        self.register_buffer("action_scale", torch.tensor([[2.0, 0.5]]))
        self.register_buffer("action_bias", torch.tensor([[0.0, 0.25]]))

    def forward(self, x):
        x = torch.relu(self.fc2(torch.relu(self.fc1(x))))
        return torch.tanh(getattr(self, self.last)(x)) * self.action_scale + self.action_bias


class PPOAgent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.actor_mean = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def forward(self, x):
        return self.actor_mean(x).clamp(-1, 1)  # as the environment's ClipAction does


@pytest.mark.parametrize("wrap", ["alone", "tuple", "dict", "compiled"])
@pytest.mark.parametrize("make", [SACActor, lambda: SACActor("fc_mu"), PPOAgent])
def test_state_dicts_of_cleanrl(make, wrap, tmp_path):
    torch.manual_seed(0)
    actor = make()
    state = actor.state_dict()
    critic = nn.Sequential(nn.Linear(5, 1)).state_dict()
    saved = {
        "alone": state,
        "tuple": (state, critic, critic),
        "dict": {"qf1": critic, "actor": state, "step": 12},
        "compiled": OrderedDict((f"_orig_mod.{k}", v) for k, v in state.items()),
    }[wrap]
    torch.save(saved, tmp_path / "agent.cleanrl_model")
    policy = import_policy(tmp_path / "agent.cleanrl_model")
    wanted = actor(torch.from_numpy(OBS)).detach().numpy()
    np.testing.assert_allclose(policy(OBS), wanted, atol=1e-6)
    assert policy.metadata["from"].startswith("CleanRL")


def test_what_the_file_does_not_tell_can_be_said(tmp_path):
    torch.manual_seed(0)
    agent = PPOAgent()
    torch.save(agent.state_dict(), tmp_path / "agent.pt")
    policy = import_policy(tmp_path / "agent.pt", bounds=(-0.1, 0.3), activation="relu")
    first, _, last = agent.actor_mean
    out = last(torch.relu(first(torch.from_numpy(OBS)))).clamp(-0.1, 0.3)
    np.testing.assert_allclose(policy(OBS), out.detach().numpy(), atol=1e-6)
    with pytest.raises(UsageError, match="unknown activation 'sine'"):
        import_policy(tmp_path / "agent.pt", activation="sine")
    for bounds in ((1.0, -1.0), (0.0, float("inf"))):
        with pytest.raises(UsageError, match="bounds must be"):
            import_policy(tmp_path / "agent.pt", bounds=bounds)


@pytest.mark.parametrize("make", [SACActor, PPOAgent])
def test_a_policy_in_unit_actions_is_stretched_to_the_bounds_of_its_machine(make, tmp_path):
    torch.manual_seed(0)
    actor = make()
    if isinstance(actor, SACActor):
        actor.action_scale.fill_(1.0)
        actor.action_bias.fill_(0.0)
    torch.save(actor.state_dict(), tmp_path / "agent.pt")
    policy = import_policy(tmp_path / "agent.pt")
    card = Card(
        observations=tuple(Channel(name, "rad") for name in ("q", "dq", "i")),
        actions=(Channel("tau", "N·m", -8, 8), Channel("grip", "", 0, 0.7)),
        rate_hz=50,
    )
    far = 3 * OBS  # where PPO's actions are cut
    told = policy.on(card)
    np.testing.assert_allclose(told(far), card.from_unit(policy(far)), atol=1e-5)
    assert (told(far).astype(np.float64) <= card.limits.high).all()
    told.save(tmp_path / "p.safetensors")
    assert open_policy(tmp_path / "p.safetensors").card == card
    assert np.array_equal(told.on(card)(far), told(far))  # once is enough
    other = replace(card, actions=(Channel("tau", "N·m", -5, 5), card.actions[1]))
    with pytest.raises(UsageError, match=r"in \[-8, 8\], some of them less, its machine has tau"):
        told.on(other)
    with pytest.raises(UsageError, match="3 observations and 2 actions, the machine 3 and 1"):
        policy.on(replace(card, actions=card.actions[:1]))


def test_tensors_are_read_as_torch_wrote_them(tmp_path):
    whole = torch.arange(24.0).reshape(4, 6)
    values = {
        "transposed": whole.T,
        "part": whole[1:3, 2:],
        "double": torch.tensor([1.5, 2.5], dtype=torch.float64),
        "half": torch.tensor([0.5], dtype=torch.float16),
        "parameter": nn.Parameter(torch.ones(2)),
        "count": torch.tensor(3),
        "empty": torch.zeros(0, 3),
    }
    buffer = io.BytesIO()
    torch.save({**values, "settings": [1, 2.5, None, True, ("a",)]}, buffer)
    found = read_saved(buffer.getvalue(), "x")
    assert found.pop("settings") == [1, 2.5, None, True, ("a",)]
    for name, value in values.items():
        assert np.array_equal(found[name], value.detach().numpy()), name
        assert found[name].shape == tuple(value.shape)


def test_it_is_a_policy_wherever_one_is_taken(tmp_path):
    model = trained("SAC", "Hopper-v5")
    model.save(tmp_path / "hopper.zip")
    import_policy(tmp_path / "hopper.zip").save(tmp_path / "hopper.safetensors")
    name, rng = str(tmp_path / "hopper.safetensors"), np.random.default_rng(0)
    obs = rng.normal(size=(5, 11)).astype(np.float32)
    wanted, _ = model.predict(obs, deterministic=True)
    np.testing.assert_allclose(find_policy(name, Task("hopper"), rng)(obs), wanted, atol=1e-6)
    with pytest.raises(UsageError, match="does not fit ant"):
        find_policy(name, Task("ant"), rng)
    wide = import_policy(tmp_path / "hopper.zip", bounds=(-2, 2))
    wide.save(tmp_path / "wide.safetensors")
    with pytest.raises(UsageError, match=r"actions in \[-2, 2\] and does not fit hopper"):
        find_policy(str(tmp_path / "wide.safetensors"), Task("hopper"), rng)
