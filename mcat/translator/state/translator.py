"""The state translator of Appendix E, for machines with other rewards or other spaces."""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor

from mcat.datasets.views import Episodes
from mcat.translator.configs import StateConfig
from mcat.translator.context import train_context
from mcat.translator.limits import require_limits
from mcat.translator.policy import Translator
from mcat.translator.report import FitReport
from mcat.translator.state.correspondence import Correspondence, require_fit
from mcat.translator.state.training import Maps, StateTraining

__all__ = ["StateConfig", "StateTranslator", "fit_state"]


class StateTranslator(Translator):
    """Shows the source policy states it knows, and turns its actions into the target's."""

    kind = "state"

    def __init__(self, maps: Maps, report: FitReport | None = None) -> None:
        super().__init__(maps.target_sizes, report, maps.source_sizes)
        self.maps = maps

    def view_tensors(self, obs: Tensor) -> Tensor:
        """States of the source that G takes these for."""
        return self.maps.to_source(obs)

    def translate_tensors(self, obs: Tensor, action: Tensor) -> Tensor:
        """The actions into which H translates `action` at the states that the source policy saw."""
        return self.maps.propose(obs, action).clamp(-1, 1)

    def header(self) -> dict[str, Any]:
        """The sizes of the networks, as JSON."""
        names = ("source_sizes", "target_sizes", "hidden")
        return {name: list(getattr(self.maps, name)) for name in names}

    @classmethod
    def build(cls, header: dict[str, Any]) -> Self:
        """An untrained translator of the sizes that `header` names."""
        return cls(
            Maps(**{k: tuple(header[k]) for k in ("source_sizes", "target_sizes", "hidden")})
        )


def fit_state(
    source: Episodes,
    target: Episodes,
    correspondence: Correspondence,
    *,
    config: StateConfig | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> StateTranslator:
    """Learn to show `source`'s policy the states of `target`, and to translate what it then does.

    Args:
        source: What a policy did on the machine where it is good.
        target: What happened on the other machine.
        correspondence: A first guess of what matches what.
        config: How to train.
        seed: Equal seeds give equal translators.
        quiet: Show no progress.
    """
    config = config or StateConfig()
    sizes = [(machine.observation_size, machine.action_size) for machine in (source, target)]
    require_fit(correspondence, sizes[0], sizes[1])
    require_limits(source=source, target=target)
    model, forward = train_context([target], config.context, seed=seed, quiet=quiet)
    training = StateTraining(model, source, target, correspondence, config, seed=seed + 1)
    return StateTranslator(training.maps, training.run(quiet=quiet) | forward)
