"""Policies of the methods that MCAT is compared with, as files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.networks import MLP
from mcat.agents.policies.coded_policy import CodedPolicy
from mcat.agents.policies.inference import Inference
from mcat.agents.policies.policy import load_policy
from mcat.agents.policies.recurrent_policy import RecurrentPolicy
from mcat.agents.recurrent import Reader, RecurrentMLP, windows_of
from mcat.datasets.episodes import EpisodeStore
from mcat.errors import DataError, UsageError
from mcat.tensor_files import load_safetensors, save_safetensors

TASKS = ("light", "heavy")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def coded(code=3):
    codes = torch.randn(2, code, generator=generator())
    return CodedPolicy(MLP((2 + code, 8, 2), 1, generator(1)), codes, codes.mean(0), TASKS)


def inferring():
    """Rows of 2 states, 2 actions, a reward and 2 changes; z of 3 numbers."""
    encoder = MLP((7, 8, 6), 1, generator(2))
    inference = Inference(
        encoder, torch.full((2,), 2.0), torch.full((2,), 0.5), delay=5, trials=2, seed=7
    )
    actor = MLP((5, 8, 2), 1, generator(1))
    return CodedPolicy(actor, torch.zeros(2, 3), torch.zeros(3), TASKS, inference=inference)


def recurrent():
    actor = RecurrentMLP((2 + 4, 8, 2), Reader(5, 3, 4, generator()), generator(1))
    return RecurrentPolicy(actor, delay=5)


MADE = {"coded": coded, "without codes": lambda: coded(0), "inferring": inferring,
        "recurrent": recurrent}  # fmt: skip


def episodes(tasks, steps=6, seed=0):
    """One episode each."""
    rng, store = np.random.default_rng(seed), EpisodeStore(2, 2)
    for task in tasks:
        path = rng.standard_normal((steps + 1, 2)).astype(np.float32)
        actions = rng.uniform(-1, 1, (steps, 2)).astype(np.float32)
        rewards = rng.standard_normal(steps).astype(np.float32)
        store.append_episode(
            observations=path[:-1], actions=actions, rewards=rewards, next_observations=path[1:],
            task=task,
        )  # fmt: skip
    return store


def act(policy, names=TASKS, trials=None):
    """What it does in each task, and on another."""
    states = np.random.default_rng(3).normal(size=(3, 2)).astype(np.float32)
    if isinstance(policy, RecurrentPolicy):
        acting = policy.start_episode()
        found = []
        for number in range(5):
            found.append(acting(states + number))
            acting.paid(np.full(3, float(number)))
        return np.stack(found)
    return np.stack([*(policy.begin([i], names, trials)(states) for i in range(len(names))),
                     policy(states)])  # fmt: skip


@pytest.mark.parametrize("kind", MADE)
def test_a_saved_policy_acts_the_same(tmp_path, kind):
    own = MADE[kind]()
    own.save(tmp_path / "policy", {"step": 7, "family": "masses"})
    read = load_policy(tmp_path / "policy")
    assert type(read) is type(own)
    assert (read.metadata["step"], read.family) == (7, "masses")
    assert (read.observation_size, read.action_size) == (2, 2)
    assert np.allclose(act(read), act(own), atol=1e-6)


CHANGES = {
    "another kind": lambda arrays, header: header.update(kind="unicorn"),
    "a later format": lambda arrays, header: header.update(format=2),
    "half a neuron": lambda arrays, header: header.update(
        actor_sizes=[s + 0.5 for s in header["actor_sizes"]]
    ),
    "no sizes": lambda arrays, header: header.update(actor_sizes=[]),
    "a wider actor": lambda arrays, header: header.update(
        actor_sizes=[header["actor_sizes"][0], 9, 2]
    ),
    "an array too many": lambda arrays, header: arrays.update(more=np.zeros(1, np.float32)),
    "an array too few": lambda arrays, header: arrays.pop("actor.layers.0"),
    "no float32": lambda arrays, header: arrays.update(
        {name: array.astype(np.float64) for name, array in arrays.items()}
    ),
}
OWN = {
    "coded": {
        "one task more": lambda arrays, header: header.update(tasks=[*TASKS, "other"]),
        "no tasks": lambda arrays, header: header.update(tasks=[]),
        "a task without a name": lambda arrays, header: header.update(tasks=[1, 2]),
        "a longer code": lambda arrays, header: arrays.update(unseen=np.zeros(4, np.float32)),
    },
    "inferring": {
        "no encoder": lambda arrays, header: header.update(inference=None),
        "another encoder": lambda arrays, header: header["inference"].update(
            encoder_sizes=[7, 8, 8, 6]
        ),
        "no delay": lambda arrays, header: header["inference"].update(delay=0),
        "a seed that is none": lambda arrays, header: header["inference"].update(seed="x"),
        "no trials": lambda arrays, header: header["inference"].pop("trials"),
    },
    "recurrent": {
        "a longer history": lambda arrays, header: header.update(history=-4),
        "another memory": lambda arrays, header: header.update(memory=5),
        "no delay": lambda arrays, header: header.pop("delay"),
        "a memory as large as all it sees": lambda arrays, header: header.update(memory=6),
    },
}
BAD = [(kind, name) for kind in OWN for name in (*CHANGES, *OWN[kind])]


@pytest.mark.parametrize(("kind", "change"), BAD, ids=[" ".join(pair) for pair in BAD])
def test_a_file_that_says_something_else_is_refused(tmp_path, kind, change):
    MADE[kind]().save(tmp_path / "policy", {})
    arrays, header = load_safetensors(tmp_path / "policy")
    ({**CHANGES, **OWN[kind]})[change](arrays, header)
    save_safetensors(tmp_path / "bad", arrays, header)
    with pytest.raises(DataError, match="bad") as caught:
        load_policy(tmp_path / "bad")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", MADE)
def test_a_damaged_file_is_refused(tmp_path, kind):
    path = tmp_path / "policy"
    MADE[kind]().save(path, {})
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole[:-4] + b"abcd", b"PK\x03\x04" + whole):
        path.write_bytes(content)
        with pytest.raises(DataError):
            load_policy(path)


def test_codes_go_by_the_names_of_tasks():
    policy = coded()
    states = np.ones((4, 2), np.float32)
    first = policy.begin([0, 1, 1, 2], ("heavy", "light", "other"))(states)
    swapped = policy.begin([1, 0, 0, 2], ("light", "heavy", "other"))(states)
    assert np.array_equal(first, swapped)
    assert not np.allclose(first[0], first[1])
    assert np.array_equal(first[3], policy(states)[0])  # the code of what is unseen


# --- PEARL's inference ------------------------------------------------------------------------


def test_z_is_a_fixed_draw_until_there_are_two_trials_and_then_the_tasks_own():
    inference = inferring().inference
    none, again = (inference.codes(2, None) for _ in range(2))
    one = inference.codes(2, episodes((0, 1)))
    assert torch.equal(none, again)
    assert not torch.equal(none, one)
    two = episodes((0, 1, 0, 1))
    codes = inference.codes(2, two)
    swapped = EpisodeStore(2, 2)
    for number, task in ((0, 1), (1, 0), (2, 1), (3, 0)):
        own = two.select([number])
        rows = own.transitions(np.arange(len(own)))
        swapped.append_episode(
            observations=rows.observations, actions=rows.actions, rewards=rows.rewards,
            next_observations=rows.next_observations, task=task,
        )  # fmt: skip
    assert torch.allclose(inference.codes(2, swapped), codes.flip(0))
    assert not torch.allclose(codes[0], codes[1])
    assert torch.equal(inference.codes(3, two)[2], torch.zeros(3))  # none of its trials is whole


def test_a_row_of_context_by_hand():
    inference = inferring().inference
    store = EpisodeStore(2, 2)
    store.append_episode(
        observations=np.array([[2.0, 4.0]]), actions=np.array([[0.5, -0.5]]),
        rewards=np.array([10.0]), next_observations=np.array([[2.5, 3.0]]),
    )  # fmt: skip
    # In spreads of 2, of a payment for 5 steps, and of changes of 0.5.
    assert inference.rows(store).tolist() == [[1.0, 2.0, 0.5, -0.5, 2.0, 1.0, -2.0]]


# --- MQL's windows ----------------------------------------------------------------------------


def test_windows_hold_what_went_before_and_only_of_the_same_episode():
    store = episodes((0, 0), steps=4)
    before, after = windows_of(store, np.arange(8), 3, delay=5)
    before, after = before.view(8, 3, 5), after.view(8, 3, 5)
    rows = store.transitions(np.arange(8))
    row = np.concatenate((rows.actions, rows.rewards[:, None] / 5, rows.observations), 1)
    for start in (0, 4):
        assert not before[start].any()  # an episode begins with nothing
        assert torch.equal(before[start + 1 : start + 4], after[start : start + 3])
        assert np.allclose(before[start + 3], row[start : start + 3])
        assert np.allclose(after[start + 3], row[start + 1 : start + 4])


def test_the_acting_policy_reads_what_is_stored_rewards_included():
    policy, store = recurrent(), episodes((0,), steps=6)
    rows = store.transitions(np.arange(6))
    acting = policy.start_episode()
    wanted, _ = windows_of(store, np.arange(6), 3, delay=5)
    for step in range(6):
        acting(rows.observations[step : step + 1])
        assert np.allclose(acting.windows.ravel(), wanted[step])
        acting.took(rows.actions[step : step + 1])
        acting.paid(rows.rewards[step : step + 1])
    with pytest.raises(UsageError, match="2 observations of 1 episodes"):
        acting(rows.observations[:2])
    with pytest.raises(UsageError, match="this policy remembers"):
        policy(rows.observations)


def test_the_reader_is_a_gru_as_its_formulas_say():
    reader = Reader(5, 3, 4, generator())
    windows = torch.randn(2, 15, generator=generator(1))
    w, u = reader.gru.weight_ih_l0, reader.gru.weight_hh_l0
    b, c = reader.gru.bias_ih_l0, reader.gru.bias_hh_l0
    state = torch.zeros(2, 4)
    for row in windows.view(2, 3, 5).unbind(1):
        wr, wu, wc = (row @ w.T + b).chunk(3, 1)
        ur, uu, uc = (state @ u.T + c).chunk(3, 1)
        reset, keep = torch.sigmoid(wr + ur), torch.sigmoid(wu + uu)
        state = (1 - keep) * torch.tanh(wc + reset * uc) + keep * state
    assert torch.allclose(reader(windows), state, atol=1e-6)


@pytest.mark.parametrize("kind", MADE)
def test_export_says_that_it_cannot(tmp_path, kind):
    pytest.importorskip("onnx")
    from mcat.agents.policies.foreign.export import export_onnx

    with pytest.raises(UsageError, match="only those of MCAT can be exported"):
        export_onnx(MADE[kind](), tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


def test_contexts_are_what_was_found_out():
    """Codes of a table say nothing of what was seen: equal ones of unseen tasks would scatter."""
    assert coded().begin([0, 1], TASKS).contexts is None
    trials = episodes((0, 1, 0, 1))
    acting = inferring().begin([0, 1, 1], TASKS, trials)
    assert torch.equal(acting.contexts, inferring().inference.codes(2, trials)[[0, 1, 1]])
