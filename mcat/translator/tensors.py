"""The state of what learns, networks and optimisers alike, as tensors by name: for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mcat.tensor_files import part

Part = nn.Module | torch.optim.Optimizer


def tensors_of(**parts: Part) -> dict[str, Tensor]:
    """Everything that learning changes in some networks and optimisers (no copies).

    A weight is named `network/layers.0`, a moment of an optimiser `adam/0.exp_avg`, where 0 is the
    parameter's number; an optimiser that has not stepped yet has none.
    """
    return {
        f"{whose}/{name}": tensor
        for whose, owner in parts.items()
        for name, tensor in _state(owner).items()
    }


def load_tensors(tensors: Mapping[str, Tensor], **parts: Part) -> None:
    """Take over what `tensors_of` gave for parts of the same names and shapes, all or nothing.

    Raises:
        ValueError: if a tensor is missing, left over, or of another shape or type.
    """
    states = {name: part(f"{name}/", tensors) for name in parts}
    for name, owner in parts.items():
        misfit = _misfit(owner, states[name])
        if misfit is not None:
            raise ValueError(f"no fitting '{name}/{misfit}'; was it another network?")
    for name, owner in parts.items():
        if isinstance(owner, nn.Module):
            owner.load_state_dict(states[name])
        else:
            settings = owner.state_dict()["param_groups"]
            owner.load_state_dict({"state": _moments(states[name]), "param_groups": settings})


def _state(owner: Part) -> dict[str, Tensor]:
    if isinstance(owner, nn.Module):
        return owner.state_dict()
    return {
        f"{number}.{name}": tensor
        for number, moments in owner.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def _misfit(owner: Part, tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that `owner` has no place for or cannot do without."""
    if isinstance(owner, nn.Module):
        own = owner.state_dict()
    else:  # without any it has not stepped yet, else every parameter has all
        shapes = [p for group in owner.param_groups for p in group["params"]]
        names = {name.partition(".")[2] for name in tensors}
        own = {
            f"{number}.{name}": torch.zeros(()) if name == "step" else parameter
            for number, parameter in enumerate(shapes)
            for name in names
        }
    for name in sorted(own.keys() | tensors.keys()):
        found, place = tensors.get(name), own.get(name)
        if found is None or place is None:
            return name
        if (found.shape, found.dtype) != (place.shape, place.dtype):
            return name
    return None


def _moments(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    return state
