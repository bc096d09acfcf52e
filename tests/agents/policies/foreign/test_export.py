"""Policies become ONNX files that do the same, or no file at all."""

import json

import numpy as np
import onnx
import pytest

from mcat.agents.policies.foreign import drawing, export
from mcat.agents.policies.foreign.export import MismatchError, export_onnx
from mcat.agents.policies.foreign.onnx_policy import load_onnx
from mcat.agents.policies.names import packaged_policies
from mcat.agents.policies.policy import load_policy
from mcat.errors import CannotCreateError, UsageError
from mcat.robot import Guard
from mcat.translator.policy import TransferredPolicy
from mcat.types import started
from tests.agents.policies.foreign import made

RNG = np.random.default_rng(0)


def notes(path):
    return {item.key: item.value for item in onnx.load(path).metadata_props}


SOURCES = {
    "policy": made.policy(),
    "tanh": made.imported(),
    "relu, scaled": made.imported(activation="relu", scaled=True, low=-2.0, high=0.5),
    "elu, cut": made.imported(activation="elu", squashed=False, low=-0.1, high=0.2),
    "silu": made.imported(activation="silu"),
    "leaky": made.imported(activation="leakyrelu"),
    "one layer": made.imported(sizes=(3, 2)),
    **{
        f"translated, {name}": TransferredPolicy(made.policy(sizes=(3, 8, 2)), translator)
        for name, translator in made.translators().items()
    },
    "imported and translated": TransferredPolicy(made.imported(), made.translators()["pair"]),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_file_acts_as_the_policy_does(name, tmp_path):
    policy = SOURCES[name]
    agreement = export_onnx(policy, tmp_path / "p.onnx")
    assert agreement.usual < 1e-5
    loaded = load_onnx(tmp_path / "p.onnx")
    obs = RNG.normal(1, 2, (50, loaded.observation_size)).astype(np.float32)
    wanted = policy(obs)
    assert np.ptp(wanted) > 0.1  # else any constant would do
    np.testing.assert_allclose(loaded(obs), wanted, atol=1e-5)
    np.testing.assert_allclose(loaded(obs[3]), wanted[3], atol=1e-5)


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_a_memory_is_handed_from_step_to_step(averaged, activation, tmp_path):
    policy = made.context_policy(averaged=averaged, activation=activation)
    export_onnx(policy, tmp_path / "p.onnx")
    loaded = load_onnx(tmp_path / "p.onnx")
    for rows in (4, 1):  # the second episode starts with an empty memory again
        one, other = started(policy), started(loaded)
        for obs in np.cumsum(RNG.normal(0, 0.4, (60, rows, made.OBS)), 0):
            np.testing.assert_allclose(other(obs), one(obs), atol=1e-5)


def test_the_memory_is_as_the_metadata_says(tmp_path):
    """By hand, as the program of a robot would: nothing but names and zeros from the file."""
    import onnxruntime

    policy = made.context_policy(averaged=True)
    export_onnx(policy, tmp_path / "p.onnx")
    told = notes(tmp_path / "p.onnx")
    assert "zero at the first step" in told["memory_rule"]
    memory = json.loads(told["memory"])
    names = [item["in"] for item in memory]
    assert names == ["last_observation_in", "last_action_in", "changes_in", "actions_in",
                     "steps_in", "context_sum_in"]  # fmt: skip
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx")
    kept = {item["in"]: np.zeros((1, *item["shape"]), np.float32) for item in memory}
    acting = policy.start_episode()
    for step in range(6):
        obs = RNG.normal(size=(1, made.OBS)).astype(np.float32)
        action, *rest = session.run(
            ["action", *(item["out"] for item in memory)], {"observation": obs, **kept}
        )
        np.testing.assert_allclose(action, acting(obs), atol=1e-5)
        kept = dict(zip(names, rest, strict=True))
        if step == 2:  # the motors did something else
            done = np.full((1, made.ACT), 0.25, np.float32)
            acting.took(done)
            kept["last_action_in"] = done
    assert kept["steps_in"].tolist() == [[6.0]]


def test_it_says_what_its_numbers_are(tmp_path):
    about = {"control_rate_hz": 50.0, "observation_names": ["q", "dq", "tau"], "family": "arms"}
    export_onnx(made.imported(low=-2.0, high=0.5), tmp_path / "p.onnx", about=about)
    told = notes(tmp_path / "p.onnx")
    assert json.loads(told["action_low"]) == [-2.0, -2.0]
    assert json.loads(told["action_high"]) == [0.5, 0.5]
    assert (told["observation_size"], told["action_size"]) == ("3", "2")
    assert (told["control_rate_hz"], told["family"]) == ("50.0", "arms")
    assert json.loads(told["observation_names"]) == ["q", "dq", "tau"]
    assert json.loads(told["memory"]) == []
    model = onnx.load(tmp_path / "p.onnx")
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 17)]
    loaded = load_onnx(tmp_path / "p.onnx")
    assert loaded.bounds.high.tolist() == [0.5, 0.5]
    assert [str(channel) for channel in loaded.card.observations] == ["q", "dq", "tau"]
    guard = Guard(loaded, loaded.card, slew=5)  # the file is all that a robot needs
    assert np.abs(guard([1.0, 2.0, 3.0])).max() <= 0.1 + 1e-7  # 5 a second at 50 Hz


def test_equal_policies_give_equal_bytes(tmp_path):
    for name in ("a.onnx", "b.onnx"):
        export_onnx(made.policy(), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize("off", [3e-4, 0.01, np.nan])
def test_a_graph_that_does_something_else_is_not_written(off, tmp_path, monkeypatch):
    right = drawing._memoryless
    monkeypatch.setattr(
        drawing,
        "_memoryless",
        lambda graph, *rest: graph.op("Add", right(graph, *rest), graph.constant([off])),
    )
    error = MismatchError if np.isfinite(off) else Exception
    with pytest.raises(error):
        export_onnx(made.policy(), tmp_path / "p.onnx")
    assert list(tmp_path.iterdir()) == []
    assert MismatchError.exit_code == 70


def test_a_memory_that_is_lost_is_noticed(tmp_path, monkeypatch):
    """Equal at the first step; only an episode shows it."""
    monkeypatch.setattr(drawing, "_shifted", lambda graph, window, newest: window)
    with pytest.raises(MismatchError, match="differ by"):
        export_onnx(made.context_policy(), tmp_path / "p.onnx")


def test_it_never_overwrites_unasked(tmp_path):
    path = tmp_path / "p.onnx"
    export_onnx(made.policy(), path)
    before = path.read_bytes()
    with pytest.raises(CannotCreateError, match="exists already"):
        export_onnx(made.policy(1), path)
    assert path.read_bytes() == before
    export_onnx(made.policy(1), path, overwrite=True)
    assert path.read_bytes() != before


def test_what_has_no_graph_is_refused(tmp_path):
    for policy in (np.tanh, TransferredPolicy(np.tanh, made.translators()["pair"])):
        with pytest.raises(UsageError, match="exported"):
            export_onnx(policy, tmp_path / "p.onnx")
    wide = made.imported(low=-2.0, high=2.0)
    with pytest.raises(UsageError, match=r"\[-1, 1\]"):
        export_onnx(TransferredPolicy(wide, made.translators()["pair"]), tmp_path / "p.onnx")
    assert list(tmp_path.iterdir()) == []


def test_rounding_alone_refuses_no_packaged_policy(tmp_path):
    for number, packaged in enumerate(packaged_policies()):
        policy = load_policy(packaged.path)
        found = export_onnx(policy, tmp_path / f"{number}.onnx")
        assert found.usual < 1e-4
    assert number == 17
    assert export.TOLERANCE == 1e-5
