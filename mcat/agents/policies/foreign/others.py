"""Policies of stable-baselines3 and CleanRL, taken from their files without unpickling anything.

Which network it is follows from the names and shapes of its tensors; what they do not tell
(activation, bounds) from the readable part of a stable-baselines3 file, or from what its authors
always use.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.agents.policies.foreign.bounds import Bounds
from mcat.agents.policies.foreign.imported import ACTIVATIONS, ImportedPolicy, Scaling, layered
from mcat.agents.policies.foreign.state_dicts import MAX_BYTES, ZipMembers, read_saved
from mcat.errors import DataError, UsageError, printable, unknown
from mcat.safe_io import StrPath, open_input, parse_json

State = dict[str, NDArray[Any]]


class _Kind(NamedTuple):
    """Where an actor's layers are among the tensors, and what is done with them."""

    name: str  # what trains it
    hidden: str  # matches the names of the layers before the last, with their number
    last: str  # matches that of the last; empty if it is one of the others
    needs: str  # a tensor that only those with continuous actions have
    activation: str  # what its authors use
    squashed: bool  # whether tanh of the last layer is the action


_KINDS = (
    _Kind("stable-baselines3 TD3 or DDPG", r"actor\.mu\.(\d+)", "", "actor.mu.0.weight",
          "relu", True),
    _Kind("stable-baselines3 SAC or TQC", r"actor\.latent_pi\.(\d+)", r"actor\.mu",
          "actor.log_std.weight", "relu", True),
    _Kind("stable-baselines3 PPO or A2C", r"mlp_extractor\.policy_net\.(\d+)", "action_net",
          "log_std", "tanh", False),
    _Kind("CleanRL TD3, DDPG or SAC", r"fc(\d+)", "fc_mu|fc_mean", "action_scale", "relu", True),
    _Kind("CleanRL PPO", r"actor_mean\.(\d+)", "", "actor_logstd", "tanh", False),
)  # fmt: skip


def import_policy(
    path: StrPath,
    *,
    normalize: StrPath | None = None,
    bounds: tuple[float, float] | None = None,
    activation: str | None = None,
) -> ImportedPolicy:
    """The actor in a file of stable-baselines3 (`model.save`) or CleanRL (`torch.save`).

    Args:
        path: A zip of stable-baselines3, or a state_dict of an actor or agent.
        normalize: An .npz with the `mean` and `var` of observations, and `clip` and `epsilon` where
            they are not 10 and 1e-8.
        bounds: The smallest and the largest action, in place of what the file says.
        activation: Between the layers, in place of what the file says or its authors use.

    Raises:
        MissingInputError: if there is no such file.
        DataError: if it is damaged, or holds something else.
        UsageError: if bounds or activation are none.
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)
    state, notes = _read(path)
    state = {name.removeprefix("_orig_mod."): array for name, array in state.items()}
    kind = next((kind for kind in _KINDS if kind.needs in state), None)
    if kind is None or any("features_extractor" in name for name in state):
        raise DataError(
            f"{path}: no actor with continuous actions of plain layers among its tensors"
            f" ({printable(', '.join(state), 100)})"
        )
    if notes.get("use_sde"):
        raise DataError(f"{path}: trained with use_sde, which has other layers: export it as ONNX")
    layers = _layers(kind, state, path)
    activation = activation or _activation(notes, path) or kind.activation
    size = len(layers[-1][1])
    limits = _bounds(bounds, state, notes, size, path)
    scaling = None if normalize is None else _scaling(normalize, layers[0][0].shape[1])
    return ImportedPolicy(
        layered(layers, activation),
        limits,
        activation=activation,
        squashed=kind.squashed,
        scaling=scaling,
        metadata={"from": kind.name},
    )


def _read(path: StrPath) -> tuple[State, dict[str, Any]]:
    """The tensors, and what a file of stable-baselines3 says of them."""
    with open_input(path) as file:
        content = file.read(2 * MAX_BYTES + 1)
    if len(content) > 2 * MAX_BYTES:
        raise DataError(f"{path}: larger than {2 * MAX_BYTES:,} bytes, no small policy")
    parts = ZipMembers(content, path)
    if "policy.pth" not in parts.names:
        return _state(read_saved(content, path), path), {}
    notes = parse_json(parts.read("data"), path) if "data" in parts.names else {}
    return _state(read_saved(parts.read("policy.pth"), path), path), (
        notes if isinstance(notes, dict) else {}
    )


def _state(saved: Any, path: StrPath) -> State:
    """The first dictionary with an actor's tensors: an agent may be saved as several."""
    found = list(_dictionaries(saved))
    for state in found:
        if any(kind.needs in state or f"_orig_mod.{kind.needs}" in state for kind in _KINDS):
            return state
    if not found:
        raise DataError(f"{path}: no dictionary of tensors in it")
    return found[0]


def _dictionaries(saved: Any) -> Iterator[State]:
    several = saved if isinstance(saved, list | tuple) else [saved]
    inside = [item for one in several if isinstance(one, dict) for item in one.values()]
    for one in (*several, *inside):
        if isinstance(one, dict):
            tensors = {k: v for k, v in one.items() if isinstance(v, np.ndarray)}
            if tensors and all(isinstance(name, str) for name in tensors):
                yield tensors


def _layers(
    kind: _Kind, state: State, path: StrPath
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Weights and biases in order, if they are layers with an activation after each."""
    numbers = sorted(
        int(found[1])
        for name in state
        if (found := re.fullmatch(rf"{kind.hidden}\.weight", name, re.ASCII))
    )
    # In a row of modules every second one is an activation; fc1, fc2 ... have names of their own.
    first, step = (1, 1) if kind.hidden.startswith("fc") else (0, 2)
    if numbers != [first + step * place for place in range(len(numbers))]:
        raise DataError(f"{path}: other layers than linear ones between its activations")
    prefixes = [kind.hidden.replace(r"(\d+)", str(n)).replace("\\", "") for n in numbers]
    if kind.last:
        names = kind.last.replace("\\", "").split("|")
        prefixes += [name for name in names if f"{name}.weight" in state][:1]
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    for prefix in prefixes:
        weight, bias = state.get(f"{prefix}.weight"), state.get(f"{prefix}.bias")
        inputs = len(layers[-1][1]) if layers else None
        fits = (
            weight is not None
            and bias is not None
            and weight.ndim == 2
            and weight.size > 0
            and bias.shape == weight.shape[:1]
            and inputs in (None, weight.shape[1])
            and {weight.dtype.kind, bias.dtype.kind} == {"f"}
        )
        if not fits:
            raise DataError(f"{path}: '{prefix}' is no linear layer that follows the one before")
        layers.append((np.array(weight, np.float32), np.array(bias, np.float32)))
    if not layers or (kind.last and len(prefixes) == len(numbers)):
        raise DataError(f"{path}: the last layer of its actor is missing")
    return layers


def _activation(notes: Mapping[str, Any], path: StrPath) -> str | None:
    """What a file of stable-baselines3 says of it; nothing if it is the usual one."""
    settings = notes.get("policy_kwargs")
    text = settings.get("activation_fn") if isinstance(settings, dict) else None
    if text is None:
        return None
    name = str(text).rpartition(".")[2].strip("'>").lower()
    if name not in ACTIVATIONS:
        raise DataError(
            f"{path}: its activation is {printable(text, 80)}; these are known:"
            f" {', '.join(ACTIVATIONS)}"
        )
    return name


def _bounds(
    given: tuple[float, float] | None,
    state: State,
    notes: Mapping[str, Any],
    size: int,
    path: StrPath,
) -> Bounds:
    """The bounds of actions, from the first that knows them; [-1, 1] if nothing does."""
    if given is not None:
        low, high = (np.full(size, side, np.float32) for side in given)
        if not (np.isfinite((low, high)).all() and (low < high).all()):
            raise UsageError(f"bounds must be two finite numbers, the smaller first, not {given}")
        return Bounds(low, high)
    low, high = np.full(size, -1, np.float32), np.full(size, 1, np.float32)
    space = notes.get("action_space")
    if isinstance(space, dict):
        low, high = (_numbers(space.get(side), size) for side in ("low", "high"))
    elif "action_scale" in state and "action_bias" in state:
        scale, bias = (state[f"action_{name}"].reshape(-1) for name in ("scale", "bias"))
        if {scale.shape, bias.shape} <= {(1,), (size,)}:
            low, high = (
                np.broadcast_to(side, size).astype(np.float32)
                for side in (bias - scale, bias + scale)
            )
    if not (np.isfinite((low, high)).all() and (low < high).all()):
        raise DataError(f"{path}: does not tell the bounds of its actions: say them by --bounds")
    return Bounds(low, high)


def _numbers(text: Any, size: int) -> NDArray[np.float32]:
    """`size` numbers that stable-baselines3 wrote as numpy prints them; NaN if they are not."""
    try:
        numbers = [float(word) for word in str(text).strip("[]").split()]
    except ValueError:
        numbers = []
    return np.array(numbers if len(numbers) == size else [np.nan] * size, np.float32)


def _scaling(path: StrPath, size: int) -> Scaling:
    with open_input(path) as file:
        content = file.read(MAX_BYTES + 1)
    how = (
        f"{path}: no .npz of mean and var; VecNormalize is a pickle, which is never loaded: write"
        " np.savez(FILE, mean=env.obs_rms.mean, var=env.obs_rms.var, clip=env.clip_obs)"
    )
    try:
        parts = ZipMembers(content, path)
    except DataError:
        raise DataError(how) from None
    arrays = {}
    for name in ("mean", "var", "clip", "epsilon"):
        if f"{name}.npy" in parts.names:
            arrays[name] = _array(parts.read(f"{name}.npy"), path)
    if not {"mean", "var"} <= arrays.keys():
        raise DataError(how)
    mean, var = (np.asarray(arrays[name], np.float64).reshape(-1) for name in ("mean", "var"))
    clip, epsilon = (
        float(arrays.get(name, np.array(usual)).reshape(-1)[0])
        for name, usual in (("clip", 10.0), ("epsilon", 1e-8))
    )
    if mean.shape != (size,) or var.shape != (size,):
        raise DataError(f"{path}: {mean.size} means and {var.size} variances of {size} numbers")
    with np.errstate(invalid="ignore"):
        std = np.sqrt(var + epsilon)
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all() and clip > 0):
        raise DataError(f"{path}: means must be finite; variances and clip greater than zero")
    return Scaling(mean, std, clip)


def _array(content: bytes, path: StrPath) -> NDArray[Any]:
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError, OverflowError) as error:
        raise DataError(f"{path}: damaged ({printable(error, 80)})") from error
    if array.dtype.kind not in "fiu" or array.size == 0:
        raise DataError(f"{path}: holds something else than numbers")
    return np.asarray(array)
