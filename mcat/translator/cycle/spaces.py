"""The baseline of Zhang et al. (2020) for machines with different spaces.

A state map G shows the target's states to the source policy; action maps go both ways and do not
look at the state. Through F1, the dynamics of the source, G and the action map to the source must
agree: what F1 predicts for a mapped state and action is the mapped next state (dynamics cycle).
Adversaries keep mapped states and actions among those that really occur. G and the action maps are
trained in turns, each while the other stands still.

All maps start as hand maps (hand_maps.py). In the original the hand map only takes the place of the
action networks in the first turn; after it they start from random weights, as G does.
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
from mcat.translator.configs import SpacesCycleConfig
from mcat.translator.cycle.training import (
    LossLog,
    StateActionNet,
    TransitionRows,
    mismatch,
    per_dimension,
    spread_of_change,
    train_forward,
)
from mcat.translator.limits import require_limits
from mcat.translator.networks import ends_epoch, optimise, seeded
from mcat.translator.policy import EpochHook, Translator
from mcat.translator.report import FitReport
from mcat.translator.state.correspondence import Correspondence, require_fit
from mcat.translator.state.hand_maps import ActionMap, StateMap
from mcat.translator.windows import split_episodes


class SpacesNetworks(nn.Module):
    """F1, the maps and the discriminators; sizes are (states, actions) of each machine."""

    def __init__(
        self, source: tuple[int, int], target: tuple[int, int], config: SpacesCycleConfig
    ) -> None:
        super().__init__()
        self.config, self.source_sizes, self.target_sizes = config, source, target
        self.dynamics = StateActionNet(source, source[0], config.embedding, config.hidden)
        self.state_map = StateMap(source[0], target[0], config.state_hidden)
        self.to_source = ActionMap(target[1], source[1], config.action_hidden)
        self.to_target = ActionMap(source[1], target[1], config.action_hidden)
        self.judge_state = discriminator(source[0])
        self.judge_source_action = discriminator(source[1])
        self.judge_target_action = discriminator(target[1])

    def set_hand_maps(self, correspondence: Correspondence) -> None:
        """Let the maps start from those made by hand."""
        self.state_map.hand.copy_(torch.from_numpy(correspondence.state_to_source))
        self.to_source.hand.copy_(torch.from_numpy(correspondence.action_to_source))
        self.to_target.hand.copy_(torch.from_numpy(correspondence.action_to_target))

    def set_scales(self, source: TransitionRows, target: TransitionRows) -> None:
        """Scale each machine's states by their own mean and spread, as in the original."""
        scales = self.state_map.source_scale, self.state_map.target_scale
        for scale, rows in zip(scales, (source, target), strict=True):
            scale.fit(rows.obs)
            scale.std[scale.std < self.config.smallest_spread] = 1.0


class SpacesCycleTranslator(Translator):
    """G and the action map to the target, with what they were trained by."""

    kind = "cycle-spaces"

    def __init__(self, networks: SpacesNetworks, report: FitReport | None = None) -> None:
        super().__init__(networks.target_sizes, report, networks.source_sizes)
        self.networks = networks

    def view_tensors(self, obs: Tensor) -> Tensor:
        """States of the source that G takes these for."""
        return self.networks.state_map.in_source_units(self.networks.state_map(obs))

    def translate_tensors(self, obs: Tensor, action: Tensor) -> Tensor:
        """The mapped action; it does not depend on the state."""
        translated: Tensor = self.networks.to_target(action)
        return translated

    def header(self) -> dict[str, Any]:
        """The sizes and the config of the networks, as JSON."""
        return {
            "source": self.networks.source_sizes,
            "target": self.networks.target_sizes,
            "config": to_json(self.networks.config),
        }

    @classmethod
    def build(cls, header: dict[str, Any]) -> Self:
        """An untrained translator of the sizes that `header` names."""
        config = as_type(SpacesCycleConfig, header["config"])
        return cls(SpacesNetworks(tuple(header["source"]), tuple(header["target"]), config))


class SpacesTraining:
    """Turns of G and of the action maps against the adversaries, one batch at a time.

    Source rows hold normalised states, target rows states as they are.
    """

    def __init__(self, networks: SpacesNetworks, rng: np.random.Generator) -> None:
        self.networks, config = networks, networks.config
        action_maps = [*networks.to_source.parameters(), *networks.to_target.parameters()]
        self.state_adam, self.action_adam = (
            torch.optim.Adam(parameters, config.learning_rate, fused=True)
            for parameters in (networks.state_map.parameters(), action_maps)
        )
        self.states, self.source_actions, self.target_actions = (
            Adversary(network, config.pool, config.discriminator_learning_rate, rng)
            for network in (
                networks.judge_state, networks.judge_source_action, networks.judge_target_action
            )
        )  # fmt: skip
        self.weights = {
            "dynamics cycle": config.dynamics_weight,
            "state adversarial": config.adversarial_weight,
            "next state adversarial": config.adversarial_weight,
            "source action adversarial": config.adversarial_weight,
            "target action adversarial": config.adversarial_weight,
            "source action cycle": config.action_cycle_weight,
            "target action cycle": config.action_cycle_weight,
        }

    def state_turn(self, source: TransitionRows, target: TransitionRows) -> dict[str, Tensor]:
        """One step of the state adversary, then of G; the losses, not weighted."""
        mapped, after = (self.networks.state_map(obs) for obs in (target.obs, target.after))
        discriminator_loss = self.states.learn(mapped, source.obs)
        with torch.no_grad():
            action = self.networks.to_source(target.action)
        losses = self.dynamics_losses(mapped, action, after)
        losses["state adversarial"] = self.states.generator_loss(mapped)
        optimise(self.state_adam, self.total(losses))
        return {**losses, "state discriminator": discriminator_loss}

    def action_turn(self, source: TransitionRows, target: TransitionRows) -> dict[str, Tensor]:
        """One step of the action adversaries, then of the action maps; the losses."""
        to_source, to_target = self.networks.to_source, self.networks.to_target
        there, here = to_target(source.action), to_source(target.action)
        discriminator_losses = {
            "source action discriminator": self.source_actions.learn(here, source.action),
            "target action discriminator": self.target_actions.learn(there, target.action),
        }
        with torch.no_grad():
            mapped, after = (self.networks.state_map(obs) for obs in (target.obs, target.after))
        losses = self.dynamics_losses(mapped, here, after) | {
            "source action adversarial": self.source_actions.generator_loss(here),
            "target action adversarial": self.target_actions.generator_loss(there),
            "source action cycle": (to_source(there) - source.action).abs().mean(),
            "target action cycle": (to_target(here) - target.action).abs().mean(),
        }
        optimise(self.action_adam, self.total(losses))
        return losses | discriminator_losses

    def dynamics_losses(self, mapped: Tensor, action: Tensor, after: Tensor) -> dict[str, Tensor]:
        """What couples states and actions: where F1 says that mapped actions lead."""
        reached = self.networks.dynamics(mapped, action)
        return {
            "dynamics cycle": (reached - after).abs().mean(),
            "next state adversarial": self.states.generator_loss(reached),
        }

    def total(self, losses: dict[str, Tensor]) -> Tensor:
        """The weighted sum of the losses."""
        return torch.stack([self.weights[name] * loss for name, loss in losses.items()]).sum()


def fit_cycle_spaces(
    source: Episodes,
    target: Episodes,
    correspondence: Correspondence,
    *,
    config: SpacesCycleConfig | None = None,
    seed: int = 0,
    quiet: bool = False,
    on_epoch: EpochHook | None = None,
) -> SpacesCycleTranslator:
    """Learn to use a policy of `source` on `target`, starting from `correspondence`.

    Args:
        source: What a policy did on the machine where it is good.
        target: What happened on the changed machine.
        correspondence: A first guess of what matches what.
        config: How networks are built and trained.
        seed: Equal seeds give equal translators.
        quiet: Show no progress.
        on_epoch: Called with the number of each epoch and the translator as it is then.
    """
    sizes = [(task.observation_size, task.action_size) for task in (source, target)]
    require_fit(correspondence, sizes[0], sizes[1])
    require_limits(source=source, target=target)
    config = config or SpacesCycleConfig()
    rng = np.random.default_rng(seed)
    (source_rows, source_test), (target_rows, target_test) = (
        [TransitionRows.of(part) for part in split_episodes(task, rng)] for task in (source, target)
    )
    with seeded(rng):
        networks = SpacesNetworks(sizes[0], sizes[1], config)
    networks.set_hand_maps(correspondence)
    networks.set_scales(source_rows, target_rows)
    source_rows, source_test = (_normalised(networks, rows) for rows in (source_rows, source_test))
    translator = SpacesCycleTranslator(networks)
    log = LossLog(translator.report)
    train_forward(networks.dynamics, source_rows, config, rng, log, quiet=quiet)
    _take_turns(translator, source_rows, target_rows, rng, log, quiet=quiet, on_epoch=on_epoch)
    networks.requires_grad_(False).eval()
    _judge(translator, source_test, target_test)
    return translator


def _normalised(networks: SpacesNetworks, rows: TransitionRows) -> TransitionRows:
    scale = networks.state_map.source_scale
    return TransitionRows(scale(rows.obs), rows.action, scale(rows.after))


def _take_turns(
    translator: SpacesCycleTranslator,
    source: TransitionRows,
    target: TransitionRows,
    rng: np.random.Generator,
    log: LossLog,
    *,
    quiet: bool,
    on_epoch: EpochHook | None,
) -> None:
    """Train in rounds of G, then the action maps."""
    config = translator.networks.config
    training = SpacesTraining(translator.networks, rng)
    turns = [training.state_turn, training.action_turn] * config.rounds
    epoch = 0
    with Progress("learning to translate", len(turns) * config.turn_steps, quiet=quiet) as progress:
        for turn in turns:
            for step in range(1, config.turn_steps + 1):
                batches = (rows.draw(rng, config.batch_size) for rows in (source, target))
                log.add(turn(*batches))
                progress.advance()
                if ends_epoch(step, config.turn_steps, config.epochs):
                    epoch += 1
                    progress.note(log.close_epoch(progress.done))
                    if on_epoch is not None:
                        on_epoch(epoch, translator)


@torch.no_grad()
def _judge(
    translator: SpacesCycleTranslator, source: TransitionRows, target: TransitionRows
) -> None:
    """Errors on held-out episodes in spreads of the source's change: of the hand map, and learned.

    The second can also fall because G makes all states alike: look at how far it moved them.
    """
    networks, report = translator.networks, translator.report
    change = spread_of_change(source)
    predicted = networks.dynamics(source.obs, source.action)
    report.forward_error = per_dimension(predicted, source.after, change).tolist()
    state_map, to_source, to_target = networks.state_map, networks.to_source, networks.to_target

    def moved(by_hand: Tensor, learned: Tensor) -> float:
        return float((learned - by_hand).abs().mean())

    by_hand = networks.dynamics(state_map.by_hand(target.obs), to_source.by_hand(target.action))
    learned = networks.dynamics(state_map(target.obs), to_source(target.action))
    report.numbers = {
        "forward error": mismatch(predicted, source.after, change),
        "untranslated": mismatch(by_hand, state_map.by_hand(target.after), change),
        "translated": mismatch(learned, state_map(target.after), change),
        "moved": moved(to_target.by_hand(source.action), to_target(source.action)),
        "states moved": moved(state_map.by_hand(target.obs), state_map(target.obs)),
    }
