"""What is special about each method, on networks and rows small enough to look at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.configs import CrossQConfig, SACConfig, TD3Config
from mcat.agents.learner import Batch
from mcat.agents.meta.algorithm import Round
from mcat.agents.meta.methods.pcgrad import ProjectedSAC
from mcat.agents.meta.methods.recurrent_td3 import RecurrentTD3
from mcat.agents.sac import SAC
from mcat.translator.tensors import tensors_of
from tests.agents.meta.methods.made import tiny_run, trainer
from tests.agents.meta.point_mass import no_progress, random_round, tiny_task_set


def algorithm(tmp_path, method, rounds=2, **changes):
    """A method that has seen some rounds, and has rows to learn from."""
    made = trainer(tmp_path / method, tiny_run(method, **changes)).algorithm
    for number in range(rounds):
        made.remember(random_round(tiny_task_set(), number))
    made._begin()
    return made


def copies(tensors):
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def batch(tasks, width=2, each=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (width, 2, 1, width)
    rows = [torch.randn(tasks, each, size, generator=generator) for size in shapes]
    return Batch(*rows, torch.zeros(tasks, each, 1))


# --- PCGrad -----------------------------------------------------------------------------------


def test_with_one_task_its_step_is_along_the_plain_gradient():
    made = SAC(3, 2, SACConfig(hidden=(8,)), torch.Generator().manual_seed(0), 1, tasks=1)
    projected = ProjectedSAC(3, 2, made.config, torch.Generator().manual_seed(0), 1, tasks=1)
    for learner in (made, projected):
        values = learner.critics(batch(1, 5).obs[0])
        learner.descend(learner.critic_adam, values.square().mean((0, 2)).mean()[None])
    ours, plain = (tensors_of(critics=learner.critics) for learner in (projected, made))
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_tasks_that_agree_are_left_alone_and_opposite_ones_cancel():
    learner = ProjectedSAC(
        3, 2, SACConfig(hidden=(8,)), torch.Generator().manual_seed(0), 1, tasks=2
    )
    weight = torch.nn.Parameter(torch.ones(2))
    adam = torch.optim.SGD([weight], 1.0)
    learner.descend(adam, torch.stack((weight[0], weight.sum())))  # (1, 0) and (1, 1)
    assert weight.tolist() == [0.0, 0.5]
    assert learner.conflicts == 0
    learner.descend(adam, torch.stack((3 * weight[0], -weight[0])))
    assert weight.tolist() == [0.0, 0.5]
    assert learner.conflicts == 1


# --- HiP-BMDP ---------------------------------------------------------------------------------


def test_sac_does_not_touch_theta_and_the_model_does(tmp_path):
    made = algorithm(tmp_path, "hipbmdp", **{"hipbmdp.imitate": False})
    rows = made.rows(made.experience.draw(8))
    theta = made.theta().detach().clone()
    super(type(made), made).update(rows, None)  # SAC's part
    assert torch.equal(made.theta(), theta)
    made.update(rows, None)
    assert not torch.equal(made.theta(), theta)
    assert torch.equal(made.unseen(), made.theta().detach().mean(0))


def test_the_model_of_the_true_change_has_no_loss(tmp_path):
    made = algorithm(tmp_path, "hipbmdp")
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.zero_()
    rows = made.rows(made.experience.draw(8))
    still = rows._replace(next_obs=rows.obs)
    dynamics, _ = made._model_losses(still)
    assert dynamics.item() == 0
    assert made._model_losses(rows)[0].item() > 0


# --- Distral ----------------------------------------------------------------------------------


def test_rows_of_a_task_change_its_networks_and_the_distilled_one_only(tmp_path):
    learner = algorithm(tmp_path, "distral").learner
    rows, others = batch(2, seed=1), batch(2, seed=2)
    mixed = Batch(*(torch.stack((a[0], b[1])) for a, b in zip(rows, others, strict=True)))
    start, generator = copies(tensors_of(**learner.parts)), learner.generator.get_state()
    ends = []
    for given in (rows, mixed):  # they differ in the rows of task 1
        learner.load_tensors({**copies(learner.tensors()), **start})
        learner.generator.set_state(generator)
        learner.update(given)
        ends.append(copies(tensors_of(**learner.parts)))
    for name in ("actor", "critics"):
        for layer in (n for n in start if n.startswith(f"{name}/layers")):
            own, other = (ends[i][layer].unflatten(0, (-1, 2)) for i in range(2))  # last: task
            # Both tasks' products are made in one call, so its last bits may differ.
            assert (own[:, 0] - other[:, 0]).abs().max() < 1e-7, layer
            assert (own[:, 1] - other[:, 1]).abs().max() > 5e-7, layer
    assert "prior/layers.0" in changed(ends[0], ends[1])


def test_the_tasks_policies_hear_nothing_of_the_distilled_ones_loss_nor_it_of_theirs(tmp_path):
    learner = algorithm(tmp_path, "distral").learner
    start, generator = copies(learner.tensors()), learner.generator.get_state()
    SAC._improve(learner, batch(2).obs)  # L_π alone
    tasks_alone = copies(learner.tensors())
    assert {name.split("/")[0] for name in changed(start, tasks_alone)} >= {"actor"}
    assert not any(name.startswith("prior") for name in changed(start, tasks_alone))
    learner.load_tensors(start)
    learner.generator.set_state(generator)
    learner._improve(batch(2).obs)  # and L_π0
    both = copies(learner.tensors())
    assert {name.split("/")[0] for name in changed(tasks_alone, both)} == {"prior", "kl"}


def test_its_temperature_is_one_by_beta(tmp_path):
    learner = algorithm(tmp_path, "distral", **{"distral.beta": 4.0}).learner
    assert torch.allclose(learner.temperature().exp(), torch.tensor(0.25))
    obs = batch(2).obs
    drawn = learner.policy(obs).draw(learner.generator)
    wanted = drawn.log_density / 4
    wanted = wanted - 0.5 / 4 * learner.distilled_policy(obs).log_density(drawn.raw)
    assert torch.allclose(learner.cost(obs, drawn), wanted)


# --- PEARL ------------------------------------------------------------------------------------


def test_the_encoder_learns_by_the_critics_and_the_prior_alone(tmp_path):
    made = algorithm(tmp_path, "pearl", **{"pearl.kl": 0.0, "pearl.imitate": False})
    encoder, critics = made.inference.encoder, made.learner.critics
    latent = made.inference.latent
    with torch.no_grad():  # Q says the same whatever z is: [s, z, a] are its inputs
        critics.layers[0][:, :, 2 : 2 + latent] = 0
    before = copies(encoder.state_dict())
    made.update(made.rows(made.experience.draw(8)), None)
    assert not changed(before, encoder.state_dict())
    with torch.no_grad():
        critics.layers[0][:, :, 2 : 2 + latent] = 1
    made.update(made.rows(made.experience.draw(8)), None)
    assert changed(before, encoder.state_dict())


def test_a_tasks_context_is_what_no_posterior_collected_last(tmp_path):
    made = trainer(tmp_path, tiny_run("pearl")).algorithm
    rounds = [random_round(tiny_task_set(), number) for number in range(4)]
    drivers = ("random", "prior", "posterior", "prior")
    plans = []
    for driver, played in zip(drivers, rounds, strict=True):
        new = Round(step=played.step, episodes=played.episodes, drivers=(driver,) * 2)
        made.remember(new)
        plans.append(made.plan()[0])
        kept = made._contexts[1].observations
        origin = {"posterior": 1}.get(driver, rounds.index(played))
        assert np.array_equal(kept, rounds[origin].episodes.task(1).observations)
    assert plans == ["prior", "posterior", "prior", "posterior"]


def test_units_are_measured_once_and_come_back(tmp_path):
    made = algorithm(tmp_path, "pearl")
    states = made.experience.replay.observations
    assert torch.allclose(made.units.state, torch.from_numpy(states.std(0)), rtol=1e-4)
    before = copies(made.units.state_dict())
    made.remember(random_round(tiny_task_set(), 9))
    made.learn(no_progress)
    assert not changed(before, made.units.state_dict())
    assert {"extras/units/state", "extras/units/known"} <= made.tensors().keys()


# --- MQL --------------------------------------------------------------------------------------


def recurrent():
    return RecurrentTD3(2, 2, 3, 4, TD3Config(hidden=(8,)), torch.Generator().manual_seed(0))


def windows(n=12, seed=0):
    return Batch(*(column[0] for column in batch(1, 2 + 3 * 5, n, seed)))


def test_weights_of_one_and_no_pull_are_the_plain_update():
    plain, weighed = recurrent(), recurrent()
    for number in range(4):
        rows = windows(seed=number)
        plain.update(rows)
        weighed.update(rows, weights=torch.ones(12, 1))
    assert not changed(tensors_of(**plain.parts), tensors_of(**weighed.parts))


def test_a_strong_pull_keeps_a_copy_where_it_started_and_none_lets_it_go():
    learner = recurrent()
    for number in range(4):
        learner.update(windows(seed=number))
    before = copies(learner.tensors())

    def distance(pull):
        copy = learner.copied(torch.Generator().manual_seed(1))
        assert not changed(dict(learner.actor.state_dict()), dict(copy.actor.state_dict()))
        for number in range(60):
            copy.update(windows(seed=number), weights=torch.ones(12, 1), pull=pull)
        pairs = zip(learner.actor.parameters(), copy.actor.parameters(), strict=True)
        return sum((a - b).detach().square().sum() for a, b in pairs).item()

    free, held = distance(0.0), distance(1e4)
    assert held < free / 10
    assert not changed(before, learner.tensors())  # copies are copies


def test_adapting_begins_with_the_actor_that_a_user_gets():
    """With averaged actors that is another one than the last that was learned."""
    config = CrossQConfig(hidden=(8,), deployed_rate=0.1, policy_delay=1)
    learner = RecurrentTD3(2, 2, 3, 4, config, torch.Generator().manual_seed(0))
    for number in range(4):
        learner.update(windows(seed=number))
    copy = learner.copied(torch.Generator().manual_seed(1))
    ours, averaged, last = (
        dict(net.state_dict()) for net in (copy.actor, learner.deployed, learner.actor)
    )
    assert not changed(ours, averaged)
    assert changed(ours, last)
    slow = learner.copied(torch.Generator().manual_seed(1), rate=1e-5)
    for each, rate in ((copy, config.rate(4)), (slow, 1e-5)):
        each.update(windows())
        assert each.critic_adam.param_groups[0]["lr"] == rate
        moved = (each.actor.layers[0] - learner.deployed.layers[0]).detach().abs().max()
        assert float(moved) == pytest.approx(rate, rel=0.01)  # the first step of Adam


def test_the_next_context_is_that_of_the_next_step(tmp_path):
    made = algorithm(tmp_path, "mql")
    stored = made.experience.replay
    numbers = np.array([[0, 1, 2], [30, 31, 32]])
    rows = made.rows(numbers)
    assert torch.equal(rows.next_obs[0, 2:], rows.obs[1, 2:])
    assert torch.equal(rows.next_obs[4, 2:], rows.obs[5, 2:])
    assert not rows.obs[0, 2:].any()
    assert np.array_equal(rows.obs[:, :2], stored.transitions(numbers.ravel()).observations)


@pytest.mark.parametrize("empty", [False, True])
def test_a_task_without_a_trial_has_the_meta_trained_actor(tmp_path, empty):
    made = algorithm(tmp_path, "mql")
    made.learn(no_progress)
    trials = random_round(tiny_task_set(), 5).episodes.task(0 if empty else 1)
    states = np.zeros((1, 2), np.float32)
    plain = made.acting_policy([1], None)(states)
    adapted = made.acting_policy([1], trials)(states)
    assert np.array_equal(plain, adapted) == empty
