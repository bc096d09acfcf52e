"""From logs of several machines to a translator, to what it is worth, and to its use.

This is what `mcat translate` does; the learning itself is in `mcat.translator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.transfer.collectors import collector_policy
    from mcat.transfer.config import TransferConfig
    from mcat.transfer.deploy import open_transfer
    from mcat.transfer.result import Machine, TransferResult
    from mcat.transfer.run import translate

__all__ = [
    "Machine",
    "TransferConfig",
    "TransferResult",
    "collector_policy",
    "open_transfer",
    "translate",
]

__getattr__ = on_first_use(__name__)
