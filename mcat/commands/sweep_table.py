"""What `mcat sweep` shows of its runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.tables import print_table
from mcat.errors import counted, printable
from mcat.progress import PLAIN_INTERVAL
from mcat.sweeps.state import RunState, State, counts

if TYPE_CHECKING:
    from rich.console import Group

    from mcat.sweeps.folder import Sweep

ORDER: tuple[State, ...] = ("done", "running", "queued", "waiting", "blocked", "stopped", "failed",
                            "diverged")  # fmt: skip
MOST_LINES = 20  # single runs in a live table


def summary(states: Sequence[RunState]) -> str:
    """How many runs are done, run, wait and failed, and when the last will be done."""
    found = counts(states)
    parts = [f"{found[state]:,} {state}" for state in ORDER if state in found]
    left = _left(states)
    return f"{counted(len(states), 'run')}: {', '.join(parts)}" + (
        f" · {left} left" if left else ""
    )


def variant_rows(states: Sequence[RunState]) -> list[tuple[str, ...]]:
    """One row for each variant and family, with how many of its runs are in each state."""
    groups: dict[tuple[str, str], list[RunState]] = {}
    for state in states:
        groups.setdefault((state.run.variant or "(input)", state.run.of), []).append(state)
    used = [state for state in ORDER if any(s.state == state for s in states)]
    rows: list[tuple[str, ...]] = [("variant", "of", *used, "latest test return")]
    for (variant, what), members in groups.items():
        found = counts(members)
        values = [s.test for s in members if math.isfinite(s.test)]
        shown = f"{sum(values) / len(values):,.0f}" if values else ""
        rows.append((variant, what, *(str(found.get(state, "")) for state in used), shown))
    return rows


def run_rows(states: Sequence[RunState]) -> list[tuple[str, ...]]:
    """One row for each run."""
    rows: list[tuple[str, ...]] = [("run", "state", "steps", "left", "test", "where", "")]
    for state in states:
        wanted = state.run.steps
        of = f"/{wanted:,}" if wanted is not None and state.step < wanted else ""
        steps = "" if wanted is None else f"{state.step:,}{of}"
        where = f"{state.holder.host}:{state.holder.pid}" if state.holder else ""
        left = clock(state.left) if state.state == "running" else ""
        test = f"{state.test:,.0f}" if math.isfinite(state.test) else ""
        rows.append((state.run.name, state.state, steps, left, test, where, _remark(state)))
    return rows


def _for_scripts(states: Sequence[RunState]) -> list[dict[str, Any]]:
    """The same for a script."""
    return [
        {
            "run": s.run.name,
            "variant": s.run.variant,
            "state": s.state,
            "step": s.step,
            "steps": s.run.steps,
            "seconds": s.seconds,
            "test": s.test if math.isfinite(s.test) else None,
            "host": s.holder.host if s.holder else None,
            "pid": s.holder.pid if s.holder else None,
            "attempts": s.ending.attempts if s.ending else 0,
            "code": s.ending.code if s.ending else None,
            "line": s.ending.line if s.ending else "",
        }
        for s in states
    ]


def _remark(state: RunState) -> str:
    """What is odd about it."""
    if state.stalled:
        return f"stalled: nothing new for {clock(state.age)}"
    ending = state.ending
    if ending is None or state.state in ("done", "running"):
        return ""
    if state.state in ("failed", "diverged"):
        return f"exit {ending.code}: {ending.line}"
    if state.state == "waiting" and ending.again_at > time.time():
        return f"exit {ending.code}, again in {clock(ending.again_at - time.time())}"
    return ""


def _left(states: Sequence[RunState]) -> str:
    """When all will be done, if those to come take as long as those that there are."""
    paces = [s.seconds / s.step for s in states if s.step and s.seconds]
    steps = [s.run.steps - s.step for s in states if s.run.steps and s.state not in _OVER]
    running = sum(s.state == "running" for s in states)
    if not paces or not steps or not running:
        return ""
    return clock(sum(paces) / len(paces) * sum(steps) / running)


_OVER = ("done", "failed", "diverged", "stopped")


def clock(seconds: float) -> str:
    """A time for people."""
    if not math.isfinite(seconds):
        return ""
    minutes, second = divmod(round(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def print_states(
    made: Sweep, states: Sequence[RunState], *, as_json: bool, each: bool = False
) -> None:
    """Print them, as a table of variants or of runs, with what failed."""
    if as_json:
        click.echo(json.dumps(_for_scripts(states), indent=2))
        return
    click.echo(f"sweep {made.name}: {summary(states)}")  # no title, which is as narrow as its table
    print_table("", run_rows(states) if each else variant_rows(states))
    failed = [s for s in states if s.state in ("failed", "diverged")]
    for state in failed if not each else ():
        line = "" if state.ending is None else f" (exit {state.ending.code}) {state.ending.line}"
        click.echo(f"{state.run.name}: {state.state}{line}; see {made.log(state.run)}", err=True)


class Watcher:
    """Shows the states of runs as they change."""

    def __init__(self, title: str, *, plain: bool = False) -> None:
        self.title = title
        self._live: Any = None
        self._said: dict[str, State] = {}
        self._last = -math.inf
        self._plain = plain or not sys.stderr.isatty()

    def __enter__(self) -> Watcher:
        if not self._plain:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, states: Sequence[RunState]) -> None:
        """Show them."""
        if self._live is not None:
            self._live.update(self._table(states), refresh=True)
            return
        for state in states:
            before = self._said.get(state.run.name)
            if state.state != before and (before is not None or state.state == "running"):
                click.echo(f"{state.run.name}: {state.state} {_remark(state)}".rstrip(), err=True)
            self._said[state.run.name] = state.state
        if time.monotonic() - self._last >= PLAIN_INTERVAL:
            self._last = time.monotonic()
            click.echo(f"{self.title}: {summary(states)}", err=True)

    def _table(self, states: Sequence[RunState]) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        shown = [s for s in states if s.state == "running" or _remark(s)][:MOST_LINES]
        parts: list[Any] = [Text(f"{self.title}: {summary(states)}", style="bold")]
        for rows in (variant_rows(states), run_rows(shown)):
            table = Table(*rows[0], box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for row in rows[1:]:
                table.add_row(*(Text(printable(cell, 200)) for cell in row))
            parts.append(table)
        return Group(*parts)
