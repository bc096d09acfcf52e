"""Units and bounds go through translation and back, and no command leaves its bounds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import Card, Channel, EpisodeStore, write_dataset
from mcat.errors import DataError, UsageError
from mcat.tensor_files import load_safetensors, save_safetensors
from mcat.transfer.logs import load_logs, require_same_units
from mcat.translator import ActionConfig, ContextConfig, TransferredPolicy, Translator, fit_pair
from tests.transfer.transfer_logs import own_robot


def card_of(low, high, unit="N·m", names=("q", "dq", "i")):
    sides = enumerate(zip(low, high, strict=True))
    return Card(
        observations=tuple(Channel(name, "rad") for name in names),
        actions=tuple(Channel(f"tau{number}", unit, *side) for number, side in sides),
        rate_hz=50,
    )


A, B = card_of([-8, 0], [8, 2]), card_of([-0.1, -300], [0.7, 100])


def in_units(store, card):
    """The log of a machine whose actions are in units of its own."""
    columns = {name: store.column(name) for name in ("observations", "next_observations")}
    actions = card.from_unit(np.asarray(store.actions))
    return EpisodeStore.from_arrays(**columns, actions=actions, episode_ends=store.episode_ends)


@pytest.fixture(scope="module")
def translator():
    return fit_pair(
        own_robot(0), own_robot(1), quiet=True,
        context=ContextConfig(encoder_hidden=(8,), forward_hidden=(8,), max_steps=50),
        action=ActionConfig(hidden=(8,), embedding=8, steps=50),
    )  # fmt: skip


def test_scaling_by_hand():
    assert A.to_unit([[0, 0], [8, 1], [-8, 2]]).tolist() == [[0, -1], [1, 0], [-1, 1]]
    assert A.from_unit(np.float32([[0, -1], [1, 0]])).tolist() == [[0, 0], [8, 1]]
    assert A.scaled
    assert not card_of([-1, -1], [1, 1]).scaled


@pytest.mark.parametrize("card", [A, B])
def test_there_and_back(card):
    unit = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)
    assert card.to_unit(card.from_unit(unit)) == pytest.approx(unit, abs=1e-6)


def test_bounds_of_one_are_not_touched_to_the_bit():
    card = card_of([-1, -1], [1, 1])
    actions = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)
    assert (card.to_unit(actions) == actions).all()
    assert (card.from_unit(actions) == actions).all()


def test_a_translator_speaks_the_units_of_its_machines(translator):
    obs = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    share = np.random.default_rng(2).uniform(-1, 1, (200, 2)).astype(np.float32)
    plain = translator.with_cards().translate(obs, share)
    told = translator.with_cards(A, B).translate(obs, A.from_unit(share))
    assert told == pytest.approx(B.from_unit(plain), rel=1e-4, abs=1e-4)
    one = translator.translate(obs[0], A.from_unit(share)[0])
    assert one == pytest.approx(told[0], rel=1e-5)


def test_no_command_leaves_the_bounds(translator):
    """Not by the last bit: 0.7 and -0.1 have no float32 of their own."""
    moved = translator.with_cards(A, B)
    with_limits = TransferredPolicy(lambda obs: np.clip(obs[:, :2] * 100, [-8, 0], [8, 2]), moved)
    obs = np.random.default_rng(0).standard_cauchy((5000, 3)).astype(np.float32) * 50
    actions = with_limits(obs).astype(np.float64)
    low, high = B.limits
    assert (actions >= low).all()
    assert (actions <= high).all()
    assert (np.ptp(actions, axis=0) > 0.5 * (high - low)).all()  # it does go there


def test_a_policy_in_other_units_is_refused(translator):
    moved = translator.with_cards(A, B)
    with pytest.raises(UsageError, match=r"9 for tau0 in N·m from -8 to 8"):
        moved.translate(np.zeros((1, 3)), [[9, 1]])

    class InShares:
        class bounds:
            within_unit = True

        def __call__(self, obs):
            return obs[:, :2]

    with pytest.raises(UsageError, match=r"in \[-1, 1\], its machine has tau0"):
        TransferredPolicy(InShares(), moved)
    with pytest.raises(UsageError, match="other machines"):
        translator.with_cards(A, card_of([0], [1]))


def test_the_file_keeps_them_and_damage_is_no_bound(translator, tmp_path):
    path = tmp_path / "t.safetensors"
    translator.with_cards(A, B).save(path)
    found = Translator.load(path)
    assert found.cards == (A, B)
    obs, action = np.ones((4, 3), np.float32), A.from_unit(np.zeros((4, 2), np.float32))
    assert (found.translate(obs, action) == translator.translate(obs, action)).all()
    arrays, header = load_safetensors(path)
    assert header["format"] == 3  # which earlier versions refuse
    for spoil in ({"action_high": [0.7, "x"]}, {"action_low": [9, 9]}, {"action_names": ["a"]}):
        cards = [header["cards"][0], header["cards"][1] | spoil]
        save_safetensors(path, arrays, header | {"cards": cards}, overwrite=True)
        with pytest.raises(DataError):
            Translator.load(path)
    translator.with_cards().save(path, overwrite=True)
    assert load_safetensors(path)[1]["format"] == 2
    assert Translator.load(path).cards == ()


@pytest.fixture
def logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, number, card in (("a", 0, A), ("b", 1, B)):
        write_dataset(f"{name}.h5", in_units(own_robot(number), card), card.to_metadata())
    return tmp_path


def test_logs_are_scaled_on_the_way_in(logs):
    found = load_logs(["b.h5"], history=5)
    assert found.card == B
    wanted = np.asarray(own_robot(1).actions)
    assert np.asarray(found.episodes.actions) == pytest.approx(wanted, abs=1e-5)
    assert found.observation_names == ("q", "dq", "i")


def test_from_logs_in_units_to_onnx_that_keeps_them(logs, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    import torch

    from mcat.agents.policies.foreign.imported import Bounds, ImportedPolicy, layered

    code = run(
        [
            "translate",
            "--src",
            "a.h5",
            "--tgt",
            "b.h5",
            "--preset",
            "smoke",
            "--episodes",
            "0",
            "--quiet",
        ]
    )
    assert code == 0
    page = (logs / "a-to-b" / "report.html").read_text()
    assert "<td>dq</td>" in page
    assert "<td>tau1</td>" in page
    assert (
        "-1 and 1 are the bounds: a has tau0 in N·m from -8 to 8, tau1 in N·m from 0 to 2;" in page
    )
    torch.manual_seed(0)
    weights = [(torch.randn(2, 3).numpy() * 9, np.zeros(2, np.float32))]
    policy = ImportedPolicy(
        layered(weights, "relu"), Bounds(np.float32([-8, 0]), np.float32([8, 2])),
        activation="relu", squashed=False,
    )  # fmt: skip
    policy.save("pd.safetensors")
    capsys.readouterr()
    code = run(["export", "onnx", "pd.safetensors", "--translator", "a-to-b", "--out", "b.onnx"])
    assert code == 0, capsys.readouterr().err
    session = onnxruntime.InferenceSession("b.onnx")
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["action_low"]) == [-0.1, -300]
    assert json.loads(told["action_units"]) == ["N·m", "N·m"]
    assert json.loads(told["observation_names"]) == ["q", "dq", "i"]
    assert json.loads(told["control_rate_hz"]) == 50
    obs = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32) * 3
    (actions,) = session.run(["action"], {"observation": obs})
    ours = TransferredPolicy(policy, "a-to-b")(obs)
    assert actions == pytest.approx(ours, rel=1e-4, abs=1e-3)
    assert (actions.astype(float) >= B.limits.low).all()
    assert (actions.astype(float) <= B.limits.high).all()


def test_observations_in_other_units_or_orders_are_refused(logs):
    store = in_units(own_robot(1), B)
    degrees = B.to_metadata() | {"observation_units": ["deg", "rad", "rad"]}
    write_dataset("deg.h5", store, degrees)
    swapped = B.to_metadata() | {"observation_names": ["dq", "q", "i"]}
    write_dataset("swapped.h5", store, swapped)
    for name, message in (("deg", "q is in rad in a.h5, q in deg in deg.h5"), ("swapped", "order")):
        with pytest.raises(DataError, match=message):
            require_same_units([load_logs([f], history=5) for f in ("a.h5", f"{name}.h5")])
    with pytest.raises(DataError, match="one machine"):
        load_logs(["b.h5", "deg.h5"], history=5)


def test_without_bounds_the_way_out_is_named(logs):
    write_dataset("plain.h5", in_units(own_robot(0), A), {})
    with pytest.raises(DataError, match=r"outside \[-1, 1\]: .*--bounds"):
        load_logs(["plain.h5"], history=5)
