"""The number of a file's format, and what is said of one that only a later mcat reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcat import __version__
from mcat.errors import DataError
from mcat.safe_io import StrPath


def stamp(number: int) -> dict[str, Any]:
    """What a header says of its format."""
    return {"format": number, "mcat": __version__}


def require_format(header: Mapping[str, Any], number: int, path: StrPath) -> None:
    """Refuse a file of any other format than `number`."""
    found = header.get("format")
    if found == number and not isinstance(found, bool):
        return
    if isinstance(found, int) and found > number:
        maker = header.get("mcat")
        needed = f"mcat >= {maker}" if isinstance(maker, str) else "a newer mcat"
        raise DataError(
            f"{path}: needs {needed.splitlines()[0][:40]}: it is of format {found}, this is mcat"
            f" {__version__}, which reads {number}"
        )
    raise DataError(
        f"{path}: format {found!r:.40}, which mcat {__version__} does not read (it reads {number})"
    )
