"""The paper's transfer experiments: what it printed, and running them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.paper.config import ReproduceConfig
    from mcat.paper.run import reproduce
    from mcat.paper.tables import TABLES

__all__ = [
    "TABLES",
    "ReproduceConfig",
    "reproduce",
]

__getattr__ = on_first_use(__name__)
