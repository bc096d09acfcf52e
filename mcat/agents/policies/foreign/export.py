"""Policies as ONNX files, checked against torch before they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat import __version__
from mcat.agents.policies.coded_policy import CodedPolicy
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.policies.foreign.imported import ImportedPolicy
from mcat.agents.policies.policy import Policy
from mcat.agents.policies.recurrent_policy import RecurrentPolicy
from mcat.errors import McatError, MissingInputError, UsageError, install
from mcat.safe_io import StrPath, dump_json, ensure_writable_output, write_file
from mcat.translator.cycle.spaces import SpacesCycleTranslator
from mcat.translator.fit import LearnedTranslator
from mcat.translator.networks import Normaliser
from mcat.translator.policy import TransferredPolicy
from mcat.translator.state.translator import StateTranslator
from mcat.types import AnyPolicy, started

TOLERANCE = 1e-5
# Two programs add numbers up in different orders. What a change of observations in their last bits
# does shows how much that may matter: of four changes the worst was never exceeded by more than
# three times on the packaged policies.
NUDGE, NUDGES, ROUNDINGS = 2.0**-22, 4, 8
SCALES = (1.0, 10.0, 1000.0)  # of observations, in their usual spread
MEMORY_RULE = (
    "Every NAME_in is zero at the first step of an episode, and NAME_out of the step before at all"
    " others."
)


class MismatchError(McatError):
    """A graph that does something else than its policy."""

    exit_code = 70


class Differences(NamedTuple):
    """How far onnxruntime and torch are apart.

    Attributes:
        usual: The largest difference of actions on observations of the usual size.
        extreme: The same on all that were tried, up to a thousand times as large.
    """

    usual: float
    extreme: float


def export_onnx(
    policy: AnyPolicy,
    path: StrPath,
    *,
    about: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Differences:
    """Write a policy as one ONNX file that needs neither mcat nor torch.

    Args:
        policy: One of `load_policy`, an imported one, or either behind a translator.
        path: The file.
        about: What goes into its metadata beside sizes, bounds and memory, as JSON types.
        overwrite: Replace a file that is there already.

    Raises:
        UsageError: if it is no such policy.
        MissingInputError: if onnx or onnxruntime are not installed.
        MismatchError: if the file would do something else than the policy; nothing is written.
        CannotCreateError: if the file exists and `overwrite` is false.
    """
    if isinstance(policy, CodedPolicy | RecurrentPolicy):
        raise UsageError("of meta-trained policies only those of MCAT can be exported")
    if not isinstance(policy, Policy | ImportedPolicy | ContextPolicy | TransferredPolicy):
        raise UsageError("only policies of mcat and imported ones can be exported, not code")
    ensure_writable_output(path, overwrite=overwrite)
    try:
        from mcat.agents.policies.foreign.drawing import draw
    except ImportError as error:
        raise MissingInputError(f"ONNX needs onnx and onnxruntime: {install('onnx')}") from error
    graph = draw(policy)
    memory = [
        {"in": f"{name}_in", "out": f"{name}_out", "shape": list(shape), "holds": holds}
        for name, shape, holds in graph.memory
    ]
    notes = {**_notes(policy), "memory": memory, **(about or {})}
    if memory:
        notes["memory_rule"] = MEMORY_RULE
    texts = {k: v if isinstance(v, str) else dump_json(v) for k, v in notes.items()}
    content: bytes = graph.model(texts).SerializeToString(deterministic=True)
    agreement = compare(policy, content, path)
    write_file(path, content, overwrite=overwrite)
    return agreement


def compare(policy: AnyPolicy, content: bytes, path: StrPath) -> Differences:
    """Run a policy and an ONNX file's bytes side by side, on random and on extreme observations.

    Raises:
        MismatchError: if they differ by more than rounding explains.
    """
    from mcat.agents.policies.foreign.onnx_policy import of_bytes

    other = of_bytes(content, path)
    rng = np.random.default_rng(0)
    found = []
    for scale in SCALES:
        episodes = _episodes(policy, scale, rng)
        wanted = _actions(policy, episodes)
        signs = rng.choice(np.array([-NUDGE, NUDGE], np.float32), (NUDGES, *episodes.shape))
        nudged = [_actions(policy, episodes * (1 + each)) for each in signs]
        difference = float(np.abs(_actions(other, episodes) - wanted).max())
        # Actions in N·m or degrees are larger than those in [-1, 1], and so is their last bit.
        size = max(1.0, float(np.abs(wanted).max()))
        allowed = TOLERANCE * size + ROUNDINGS * float(np.abs(np.stack(nudged) - wanted).max())
        if not difference <= allowed:
            raise MismatchError(
                f"{path} was not written: onnxruntime and torch differ by {difference:.1e} where"
                f" {allowed:.1e} is allowed: a mistake in mcat, please report it"
            )
        found.append(difference)
    return Differences(found[0], max(found))


def _actions(policy: AnyPolicy, episodes: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a policy does in episodes `(steps, n, obs)`, which its actions do not change."""
    acting = started(policy)
    return np.stack([acting(rows) for rows in episodes])


def _episodes(policy: AnyPolicy, scale: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Observations `(steps, n, obs)` for the first steps of episodes, in a policy's own units.

    The first of them are at the middle, and with one number far out each.
    """
    middle, spread = _usual(policy)
    size = len(middle)
    lone = np.concatenate((np.zeros((1, size)), np.eye(size), -np.eye(size)))
    rows = np.concatenate((scale * lone, scale * rng.standard_normal((500, size))))
    steps = [rows * spread + middle]
    if isinstance(policy, ContextPolicy):
        change = policy.spread.numpy() * scale
        for _ in range(2 * policy.history + 3):
            steps.append(steps[-1] + change * rng.standard_normal(rows.shape))
    return np.stack(steps).astype(np.float32)


def _usual(policy: AnyPolicy) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean and the spread of a policy's observations, as far as it knows them."""
    size = int(getattr(policy, "observation_size", 0))
    if isinstance(policy, ImportedPolicy) and policy.scaling is not None:
        return policy.scaling.mean, policy.scaling.std
    if isinstance(policy, TransferredPolicy):
        scale = _scale(policy.translator)
        if scale is not None:
            return scale.mean.numpy(), scale.std.numpy()
        size = policy.translator.observation_size
    return np.zeros(size), np.ones(size)


def _scale(translator: object) -> Normaliser | None:
    if isinstance(translator, LearnedTranslator):
        return translator.model.obs_scale
    if isinstance(translator, StateTranslator):
        return translator.maps.target_scale
    if isinstance(translator, SpacesCycleTranslator):
        return translator.networks.state_map.target_scale
    return None


def _notes(policy: Policy | ImportedPolicy | ContextPolicy | TransferredPolicy) -> dict[str, Any]:
    """What the file says of any policy."""
    owner = policy.translator if isinstance(policy, TransferredPolicy) else policy
    low, high = [-1.0] * owner.action_size, [1.0] * owner.action_size
    if isinstance(policy, ImportedPolicy):
        low, high = (side.tolist() for side in policy.bounds)
    card = policy.card if isinstance(policy, ImportedPolicy) else None
    if isinstance(policy, TransferredPolicy):
        card = policy.translator.target_card
    told: dict[str, Any] = {}
    if card is not None:
        told = card.to_metadata()
        if rate := told.pop("rate_hz", None):
            told["control_rate_hz"] = rate
    return {
        "mcat_version": __version__,
        "observation_size": owner.observation_size,
        "action_size": owner.action_size,
        "action_low": low,
        "action_high": high,
        **told,
    }
