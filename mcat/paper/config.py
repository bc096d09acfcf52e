"""What to repeat of the paper's transfer experiments, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from mcat.agents.limits import require_bearable
from mcat.errors import UsageError, unknown
from mcat.paper.tables import TABLES, TableRow
from mcat.ranges import require_ranges
from mcat.translator.configs import Loss
from mcat.translator.recipes import RECIPES

PAPER_EPOCHS = 30  # C.2: the best of 30 epochs, 100 episodes each, is what Table 1 reports


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """Which part of the paper to repeat, and how.

    Attributes:
        table: Name of one of `TABLES`.
        rows: Names of some of its rows; all, if empty.
        methods: Some of what they compare; all, if empty.
        preset: How translators are trained; "paper" and "released" also collect logs as printed.
        transfer_loss: L_trans, "l1" or "nll"; None for the preset's.
        seeds: One training of each method per seed.
        episodes: Episodes of each policy.
        best_of: Parts of a training after each of which its translator is tried on the target, the
            best to be told beside the last; None for 30 where the paper does so (Table 1).
        threads: Threads of torch; the last bits depend on it.
    """

    table: str
    rows: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    preset: str = "cpu"
    transfer_loss: Loss | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    episodes: int = 100
    best_of: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.table not in TABLES:
            raise unknown("table", self.table, TABLES)
        for name in self.rows:
            if name not in (names := [row.name for row in TABLES[self.table].rows]):
                raise unknown("row", name, names)
        known = list(dict.fromkeys(m for row in self.chosen for m in row.methods))
        for name in self.methods:
            if name not in known:
                raise unknown("method", name, known)
        if self.preset not in RECIPES:
            raise unknown("preset", self.preset, RECIPES)
        if self.transfer_loss not in (None, *get_args(Loss)):
            raise unknown("transfer loss", self.transfer_loss, get_args(Loss))
        if self.preset == "released" and self.table in ("rewards", "extension"):
            raise UsageError(
                f"--preset released has no {self.table}: the authors did not publish that code"
            )
        if self.best_of and not all(row.chooses for row in TABLES[self.table].rows):
            raise UsageError(
                f"--best-of chooses among translators of a pair: {self.table} has none"
            )
        require_ranges(self, not_negative=["best_of"], at_least_1=["episodes", "threads"])
        require_bearable({"episodes": self.episodes, "threads": self.threads})
        if not self.seeds or min(self.seeds) < 0:
            raise UsageError("give at least one seed, and none that is negative")

    @property
    def other_loss(self) -> Loss | None:
        """L_trans where it is not the preset's own."""
        own = RECIPES[self.preset].action.loss
        return None if self.transfer_loss == own else self.transfer_loss

    @property
    def epochs(self) -> int:
        """How often translators are tried while they are trained."""
        if self.best_of is None:
            return PAPER_EPOCHS if self.table == "table1" and self.preset != "smoke" else 0
        return self.best_of

    @property
    def recipe_name(self) -> str:
        """How translators are trained, as the command line says it."""
        loss = self.other_loss
        return self.preset if loss is None else f"{self.preset} --transfer-loss {loss}"

    @property
    def chosen(self) -> list[TableRow]:
        """The rows to work on."""
        return [row for row in TABLES[self.table].rows if not self.rows or row.name in self.rows]
