"""What a log gives by itself: its policy cloned, or improved as far as its rewards tell."""

from __future__ import annotations

import copy

import numpy as np
import torch

from mcat.agents.adaptation.config import AnchoredConfig
from mcat.agents.adaptation.known import Known
from mcat.agents.adaptation.learner import Anchored
from mcat.agents.networks import MLP, minimise
from mcat.progress import Progress

BATCH = 256


def clone(
    known: Known, config: AnchoredConfig, *, updates: int, seed: int = 0, quiet: bool = False
) -> MLP:
    """An actor that does what was done, whatever it earned: least squares to the logged actions."""
    rng, generator = _draws(seed)
    rows = known.rows
    actor = MLP((rows.obs.shape[1], *config.hidden, rows.action.shape[1]), 1, generator)
    deployed = copy.deepcopy(actor).requires_grad_(False)
    adam = torch.optim.Adam(actor.parameters(), config.learning_rate, fused=True)
    with Progress("cloning the target's log", updates, "updates", quiet=quiet) as progress:
        for _ in range(updates):
            batch, _ = known.draw(rng, BATCH)
            action = torch.tanh(actor(batch.obs)[0])
            minimise(adam, (action - batch.action).square().mean())
            deployed.track(actor, config.deployed_rate)
            progress.advance(1)
    return known.scale.fold(deployed)


def offline_rl(
    known: Known, config: AnchoredConfig, *, updates: int, seed: int = 0, quiet: bool = False
) -> MLP:
    """An actor that the logged rewards speak for, kept near the logged actions (TD3+BC)."""
    rng, generator = _draws(seed)
    learner = Anchored(known.rows.obs.shape[1], known.rows.action.shape[1], config, generator)
    with Progress("offline RL on the target's log", updates, "updates", quiet=quiet) as progress:
        for _ in range(updates):
            batch, _ = known.draw(rng, BATCH)
            learner.update_near(batch, batch.action)
            progress.advance(1)
    return known.scale.fold(learner.deployed)


def _draws(seed: int) -> tuple[np.random.Generator, torch.Generator]:
    return np.random.default_rng(seed), torch.Generator().manual_seed(seed)
