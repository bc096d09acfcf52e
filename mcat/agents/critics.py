"""Twin critics of two kinds behind one interface, so that every learner can have either.

`TrackedCritics` are plain networks whose slow copies give the targets (TD3, SAC).
`NormalisedCritics` are batch-normalised and need no copies (CrossQ).

Rows are `(n, ...)`, or `(tasks, n, ...)` with as many of each task; values are `(2, n, 1)` or
`(2, tasks, n, 1)`. With `apart` every task has critics of its own.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mcat.agents.configs import CrossQConfig, SACConfig, TD3Config
from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.networks import MLP, draw_weights, in_pairs, parameter_shapes
from mcat.translator.tensors import Part

Network = TypeVar("Network", bound=nn.Module)


class Values(NamedTuple):
    """What two critics say of the rows of an update."""

    now: Tensor  # of what was done
    after: Tensor  # of what would be done next, without gradient
    imitated: Tensor  # of the imitated steps; without imitation there are none

    def losses(
        self,
        target: Tensor,
        imitation: Imitation | None,
        *,
        huber_delta: float | None = None,
        weights: Tensor | None = None,
    ) -> CriticLosses:
        """How far they are from `target`, and below the returns of imitated steps.

        Each is one number, or one per task for rows by task.

        Args:
            target: What `now` should be.
            imitation: The imitated steps.
            huber_delta: Errors beyond it count in proportion, not squared (Huber's loss).
            weights: `(n, 1)`, what each row counts; None for 1.
        """
        if huber_delta is None:
            errors = (self.now - target).square()
        else:  # twice Huber's, so that it is the square of a small error
            goal = target.expand_as(self.now)
            errors = 2 * functional.huber_loss(self.now, goal, reduction="none", delta=huber_delta)
        if weights is not None:
            errors = weights * errors
        td = errors.sum((0, -2, -1)) / target.shape[-2]  # MSE of Q1 plus MSE of Q2
        if imitation is None:
            return CriticLosses(td, td, torch.zeros(()), torch.zeros(0))
        loss, gains = imitation.loss(self.imitated)
        return CriticLosses(td + imitation.share * loss, td, loss, gains)


class CriticLosses(NamedTuple):
    """What critics minimise, and its parts."""

    total: Tensor
    td: Tensor
    imitation: Tensor
    gains: Tensor  # as in `Losses`

    def report(self, actor_loss: Tensor) -> Losses:
        """What an update tells: means over the tasks, without gradients."""
        td, imitation = (loss.detach().mean() for loss in (self.td, self.imitation))
        return Losses(td, actor_loss, imitation, self.gains)


class Critics(ABC, Generic[Network]):
    """Two critics, or two for each of some tasks.

    Args:
        net: Maps rows of observations and actions to values.
        apart: Whether it holds critics for each task.

    Attributes:
        net: The same.
    """

    def __init__(self, net: Network, *, apart: bool = False) -> None:
        self.net, self._apart = net, apart

    @abstractmethod
    def values(
        self, batch: Batch, next_action: Tensor, imitation: Imitation | None = None
    ) -> Values:
        """The values that an update of the critics needs."""

    @abstractmethod
    def judge(self, obs: Tensor, action: Tensor) -> Tensor:
        """The values of actions that the actor chose."""

    def follow(self) -> None:
        """Bring what gives the targets up to date."""

    @property
    def parts(self) -> dict[str, Part]:
        """The networks by name."""
        return {"critics": self.net}

    def _apply(self, net: nn.Module, rows: Tensor) -> Tensor:
        """The values of rows, whichever of the shapes they have."""
        out: Tensor = net(rows) if self._apart else net(rows.flatten(0, -2))
        return out.view(2, *rows.shape[:-1], 1)


class TrackedCritics(Critics[MLP]):
    """Plain critics, and copies that slowly follow them.

    Args:
        sizes: Layer widths: observation with action first, 1 last.
        generator: Draws the initial weights.
        rate: How far the copies go at each `follow`.
        tasks: For how many tasks there are critics; None for one pair for all.

    Attributes:
        target: The copies.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        generator: torch.Generator,
        *,
        rate: float,
        tasks: int | None = None,
    ) -> None:
        super().__init__(MLP(sizes, 2 * (tasks or 1), generator), apart=tasks is not None)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self._rate = rate

    def values(
        self, batch: Batch, next_action: Tensor, imitation: Imitation | None = None
    ) -> Values:
        """Two passes: the copies over what comes next, the critics over all other rows."""
        with torch.no_grad():
            after = self._apply(self.target, torch.cat((batch.next_obs, next_action), -1))
        rows = torch.cat((batch.obs, batch.action), -1)
        if imitation is not None:
            rows = torch.cat((rows, torch.cat((imitation.obs, imitation.action), -1)), -2)
        now, imitated = self._apply(self.net, rows).tensor_split((batch.obs.shape[-2],), -2)
        return Values(now, after, imitated)

    def judge(self, obs: Tensor, action: Tensor) -> Tensor:
        """The values of actions that the actor chose."""
        return self._apply(self.net, torch.cat((obs, action), -1))

    def follow(self) -> None:
        """Let the copies follow."""
        self.target.track(self.net, self._rate)

    @property
    def parts(self) -> dict[str, Part]:
        """The networks by name."""
        return {"critics": self.net, "critics_target": self.target}


class NormalisedCritics(Critics["NormalisedMLP"]):
    """Batch-normalised critics that see (s, a) and (s', a') in one pass (Bhatt et al. 2024).

    Both halves are normalised by the same statistics; then the values of the second half are good
    enough as targets for the first.

    Args:
        sizes: Layer widths: observation with action first, 1 last.
        generator: Draws the initial weights.
        momentum: How far the running averages go to those of a batch.
        action_size: Length of an action.
        context_size: How many of the last numbers of an observation are its context, which the
            critics see as it is: until it can tell the tasks apart a context is small noise, which
            normalisation would make as loud as the state.
        tasks: For how many tasks there are critics; None for one pair for all.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        generator: torch.Generator,
        *,
        momentum: float,
        action_size: int,
        context_size: int = 0,
        tasks: int | None = None,
    ) -> None:
        net = NormalisedMLP(sizes, 2, momentum, generator, as_is=context_size, tasks=tasks or 1)
        super().__init__(net, apart=tasks is not None)
        self._state_size = sizes[0] - action_size - context_size

    def values(
        self, batch: Batch, next_action: Tensor, imitation: Imitation | None = None
    ) -> Values:
        """One pass over both halves; imitated rows by themselves, under the running averages."""
        self.net.training = True
        done = self.rows(batch.obs, batch.action)
        rows = torch.cat((done, self.rows(batch.next_obs, next_action)), -2)
        now, after = self._apply(self.net, rows).tensor_split((batch.obs.shape[-2],), -2)
        self.net.training = False
        imitated = now[..., :0, :]
        if imitation is not None:  # rows of another kind, which must not touch the statistics
            imitated = self.judge(imitation.obs, imitation.action)
        return Values(now, after.detach(), imitated)

    def judge(self, obs: Tensor, action: Tensor) -> Tensor:
        """The values of actions that the actor chose, under the running averages."""
        self.net.training = False
        return self._apply(self.net, self.rows(obs, action))

    def rows(self, obs: Tensor, action: Tensor) -> Tensor:
        """What the critics see: state, action, context."""
        state, context = obs.tensor_split((self._state_size,), dim=-1)
        return torch.cat((state, action, context), -1)


def make_critics(
    config: CrossQConfig | SACConfig | TD3Config,
    obs_size: int,
    act_size: int,
    generator: torch.Generator,
    context_size: int = 0,
    tasks: int | None = None,
) -> Critics[MLP] | Critics[NormalisedMLP]:
    """The critics that a learner's numbers ask for; observations may end with a context."""
    sizes = obs_size + act_size, *config.hidden, 1
    if isinstance(config, TD3Config) or (
        isinstance(config, SACConfig) and config.critics == "tracked"
    ):
        return TrackedCritics(sizes, generator, rate=config.target_rate, tasks=tasks)
    return NormalisedCritics(
        sizes,
        generator,
        momentum=config.momentum,
        action_size=act_size,
        context_size=context_size,
        tasks=tasks,
    )


class NormalisedMLP(nn.Module):
    """Networks of one shape, applied together, with batch normalisation before each layer.

    In training mode the statistics are those of the batch, and running averages follow them; else
    the running averages are used.

    Args:
        sizes: Layer widths, input first and output last.
        members: How many networks see the same rows.
        momentum: How far the running averages go to those of a batch.
        generator: Draws the initial weights as `torch.nn.Linear` does.
        as_is: How many of the last inputs are not normalised.
        tasks: How many such sets there are, each with rows and statistics of its own.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        members: int,
        momentum: float,
        generator: torch.Generator,
        as_is: int = 0,
        tasks: int = 1,
    ) -> None:
        super().__init__()
        self.sizes, self.members, self.tasks = tuple(sizes), members, tasks
        self._normalised = sizes[0] - as_is
        networks = members * tasks
        shapes = parameter_shapes(sizes, networks)
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        draw_weights(self.layers, self.sizes, generator)
        # All members see the same inputs; behind the first layer each has its own numbers.
        widths = (tasks * self._normalised, *(networks * size for size in sizes[1:-1]))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width, eps=1e-3, momentum=momentum) for width in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, in)`, or `(tasks, n, in)`, to `(members * tasks, n, out)`."""
        x = x.view(self.tasks, *x.shape[-2:])
        normalised, as_is = x.tensor_split((self._normalised,), dim=-1)
        first, *norms = self.norms
        out = torch.cat((self._normalise(first, normalised), as_is), -1)
        out = out.expand(self.members, *out.shape).flatten(0, 1)
        *hidden, (weight, bias) = in_pairs(self.layers)
        for norm, (inner, shift) in zip(norms, hidden, strict=True):
            out = self._normalise(norm, torch.baddbmm(shift, out, inner.mT).relu_())
        return torch.baddbmm(bias, out, weight.mT)

    def _normalise(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Normalise `(networks, n, width)` as one table of `n` rows."""
        assert isinstance(norm, nn.BatchNorm1d)
        networks, rows, width = x.shape
        table = functional.batch_norm(
            x.transpose(0, 1).reshape(rows, networks * width),
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            self.training,  # not the norms': to switch all of them costs 4 % of an update
            norm.momentum or 0.0,
            norm.eps,
        )
        return table.view(rows, networks, width).transpose(0, 1)
