"""Preset `paper` against the numbers of the paper, typed from it, so that neither can drift.

Each row says where it is printed. What the paper does not say is not here: docs/decisions.md.
"""

import pytest

from mcat.agents.meta.config import PRESETS
from mcat.config import flatten, to_json
from mcat.envs.families import family
from mcat.paper.tables import TABLES
from mcat.transfer.config import TransferConfig

# --- C.2, "Transferred Policy (Ours)" ---------------------------------------------------------
PAIR = {
    "context.history": 10,  # "K=10 past transitions"
    "context.future": 10,  # "the future M=10 steps"
    "context.all_future": True,  # Eq. 1: the sum over m = 1 … M
    "context.likelihood": "sum",  # Eq. 1
    "context.evenness": 0.0,  # Eq. 1: every term alike
    "context.hinge": "printed",  # Eq. 2
    "context.contrastive_weight": 1.0,  # "simply L_forw + L_cont"
    "context.norm_penalty": 0.0,  # the same
    "context.encoder_hidden": [256, 128, 64],
    "context.encoder_activation": "swish",
    "context.context_size": 10,
    "context.forward_hidden": [200] * 4,
    "context.forward_activation": "relu",
    "context.recent_actions": False,  # 3.2: F takes state, action and context
    "context.recent": 0,  # 3.2: F takes state, action and context
    "context.shared_only": False,  # the same
    "context.learning_rate": 1e-3,
    "context.decay": False,
    "context.batch_size": 1024,
    "context.max_steps": 30 * 10_000,  # "30 epochs, each epoch with 10K steps"
    "context.hold_out": False,  # nothing is said of held-out data
    "context.cut_below": 0.0,  # every epoch has its 10K
    "context.feature_samples": 1024,
    "action.embedding": 128,
    "action.hidden": [256] * 3,  # "3 hidden layers of 256 units"
    "action.loss": "nll",  # Eq. 3
    "action.weighed": False,  # the same
    "action.proximity": 0.0,  # "simply L_trans"
    "action.horizon": 1,  # Eq. 3: the next state
    "action.residual": False,  # H makes an action (3.3)
    "action.batch_size": 1024,
    "action.steps": 30 * 3000,  # "30 epochs, each epoch with 3,000 steps"
    "action.state_weight": 10.0,  # C.3: λ = 10
    "joint": False,  # 5.1: F is learned on the target
    # C.2, "Transferred Policy (Zhang et al. 2020)"
    "cycle.embedding": [128],
    "cycle.hidden": [256, 256],
    "cycle.batch_size": 32,
    "cycle.forward_learning_rates": [1e-3, 3e-4, 1e-4],
    "cycle.forward_steps": 30 * 10_000,
    "cycle.epochs": 30,
    # Appendix E
    "state.adversarial": 10.0,
    "state.adversarial_unguessed": 10.0,
    "state.back": 30.0,
    "state.transition": 100.0,
    "state.loss": "nll",  # L_trans,s,a = -log F
    "state.state_proximity": 0.0,
    "state.action_proximity": 0.0,
}
# C.2, "Context-conditioned Action Translator": "remains the same as above", but for
MANY = {
    "context.learning_rate": 5e-4,
    "action.hidden": [256] * 2,  # "3 linear layers of 256 hidden units"
    "action.rates": [3e-4],
    "action.steps": 100 * 1000,  # "100 epochs, each with 1,000 steps"
}
# --- C.4, "MCAT (Ours)", and the table of TD3 in C.2 ------------------------------------------
META = {
    "steps": 2_000_000,  # 5.2: Table 2
    "episode_lengths": None,  # C.4: 1,000 steps
    "mirror": False,
    "mcat.learner": "td3",
    "mcat.td3.hidden": [256, 256],
    "mcat.td3.learning_rate": 3e-4,
    "mcat.td3.discount": 0.99,
    "mcat.td3.target_rate": 5e-3,
    "mcat.td3.target_noise": 0.2,
    "mcat.td3.target_noise_clip": 0.5,
    "mcat.td3.policy_delay": 2,
    "mcat.start_steps": 25_000,
    "mcat.exploration": 0.1,
    "mcat.batch_size": 256,
    "mcat.replay_capacity": 1_000_000,
    "mcat.updates_per_step": 1.0,  # 5K transitions, 5K steps
    "mcat.scale_rewards": False,
    "mcat.learn_while_acting": False,
    "mcat.average_contexts": False,
    "mcat.credit.kind": "none",
    "mcat.transfer": True,
    "mcat.translator": "ours",
    "mcat.target_context": "task_mean",  # 3.4
    "mcat.good_enough": 0.0,  # every iteration has its 10K
    "mcat.selection.memory": 20_000,  # G
    "mcat.selection.transfer_memory": None,
    "mcat.selection.margin": 0.0,  # Algorithm 1: >
    "mcat.selection.alternate": False,
    "mcat.context.learning_rate": 5e-4,  # "the same as in Context-conditioned"
    "mcat.context.max_steps": 10_000,  # "10K training steps"
    "mcat.action.learning_rate": 3e-4,
    "mcat.action.rates": [],
    "mcat.action.hidden": [256] * 2,
    "mcat.action.steps": 1000,  # "1K training steps"
    "mcat.imitate": True,
    "mcat.imitation.positive_only": False,  # Algorithm 1: every step of every episode
    "mcat.imitation.weight": 1.0,  # Algorithm 1: L_td3 + L_sil
    # "their default hyper-parameters on MuJoCo", which are Oh et al.'s
    "mcat.imitation.batch_size": 512,
    "mcat.imitation.capacity": 50_000,
    "mcat.imitation.alpha": 0.6,
    "mcat.imitation.beta": 0.1,
}
# C and F, H: as for logs, but for the numbers above, and for how a training with an end goes
META = {
    f"mcat.{key}": value
    for key, value in PAIR.items()
    if key.startswith(("context.", "action.")) and key != "action.state_weight"
} | META


def recipe(**logs):
    return flatten(to_json(TransferConfig(preset="paper", **logs).recipe))


@pytest.mark.parametrize("key", PAIR)
def test_a_pair_as_printed(key):
    assert recipe(sources=("a",), targets=("b",))[key] == PAIR[key]


@pytest.mark.parametrize("key", {**PAIR, **MANY})
def test_a_heat_map_as_printed(key):
    assert recipe(tasks=("a", "b"))[key] == (PAIR | MANY)[key]


@pytest.mark.parametrize("key", META)
def test_meta_training_as_printed(key):
    assert flatten(to_json(PRESETS["paper"]))[key] == META[key]


def test_the_printed_rates_of_a_pair_in_their_order():
    """C.2: "from 3e-4, 5e-5 to 1e-5"; when they change is the authors' code's."""
    rates = recipe(sources=("a",), targets=("b",))["action.rates"]
    assert list(dict.fromkeys(rates)) == [3e-4, 5e-5, 1e-5]


def test_no_setting_of_c_f_and_h_is_left_out():
    """Every key is printed, or one of these, of which the paper says nothing."""
    unsaid = {
        "context.margin",  # m
        "context.evaluate_every",  # of curves and of stops that there are not
        "context.patience",
        "action.raw_states",
        "action.learning_rate",  # `rates` count
        "action.rates",
        "action.fresh_starts",
        "action.reward_aware",  # of a method of its own
    }
    ours = {
        key
        for key in recipe(sources=("a",), targets=("b",))
        if key.startswith(("context.", "action."))
    }
    assert ours - PAIR.keys() == unsaid


def test_logs_as_printed():
    """C.2: 100K transitions of mediocre policies; of scripts with noise N(0, 1) on Meta-World."""
    for name, table in TABLES.items():
        for row in table.rows:
            if row.name.endswith("-tried"):  # the paper did not
                continue
            for log in row.sources("paper") + row.targets("paper") + row.tasks("paper"):
                on_table = log.task.on_table
                assert log.steps == 100_000, (name, row.name)
                assert log.policy[0].startswith("scripted" if on_table else "mediocre")
                assert log.noise == ((1.0, 1.0) if on_table else (0.0, 0.0))


def test_the_tasks_of_the_heat_maps():
    """C.2: armatures 0.1 to 0.5, legs 0 to 3."""
    cheetahs, ants = family("halfcheetah-heatmap").train, family("ant-heatmap").train
    labels = [task.label("armature").removeprefix("halfcheetah-armature") for task in cheetahs]
    assert labels == ["0.1", "0.2", "0.3", "0.4", "0.5"]
    assert [task.label() for task in ants] == [f"ant-cripple{leg}" for leg in range(4)]
