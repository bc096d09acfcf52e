"""What else a target's logs give: returns counted by hand, and nothing where nothing can be had."""

import numpy as np
import pytest

from mcat.agents.adaptation.offline import clone
from mcat.agents.evaluation import STARTS, first_start
from mcat.agents.limits import LIMITS
from mcat.datasets import EpisodeStore, write_dataset
from mcat.safe_io import read_json
from mcat.transfer import alternatives
from mcat.transfer.alternatives import (
    better_half,
    learn_alternatives,
    logged_returns,
    try_alternative,
)
from mcat.transfer.config import TransferConfig
from mcat.transfer.logs import load_logs
from mcat.transfer.result import (
    CLONED,
    LOGGED,
    LOGGED_SOURCE,
    OFFLINE,
    TRANSFERRED,
    AlternativeResult,
)
from mcat.transfer.run import translate
from tests.transfer.transfer_logs import cheetah

SIZES = {"observations": 17, "actions": 6, "next_observations": 17}


def log(path, rewards, *, has_rewards=True):
    """Episodes of three steps of a cheetah, which earned these rewards."""
    rng = np.random.default_rng(len(path.name))
    columns = {name: rng.uniform(-1, 1, (len(rewards), size)) for name, size in SIZES.items()}
    store = EpisodeStore.from_arrays(
        **columns, rewards=np.array(rewards), episode_ends=np.arange(3, len(rewards) + 1, 3)
    )
    metadata = {"task": cheetah(0.5).to_dict(), "has_rewards": has_rewards}
    write_dataset(path, store, metadata)
    return load_logs([str(path)], history=1)


def test_returns_in_logs_are_sums_of_episodes(tmp_path):
    source = log(tmp_path / "a.h5", [1, 2, 3, 10, 20, 30])
    target = log(tmp_path / "bb.h5", [0, 0, 1, -1, 0, 0, 0.5, 0, 0])
    first, second = logged_returns(source, target)
    assert (first.label, first.values) == (LOGGED_SOURCE, (6, 60))
    assert (second.label, second.values) == (LOGGED, (1, -1, 0.5))


def test_the_better_half_of_the_episodes_is_cloned(tmp_path):
    """Returns 1, -1, 0.5 and 3: what earned at least 0.75; of equal ones all."""
    logs = log(tmp_path / "a.h5", [0, 0, 1, -1, 0, 0, 0.5, 0, 0, 1, 1, 1])
    better = better_half(logs)
    assert better.rewards.tolist() == [0, 0, 1, 1, 1, 1]
    assert np.array_equal(better.observations[:3], logs.episodes.observations[:3])
    even = log(tmp_path / "bb.h5", [0, 1, 0, 1, 0, 0])
    assert better_half(even).num_episodes == 2
    unpaid = log(tmp_path / "ccc.h5", [1, 0, 0, 0, 0, 0], has_rewards=False)
    assert better_half(unpaid) is unpaid.episodes


def test_without_rewards_there_is_a_clone_and_nothing_else(tmp_path):
    for name, rewards, known in (("none", [0.0] * 6, False), ("same", [3.0] * 6, True)):
        logs = log(tmp_path / f"{name}.h5", rewards, has_rewards=known)
        assert logged_returns(logs, logs) == ()
        found = learn_alternatives(logs, updates=2, seed=0, quiet=True)
        assert list(found) == [CLONED]
        result = try_alternative(
            OFFLINE, logs.files, tmp_path / name, preset="smoke", episodes=1, seed=0, quiet=True
        )
        assert result.returns == ()


def test_learning_that_went_astray_is_left_out(tmp_path, monkeypatch):
    logs = log(tmp_path / "log.h5", [0, 0, 1, 0, 0, 2])

    def astray(*args, **options):
        actor = clone(*args, **options)
        actor.layers[0].data.fill_(np.nan)
        return actor

    monkeypatch.setitem(alternatives.LEARNERS, OFFLINE, astray)
    assert list(learn_alternatives(logs, updates=1, seed=0, quiet=True)) == [CLONED]


def test_one_alternative_by_itself_is_written_and_read(tmp_path):
    logs = log(tmp_path / "log.h5", [0, 0, 1, 0, 0, 2])
    given = {"preset": "smoke", "episodes": 2, "seed": 0, "quiet": True}
    result = try_alternative(OFFLINE, logs.files, tmp_path / "rl", **given)
    assert [returns.label for returns in result.returns] == [OFFLINE]
    assert len(result.returns[0].values) == 2
    assert AlternativeResult.from_json(read_json(tmp_path / "rl" / "result.json")) == result


def test_no_two_seeds_share_a_start():
    assert LIMITS["episodes"] == STARTS
    assert [first_start(seed) for seed in (0, 1, 2)] == [0, STARTS, 2 * STARTS]
    assert 0 <= first_start(2**63) < 2**63


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Twelve short episodes of two cheetahs, under random actions."""
    folder = tmp_path_factory.mktemp("pair")
    from mcat.datasets.collect import CollectConfig, collect

    for armature in (0.1, 0.5):
        config = CollectConfig(task=cheetah(armature), steps=360, seed=int(10 * armature))
        collect(config, None, folder / f"{armature}.h5", quiet=True)
    return tuple((str(folder / f"{armature}.h5"),) for armature in (0.1, 0.5))


def test_they_can_be_left_out_and_every_seed_has_its_own_starts(pair, tmp_path):
    sources, targets = pair
    given = {"sources": sources, "targets": targets, "preset": "smoke", "episodes": 2}
    found = [
        translate(
            TransferConfig(**given, seed=seed, alternatives=False), tmp_path / str(seed), quiet=True
        )
        for seed in (0, 1)
    ]
    for result in found:
        assert result.returns[-1].label == TRANSFERRED
        assert "alternatives" not in result.seconds
    home = [result.returns[0].values for result in found]
    assert not set(home[0]) & set(home[1])  # the same policy at home, from other starts
