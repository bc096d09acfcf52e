"""The state of what learns, networks and optimisers alike, as tensors by name: for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Part = nn.Module | torch.optim.Optimizer


def tensors_of(**parts: Part) -> dict[str, Tensor]:
    """Everything that learning changes in some networks and optimisers (no copies).

    A weight is named `network/layers.0`, a moment of an optimiser `adam/0.exp_avg`, where 0 is the
    parameter's number; an optimiser that has not stepped yet has none.
    """
    return {
        f"{part}/{name}": tensor
        for part, owner in parts.items()
        for name, tensor in _state(owner).items()
    }


def load_tensors(tensors: Mapping[str, Tensor], **parts: Part) -> None:
    """Take over what `tensors_of` gave for parts of the same names and shapes.

    Raises:
        ValueError: if a tensor is missing, left over, or of another shape or type.
    """
    for part, owner in parts.items():
        own = {
            name.removeprefix(f"{part}/"): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{part}/")
        }
        if isinstance(owner, nn.Module):
            _load_module(part, owner, own)
        else:
            _load_optimiser(part, owner, own)


def _state(owner: Part) -> dict[str, Tensor]:
    if isinstance(owner, nn.Module):
        return owner.state_dict()
    return {
        f"{number}.{name}": tensor
        for number, moments in owner.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def _load_module(part: str, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    state = module.state_dict()
    for name in state.keys() | tensors.keys():
        found, own = tensors.get(name), state.get(name)
        if found is None or own is None or (found.shape, found.dtype) != (own.shape, own.dtype):
            raise ValueError(f"no fitting '{part}/{name}'; was it another network?")
    module.load_state_dict(dict(tensors))


def _load_optimiser(
    part: str, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for name, tensor in tensors.items():
        number, _, moment = name.partition(".")
        if not number.isdecimal() or int(number) >= len(parameters):
            raise ValueError(f"no parameter for '{part}/{name}'; was it another network?")
        if tensor.shape not in ((), parameters[int(number)].shape):
            raise ValueError(f"no fitting '{part}/{name}'; was it another network?")
        state.setdefault(int(number), {})[moment] = tensor
    if state and len(state) < len(parameters):
        raise ValueError(f"'{part}' lacks moments of some parameters; was it another network?")
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
