"""The methods of `mcat metatrain` by name; light, as a mistake in a name is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcat.agents.meta.config import BY_ROBOT, PRESETS, MetaTrainConfig, of_robots
from mcat.agents.meta.methods import configs, presets
from mcat.agents.meta.run_config import RunConfig
from mcat.config import overlay
from mcat.errors import UsageError, unknown

if TYPE_CHECKING:
    import numpy as np

    from mcat.agents.meta.algorithm import Algorithm, TaskSet


@dataclass(frozen=True)
class Method:
    """A method of meta-training."""

    label: str  # what tables and curves call it
    config: type[RunConfig]  # the class of its runs' settings
    presets: Mapping[str, RunConfig]  # complete settings under one name
    place: str  # module below `mcat.agents.meta`, and class
    # By preset and robot, what is otherwise in the method's own group.
    by_robot: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def preset(self, name: str, robot: str) -> RunConfig:
        """The preset of that name, with what a robot needs otherwise."""
        own = self.by_robot.get(name, {}).get(robot, {})
        group = self.config.method
        return overlay(self.presets[name], {f"{group}.{key}": own[key] for key in own})

    def make(self, task_set: TaskSet, config: RunConfig, seed: np.random.SeedSequence) -> Algorithm:
        """The method before its first round; every random draw follows from `seed`."""
        module, name = self.place.split(":")
        found = getattr(import_module(f"mcat.agents.meta.{module}"), name)
        made: Algorithm = found.of_run(task_set, config, seed)
        return made


_ON_SAC = {"fast": of_robots("sac")}
_ON_CROSSQ = {"fast": of_robots("crossq")}

METHODS: dict[str, Method] = {
    "mcat": Method("MCAT", MetaTrainConfig, PRESETS, "mcat:MCAT", BY_ROBOT),
    "pearl": Method("PEARL", configs.PEARLRun, presets.PEARL, "methods.pearl:PEARL", _ON_SAC),
    "mql": Method("MQL", configs.MQLRun, presets.MQL, "methods.mql:MQL", _ON_CROSSQ),
    "distral": Method(
        "Distral", configs.DistralRun, presets.DISTRAL, "methods.distral:Distral", _ON_SAC
    ),
    "hipbmdp": Method(
        "HiP-BMDP", configs.HiPBMDPRun, presets.HIPBMDP, "methods.hipbmdp:HiPBMDP", _ON_SAC
    ),
    "pcgrad": Method("PCGrad", configs.PCGradRun, presets.PCGRAD, "methods.pcgrad:PCGrad", _ON_SAC),
}


def find_method(name: str) -> Method:
    """The method of that name.

    Raises:
        UsageError: if there is none; it says which was meant.
    """
    if name == "cycle":  # what --method meant before there were several
        raise UsageError("cycle is a translator of MCAT: --translator cycle")
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
