"""Errors a user can cause, each with the exit code the command line ends with (sysexits)."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable


class McatError(Exception):
    """Something the user can mend; `str(error)` is the one line they read."""

    exit_code = 1


class UsageError(McatError, ValueError):
    """A name, value or combination that makes no sense."""

    exit_code = 2


class UnstableError(McatError):
    """Too many simulations diverged."""

    exit_code = 3


class DivergedError(McatError):
    """A loss became NaN or infinite."""

    exit_code = 4


class DataError(McatError, ValueError):
    """A file or array that is damaged, hostile or not what it claims to be."""

    exit_code = 65


class MissingInputError(McatError, FileNotFoundError):
    """An input that is not there."""

    exit_code = 66

    def __str__(self) -> str:  # FileNotFoundError would print errno fields
        return str(self.args[0]) if self.args else ""


class CannotCreateError(McatError):
    """An output that exists already or cannot be made where it was asked for."""

    exit_code = 73


class StorageError(McatError):
    """The disk is full or failed while writing or reading."""

    exit_code = 74


class RetryError(McatError):
    """Work was saved and stopped; running the same command again goes on."""

    exit_code = 75


def install(extra: str) -> str:
    """How to get what an extra brings. On PyPI `mcat` is somebody else's program."""
    return f"pip install 'mcat-rl[{extra}]'"


def no_name_or_file(kind: str, given: str, known: Iterable[str]) -> McatError:
    """The error for what is neither among `known` nor a file, though it may look like one."""
    if os.sep in given or "." in given:
        return MissingInputError(f"{given} is not there: no such {kind}")
    return unknown(f"{kind} or file", given, known)


def unknown(kind: str, name: object, known: Iterable[str]) -> UsageError:
    """The error for a name that is not among `known`, with the nearest one suggested."""
    names = sorted(known)
    asked = short(name, 100) if isinstance(name, str) else f"'{short(name)}'"
    close = difflib.get_close_matches(
        asked.strip("'").lower(), [n.lower() for n in names], n=2, cutoff=0.5
    )
    suggestions = [n for n in names if n.lower() in close]
    if suggestions:
        return UsageError(f"unknown {kind} {asked}: did you mean {' or '.join(suggestions)}?")
    return UsageError(f"unknown {kind} {asked}: choose from {', '.join(names)}")


def short(value: object, limit: int = 60) -> str:
    """A value as a message shows it: on one line, however long it is."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python does not print whole numbers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def counted(count: int, noun: str) -> str:
    """A number with its noun, as in "1 row" and "2,000 rows"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def printable(text: object, limit: int = 300) -> str:
    """What someone else wrote, as one short line that cannot steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in str(text)[:limit])
