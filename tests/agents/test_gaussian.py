"""Tanh of a normal distribution: by hand, against torch's own, and where tanh is rounded to 1."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from mcat.agents.gaussian import Gaussian, gaussian


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def standard(*raw: float) -> tuple[Gaussian, torch.Tensor]:
    """A standard normal distribution for each of some raw actions of one number."""
    at = torch.tensor(raw, dtype=torch.float64)[:, None]
    return Gaussian(torch.zeros_like(at), torch.zeros_like(at)), at


def test_densities_worked_out_by_hand():
    policy, raw = standard(0.0, 1.0, -3.0)
    # log N(u) - log(1 - tanh²(u)), such as -0.5 log 2π at 0
    expected = [-0.918938533, -0.551376872, -0.800281524]
    assert policy.log_density(raw)[:, 0].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("end", [20.0, -20.0])
def test_the_density_is_exact_where_tanh_is_rounded_to_one(dtype, end):
    """1 - tanh²(±20) is 4 e^-40, whose logarithm is log 4 - 40."""
    policy, raw = standard(end)
    policy, raw = Gaussian(*(x.to(dtype) for x in policy)), raw.to(dtype)
    raw.requires_grad_()
    normal = -200 - math.log(2 * math.pi) / 2
    density = policy.log_density(raw)
    assert density.item() == pytest.approx(normal - (math.log(4) - 40), rel=1e-6)
    density.backward()
    assert raw.grad.item() == pytest.approx(-end + math.copysign(2, end), rel=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_densities_and_gradients_equal_torch_distributions(dtype, tolerance):
    torch.set_default_dtype(dtype)
    try:
        rows = torch.randn(200, 6, generator=generator()) * 3
        rows[0, :3] = torch.tensor([20.0, -20.0, 0.0])
        rows.requires_grad_()
        policy = gaussian(rows, floor=-20.0)
        drawn = policy.draw(generator(1))

        squash = TanhTransform(cache_size=1)
        theirs = TransformedDistribution(Independent(Normal(policy.mean, policy.log_std.exp()), 1),
                                         squash)  # fmt: skip
        action = squash(drawn.raw)
        expected = theirs.log_prob(action)[:, None]
        assert torch.equal(drawn.action, action)
        for found in (drawn.log_density, policy.log_density(drawn.raw)):
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        ours = torch.autograd.grad(drawn.log_density.sum(), rows, retain_graph=True)
        wanted = torch.autograd.grad(expected.sum(), rows)
        torch.testing.assert_close(ours, wanted, rtol=10 * tolerance, atol=10 * tolerance)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_density_of_actions_adds_up_to_one():
    ends = torch.linspace(-15, 15, 300_001, dtype=torch.float64)[:, None]
    policy = Gaussian(torch.full_like(ends, 0.7), torch.full_like(ends, -0.4))
    density = policy.log_density(ends).exp()[:, 0].numpy()
    actions = torch.tanh(ends)[:, 0].numpy()
    assert np.trapezoid(density, actions) == pytest.approx(1, abs=1e-6)


def test_spreads_are_clamped_and_near_one_at_first():
    out = torch.tensor([[0.5, 0.0], [0.5, -30.0], [0.5, 30.0]])
    assert gaussian(out, floor=-5.0).log_std[:, 0].tolist() == [0.0, -5.0, 2.0]
    assert gaussian(out, floor=-20.0).mean[:, 0].tolist() == [0.5] * 3


def test_kl_by_hand():
    narrow = Gaussian(torch.zeros(1, 1), torch.zeros(1, 1))
    wide = Gaussian(torch.ones(1, 1), torch.full((1, 1), math.log(2)))
    assert narrow.kl(wide).item() == pytest.approx(0.443147181, abs=1e-7)
    assert wide.kl(narrow).item() == pytest.approx(1.306852819, abs=1e-6)
    assert wide.kl(wide).item() == pytest.approx(0, abs=1e-7)


def test_tanh_of_both_changes_nothing_of_their_kl():
    many = torch.zeros(400_000, 1)
    one, other = Gaussian(many, many), Gaussian(many + 1, many + math.log(2))
    drawn = one.draw(generator())
    found = (drawn.log_density - other.log_density(drawn.raw)).mean()
    assert found.item() == pytest.approx(one.kl(other)[0].item(), abs=3e-3)
