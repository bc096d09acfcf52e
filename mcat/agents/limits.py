"""Settings beyond what any machine bears, refused in a line before memory is taken."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import Any

from mcat.config import flatten
from mcat.envs.tasks import Task
from mcat.errors import UsageError

# By the end of a setting's key; of a list each item counts. All are far above what is of use.
LIMITS = {
    "threads": 256,
    "episodes": 10_000,
    "batch_size": 100_000,
    "td_steps": 1000,
    "replay_capacity": 100_000_000,
    "imitation.capacity": 100_000_000,
    "hidden": 4096,
    "encoder_hidden": 4096,
    "forward_hidden": 4096,
    "embedding": 4096,
    "context_size": 4096,
    "history": 1000,
    "future": 1000,
    "feature_samples": 1_000_000,
    "credit.segments": 10_000,
    "credit.steps": 10_000,
}
MAX_LAYERS = 32
MAX_UNSTABLE = 10  # episodes, or rounds of a task, in a row that may end by a fault
SIMULATION_BYTES = 1e6  # of a robot with its physics, measured
TABLE_BYTES = 20e6  # of one on Meta-World's table


def require_bearable(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no machine could hold."""
    for key, value in flatten(settings).items():
        items = value if isinstance(value, list | tuple) else [value]
        for end, limit in LIMITS.items():
            if f".{key}".endswith(f".{end}") and any(item > limit for item in items):
                raise UsageError(f"{key} must be at most {limit:,}, not {_short(value)}")
        if len(items) > MAX_LAYERS and key.endswith("hidden"):
            raise UsageError(f"{key} must be at most {MAX_LAYERS} layers, not {len(items):,}")


def require_room(task: Task, episodes: int, *, tasks: int = 1, key: str = "episodes") -> None:
    """Refuse more episodes at once than the machine has memory for."""
    each = tasks * (TABLE_BYTES if task.on_table else SIMULATION_BYTES)
    memory = _memory()
    if episodes * each > memory:
        raise UsageError(
            f"{key} must be at most {int(memory / each):,} in this machine's {memory / 1e9:.0f} GB"
            f" of memory, not {_short(episodes)}"
        )


def _memory() -> float:
    """Bytes this process may use at the very most."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return memory if limit == resource.RLIM_INFINITY else min(memory, limit)


def _short(value: Any) -> str:
    """A value in an error: as it is, unless it has hundreds of digits."""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) < 60 else f"{text[:50]}…"
