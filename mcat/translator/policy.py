"""What a user holds in the end: a translator of actions, and a policy made of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mcat.datasets.views import Episodes
from mcat.errors import DataError, UsageError
from mcat.safe_io import StrPath, load_safetensors, save_safetensors
from mcat.translator.action import (
    ActionConfig,
    ActionTranslator,
    TranslationReport,
    train_action,
)
from mcat.translator.context import ContextConfig, ContextModel, ForwardReport, train_context
from mcat.types import PolicyFunction

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Reports:
    """How both trainings went."""

    forward: ForwardReport = field(default_factory=ForwardReport)
    translation: TranslationReport = field(default_factory=TranslationReport)


class Translator:
    """Turns actions of one machine into actions of another that do the same there.

    Attributes:
        reports: How it was trained; empty in one that was loaded.
    """

    def __init__(
        self, model: ContextModel, network: ActionTranslator, reports: Reports | None = None
    ) -> None:
        self.model, self.network = model, network
        self.reports = reports or Reports()

    def translate(self, observations: ArrayLike, actions: ArrayLike) -> NDArray[np.float32]:
        """Target actions `(n, act)` for the target's states and the source's actions in them.

        Args:
            observations: States of the target `(n, obs)`.
            actions: What the source policy does in them `(n, act)`, in [-1, 1].
        """
        # Copied: columns of a data set are read-only, which torch dislikes.
        obs, act = (torch.tensor(np.asarray(x, np.float32)) for x in (observations, actions))
        sizes = len(self.model.obs_scale.mean), len(self.model.act_scale.mean)
        if obs.ndim != 2 or (obs.shape[1], *act.shape) != (sizes[0], len(obs), sizes[1]):
            raise UsageError(
                f"expected observations (n, {sizes[0]}) and actions (n, {sizes[1]}),"
                f" got {tuple(obs.shape)} and {tuple(act.shape)}"
            )
        with torch.no_grad():
            out: NDArray[np.float32] = self.network(self.model.obs_scale(obs), act).numpy()
        return out

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write it as one safetensors file, from which `load` needs no data."""
        header = {
            "kind": "translator",
            "format": FORMAT,
            "observation_size": len(self.model.obs_scale.mean),
            "action_size": len(self.model.act_scale.mean),
            "tasks": len(self.model.features),
            "context": asdict(self.model.config),
            "action": asdict(self.network.config),
        }
        parts = {"model": self.model, "network": self.network}
        arrays = {
            f"{part}.{name}": tensor.numpy()
            for part, module in parts.items()
            for name, tensor in module.state_dict().items()
        }
        save_safetensors(path, arrays, header, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> Translator:
        """Read what `save` wrote; nothing in the file is run."""
        arrays, header = load_safetensors(path)
        if header.get("kind") != "translator" or header.get("format") != FORMAT:
            raise DataError(f"{path}: not a translator of this mcat (format {FORMAT})")
        try:
            context = ContextConfig(**_tuples(header["context"]))
            action = ActionConfig(**_tuples(header["action"]))
            sizes = header["observation_size"], header["action_size"]
            model = ContextModel(*sizes, header["tasks"], context)
            network = ActionTranslator(*sizes, action)
            for part, module in (("model", model), ("network", network)):
                state = {
                    name.removeprefix(f"{part}."): torch.from_numpy(array)
                    for name, array in arrays.items()
                    if name.startswith(f"{part}.")
                }
                module.load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path}: damaged ({' '.join(str(error).split())[:200]})") from error
        return cls(model.requires_grad_(False).eval(), network.requires_grad_(False).eval())


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


class TransferredPolicy:
    """A source policy, its actions translated: `(n, obs)` to `(n, act)` on the target."""

    def __init__(self, policy: PolicyFunction, translator: Translator) -> None:
        self.policy, self.translator = policy, translator

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Ask the source policy, translate its answer."""
        return self.translator.translate(observations, self.policy(observations))


def fit_pair(
    source: Episodes,
    target: Episodes,
    *,
    context: ContextConfig | None = None,
    action: ActionConfig | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> Translator:
    """Learn to translate actions of `source` into actions of `target`.

    The forward model is trained on both machines together: H asks it about states of the source,
    where one trained on the target alone is wrong (transfer-notes.md).

    Args:
        source: What a policy did on the machine where it is good; the better the policy, the
            better the translation of good actions.
        target: What happened on the changed machine, with as much variety as there is.
        context: How C and F are trained.
        action: How H is trained.
        seed: Equal seeds give equal translators.
        quiet: Show no progress.
    """
    sizes = [(machine.observation_size, machine.action_size) for machine in (source, target)]
    if sizes[0] != sizes[1]:
        raise DataError(
            "the machines differ in their spaces: source has {} states and {} actions,"
            " target {} and {}".format(*sizes[0], *sizes[1])
        )
    context, action = context or ContextConfig(), action or ActionConfig()
    model, forward = train_context([source, target], context, seed=seed, quiet=quiet)
    network, translation = train_action(model, source, 1, action, seed=seed + 1, quiet=quiet)
    return Translator(model, network, Reports(forward=forward, translation=translation))
