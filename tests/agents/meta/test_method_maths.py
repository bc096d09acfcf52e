"""The formulas of the methods against numbers worked out by hand and literal loops."""

import math

import numpy as np
import pytest
import torch

from mcat.agents.gaussian import Gaussian
from mcat.agents.meta.methods.maths import (
    Propensity,
    distral_cost,
    kl_to_prior,
    logistic_regression,
    metric_loss,
    normalised_ess,
    odds_of_new,
    project,
    projections,
    proximity,
    random_orders,
)
from mcat.agents.policies.inference import product_of_gaussians, variances


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


# --- PEARL ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("means", "spreads", "mean", "variance"),
    [
        ((0, 2), (1, 1), 1, 0.5),
        ((1, 4), (1, 2), 2, 2 / 3),
        ((3, 3, 3, 3), (2, 2, 2, 2), 3, 0.5),
        ((7,), (5,), 7, 5),
        ((0, 1), (0, 1), 1e-7, 1e-7),  # 0 is floored
    ],
)
def test_products_of_gaussians_by_hand(means, spreads, mean, variance):
    for order in (slice(None), slice(None, None, -1)):
        found = product_of_gaussians(column(*means[order]), column(*spreads[order]))
        assert [x.item() for x in found] == pytest.approx([mean, variance], rel=1e-6)


def test_products_are_made_for_each_task_and_number_by_itself():
    mean, variance = torch.randn(3, 5, 2, generator=generator()), torch.rand(3, 5, 2) + 0.1
    found = product_of_gaussians(mean, variance)
    for task in range(3):
        for number in range(2):
            alone = product_of_gaussians(
                mean[task, :, number, None], variance[task, :, number, None]
            )
            for all_of_them, one in zip(found, alone, strict=True):
                torch.testing.assert_close(all_of_them[task, number], one[0])


def test_kl_to_the_prior_by_hand():
    found = kl_to_prior(column(1, 2, 0), column(0.5, 1, 1))
    assert found.tolist() == pytest.approx([0.596573590, 2, 0])
    both = kl_to_prior(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]))
    assert both.item() == pytest.approx(2.596573590)
    assert variances(torch.zeros(1)).item() == pytest.approx(math.log(2))
    assert variances(torch.tensor(-100.0)).item() == pytest.approx(1e-7)


# --- PCGrad -----------------------------------------------------------------------------------


def literal(gradients: np.ndarray, orders) -> np.ndarray:
    """As the paper prints it."""
    projected = []
    for i, order in enumerate(orders):
        g = gradients[i].copy()
        for j in order:
            if g @ gradients[j] < 0:
                g = g - g @ gradients[j] / (gradients[j] @ gradients[j]) * gradients[j]
        projected.append(g)
    return np.array(projected)


def projected(gradients, orders) -> torch.Tensor:
    rows = torch.tensor(gradients, dtype=torch.float64)
    return projections(rows @ rows.T, torch.tensor(orders)) @ rows


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        ([(1, 0), (-1, 1)], [(0.5, 0.5), (0, 1)]),
        ([(3, 0), (-1, 0)], [(0, 0), (0, 0)]),  # opposite ones vanish, whatever their sizes
        ([(1, 0), (0, 2)], [(1, 0), (0, 2)]),
        ([(1, 0), (1, 1)], [(1, 0), (1, 1)]),
    ],
)
def test_two_gradients_by_hand(gradients, expected):
    found = projected(gradients, [[1], [0]])
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    step, conflict = project(torch.tensor(gradients, dtype=torch.float32), generator())
    torch.testing.assert_close(step, torch.tensor(expected, dtype=torch.float32).mean(0))
    assert bool(conflict) == (expected != gradients)


@pytest.mark.parametrize(
    ("orders", "expected", "step"),
    [
        ([[1, 2], [0, 2], [0, 1]], [(0.2, -0.1), (-0.4, 0.2), (-1, -1)], (-0.4, -0.3)),
        ([[2, 1], [2, 0], [1, 0]], [(0.2, 0.2), (0, 0.6), (0, -1.5)], (0.2 / 3, -0.7 / 3)),
    ],
)
def test_three_gradients_depend_on_the_order(orders, expected, step):
    found = projected([(1, 0), (-1, 1), (-1, -2)], orders)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert found.mean(0).tolist() == pytest.approx(step)


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 8])
def test_shares_of_gradients_are_what_a_literal_loop_gives(tasks):
    for seed in range(20):
        g = generator(seed)
        rows = torch.randn(tasks, 6, generator=g, dtype=torch.float64)
        orders = random_orders(tasks, g)
        expected = literal(rows.numpy(), orders.tolist())
        found = projections(rows @ rows.T, orders) @ rows
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_orders_hold_all_others_and_are_drawn_for_each_task_anew():
    drawn = [random_orders(5, g) for g in (generator(),) for _ in range(200)]
    for orders in drawn[:10]:
        for task, order in enumerate(orders.tolist()):
            assert sorted(order) == [other for other in range(5) if other != task]
    firsts = torch.stack([orders[:, 0] for orders in drawn])
    for task in range(5):
        counts = torch.bincount(firsts[:, task], minlength=5)
        assert counts[task] == 0
        assert counts[counts > 0].min() > 25  # 50 each on average
    assert (firsts[:, 0] == firsts[:, 1]).double().mean() < 0.4  # 3/16 if independent


def test_a_step_of_two_tasks_hurts_neither_and_one_of_a_single_task_is_its_gradient():
    for seed in range(50):
        rows = torch.randn(2, 3, generator=generator(seed), dtype=torch.float64)
        step, _ = project(rows, generator())
        assert (rows @ step).min() > -1e-12
    alone = torch.randn(1, 4, generator=generator())
    step, conflict = project(alone, generator())
    assert torch.equal(step, alone[0])
    assert not conflict


def test_gradients_of_zero_do_no_harm():
    step, conflict = project(torch.tensor([[0.0, 0.0], [1.0, -1.0]]), generator())
    assert step.tolist() == [0.5, -0.5]
    assert not conflict
    assert project(torch.zeros(3, 2), generator())[0].tolist() == [0, 0]


# --- Distral ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "value"), [(1.0, 9.75), (10.0, 9.975), (100.0, 9.9975)])
def test_distral_values_by_hand(beta, value):
    cost = distral_cost(torch.tensor(-0.5), torch.tensor(-1.5), alpha=0.5, beta=beta)
    assert 10 - cost.item() == pytest.approx(value)


def test_distral_is_sac_without_a_pull_and_free_where_both_agree():
    own, distilled = torch.tensor(-0.5), torch.tensor(-1.5)
    assert distral_cost(own, distilled, alpha=0.0, beta=4.0).item() == -0.125  # temperature 1/β
    assert distral_cost(own, own, alpha=1.0, beta=4.0).item() == 0


def test_the_best_distilled_policy_covers_what_the_tasks_want():
    """For N(-1, 0.5²) and N(1, 0.5²) it is N(0, 1.118034²): spread² = 0.5² + 1²."""
    tasks = Gaussian(column(-1, 1), column(0.5, 0.5).log())
    mean, log_std = torch.zeros(1, dtype=torch.float64), torch.tensor([1.118034]).double().log()
    at = [x.requires_grad_() for x in (mean, log_std)]
    slopes = torch.autograd.grad(tasks.kl(Gaussian(*at)).mean(), at)
    assert [slope.item() for slope in slopes] == pytest.approx([0, 0], abs=1e-6)
    elsewhere = [mean.detach() + 0.1, log_std.detach() - 0.1]
    assert tasks.kl(Gaussian(*elsewhere)).mean() > tasks.kl(Gaussian(*at)).mean()


# --- HiP-BMDP ---------------------------------------------------------------------------------


def metric_of(thetas) -> tuple[torch.Tensor, ...]:
    """The loss of a row of task 0 against task 1 for a model s + a + Wθ that sees one axis."""
    theta = torch.tensor(thetas, dtype=torch.float64, requires_grad=True)
    axis = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64)).requires_grad_()
    effects = 7.0 + theta @ axis
    loss = metric_loss(theta[:1], theta[1:], effects[:1], effects[1:])
    return loss, *torch.autograd.grad(loss, [theta, axis], allow_unused=True)


def test_the_metric_loss_by_hand():
    """θ are 5 apart and their effects 3: (5 - 3)², along the line between them, none for W."""
    loss, slope, of_model = metric_of([(0.0, 0.0), (3.0, 4.0)])
    assert loss.item() == pytest.approx(4)
    torch.testing.assert_close(slope, torch.tensor([(-2.4, -3.2), (2.4, 3.2)]).double())
    assert of_model is None
    assert metric_of([(0.0, 0.0), (3.0, 0.0)])[0].item() == pytest.approx(0, abs=1e-12)


def test_equal_tasks_have_a_finite_loss_and_slope():
    loss, slope, _ = metric_of([(1.0, 2.0), (1.0, 2.0)])
    assert loss.item() == 0
    assert torch.equal(slope, torch.zeros(2, 2, dtype=torch.float64))


def test_the_metric_loss_is_a_mean_over_rows():
    theta, other = torch.tensor([[0.0], [0.0]]), torch.tensor([[3.0], [1.0]])
    effects = torch.tensor([[0.0], [0.0]]), torch.tensor([[1.0], [5.0]])
    assert metric_loss(theta, other, *effects).item() == pytest.approx((2**2 + 4**2) / 2)


# --- MQL --------------------------------------------------------------------------------------


def regression(new, old, inverse_penalty) -> tuple[float, float]:
    rows = column(*new, *old)
    signs = torch.tensor([-1.0] * len(new) + [1.0] * len(old)).double()
    weight, bias = logistic_regression(rows, signs, inverse_penalty)
    return weight.item(), bias.item()


@pytest.mark.parametrize(
    ("new", "old", "inverse_penalty", "weight", "bias"),
    [
        ((-1,), (1,), 0.5, 0.401058138, 0),
        ((-1,), (1,), 1.0, 0.674831614, 0),
        ((-1, -2), (1, 2), 0.1, 0.240773827, 0),
        ((-1,), (1, 1), 0.5, 0.511403645, 0.557026100),
    ],
)
def test_regressions_by_hand(new, old, inverse_penalty, weight, bias):
    found = regression(new, old, inverse_penalty)
    assert found == pytest.approx((weight, bias), abs=1e-8)


@pytest.mark.parametrize("inverse_penalty", [0.06, 1.0, 1e6])
def test_the_regression_is_at_the_minimum_of_its_loss(inverse_penalty):
    """Its slope vanishes, also far from the start and for features of other sizes."""
    rows = torch.randn(300, 4, generator=generator(), dtype=torch.float64)
    rows *= torch.tensor([1.0, 30.0, 0.1, 1.0]).double()
    noise = torch.randn(300, generator=generator(1), dtype=torch.float64)
    signs = torch.sign(rows[:, 0] + rows[:, 1] / 30 - 0.5 + noise)
    weight, bias = logistic_regression(rows, signs, inverse_penalty)
    wrong = torch.sigmoid(-signs * (rows @ weight + bias)) * signs
    slope = weight - inverse_penalty * rows.T @ wrong
    assert slope.abs().max().item() < 1e-6 * max(1, inverse_penalty)
    assert abs(wrong.sum().item()) < 1e-7


def test_odds_are_those_of_the_regression_at_most_e_to_the_clip():
    f = torch.tensor([-5, -1, 0, 1, 2, 2.4])
    expected = [math.e, math.e, 1, 0.367879, 0.135335, 0]
    assert odds_of_new(f, clip=1.0).tolist() == pytest.approx(expected, abs=1e-6)
    weight, _ = regression((-1,), (1,), 0.5)
    both = odds_of_new(weight * torch.tensor([-1.0, 1.0]), clip=9.0)
    assert both.tolist() == pytest.approx([1.493404089, 0.669611130], rel=1e-6)


def accuracy(propensity, new, old):
    """The share of rows that it takes for what they are."""
    right = torch.cat((propensity.logits(new) < 0, propensity.logits(old) > 0))
    return float(right.double().mean())


def test_rows_that_can_be_told_apart_count_fully_or_not_at_all():
    g = generator()
    old, new = torch.randn(500, 3, generator=g), torch.randn(400, 3, generator=g)
    new[:, 0] += 20
    new[:, 2] = old[:, 2] = 5.0  # says nothing, and has no spread
    found = Propensity.fit(new, old, inverse_penalty=10.0)
    assert found.odds(old, clip=1.1).unique().tolist() == [0]
    torch.testing.assert_close(found.odds(new, clip=1.1), torch.full((400,), math.exp(1.1)))
    assert accuracy(found, new, old) == 1


def test_rows_that_cannot_be_told_apart_count_alike():
    rows = torch.randn(500, 3, generator=generator())
    found = Propensity.fit(rows, rows, inverse_penalty=10.0)
    torch.testing.assert_close(found.odds(rows, clip=1.1), torch.ones(500))


def test_units_of_features_do_not_matter():
    g = generator()
    old, new = torch.randn(200, 2, generator=g), torch.randn(200, 2, generator=g) + 0.7
    units = torch.tensor([1000.0, 0.01])
    found = Propensity.fit(new, old, 0.06).logits(old)
    other = Propensity.fit(new * units - 3, old * units - 3, 0.06).logits(old * units - 3)
    torch.testing.assert_close(found, other, rtol=1e-3, atol=1e-4)
    assert 0.6 < accuracy(Propensity.fit(new, old, 0.06), new, old) < 0.9


@pytest.mark.parametrize(
    ("weights", "share", "strength"),
    [
        ((1, 1, 1, 1), 1, 0.1),
        ((1, 0, 0, 0), 0.25, 0.75),
        ((2, 1, 1, 0), 2 / 3, 1 / 3),
        ((math.e, math.e, 0, 0), 0.5, 0.5),
    ],
)
def test_effective_sample_sizes_by_hand(weights, share, strength):
    rows = torch.tensor(weights, dtype=torch.float64)
    assert normalised_ess(rows).item() == pytest.approx(share)
    assert proximity(rows, otherwise=0.1) == pytest.approx(strength)


def test_without_any_row_that_counts_the_usual_strength_is_taken():
    assert normalised_ess(torch.zeros(4)).isnan()
    assert proximity(torch.zeros(4), otherwise=0.1) == 0.1
