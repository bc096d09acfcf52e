"""Policy files: exact, self-describing, and harmless whoever made them."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mcat.agents.configs import TD3Config
from mcat.agents.policies import names as policy_names
from mcat.agents.policies.names import find_policy, packaged_policies
from mcat.agents.policies.policy import load_policy, save_policy
from mcat.agents.td3 import TD3
from mcat.envs.tasks import Task
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.tensor_files import load_safetensors, save_safetensors

TASK = Task("halfcheetah", armature=0.1)
OBS = np.random.default_rng(0).standard_normal((5, 17))


def make_agent(seed: int = 0, obs: int = 17, act: int = 6) -> TD3:
    config = TD3Config(hidden=(16, 12))
    return TD3(obs, act, config, torch.Generator().manual_seed(seed))


def save(path: Path, task: Task = TASK, agent: TD3 | None = None) -> Path:
    save_policy(path, (agent or make_agent()).actor, task, {"step": 80_000, "mean_return": 12.5})
    return path


def test_a_policy_comes_back_bit_for_bit(tmp_path):
    agent = make_agent()
    policy = load_policy(save(tmp_path / "policy.safetensors", agent=agent))
    for found, own in zip(policy.actor.layers, agent.actor.layers, strict=True):
        assert torch.equal(found, own)
    assert np.array_equal(policy(OBS), agent.act(OBS))
    assert policy(OBS).shape == (5, 6)
    assert policy.task == TASK
    assert policy.metadata["step"] == 80_000
    assert policy.metadata["mean_return"] == 12.5


def test_layers_are_those_of_torch_linear_so_anyone_can_use_the_file(tmp_path):
    arrays, header = load_safetensors(save(tmp_path / "policy.safetensors"))
    layers: list[nn.Module] = []
    for index in range(len(header["actor_sizes"]) - 1):
        weight = torch.from_numpy(arrays[f"actor.{index}.weight"][0])
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict(
            {"weight": weight, "bias": torch.from_numpy(arrays[f"actor.{index}.bias"][0, 0])}
        )
        layers += [layer, nn.ReLU()]
    foreign = nn.Sequential(*layers[:-1], nn.Tanh())
    expected = load_policy(tmp_path / "policy.safetensors")(OBS)
    found = foreign(torch.from_numpy(OBS.astype(np.float32))).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def hostile_files(marker: Path) -> dict[str, bytes]:
    payload = Payload(marker)
    saved, legacy, arrays, zipped = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save({"actor": payload}, saved)
    torch.save({"actor": payload}, legacy, _use_new_zipfile_serialization=False)
    np.savez(arrays, actor=np.array([payload], dtype=object))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("data", pickle.dumps(payload))
    pickled = pickle.dumps(payload)
    return {
        "pickle": pickled,
        "pickle protocol 0": pickle.dumps(payload, protocol=0),
        "torch zip": saved.getvalue(),
        "torch legacy": legacy.getvalue(),
        "npz": arrays.getvalue(),
        "zip": zipped.getvalue(),
        "yaml": f"!!python/object/apply:os.mkdir ['{marker}']".encode(),
        "pickle behind a header": len(pickled).to_bytes(8, "little") + pickled,
        "empty": b"",
        "huge header": (2**60).to_bytes(8, "little") + b"{}",
    }


def test_pickles_and_other_payloads_are_refused_and_nothing_runs(tmp_path):
    marker = tmp_path / "ran"
    for name, content in hostile_files(marker).items():
        path = tmp_path / "policy.safetensors"
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            load_policy(path)
        assert not marker.exists(), name
        assert caught.value.exit_code == 65
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "checkpoint"}, "not a policy"),
        ({"format": 99}, "format 99"),
        ({"format": 99, "mcat": "9.9"}, r"needs mcat >= 9\.9"),
        ({"format": True}, "does not read"),
        ({"actor_sizes": [17, 16, 6]}, "actor.0|actor.1"),
        ({"actor_sizes": "many"}, "header"),
        ({"actor_sizes": [17, 10**9, 6]}, "header"),
        ({"actor_sizes": []}, "header"),
        ({"task": {"robot": "submarine"}}, "submarine"),
        ({"task": ["os:mkdir"]}, "header"),
    ],
)
def test_headers_that_make_no_sense_are_refused(tmp_path, change, message):
    arrays, header = load_safetensors(save(tmp_path / "good.safetensors"))
    save_safetensors(tmp_path / "bad.safetensors", arrays, header | change)
    with pytest.raises(DataError, match=message):
        load_policy(tmp_path / "bad.safetensors")


def test_what_it_cannot_act_on_is_named(tmp_path):
    policy = load_policy(save(tmp_path / "policy.safetensors"))
    assert np.array_equal(policy(OBS[2]), policy(OBS[2:3])[0])
    assert policy(OBS[2]).shape == (6,)
    for wrong in (np.zeros(16), np.zeros((1, 16)), np.zeros((1, 1, 17)), "sensors"):
        with pytest.raises(UsageError, match="observations must"):
            policy(wrong)
    with pytest.raises(DataError, match=r"observation \[3\] is nan"):
        policy(np.where(np.arange(17) == 3, np.nan, 0.0))


def test_a_policy_with_nan_is_not_saved(tmp_path):
    agent = make_agent()
    agent.actor.layers[0].data[0, 0, 3] = float("nan")
    with pytest.raises(DataError, match="NaN"):
        save(tmp_path / "policy.safetensors", agent=agent)
    assert list(tmp_path.iterdir()) == []


def test_names_mean_policies(tmp_path, monkeypatch):
    monkeypatch.setattr(policy_names, "PACKAGED", tmp_path)
    for level, seed in (("good", 1), ("mediocre", 2)):
        name = f"{TASK.label('armature')}-{level}.safetensors"
        save(tmp_path / name, agent=make_agent(seed))
    listed = packaged_policies()
    assert [(p.task, p.level, p.step, p.mean_return) for p in listed] == [
        (TASK, "good", 80_000, 12.5),
        (TASK, "mediocre", 80_000, 12.5),
    ]
    rng = np.random.default_rng(0)
    for level, seed in (("good", 1), ("mediocre", 2)):
        found = find_policy(level, TASK.replace(delay=500, horizon=20), rng)
        assert np.array_equal(found(OBS), make_agent(seed).act(OBS))
    by_path = find_policy(str(listed[0].path), Task("halfcheetah", armature=0.5), rng)
    assert np.array_equal(by_path(OBS), make_agent(1).act(OBS))


def test_random_actions_come_from_the_generator_that_was_given():
    first, second = (find_policy("random", TASK, np.random.default_rng(3))(OBS) for _ in range(2))
    assert first.shape == (5, 6)
    assert np.array_equal(first, second)
    assert np.abs(first).max() <= 1
    assert first.std() > 0.3


def test_scripted_policies_are_found():
    task = Task("push")
    action = find_policy("scripted", task, np.random.default_rng(0))(
        np.zeros((3, task.spec.observation_size))
    )
    assert action.shape == (3, task.spec.action_size)


@pytest.mark.parametrize("task", [Task("push"), Task("reach-hand", goal=(0.1, 0.8, 0.2))])
def test_a_script_of_other_sizes_is_refused(task):
    other = "reach-hand" if task.robot == "push" else "push"
    with pytest.raises(UsageError, match=rf"policy scripted:{other} does not fit {task.label()}"):
        find_policy(f"scripted:{other}", task, np.random.default_rng(0))


def test_what_cannot_be_found_is_said_in_one_line(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(policy_names, "PACKAGED", tmp_path)
    with pytest.raises(UsageError, match=r"no packaged good policy for halfcheetah.*mcat train"):
        find_policy("good", TASK, rng)
    with pytest.raises(UsageError, match="unknown policy or file 'goood': did you mean good"):
        find_policy("goood", TASK, rng)
    path = save(tmp_path / "cheetah-good.safetensors")
    with pytest.raises(UsageError, match=r"does not fit ant.*17 observations"):
        find_policy(str(path), Task("ant"), rng)
    with pytest.raises(MissingInputError):
        load_policy(tmp_path / "nothing.safetensors")


def test_every_packaged_policy_loads_and_fits_its_task():
    for entry in packaged_policies():
        policy = load_policy(entry.path)
        spec = policy.task.spec
        assert entry.level in policy_names.LEVELS
        assert (policy.actor.sizes[0], policy.actor.sizes[-1]) == (
            spec.observation_size,
            spec.action_size,
        )
        assert json.dumps(policy.metadata["versions"])
        assert policy.metadata["command"].startswith("mcat train")
