"""Files that are no actor of stable-baselines3 or CleanRL, or worse: one line, and nothing runs."""

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from mcat.agents.policies.foreign.imported import ImportedPolicy
from mcat.agents.policies.foreign.others import import_policy
from mcat.agents.policies.foreign.state_dicts import read_saved
from mcat.agents.policies.policy import load_policy
from mcat.errors import DataError
from mcat.tensor_files import load_safetensors, save_safetensors
from tests.agents.policies.foreign.sb3_models import trained


@pytest.fixture(scope="module")
def td3(tmp_path_factory):
    path = tmp_path_factory.mktemp("td3") / "td3.zip"
    trained("TD3").save(path)
    return path


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"mean": np.zeros(3)}, "no .npz of mean and var"),
        ({"mean": np.zeros(2), "var": np.ones(2)}, "2 means and 2 variances of 3 numbers"),
        ({"mean": np.zeros(3), "var": -np.ones(3)}, "greater than zero"),
        ({"mean": np.zeros(3), "var": np.ones(3), "clip": 0.0}, "greater than zero"),
        ({"mean": np.full(3, np.nan), "var": np.ones(3)}, "finite"),
        ({"mean": np.array(["a"] * 3), "var": np.ones(3)}, "something else than numbers"),
        ({"mean": np.array([{}], object), "var": np.ones(3)}, "damaged"),
    ],
)
def test_a_scale_that_makes_no_sense_is_refused(arrays, message, td3, tmp_path):
    np.savez(tmp_path / "obs.npz", **arrays)
    with pytest.raises(DataError, match=message):
        import_policy(td3, normalize=tmp_path / "obs.npz")


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def archive(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, content in members.items():
            target.writestr(name, content)
    return buffer.getvalue()


def rewritten(path, change):
    """The zip at `path` with some of its members changed; None leaves one out."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members |= change(members)
    return archive({name: content for name, content in members.items() if content is not None})


def data(members, **changes):
    return {"data": json.dumps(json.loads(members["data"]) | changes)}


def test_pickles_that_do_something_are_refused_and_nothing_runs(td3, tmp_path):
    marker = tmp_path / "ran"
    payload = Payload(marker)
    state = {"actor.mu.0.weight": payload}
    evil = pickle.dumps(payload, protocol=2)
    files = {
        "in a tensor's place": saved(state),
        "beside tensors": saved({**nn.Linear(3, 2).state_dict(), "x": payload}),
        "as the whole": saved(payload),
        "whole module": saved(nn.Linear(3, 2)),
        "plain pickle": evil,
        "zip of one": archive({"archive/data.pkl": evil}),
        "in stable-baselines3": rewritten(td3, lambda _: {"policy.pth": saved(state)}),
    }
    for name, content in files.items():
        (tmp_path / "model.zip").write_bytes(content)
        with pytest.raises(DataError) as caught:
            import_policy(tmp_path / "model.zip")
        assert not marker.exists(), name
        assert "\n" not in str(caught.value)
    # The pickled fields of stable-baselines3's own data are never opened.
    poisoned = rewritten(td3, lambda m: data(m, policy_class={":serialized:": evil.hex()}))
    (tmp_path / "model.zip").write_bytes(poisoned)
    import_policy(tmp_path / "model.zip")
    assert not marker.exists()


def tensor_pickle(key="0", count=4, offset=0, shape=(2, 2), strides=(2, 1), kind="FloatStorage"):
    """A pickle of one tensor as torch writes it, with whatever sizes."""

    class Saved:
        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (
                self, offset, shape, strides, False, OrderedDict()
            )  # fmt: skip

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if isinstance(value, Saved) and self.first:
                self.first = False
                return None
            if isinstance(value, Saved):
                return ("storage", getattr(torch, kind), key, "cpu", count)
            return None

    buffer = io.BytesIO()
    pickler = Pickler(buffer, protocol=2)
    pickler.first = True
    pickler.dump(Saved())
    return archive({"a/data.pkl": buffer.getvalue(), "a/data/0": np.arange(4.0, dtype="<f4").data})


def test_tensors_beyond_their_numbers_are_refused():
    assert read_saved(tensor_pickle(), "x").tolist() == [[0, 1], [2, 3]]
    for wrong in (
        {"shape": (2, 3)},
        {"offset": 1},
        {"strides": (2, 2)},
        {"strides": (-1, 1)},
        {"shape": (10**9, 10**9), "strides": (0, 0)},
        {"count": 5},
        {"key": "../1"},
        {"kind": "ByteStorage"},
        {"shape": (2.0, 2)},
        {"shape": (2,)},
    ):
        with pytest.raises(DataError):
            read_saved(tensor_pickle(**wrong), "x")


def test_damage_anywhere_is_tensors_or_one_line():
    rng = np.random.default_rng(0)
    content = saved(nn.Linear(3, 2).state_dict())
    with zipfile.ZipFile(io.BytesIO(content)) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    (name,) = [name for name in members if name.endswith("data.pkl")]
    told = []
    for number in range(300):  # of the instructions, or of the zip around them
        mutant = np.frombuffer(members[name] if number % 2 else content, np.uint8).copy()
        mutant[rng.integers(len(mutant))] ^= rng.integers(1, 256, dtype=np.uint8)
        damaged = mutant.tobytes()
        try:
            read_saved(archive(members | {name: damaged}) if number % 2 else damaged, "x")
        except DataError as error:
            told.append(str(error))
    assert 100 < len(told) < 300
    assert not any("\n" in line for line in told)


def test_a_zip_that_unpacks_to_too_much_is_refused(monkeypatch, td3, tmp_path):
    monkeypatch.setattr("mcat.agents.policies.foreign.state_dicts.MAX_BYTES", 100)
    with pytest.raises(DataError, match="more than 100 bytes"):
        import_policy(td3)


REFUSED = {
    "no actor": (lambda m: {"policy.pth": saved({"a": torch.zeros(2)})}, "no actor"),
    "no tensors": (lambda m: {"policy.pth": saved({"a": 1})}, "no dictionary of tensors"),
    "no policy": (lambda m: {"policy.pth": None}, "not a file of torch.save"),
    "sde": (lambda m: data(m, use_sde=True), "use_sde"),
    "activation": (
        lambda m: data(m, policy_kwargs={"activation_fn": "<class 'x.Sine'>"}),
        "its activation is",
    ),
    "unbounded": (
        lambda m: data(m, action_space={"low": "[-inf]", "high": "[inf]"}),
        "say them by --bounds",
    ),
    "no bounds": (lambda m: data(m, action_space={"low": "[]"}), "say them by --bounds"),
    "no json": (lambda m: {"data": b"{"}, "JSON"),
    "images": (
        lambda m: {"policy.pth": saved({"actor.mu.0.weight": torch.zeros(1, 3),
                                        "actor.features_extractor.cnn.0.weight": torch.ones(1)})},
        "no actor",
    ),
    "norm": (
        lambda m: {"policy.pth": saved({"actor.mu.0.weight": torch.zeros(4, 3),
                                        "actor.mu.0.bias": torch.zeros(4),
                                        "actor.mu.1.weight": torch.zeros(4)})},
        "other layers",
    ),
    "misfit": (
        lambda m: {"policy.pth": saved({"actor.mu.0.weight": torch.zeros(4, 3),
                                        "actor.mu.0.bias": torch.zeros(4),
                                        "actor.mu.2.weight": torch.zeros(1, 5),
                                        "actor.mu.2.bias": torch.zeros(1)})},
        "'actor.mu.2' is no linear layer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_such_actor_is_told_in_one_line(name, td3, tmp_path):
    change, message = REFUSED[name]
    (tmp_path / "model.zip").write_bytes(rewritten(td3, change))
    with pytest.raises(DataError) as caught:
        import_policy(tmp_path / "model.zip")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_discrete_actions_are_refused(tmp_path):
    trained("PPO", "CartPole-v1").save(tmp_path / "cart.zip")
    with pytest.raises(DataError, match="continuous actions"):
        import_policy(tmp_path / "cart.zip")


@pytest.mark.parametrize(
    "change",
    [
        {"activation": "sine"},
        {"squashed": 1},
        {"sizes": [3, 16, 1]},
        {"sizes": [3, 10**9, 1]},
        {"sizes": "many"},
        {"format": 9},
    ],
)
def test_headers_that_make_no_sense_are_refused(change, td3, tmp_path):
    import_policy(td3).save(tmp_path / "good.safetensors")
    arrays, header = load_safetensors(tmp_path / "good.safetensors")
    save_safetensors(tmp_path / "bad.safetensors", arrays, header | change)
    with pytest.raises(DataError, match=r"header|format"):
        ImportedPolicy.load(tmp_path / "bad.safetensors")
    with pytest.raises(DataError, match="not a policy"):  # nor is it one of ours
        load_policy(tmp_path / "good.safetensors")
