"""PEARL's inference: which task it is, as a distribution of a latent z, from transitions of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mcat.agents.networks import MLP, parameter_shapes
from mcat.agents.policies.meta_policy import require_sizes
from mcat.datasets.views import Episodes
from mcat.tensor_files import part

LEAST_VARIANCE = 1e-7  # of a row of context: none is sure of everything


def variances(raw: Tensor) -> Tensor:
    """What an encoder's numbers mean as variances."""
    return functional.softplus(raw).clamp(min=LEAST_VARIANCE)


def product_of_gaussians(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance `(..., d)` of the product of Gaussians `(..., n, d)`.

    V = 1 / Σ 1/v_k and M = V Σ m_k/v_k: rows that are surer count for more.
    """
    variance = variance.clamp(min=LEAST_VARIANCE)
    total = 1 / (1 / variance).sum(-2)
    return total * (mean / variance).sum(-2), total


class Inference:
    """The encoder of transitions and the units that it sees them in.

    A row is [s/σ_s, a, r/n, (s' - s)/σ_Δ]; r is divided by the delay n, as it is paid for n steps.

    Attributes:
        encoder: Maps a row to means and raw variances of z.
        spread: `(S,)`, σ_s.
        change_spread: `(S,)`, σ_Δ.
        delay: n.
        trials: Episodes after which it acts on what it has inferred; before that on draws from the
            prior.
        seed: Of these draws.
    """

    def __init__(
        self,
        encoder: MLP,
        spread: Tensor,
        change_spread: Tensor,
        *,
        delay: int,
        trials: int,
        seed: int,
    ) -> None:
        self.encoder, self.spread, self.change_spread = encoder, spread, change_spread
        self.delay, self.trials, self.seed = delay, trials, seed

    @property
    def latent(self) -> int:
        """Numbers in z."""
        return self.encoder.sizes[-1] // 2

    def rows(self, episodes: Episodes) -> Tensor:
        """All transitions as the encoder sees them."""
        found = episodes.transitions(np.arange(len(episodes)))
        change = found.next_observations - found.observations
        return torch.cat(
            (
                torch.from_numpy(found.observations) / self.spread,
                torch.from_numpy(found.actions),
                torch.from_numpy(found.rewards)[..., None] / self.delay,
                torch.from_numpy(change) / self.change_spread,
            ),
            -1,
        )

    def posterior(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance `(..., latent)` of z, given rows `(..., n, row)` of one task each."""
        out = self.encoder(rows.flatten(0, -2)).view(*rows.shape[:-1], -1)
        mean, raw = out.chunk(2, -1)
        return product_of_gaussians(mean, variances(raw))

    @torch.no_grad()
    def codes(self, tasks: int, trials: Episodes | None) -> Tensor:
        """What to act on in each of so many tasks `(tasks, latent)`.

        Args:
            tasks: How many there are.
            trials: Episodes on them, by their numbers. Without all of them it is a draw from the
                prior, the same every time; a task without any then has the prior's mean.
        """
        done = 0 if trials is None else int(np.bincount(trials.tasks).max())
        if trials is None or done < self.trials:
            seed = np.random.SeedSequence(self.seed, spawn_key=(4, done))
            drawn = np.random.default_rng(seed).standard_normal((tasks, self.latent), np.float32)
            return torch.from_numpy(drawn)
        codes = torch.zeros(tasks, self.latent)
        for task in range(tasks):
            own = trials.task(task)
            if len(own):
                codes[task] = self.posterior(self.rows(own))[0]
        return codes

    # --- as a part of a file --------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """What a file says of it."""
        return {
            "encoder_sizes": list(self.encoder.sizes),
            "delay": self.delay,
            "trials": self.trials,
            "seed": self.seed,
        }

    def arrays(self) -> dict[str, Tensor]:
        """Its weights and units, by the names they have in a file."""
        weights = {f"encoder.{k}": v for k, v in self.encoder.state_dict().items()}
        return {**weights, "spread": self.spread, "change_spread": self.change_spread}

    @staticmethod
    def shapes(
        header: Mapping[str, Any], states: int, actions: int, code: int
    ) -> dict[str, tuple[int, ...]]:
        """The shapes that arrays of such a header must have.

        Raises:
            ValueError: if the header makes no sense.
        """
        sizes = header["encoder_sizes"]
        require_sizes(sizes, header["delay"], header["trials"])
        if type(header["seed"]) is not int or header["seed"] < 0:
            raise ValueError("no seed")
        if (sizes[0], sizes[-1]) != (2 * states + actions + 1, 2 * code):
            raise ValueError("networks that do not fit each other")
        shapes = enumerate(parameter_shapes(sizes, 1))
        return {
            **{f"encoder.layers.{index}": shape for index, shape in shapes},
            "spread": (states,),
            "change_spread": (states,),
        }

    @classmethod
    def of_file(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Inference:
        """The inference that a file holds, after `shapes` found it to fit."""
        encoder = MLP(header["encoder_sizes"], 1)
        encoder.load_state_dict(part("encoder.", tensors))
        return cls(
            encoder.requires_grad_(False),
            tensors["spread"],
            tensors["change_spread"],
            delay=header["delay"],
            trials=header["trials"],
            seed=header["seed"],
        )
