"""What `mcat train` and `mcat adapt` share: clock, generators, replay, and checkpoints of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from mcat.agents.learner import Learner
from mcat.agents.replay import Replay
from mcat.agents.runs.folder import CsvLog, Resumable, save_checkpoint, settings_of, take_over
from mcat.agents.single.episode import Step
from mcat.progress import Notify
from mcat.safe_io import io_errors
from mcat.tensor_files import Arrays, part


class StepwiseRun:
    """A run that acts, remembers and learns step by step; whoever extends it says how."""

    kind: ClassVar[str]  # what its checkpoints call themselves
    learner_key: ClassVar[str]  # and what they call the learner
    counters: tuple[str, ...]  # the plain values that they keep
    learner: Learner

    def __init__(
        self,
        config: Resumable,
        out: Path,
        sizes: tuple[int, int],
        capacity: int,
        columns: tuple[str, ...],
    ) -> None:
        self.settings, self.out = settings_of(config), out
        # One stream per consumer, so that none depends on how much another has drawn.
        agent, *others = np.random.SeedSequence(config.seed).spawn(5)
        first = int(agent.generate_state(1, np.uint64)[0] >> 1)
        self.generator = torch.Generator().manual_seed(first)
        names = ("acting", "sampling", "episodes")
        self.rngs = {name: np.random.default_rng(s) for name, s in zip(names, others, strict=False)}
        self.evaluation_seed = int(others[-1].generate_state(1)[0] >> 1)
        self.replay = Replay(*sizes, capacity)
        self.step = 0
        self.seconds = self.cpu_seconds = 0.0  # of all processes that worked on this run
        self.unstable = 0  # episodes in a row that ended by a fault
        self.episodes = 0
        self.latest_returns: list[float] = []
        self.checkpoints, self.segments = out / "checkpoints", out / "replay"
        self.log = CsvLog(out / "metrics.csv", columns)

    def begin(self) -> None:
        """Make the folders and set the clock going."""
        with io_errors(self.out, "write"):
            self.checkpoints.mkdir(exist_ok=True)
            self.segments.mkdir(exist_ok=True)
        self._began = time.monotonic() - self.seconds, time.process_time() - self.cpu_seconds

    def tick(self) -> None:
        """Look at the clock."""
        self.seconds = time.monotonic() - self._began[0]
        self.cpu_seconds = time.process_time() - self._began[1]

    def remember(self, taken: Step) -> None:
        """Keep a step that led somewhere."""
        if taken.fault is None:
            self.replay.add(taken.obs, taken.action, taken.reward, taken.next_obs, taken.terminal)
            self.replay.save_segment(self.segments)

    def write_checkpoint(self, number: int, arrays: Arrays, state: dict[str, Any]) -> None:
        """Write all that is here, and more."""
        learned = self.learner.tensors().items()
        arrays |= {f"{self.learner_key}/{name}": x.detach().numpy() for name, x in learned}
        arrays |= {"replay.tail": self.replay.tail()}
        state |= {
            "kind": self.kind,
            "rngs": {name: rng.bit_generator.state for name, rng in self.rngs.items()},
            "replay_added": self.replay.added,
            "replay_seals": self.replay.seals,
            "log": self.log.text,
            **{name: getattr(self, name) for name in self.counters},
        }
        save_checkpoint(self.checkpoints, number, arrays, state, self.settings)

    def read_checkpoint(self, arrays: Arrays, state: Mapping[str, Any], notify: Notify) -> None:
        """Take over what `write_checkpoint` wrote."""
        take_over(self, self.counters, state)
        for name, rng in self.rngs.items():
            rng.bit_generator.state = state["rngs"][name]
        tail, seals = arrays["replay.tail"], state["replay_seals"]
        self.replay.load(self.segments, state["replay_added"], tail, seals)
        learned = part(f"{self.learner_key}/", arrays)
        self.learner.load_tensors({name: torch.from_numpy(x) for name, x in learned.items()})
        self.log.restore(state["log"], notify)
