"""Guard and ticks: by hand, with a clock of our own; and what runs where nothing simulates."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mcat.datasets import Card, Channel, EpisodeStore
from mcat.errors import UsageError
from mcat.robot import Guard, Ticks, latency_of

CARD = Card(
    observations=(Channel("q", "rad", -3, 3), Channel("dq")),
    actions=(Channel("tau", "N·m", -8, 8), Channel("grip", "", 0.1, 1)),
    rate_hz=50,
)
GOOD = [0.5, 0.0]


def constant(*action):
    return lambda obs: np.tile(np.array(action, np.float32), (len(obs), 1))


def test_what_is_within_the_limits_passes():
    guard = Guard(constant(2.5, 0.5), CARD)
    assert guard(GOOD).tolist() == [2.5, 0.5]
    assert guard.stopped is None
    assert str(guard) == "1 steps"


def test_actions_are_cut_to_their_bounds_never_outside_by_a_bit():
    guard = Guard(constant(1e9, -1.0), CARD)
    action = guard(GOOD)
    assert action[0] == 8
    assert guard.wanted.tolist() == [1e9, -1]
    assert 0.1 <= float(action[1]) < 0.1 + 1e-7  # float32's nearest to 0.1 may be below it
    assert guard.counts["cut"] == 1


def test_actions_change_no_faster_than_allowed():
    guard = Guard(constant(8.0, 1.0), CARD, slew=[100, 1000])  # 2 and 20 a tick
    assert [guard(GOOD)[0] for _ in range(5)] == pytest.approx([2, 4, 6, 8, 8])
    assert guard.counts["slowed"] == 3


@pytest.mark.parametrize(
    "bad", [[np.nan, 0], [np.inf, 0], [3.1, 0], [0, np.nan], [0.0], [[0.0, 0.0]], "none", None]
)
def test_a_bad_observation_is_bridged_and_many_lead_to_rest(bad):
    seen = []

    def policy(obs):
        seen.append(obs)
        return np.array([[4.0, 0.5]])

    guard = Guard(policy, CARD, hold=2)
    assert guard(GOOD).tolist() == [4, 0.5]
    assert [guard(bad).tolist() for _ in range(2)] == [[4, 0.5]] * 2
    assert guard.stopped is None
    rest = guard(bad)
    assert rest[0] == 0
    assert rest[1] == pytest.approx(0.1)  # what is nearest to zero
    assert guard.stopped
    assert guard(GOOD)[0] == 0  # a stop stays
    assert len(seen) == 1  # nor is the policy asked any more
    assert guard.counts["bad"] == 3
    guard.start_episode()
    assert guard(GOOD).tolist() == [4, 0.5]


def test_a_good_observation_ends_the_count():
    guard = Guard(constant(1.0, 0.5), CARD, hold=1)
    for _ in range(5):
        guard(GOOD)
        guard([np.nan, 0])
    assert guard.stopped is None


def test_the_way_to_rest_is_slow_too():
    guard = Guard(constant(8.0, 0.5), CARD, hold=0, slew=100)
    for _ in range(4):
        guard(GOOD)
    assert [guard([9, 0])[0] for _ in range(5)] == pytest.approx([6, 4, 2, 0, 0])
    assert guard.stopped == "q in rad from -3 to 3 is 9"


def failing(obs):
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    "policy", [failing, constant(np.nan, 0.5), constant(1.0), lambda obs: None, lambda obs: "no"]
)
def test_a_policy_that_fails_does_not_stop_the_loop_but_itself_at_once(policy):
    answers = iter([constant(4.0, 0.5), policy, constant(4.0, 0.5)])
    guard = Guard(lambda obs: next(answers)(obs), CARD, hold=3)
    assert [guard(GOOD)[0] for _ in range(3)] == [4, 0, 0]  # its last command is not held
    assert "the policy" in guard.stopped
    assert guard.counts["failed"] == 1


def test_random_policies_never_leave_the_bounds():
    rng = np.random.default_rng(0)
    actions = tuple(Channel(f"a{k}", "", -0.1 * k - 0.1, 0.7 * k + 0.3) for k in range(5))
    card = Card(observations=(Channel("q"),), actions=actions)
    guard = Guard(lambda obs: rng.standard_cauchy((1, 5)) * 10, card, rate_hz=50, slew=7)
    limits = card.limits
    last = guard([0.0]).astype(float)
    for _ in range(2000):
        action = guard([rng.choice([0.0, np.nan])]).astype(float)
        if guard.stopped:
            guard.start_episode()
            last = np.zeros(5)
            continue
        assert (action >= limits.low).all()
        assert (action <= limits.high).all()
        assert (np.abs(action - last) <= 7 / 50 + 1e-6).all()
        last = action


def test_memories_begin_with_the_episode():
    class Counting:
        def start_episode(self):
            steps = iter(range(1, 9))
            return lambda obs: np.array([[next(steps), 0.5]])

    guard = Guard(Counting(), CARD)
    assert [guard(GOOD)[0] for _ in range(2)] == [1, 2]
    assert guard.start_episode()(GOOD)[0] == 1


def test_bounds_from_what_was_seen():
    store = EpisodeStore.from_arrays(
        observations=[[0.0, -1.0], [10.0, 1.0]], next_observations=[[1.0, 0.0]] * 2,
        actions=np.zeros((2, 2)), timeouts=[False, True],
    )  # fmt: skip
    first, second = CARD.within(store, margin=0.1).observations
    assert (first.low, first.high) == (-3, 3)  # said, and so kept
    assert (second.low, second.high) == pytest.approx((-1.2, 1.2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slew": -1}, "slew"),
        ({"slew": [1, 2, 3]}, "one for each of 2"),
        ({"rest": [np.nan, 0]}, "finite"),
    ],
)
def test_limits_that_make_no_sense_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        Guard(constant(0, 0), CARD, **change)


def test_without_bounds_there_is_no_guard():
    card = Card(observations=(Channel("q"),), actions=(Channel("tau"),))
    with pytest.raises(UsageError, match="bounds"):
        Guard(constant(0), card)


# ---- time


class Clock:
    """Stands still but for what work and sleep take."""

    def __init__(self):
        self.now, self.slept = 100.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_ticks_are_even_and_late_ones_are_left_out_not_made_up_for():
    clock = Clock()
    ticks = Ticks(10, clock=lambda: clock.now, sleep=clock.sleep)
    begun = []
    for tick in ticks.run(seconds=1):
        begun.append((tick, round(clock.now - 100, 6)))
        clock.now += 0.25 if tick == 3 else 0.02
    even = [(tick, tick / 10) for tick in range(10)]
    assert begun == [*even[:4], (5, 0.55), *even[6:]]
    assert (ticks.count, ticks.late, ticks.missed) == (9, 1, 1)
    assert ticks.worst == pytest.approx(0.25)
    assert "9 ticks at 10 Hz: 1 late, 1 missed" in str(ticks)


@pytest.mark.parametrize("rate", [0, -5, float("inf"), float("nan")])
def test_no_such_rate(rate):
    with pytest.raises(UsageError):
        Ticks(rate)


def test_latency_is_measured():
    import time

    found = latency_of(lambda obs: time.sleep(0.002), 3, calls=10)
    assert 0.002 <= found.median <= found.p99 <= found.worst
    assert "µs for an action" in str(found)


# ---- where nothing simulates

ON_THE_ROBOT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

BLOCKED = {"mujoco", "metaworld", "gymnasium", "scipy", "matplotlib", "h5py", "rich", "click"}
sys.meta_path.insert(0, Blocked())

import numpy as np
from mcat.agents import load_policy, open_policy
from mcat.agents.policies.names import packaged_path
from mcat.datasets.cards import Card, Channel
from mcat.datasets.episodes import EpisodeStore
from mcat.envs.tasks import Task
from mcat.robot import Guard, Ticks, latency_of
from mcat.translator import TransferredPolicy, Translator

policy = load_policy(packaged_path("good", Task("halfcheetah", armature=0.1)))
translator = Translator.load(sys.argv[1])
still = lambda obs: np.zeros((len(obs), 2))
assert TransferredPolicy(still, translator)(np.zeros(3)).shape == (2,)
assert policy(np.zeros(17)).shape == (6,)
card = Card(observations=(Channel("q"),) * 3, actions=(Channel("tau", "", -1, 1),) * 2, rate_hz=50)
assert Guard(TransferredPolicy(still, translator), card)(np.zeros(3)).shape == (2,)
assert not BLOCKED & set(sys.modules)
"""


def test_translators_and_policies_act_where_no_simulator_is_installed(tmp_path):
    from mcat.translator import ActionConfig, ContextConfig, fit_pair
    from tests.transfer.transfer_logs import own_robot

    translator = fit_pair(
        own_robot(0), own_robot(1), quiet=True,
        context=ContextConfig(encoder_hidden=(8,), forward_hidden=(8,), max_steps=10),
        action=ActionConfig(hidden=(8,), embedding=8, steps=5),
    )  # fmt: skip
    translator.save(tmp_path / "translator.safetensors")
    call = [sys.executable, "-c", ON_THE_ROBOT, str(tmp_path / "translator.safetensors")]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
