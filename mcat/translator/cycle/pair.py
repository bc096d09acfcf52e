"""The baseline of Zhang et al. (2020) for machines with equal spaces.

It goes the other way round. F1 knows the *source* machine. Phi turns actions of the target into
source actions for which F1 predicts what followed on the target (dynamics cycle), and which an
adversary cannot tell from real source actions. Psi turns them back (domain cycle). Psi is what is
used in the end, on the source policy's actions, though it is trained by the domain cycle alone.
Whose numbers these are: docs/decisions.md#the-baseline-of-zhang-et-al.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from mcat.config import as_type, to_json
from mcat.datasets.views import Episodes
from mcat.progress import Progress
from mcat.translator.adversarial import Adversary, discriminator
from mcat.translator.configs import CycleConfig
from mcat.translator.cycle.training import (
    LossLog,
    StateActionNet,
    TransitionRows,
    mismatch,
    per_dimension,
    scheduled,
    spread_of_change,
    train_forward,
)
from mcat.translator.fit import require_same_spaces
from mcat.translator.limits import require_limits
from mcat.translator.networks import ends_epoch, optimise, seeded
from mcat.translator.policy import EpochHook, Translator
from mcat.translator.report import FitReport
from mcat.translator.windows import split_episodes


class CycleNetworks(nn.Module):
    """F1, Phi, Psi and the discriminator of source actions; states as they are, not normalised."""

    def __init__(self, sizes: tuple[int, int], config: CycleConfig) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        shape = config.embedding, config.hidden
        self.dynamics = StateActionNet(sizes, sizes[0], *shape)
        self.phi = StateActionNet(sizes, sizes[1], *shape)
        self.psi = StateActionNet(sizes, sizes[1], *shape)
        self.discriminator = discriminator(sizes[1])

    def to_source(self, obs: Tensor, action: Tensor) -> Tensor:
        """Phi: the source actions that do what `action` does on the target."""
        return torch.tanh(self.phi(obs, action))

    def to_target(self, obs: Tensor, action: Tensor) -> Tensor:
        """Psi: the target actions that do what `action` does on the source."""
        return torch.tanh(self.psi(obs, action))


class CycleTranslator(Translator):
    """Psi, with the networks it was trained by."""

    kind = "cycle"

    def __init__(self, networks: CycleNetworks, report: FitReport | None = None) -> None:
        super().__init__(networks.sizes, report)
        self.networks = networks

    def translate_tensors(self, obs: Tensor, action: Tensor) -> Tensor:
        """The actions into which Psi translates `action`."""
        return self.networks.to_target(obs, action)

    def header(self) -> dict[str, Any]:
        """The sizes and the config of the networks, as JSON."""
        return {"sizes": self.networks.sizes, "config": to_json(self.networks.config)}

    @classmethod
    def build(cls, header: dict[str, Any]) -> Self:
        """An untrained translator of the sizes that `header` names."""
        config = as_type(CycleConfig, header["config"])
        return cls(CycleNetworks(tuple(header["sizes"]), config))


class CycleTraining:
    """Phi and Psi against the adversary, one batch at a time."""

    def __init__(self, networks: CycleNetworks, rng: np.random.Generator) -> None:
        self.networks = networks
        translators = [*networks.phi.parameters(), *networks.psi.parameters()]
        self.adam = torch.optim.Adam(translators, fused=True)
        rate = networks.config.learning_rates[0]
        self.adversary = Adversary(networks.discriminator, networks.config.pool, rate, rng)

    def step(self, target: TransitionRows, source_actions: Tensor) -> dict[str, Tensor]:
        """The adversary learns first, then Phi and Psi; the losses, not weighted."""
        proposed = self.networks.to_source(target.obs, target.action)
        discriminator_loss = self.adversary.learn(proposed, source_actions)
        losses = self.losses(target, proposed)
        optimise(self.adam, self.networks.config.total(*losses.values()))
        return {**losses, "discriminator": discriminator_loss}

    def losses(self, target: TransitionRows, proposed: Tensor) -> dict[str, Tensor]:
        """The three losses of a target batch whose actions Phi turned into `proposed`."""
        reached = self.networks.dynamics(target.obs, proposed)
        back = self.networks.to_target(target.obs, proposed)
        return {
            "dynamics cycle": (reached - target.after).abs().mean(),
            "domain cycle": (back - target.action).abs().mean(),
            "adversarial": self.adversary.generator_loss(proposed),
        }


def fit_cycle(
    source: Episodes,
    target: Episodes,
    *,
    config: CycleConfig | None = None,
    seed: int = 0,
    quiet: bool = False,
    on_epoch: EpochHook | None = None,
) -> CycleTranslator:
    """Learn to translate actions of `source` into actions of `target` the way of Zhang et al.

    Args:
        source: What a policy did on the machine where it is good.
        target: What happened on the changed machine.
        config: How networks are built and trained.
        seed: Equal seeds give equal translators.
        quiet: Show no progress.
        on_epoch: Called with the number of each epoch and the translator as it is then.
    """
    require_same_spaces([source, target])
    require_limits(source=source, target=target)
    config = config or CycleConfig()
    rng = np.random.default_rng(seed)
    (source_rows, source_test), (target_rows, target_test) = (
        [TransitionRows.of(part) for part in split_episodes(task, rng)] for task in (source, target)
    )
    with seeded(rng):
        networks = CycleNetworks((source.observation_size, source.action_size), config)
    translator = CycleTranslator(networks)
    log = LossLog(translator.report)
    train_forward(networks.dynamics, source_rows, config, rng, log, quiet=quiet)
    training = CycleTraining(networks, rng)
    optimisers = [training.adam, training.adversary.adam]
    with Progress("learning to translate", config.steps, quiet=quiet) as progress:
        for step in scheduled(optimisers, config.steps, config.learning_rates):
            real = source_rows.draw(rng, config.batch_size).action
            log.add(training.step(target_rows.draw(rng, config.batch_size), real))
            progress.advance()
            if ends_epoch(step, config.steps, config.epochs):
                progress.note(log.close_epoch(step))
                if on_epoch is not None:
                    on_epoch(step * config.epochs // config.steps, translator)
    networks.requires_grad_(False).eval()
    _judge(translator, source_test, target_test)
    return translator


@torch.no_grad()
def _judge(translator: CycleTranslator, source: TransitionRows, target: TransitionRows) -> None:
    """Errors on held-out episodes, in spreads of change; actions as shares of half their range."""
    networks, report = translator.networks, translator.report
    change = spread_of_change(source)
    predicted = networks.dynamics(source.obs, source.action)
    report.forward_error = per_dimension(predicted, source.after, change).tolist()
    proposed = networks.to_source(target.obs, target.action)
    back = networks.to_target(target.obs, proposed)
    translated = translator.translate_tensors(source.obs, source.action)

    def error_of(action: Tensor) -> float:
        return mismatch(networks.dynamics(target.obs, action), target.after, change)

    report.numbers = {
        "forward error": mismatch(predicted, source.after, change),
        "untranslated": error_of(target.action),
        "translated": error_of(proposed),
        "round trip": float((back - target.action).abs().mean()),
        "moved": float((translated - source.action).abs().mean()),
    }
