"""What stands between a policy and real motors: limits, an even beat, and how long an action takes.

Needs numpy and nothing that simulates; docs/robot.md shows the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.robot.guard import Guard
    from mcat.robot.ticks import Latency, Ticks, latency_of

__all__ = ["Guard", "Latency", "Ticks", "latency_of"]

__getattr__ = on_first_use(__name__)
