"""The files that a report is made of: pictures, and tables as JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcat.errors import install
from mcat.safe_io import ensure_writable_output, io_errors, write_file, write_json

NEEDS = f"matplotlib: {install('plot')}"
NO_PICTURES = f"Pictures need {NEEDS}. The tables say the same."


def can_draw() -> bool:
    """Whether matplotlib is there; reports have tables only without it."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def require_writable(folder: Path, table: str) -> None:
    """Make `folder` and find out whether a table can be written there.

    Raises:
        CannotCreateError: if not.
    """
    with io_errors(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    ensure_writable_output(folder / f"{table}.json", overwrite=True)


def write_pictures(folder: Path, pictures: Mapping[str, bytes]) -> list[Path]:
    """Write `<name>.png` for each; earlier ones are replaced."""
    paths = [folder / f"{name}.png" for name in pictures]
    for path, png in zip(paths, pictures.values(), strict=True):
        write_file(path, png, overwrite=True)
    return paths


def write_table(
    folder: Path, name: str, content: dict[str, Any], text: str, pictures: Mapping[str, bytes]
) -> list[Path]:
    """Write `<name>.json`, `<name>.md` and the pictures it shows; earlier ones are replaced."""
    whole, page = folder / f"{name}.json", folder / f"{name}.md"
    write_json(whole, content, overwrite=True)
    shown = write_pictures(folder, pictures)
    write_file(page, text, overwrite=True)
    return [whole, page, *shown]
