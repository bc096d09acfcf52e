"""From episodes of two or more machines to a translator between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Self

from torch import Tensor

from mcat.config import as_type, to_json
from mcat.datasets.views import Episodes
from mcat.errors import DataError, UsageError, unknown
from mcat.translator.action import (
    ActionTraining,
    ActionTranslator,
    SourceTargets,
)
from mcat.translator.configs import ActionConfig, ContextConfig
from mcat.translator.context import ContextModel, train_context
from mcat.translator.limits import require_limits
from mcat.translator.policy import EpochHook, Translator
from mcat.translator.report import FitReport
from mcat.translator.reward import train_reward
from mcat.translator.rollout import require_length


class LearnedTranslator(Translator):
    """C, F and H, for one pair of machines or conditioned on the contexts of any two of several.

    Args:
        model: C and F.
        network: H.
        report: How they were trained.

    Attributes:
        names: The machines' names, in the order of their numbers; none if none were given.
    """

    kind = "action"

    def __init__(
        self, model: ContextModel, network: ActionTranslator, report: FitReport | None = None
    ) -> None:
        super().__init__((len(model.obs_scale.mean), len(model.act_scale.mean)), report)
        self.model, self.network = model, network
        self.names: tuple[str, ...] = ()
        self.contexts: tuple[int, int] | tuple[()] = ()

    @property
    def tasks(self) -> int:
        """How many machines it knows."""
        return len(self.model.features)

    def between(self, source: int | str, target: int | str) -> LearnedTranslator:
        """This translator for two of its machines, by number as given to `fit_many` or by name."""
        if not self.network.conditioned:
            raise UsageError("a translator of one pair goes from its source to its target only")
        bound = LearnedTranslator(self.model, self.network, self.report)
        bound.names, bound.contexts = self.names, (self._number(source), self._number(target))
        return bound.with_cards(*(self.cards[k] for k in bound.contexts if self.cards))

    def _number(self, machine: int | str) -> int:
        if isinstance(machine, str):
            if machine not in self.names:
                raise unknown("machine", machine, self.names or map(str, range(self.tasks)))
            return self.names.index(machine)
        if not 0 <= machine < self.tasks:
            raise UsageError(f"there are machines 0 to {self.tasks - 1}, not {machine}")
        return machine

    def require_usable(self) -> None:
        """Refuse one of several machines that was not told between which."""
        if self.network.conditioned and not self.contexts:
            known = f" ({', '.join(self.names)})" if self.names else ""
            raise UsageError(
                f"this translator knows several machines{known}: say which by between()"
            )

    def translate_tensors(self, obs: Tensor, action: Tensor) -> Tensor:
        """The actions into which H translates `action`."""
        self.require_usable()
        features = [self.model.features[k].expand(len(obs), -1) for k in self.contexts]
        translated: Tensor = self.network(self.network.seen(self.model, obs), action, *features)
        return translated

    def header(self) -> dict[str, Any]:
        """The sizes and the configs of the networks, as JSON."""
        return {
            "observation_size": self.observation_size,
            "action_size": self.action_size,
            "tasks": self.tasks,
            "conditioned": self.network.conditioned,
            "names": list(self.names),
            "context": to_json(self.model.config),
            "action": to_json(self.network.config),
        }

    @classmethod
    def build(cls, header: dict[str, Any]) -> Self:
        """An untrained translator of the sizes that `header` names."""
        context = as_type(ContextConfig, header["context"])
        sizes = header["observation_size"], header["action_size"]
        network = ActionTranslator(
            *sizes,
            as_type(ActionConfig, header["action"]),
            context.context_size if header["conditioned"] else 0,
        )
        translator = cls(ContextModel(*sizes, header["tasks"], context), network)
        translator.names = tuple(map(str, header.get("names", ())))
        return translator


def fit_pair(
    source: Episodes,
    target: Episodes,
    *,
    context: ContextConfig | None = None,
    action: ActionConfig | None = None,
    joint: bool = False,
    seed: int = 0,
    quiet: bool = False,
    epochs: int = 30,
    on_epoch: EpochHook | None = None,
) -> LearnedTranslator:
    """Learn to translate actions of `source` into actions of `target`.

    Args:
        source: What a policy did on the machine where it is good; the better the policy, the
            better the translation of good actions.
        target: What happened on the changed machine, with as much variety as there is.
        context: How C and F are trained.
        action: How H is trained.
        joint: Train C and F on both machines rather than on the target alone. F then knows the
            source's states, about which H asks it; but where a state gives away its machine (other
            objects, other goals) it answers for the source, and H learns nothing
            (docs/decisions.md#which-machine-f-knows).
        seed: Equal seeds give equal translators.
        quiet: Show no progress.
        epochs: Equal parts of H's training, for the hook alone.
        on_epoch: Called with the number of each and the translator as it is then.
    """
    require_limits(source=source, target=target)
    tasks = [source, target] if joint else [target]
    sources = [SourceTargets(0, source, [len(tasks) - 1])]
    return _fit(tasks, sources, context, action, seed, quiet, epochs, on_epoch)


def fit_many(
    tasks: Sequence[Episodes],
    *,
    names: Sequence[str] = (),
    pairs: Iterable[tuple[int, int]] | None = None,
    context: ContextConfig | None = None,
    action: ActionConfig | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> LearnedTranslator:
    """Learn one translator between any two of several machines; see `LearnedTranslator.between`.

    Args:
        tasks: Episodes of each machine.
        names: What `between` may call them, beside their numbers.
        pairs: Numbers of source and target to train H on; all, if missing.
        context: How C and F are trained.
        action: How H is trained.
        seed: Equal seeds give equal translators.
        quiet: Show no progress.
    """
    if len(tasks) < 2:
        raise UsageError("a translator needs at least 2 machines")
    require_limits(**{f"machine_{number}": task for number, task in enumerate(tasks)})
    if len(names) not in (0, len(tasks)) or len(set(names)) != len(names):
        raise UsageError(f"give each of the {len(tasks)} machines a name of its own")
    numbers = range(len(tasks))
    wanted = set(itertools.product(numbers, numbers) if pairs is None else pairs)
    sources = [SourceTargets(i, tasks[i], sorted(j for k, j in wanted if k == i)) for i in numbers]
    sources = [source for source in sources if source.targets]
    translator = _fit(tasks, sources, context, action, seed, quiet)
    translator.names = tuple(names)
    return translator


def _fit(
    tasks: Sequence[Episodes],
    sources: Sequence[SourceTargets],
    context: ContextConfig | None,
    action: ActionConfig | None,
    seed: int,
    quiet: bool,
    epochs: int = 1,
    on_epoch: EpochHook | None = None,
) -> LearnedTranslator:
    context, action = context or ContextConfig(), action or ActionConfig()
    if action.raw_states and context.shared_only:
        raise UsageError("raw_states shows H what shared_only hides from it: leave one of them off")
    require_same_spaces([*tasks, *(source.episodes for source in sources)])
    for source in sources:
        require_length(source.episodes, action.horizon)
    others = [source.episodes for source in sources if source.episodes not in tasks]
    model, forward = train_context(tasks, context, asked_about=others, seed=seed, quiet=quiet)
    reward = train_reward(model, tasks, seed=seed + 2, quiet=quiet) if action.reward_aware else None
    training = ActionTraining(model, sources, action, reward=reward, seed=seed + 1)
    translator = LearnedTranslator(model, training.network)
    hook = None if on_epoch is None else lambda epoch: on_epoch(epoch, translator)
    translator.report = forward | training.run(quiet=quiet, epochs=epochs, on_epoch=hook)
    return translator


def require_same_spaces(machines: Sequence[Episodes]) -> None:
    """Refuse machines whose states or actions differ in size."""
    sizes = [(machine.observation_size, machine.action_size) for machine in machines]
    for other in sizes[1:]:
        if other != sizes[0]:
            raise DataError(
                "the machines differ in their spaces: {} states and {} actions against {} and {};"
                " that takes a state translator with a first guess of what matches what"
                " (fit_state, --map)".format(*sizes[0], *other)
            )
