"""The methods of `mcat metatrain` by name; light, as a mistake in a name is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from mcat.agents.meta.config import PRESETS, MetaTrainConfig
from mcat.agents.meta.methods import configs, presets
from mcat.agents.meta.run_config import RunConfig
from mcat.errors import UsageError, unknown

if TYPE_CHECKING:
    import numpy as np

    from mcat.agents.meta.algorithm import Algorithm, TaskSet


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of meta-training.

    Attributes:
        label: What tables and curves call it.
        config: The class of its runs' settings.
        presets: Complete settings under one name.
        module: Where it is, below `mcat.agents.meta`.
        algorithm: Its class there.
    """

    label: str
    config: type[RunConfig]
    presets: Mapping[str, RunConfig]
    module: str
    algorithm: str

    def make(self, task_set: TaskSet, config: RunConfig, seed: np.random.SeedSequence) -> Algorithm:
        """The method before its first round; every random draw follows from `seed`."""
        found = getattr(import_module(f"mcat.agents.meta.{self.module}"), self.algorithm)
        made: Algorithm = found.of_run(task_set, config, seed)
        return made


METHODS: dict[str, Method] = {
    "mcat": Method(
        label="MCAT",
        config=MetaTrainConfig,
        presets=PRESETS,
        module="mcat",
        algorithm="MCAT",
    ),
    "pearl": Method(
        label="PEARL",
        config=configs.PEARLRun,
        presets=presets.PEARL,
        module="methods.pearl",
        algorithm="PEARL",
    ),
    "mql": Method(
        label="MQL",
        config=configs.MQLRun,
        presets=presets.MQL,
        module="methods.mql",
        algorithm="MQL",
    ),
    "distral": Method(
        label="Distral",
        config=configs.DistralRun,
        presets=presets.DISTRAL,
        module="methods.distral",
        algorithm="Distral",
    ),
    "hipbmdp": Method(
        label="HiP-BMDP",
        config=configs.HiPBMDPRun,
        presets=presets.HIPBMDP,
        module="methods.hipbmdp",
        algorithm="HiPBMDP",
    ),
    "pcgrad": Method(
        label="PCGrad",
        config=configs.PCGradRun,
        presets=presets.PCGRAD,
        module="methods.pcgrad",
        algorithm="PCGrad",
    ),
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
