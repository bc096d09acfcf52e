"""TD3 or CrossQ whose actor and critics each read what went before (MQL's networks).

The next context is that of the next step, not the present one. Critics share one reader; with plain
critics actor and critics have slow copies, readers included, that give the targets.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from mcat.agents.configs import CrossQConfig, TD3Config
from mcat.agents.critics import make_critics
from mcat.agents.learner import Batch, Imitation, Learner, Losses
from mcat.agents.networks import minimise
from mcat.agents.recurrent import Reader, RecurrentMLP
from mcat.translator.tensors import Part


class RecurrentTD3(Learner):
    """Networks that read windows, their optimisers, and one `update`.

    Attributes:
        reader: The critics'.
    """

    actor: RecurrentMLP
    deployed: RecurrentMLP

    def __init__(
        self,
        states: int,
        actions: int,
        history: int,
        memory: int,
        config: TD3Config | CrossQConfig,
        generator: torch.Generator,
    ) -> None:
        self.sizes = states, actions, history, memory
        row, inputs = actions + 1 + states, states + memory
        reader = Reader(row, history, memory, generator)
        actor = RecurrentMLP((inputs, *config.hidden, actions), reader, generator)
        self.reader = Reader(row, history, memory, generator)
        self.twins = make_critics(config, inputs, actions, generator, memory)
        self.actor_target, self.reader_target, deployed = actor, self.reader, actor
        if isinstance(config, CrossQConfig):
            deployed = copy.deepcopy(actor).requires_grad_(False)
        else:
            self.actor_target = copy.deepcopy(actor).requires_grad_(False)
            self.reader_target = copy.deepcopy(self.reader).requires_grad_(False)
        super().__init__(actor, self.twins.net, generator, deployed)
        self.config = config
        rate = config.learning_rate
        betas = (config.critic_beta, 0.999) if isinstance(config, CrossQConfig) else (0.9, 0.999)
        judges = [*self.critics.parameters(), *self.reader.parameters()]
        self.actor_adam = torch.optim.Adam(actor.parameters(), rate, fused=True)
        self.critic_adam = torch.optim.Adam(judges, rate, betas=betas, fused=True)

    def update(
        self,
        batch: Batch,
        imitation: Imitation | None = None,
        weights: Tensor | None = None,
        pull: float = 0.0,
    ) -> Losses:
        """One step on the critics and, every `policy_delay`-th time, on the actor.

        Args:
            batch: Rows whose observations have windows.
            imitation: Imitated steps, likewise.
            weights: `(n, 1)`, what each row counts; None for 1.
            pull: What the squared distance from the weights at the last `anchor` costs.
        """
        obs, _, reward, next_obs, terminal = batch
        config = self.config
        if isinstance(config, CrossQConfig):
            for adam in (self.actor_adam, self.critic_adam):
                adam.param_groups[0]["lr"] = config.rate(self.updates)
        next_action = self.smoothed_action(self.actor_target, next_obs, config)
        with torch.no_grad():
            after = self.reader_target.read(next_obs)
        if imitation is not None:
            imitation = imitation._replace(obs=self.reader.read(imitation.obs))
        seen = batch._replace(obs=self.reader.read(obs), next_obs=after)
        values = self.twins.values(seen, next_action, imitation)
        target = reward + config.discount * (1 - terminal) * values.after.amin(0)
        delta = config.huber_delta if isinstance(config, CrossQConfig) else None
        losses = values.losses(target, imitation, huber_delta=delta, weights=weights)
        minimise(self.critic_adam, losses.total + pull * self._distance(self.critic_adam, pull))
        self.updates += 1
        if self.updates % config.policy_delay == 0:
            self._improve(obs, weights, pull)
        return losses.report(self._actor_loss)

    def _improve(self, obs: Tensor, weights: Tensor | None, pull: float) -> None:
        """A step on the actor; what gives targets, or what a user gets, follows."""
        config = self.config
        raw = self.actor(obs)[0]
        with torch.no_grad():
            seen = self.reader.read(obs)
        values = self.twins.judge(seen, torch.tanh(raw))
        cost = 0.0
        if isinstance(config, CrossQConfig):
            value, cost = values.amin(0), config.raw_action_cost
        else:
            value = values[0]
        loss = -(value if weights is None else weights * value).mean()
        distance = pull * self._distance(self.actor_adam, pull)
        minimise(self.actor_adam, loss + cost * raw.square().mean() + distance)
        self._actor_loss = loss.detach()
        self.twins.follow()
        if isinstance(config, CrossQConfig):
            self.deployed.track(self.actor, config.following(self.updates))
        else:
            self.actor_target.track(self.actor, config.target_rate)
            self.reader_target.track(self.reader, config.target_rate)

    # --- adapting a copy --------------------------------------------------------------------

    def copied(self, generator: torch.Generator, rate: float | None = None) -> RecurrentTD3:
        """The same networks with optimisers anew, whose weights are the anchor of `pull`.

        Its actor is the one that a user gets: an average of actors earns more than the last of
        them, and adapting should not begin by giving that up.

        Args:
            generator: Draws the noise of its next actions.
            rate: Its optimisers'; None for what this one's has come to.
        """
        config = self.config
        if rate is not None:
            config = replace(config, learning_rate=rate)
        if rate is not None and isinstance(config, CrossQConfig):
            config = replace(config, settling=None)
        new = RecurrentTD3(*self.sizes, config, generator)
        for name, part in new.parts.items():
            if isinstance(part, torch.nn.Module):
                own = self.parts[name]
                assert isinstance(own, torch.nn.Module)
                part.load_state_dict(own.state_dict())
        new.actor.load_state_dict(self.deployed.state_dict())
        new.updates = self.updates
        new._anchors = {
            adam: [p.detach().clone() for p in adam.param_groups[0]["params"]]
            for adam in (new.actor_adam, new.critic_adam)
        }
        return new

    def _distance(self, adam: torch.optim.Adam, pull: float) -> Tensor:
        """Σ |θ - θ_meta|² of an optimiser's parameters."""
        if not pull:
            return torch.zeros(())
        pairs = zip(adam.param_groups[0]["params"], self._anchors[adam], strict=True)
        return torch.stack([(own - meta).square().sum() for own, meta in pairs]).sum()

    _anchors: dict[torch.optim.Adam, list[Tensor]]

    @property
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""
        slow: dict[str, Part] = {"deployed": self.deployed}
        if isinstance(self.config, TD3Config):
            slow = {"actor_target": self.actor_target, "reader_target": self.reader_target}
        return {
            "actor": self.actor,
            "actor_adam": self.actor_adam,
            **slow,
            **self.twins.parts,
            "reader": self.reader,
            "critic_adam": self.critic_adam,
        }
