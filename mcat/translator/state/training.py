"""How the state translator of Appendix E is trained.

G sends states of the target to states of the source, its inverse sends them back, and H turns the
source's actions into the target's. All three are a guess made by hand plus a network that starts at
zero. Three losses improve on the guess: states sent to the source shall look like the source's
(L_adv), there and back again shall lead nowhere (L_back), and what followed on the source shall,
sent to the target, be what the target's forward model says (L_trans,s,a).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.errors import DivergedError
from mcat.progress import Progress
from mcat.translator.action import distances
from mcat.translator.adversarial import Adversary, discriminator
from mcat.translator.configs import StateConfig
from mcat.translator.context import ContextModel
from mcat.translator.networks import Normaliser, mlp, optimise, seeded, zero_last_layer
from mcat.translator.report import FitReport
from mcat.translator.state.correspondence import Correspondence
from mcat.translator.windows import Windows, sample_windows

POOL = 4096  # states that the adversary remembers of either kind
MISMATCH = "mismatch of translated transitions"
CLIP_STDS = 5.0  # spreads from the mean beyond which it sees no difference


class Maps(nn.Module):
    """G, its inverse and H: hand maps plus networks on standardised states.

    A map without a guess (all zeros) starts at the mean state, or at the action 0.
    A state that never changes on a machine (a goal, say) is always shown as it was there, as that
    machine's policy and forward model have seen nothing else.
    """

    guess_state_to_source: Tensor
    guess_state_to_target: Tensor
    guess_action: Tensor

    def __init__(
        self,
        source_sizes: tuple[int, int],
        target_sizes: tuple[int, int],
        hidden: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.source_sizes, self.target_sizes, self.hidden = source_sizes, target_sizes, hidden
        (states, actions), (target_states, target_actions) = source_sizes, target_sizes
        self.source_scale, self.target_scale = Normaliser(states), Normaliser(target_states)
        self.register_buffer("guess_state_to_source", torch.zeros(states, target_states))
        self.register_buffer("guess_state_to_target", torch.zeros(target_states, states))
        self.register_buffer("guess_action", torch.zeros(target_actions, actions))
        self.state_to_source = mlp(target_states, hidden, states, "relu")
        self.state_to_target = mlp(states, hidden, target_states, "relu")
        self.action = mlp(states + actions, hidden, target_actions, "relu")
        for network in (self.state_to_source, self.state_to_target, self.action):
            zero_last_layer(network)

    def set_guess(self, guess: Correspondence) -> None:
        """Let the maps start from `guess`."""
        self.guess_state_to_source.copy_(torch.from_numpy(guess.state_to_source))
        self.guess_state_to_target.copy_(torch.from_numpy(guess.state_to_target))
        self.guess_action.copy_(torch.from_numpy(guess.action_to_target))

    def to_source(self, states: Tensor) -> Tensor:
        """G: states of the source for states of the target."""
        learned = self.state_to_source(self.target_scale(states))
        guess = guessed(states, self.guess_state_to_source, self.source_scale)
        return _add(guess, learned, self.source_scale)

    def to_target(self, states: Tensor) -> Tensor:
        """The inverse of G: states of the target for states of the source."""
        learned = self.state_to_target(self.source_scale(states))
        guess = guessed(states, self.guess_state_to_target, self.target_scale)
        return _add(guess, learned, self.target_scale)

    def propose(self, states: Tensor, actions: Tensor) -> Tensor:
        """H for states and actions of the source, before it is clipped to the action space."""
        learned = self.action(torch.cat((self.source_scale(states), actions), dim=-1))
        proposed: Tensor = actions @ self.guess_action.T + learned
        return proposed


def guessed(states: Tensor, guess: Tensor, scale: Normaliser) -> Tensor:
    """States by the hand map alone; without one the mean, from where none is out of reach."""
    return states @ guess.T if guess.any() else scale.mean


def _add(guess: Tensor, learned: Tensor, scale: Normaliser) -> Tensor:
    return torch.where(scale.moves, guess + scale.std * learned, scale.mean)


def distance(one: Tensor, two: Tensor, scale: Normaliser) -> Tensor:
    """Mean |one - two| in units of each dimension's spread, over the dimensions that move."""
    return ((one - two) / scale.std)[..., scale.moves].abs().mean()


class MapLosses(NamedTuple):
    """What the maps are judged by, not weighed; see `StateConfig`."""

    adversarial: Tensor
    back: Tensor
    transition: Tensor
    overshoot: Tensor  # how far H leaves the action space
    state_moved: Tensor  # how far G and its inverse left the hand maps
    action_moved: Tensor  # how far H did


class StateTraining:
    """Fits the maps from `source` to `target`; C and F of the target (`model`) stay as they are.

    See docs/decisions.md#the-state-translator.
    """

    def __init__(
        self,
        model: ContextModel,
        source: Episodes,
        target: Episodes,
        guess: Correspondence,
        config: StateConfig,
        *,
        seed: int = 0,
    ) -> None:
        self.model, self.source, self.target, self.config = model, source, target, config
        self.rng = np.random.default_rng(seed)
        with seeded(self.rng):
            self.maps = Maps(guess.source_sizes, guess.target_sizes, config.hidden)
            critic = discriminator(source.observation_size)
        self.adversary = Adversary(critic, POOL, config.learning_rate, self.rng)
        self.maps.set_guess(guess)
        self.maps.source_scale.fit(torch.tensor(source.observations))
        self.maps.target_scale.load_state_dict(model.obs_scale.state_dict())

    def run(self, *, quiet: bool = False) -> FitReport:
        """Take all steps, then freeze the maps.

        H waits where it is guessed and the states are not: until they mean something it would
        learn nonsense. So does the action map of Zhang et al. in the first of its turns.
        """
        maps = self.maps
        waits = bool(maps.guess_action.any()) and not bool(maps.guess_state_to_source.any())
        steps = self.config.steps
        adam = torch.optim.Adam(maps.parameters(), self.config.learning_rate, fused=True)
        decay = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, max(1, steps))
        test, report = self.sample(2048), FitReport()
        self._record(report, test, 0)
        with Progress("learning to translate", steps, "steps", quiet=quiet) as progress:
            for step in range(1, steps + 1):
                maps.action.requires_grad_(not waits or step > self.config.held * steps)
                rows, states = self.sample(self.config.batch_size)
                with torch.no_grad():
                    fake = maps.to_source(states)
                self.adversary.learn(
                    self.discriminator_inputs(fake), self.discriminator_inputs(rows.obs)
                )
                losses = self.losses(rows, states)
                optimise(adam, self.total(losses))
                decay.step()
                progress.advance(1)
                if step % 250 and step != steps:
                    continue
                if not all(torch.isfinite(loss) for loss in losses):
                    raise DivergedError(f"a loss of the state translator diverged at step {step}")
                self._record(report, test, step)
                now, first = (report.curves[MISMATCH][i][1] for i in (-1, 0))
                progress.note(f"mismatch {now:.4f} of {first:.4f}")
        maps.requires_grad_(False).eval()
        mismatch, moved = report.curves[MISMATCH], report.curves["actions moved by H"]
        report.numbers = {
            "untranslated": mismatch[0][1],
            "translated": mismatch[-1][1],
            "moved": moved[-1][1],
        }
        return report

    def sample(self, n: int) -> tuple[Windows, Tensor]:
        """Transitions of the source and states of the target."""
        rows = sample_windows(self.source, self.model.config, self.rng, n)
        states = self.target.sample_transitions(self.rng, n).observations
        return rows, torch.from_numpy(states)

    def discriminator_inputs(self, states: Tensor) -> Tensor:
        """States of the source as the adversary sees them.

        Clipped: a number that hardly moved on the source and does on the target (an object that
        gets pushed) would give all fake states away, and teach nothing about the others.
        """
        scaled: Tensor = self.maps.source_scale(states)
        return scaled.clamp(-CLIP_STDS, CLIP_STDS)

    def losses(self, rows: Windows, target_states: Tensor) -> MapLosses:
        """All losses of the maps for transitions of the source and states of the target."""
        maps, source, target = self.maps, self.maps.source_scale, self.maps.target_scale
        there, back = maps.to_source(target_states), maps.to_target(rows.obs)
        proposed = maps.propose(rows.obs, rows.action)
        clipped = proposed.clamp(-1, 1)
        # F sees the clipped action, its gradient reaches the unclipped one, as in action.py.
        action = proposed + (clipped - proposed).detach()
        return MapLosses(
            adversarial=self.adversary.generator_loss(self.discriminator_inputs(there)),
            back=distance(maps.to_target(there), target_states, target)
            + distance(maps.to_source(back), rows.obs, source),
            transition=self.transition_error(rows, action),
            overshoot=(proposed - clipped).abs().mean(),
            state_moved=distance(
                there, guessed(target_states, maps.guess_state_to_source, source), source
            )
            + distance(back, guessed(rows.obs, maps.guess_state_to_target, target), target),
            action_moved=(action - rows.action @ maps.guess_action.T).abs().mean(),
        )

    def transition_error(self, rows: Windows, action: Tensor) -> Tensor:
        """L_trans,s,a: how far F is, after `action`, from the next state sent to the target.

        As the other errors it is a mean over dimensions.

        F also sees the last changes of the state: those of the states that the source went through,
        sent to the target one by one.

        What is aimed at is learned too. Holding it still at first, lest the inverse of G
        makes all states alike, leaves half a gradient, which blew up; L_back suffices for that.
        """
        model, scale = self.model, self.model.change_scale
        after = (rows.obs + rows.change)[:, None]
        changes = torch.cat((rows.past, rows.change[:, None]), dim=1)
        to_come = changes.flip(1).cumsum(1).flip(1)  # from each state on the way to the last
        mapped = self.maps.to_target(torch.cat((after - to_come, after), dim=1))
        steps = mapped.diff(dim=1)
        context = model.features[0].expand(len(action), -1)
        mean, log_variance = model.predict(mapped[:, -2], action, steps[:, :-1], context)
        errors = distances(mean, log_variance, scale(steps[:, -1]), self.config.loss)
        return errors[:, scale.moves].mean()

    def total(self, losses: MapLosses) -> Tensor:
        """The weighed sum of the losses; leaving a guess has a price only where there is one."""
        config, maps = self.config, self.maps
        states_guessed = bool(maps.guess_state_to_source.any())
        action_price = config.action_proximity * bool(maps.guess_action.any())
        state_price = config.state_proximity * states_guessed
        adversarial = config.adversarial if states_guessed else config.adversarial_unguessed
        transition = losses.transition + losses.overshoot + action_price * losses.action_moved
        total: Tensor = (
            adversarial * losses.adversarial
            + config.back * losses.back
            + config.transition * transition
            + state_price * losses.state_moved
        )
        return total

    @torch.no_grad()
    def _record(self, report: FitReport, test: tuple[Windows, Tensor], step: int) -> None:
        """Adds how the maps stand after `step`."""
        losses = self.losses(*test)
        shown = {
            MISMATCH: losses.transition,
            "error of states sent there and back": losses.back,
            "adversarial loss": losses.adversarial,
            "states moved from the hand map": losses.state_moved,
            "actions moved by H": losses.action_moved,
        }
        for title, value in shown.items():
            report.curves.setdefault(title, []).append((step, float(value)))
