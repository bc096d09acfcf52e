"""Data sets: `EpisodeStore`, its file, and the formats others use.

Names are imported on first use, so that `from mcat.datasets import EpisodeStore` needs numpy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.datasets.cards import Card, Channel
    from mcat.datasets.checks import Problem, check
    from mcat.datasets.columns import LogColumns, read_card
    from mcat.datasets.episodes import EpisodeStore
    from mcat.datasets.exports import export_table
    from mcat.datasets.hdf5 import read_dataset, write_dataset
    from mcat.datasets.imports import import_logs
    from mcat.datasets.interop import export_minari, import_minari, load
    from mcat.datasets.lerobot import import_lerobot
    from mcat.datasets.lerobot_export import export_lerobot
    from mcat.datasets.tables import read_csv
    from mcat.datasets.views import Episodes, Transitions

__all__ = [
    "Card",
    "Channel",
    "EpisodeStore",
    "Episodes",
    "LogColumns",
    "Problem",
    "Transitions",
    "check",
    "export_lerobot",
    "export_minari",
    "export_table",
    "import_lerobot",
    "import_logs",
    "import_minari",
    "load",
    "read_card",
    "read_csv",
    "read_dataset",
    "write_dataset",
]

__getattr__ = on_first_use(__name__)
