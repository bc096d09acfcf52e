"""Where plans come from: files, folders of sweeps, the package, and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from mcat.config import flatten, read_toml, to_toml
from mcat.errors import MissingInputError, UsageError, no_name_or_file
from mcat.sweeps.folder import LOCK_FILE, PLAN_FILE, open_sweep
from mcat.sweeps.plan import Plan, plan_of, table_of

SWEEPS = Path("sweeps")  # where sweeps are unless they are said to be elsewhere


def load_plan(
    name: str | None = None,
    *,
    settings: Sequence[str] = (),
    grid: Sequence[str] = (),
    variants: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
) -> tuple[Plan, str]:
    """A plan and its text, from a file, from options, or from a file that options change.

    Args:
        name: A file, the folder of a sweep, or a plan that comes with the package; None for what
            options alone say.
        settings: `KEY=VALUE` for the table `common`.
        grid: `KEY=VALUE,VALUE` or `KEY=0-4`, each an axis of the table `grid`.
        variants: `NAME: KEY=VALUE, KEY=VALUE`, in place of the plan's own.
        changes: Other keys of the plan, dotted where they are in tables.

    Raises:
        MissingInputError: if there is none of that name.
        DataError: if it is not TOML.
        UsageError: if it says what no plan can say.
    """
    path = None if name is None else _find(name)
    values = {} if path is None else read_toml(path)
    own = dict(changes or {})
    cpus = own.pop("resources.cpus", None)
    own |= {} if cpus is None else {"resources": {**table_of(values, "resources"), "cpus": cpus}}
    own |= {
        "common": flatten(table_of(values, "common")) | parse_settings(settings),
        "grid": flatten(table_of(values, "grid")) | parse_grid(grid),
    } | ({"variant": found} if (found := parse_variants(variants)) else {})
    try:
        plan = plan_of({**values, **own}, default_name=_default_name(path))
    except UsageError as error:
        raise UsageError(f"{path or 'the options'}: {error}") from None
    if path is None or changes or settings or grid or variants:
        return plan, to_toml({**values, **own})
    return plan, path.read_text(encoding="utf-8")


def folder_of(name: str) -> Path | None:
    """The folder of the sweep that a name means: a path, or one in `sweeps`; None if it is none.

    The name of a plan that comes with the package is that of the plan, which goes on in the folder.
    """
    path, known = Path(name), SWEEPS / name
    if path.is_dir():
        return path
    return known if known.is_dir() and not path.is_file() and name not in packaged_plans() else None


def _find(name: str) -> Path:
    path, folder, known = Path(name), folder_of(name), packaged_plans()
    if folder is not None:
        if not (folder / PLAN_FILE).is_file():
            raise MissingInputError(f"{folder} is no sweep: it has no {PLAN_FILE}")
        return folder / PLAN_FILE
    if not path.is_file() and name not in known:
        raise no_name_or_file("plan", name, known)
    return path if path.is_file() else known[name]


def _default_name(path: Path | None) -> str:
    if path is None:
        return "sweep"
    # A plan in the folder of a sweep came from a file of another name.
    return open_sweep(path.parent).name if (path.parent / LOCK_FILE).is_file() else path.stem


def packaged_plans() -> dict[str, Path]:
    """The plans that come with the package, by name."""
    folder = resources.files("mcat.sweeps") / "plans"
    return {path.stem: path for path in sorted(Path(str(folder)).glob("*.toml"))}


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """`--set steps=50000` as the table `common`."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE such as steps=50000, not '{text}'")
        found[key.strip()] = value.strip()
    return found


def parse_grid(texts: Iterable[str]) -> dict[str, Any]:
    """`--grid family=a,b --grid seed=0-4` as the table `grid`."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value.strip():
            raise UsageError(f"--grid takes KEY=VALUE,VALUE or KEY=0-4, not '{text}'")
        values = [part.strip() for part in value.split(",")]
        if key.strip() in found:
            raise UsageError(f"--grid {key.strip()} is given twice: name all its values in one")
        found[key.strip()] = values if len(values) > 1 else values[0]
    return found


def parse_variants(texts: Iterable[str]) -> list[dict[str, Any]]:
    """`--variant "no transfer: mcat.transfer=false"` as tables `variant`."""
    found = []
    for text in texts:
        name, _, settings = text.partition(":")
        own: dict[str, Any] = {"name": name.strip()}
        for pair in filter(None, (part.strip() for part in settings.split(","))):
            key, equals, value = pair.partition("=")
            if not equals:
                raise UsageError(f"--variant takes NAME: KEY=VALUE, not '{text}'")
            own[key.strip()] = value.strip()
        found.append(own)
    return found
