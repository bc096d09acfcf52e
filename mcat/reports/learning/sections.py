"""What the numbers of meta-training runs say: for each picture a finding and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mcat.agents.meta.algorithm import RANDOM, SHARED
from mcat.agents.returns import SUCCESS
from mcat.paper.experiments import TEST, TEST_SUCCESS, TRAIN, TRAIN_SUCCESS
from mcat.reports.groups import Group, contexts_apart, mean_and_error, short_names
from mcat.reports.printed import (
    PAPER_COLUMN,
    PAPER_METHOD,
    caveat,
    learner_note,
    paper_cell,
    paper_cells,
    paper_value,
)
from mcat.reports.runs import Contexts, LearningRun
from mcat.reports.sections import Rows, Section, number, share


def with_goals(groups: Sequence[Group]) -> list[Group]:
    """Those whose robots have goals, and of which it is known how often they were reached."""
    return [group for group in groups if group.curve(TRAIN_SUCCESS) is not None]


def summary_rows(groups: Sequence[Group]) -> Rows:
    """Final and best returns of each group, mean ± standard error over its runs."""
    heading = ("family", "method", "seeds", "steps", "final train", "final test", "best train",
               "test then", PAPER_COLUMN)  # fmt: skip
    return [heading, *map(_summary_row, groups)]


def summary_numbers(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The same for a script: one value for each run of a group, None where there is none."""
    found = []
    for group in groups:
        best = [_at_best(run) for run in group.runs]
        returns = {
            "final_train": [_final(run, TRAIN) for run in group.runs],
            "final_test": [_final(run, TEST) for run in group.runs],
            "best_train": [train for train, _ in best],
            "test_at_best": [test for _, test in best],
        }
        if with_goals([group]):
            returns |= {
                "final_train_success": [_final(run, TRAIN_SUCCESS) for run in group.runs],
                "final_test_success": [_final(run, TEST_SUCCESS) for run in group.runs],
            }
        found.append(
            {
                "family": group.record.family,
                "method": group.label,
                "runs": [str(run.record.folder) for run in group.runs],
                "seeds": [run.record.seed for run in group.runs],
                "steps": [run.steps for run in group.runs],
                **{k: [v if np.isfinite(v) else None for v in r] for k, r in returns.items()},
            }
        )
    return found


def _final(run: LearningRun, column: str) -> float:
    values = run.curve(column)[1]
    return float(values[-1]) if len(values) else np.nan


def _summary_row(group: Group) -> tuple[str, ...]:
    best = [_at_best(run) for run in group.runs]
    return (
        *_named(group),
        _cell(_last(group, TRAIN)),
        _cell(_last(group, TEST)),
        _cell([train for train, _ in best]),
        _cell([test for _, test in best]),
        paper_cell(group),
    )


def _named(group: Group) -> tuple[str, ...]:
    """Family, method, seeds and steps."""
    steps = [run.steps for run in group.runs]
    return (
        group.record.family,
        group.label,
        ", ".join(str(run.record.seed) for run in group.runs),
        "–".join(f"{step:,}" for step in sorted({min(steps), max(steps)})),
    )


def _last(group: Group, column: str) -> list[float]:
    """What each of its runs that has been evaluated earned the last time."""
    values = [_final(run, column) for run in group.runs]
    return [value for value in values if np.isfinite(value)]


def _at_best(run: LearningRun) -> tuple[float, float]:
    """Both returns when that on train tasks was highest: those of policy-best.safetensors."""
    steps, train = run.curve(TRAIN)
    if not len(train):
        return np.nan, np.nan
    best = int(train.argmax())
    test = dict(zip(*run.curve(TEST), strict=True))
    return float(train[best]), float(test.get(steps[best], np.nan))


def _cell(values: Sequence[float], digits: int = 0) -> str:
    known = np.array([value for value in values if np.isfinite(value)])
    if not len(known):
        return "–"
    mean, error = mean_and_error(known)
    return f"{mean:,.{digits}f}" + (f" ± {error:,.{digits}f}" if len(known) > 1 else "")


def _percent_cell(values: Sequence[float], digits: int = 0) -> str:
    return f"{_cell([100 * value for value in values], digits)} %" if len(values) else "–"


def curves_section(groups: Sequence[Group]) -> Section:
    """Mean returns while learning."""
    finding = "Mean return while learning, by family"
    if len({group.record.family for group in groups}) == 1:
        tested = any(_last(group, TEST) for group in groups)
        ends = [f"{g.label} {_cell(_last(g, TEST if tested else TRAIN))}" for g in groups]
        finding = f"Return on {'test' if tested else 'train'} tasks: {'; '.join(ends)}"
    rows = summary_rows(groups)
    return Section(
        name="learning-curves",
        title="How it learns",
        reading="Mean return of evaluation episodes against environment steps, all tasks counted"
        " together. Bold lines are means over seeds with a band of one standard error, thin ones"
        " single seeds; test tasks are never trained on. The paper's numbers are of that method"
        f" after the steps named. {learner_note(rows)}".rstrip()
        + caveat(groups),
        finding=finding,
        rows=rows,
    )


def success_section(groups: Sequence[Group]) -> Section:
    """How often the runs of `with_goals` succeed: the paper's table, with ours beside it."""
    rows: list[tuple[str, ...]] = [
        ("family", "method", "seeds", "steps", "train return", "test return", "train success",
         "test success")
    ]  # fmt: skip
    for family in dict.fromkeys(group.record.family for group in groups):
        members = [group for group in groups if group.record.family == family]
        for group in members:
            returns = (_cell(_last(group, column), 1) for column in (TRAIN, TEST))
            rates = (_last(group, column) for column in (TRAIN_SUCCESS, TEST_SUCCESS))
            rows.append((*_named(group), *returns, *(_percent_cell(rate, 1) for rate in rates)))
        if any(paper_value(group, TRAIN_SUCCESS) is not None for group in members):
            rows.append((family, PAPER_METHOD, "3 runs", "2,000,000", *paper_cells(family)))
    last = [f"{g.label} {_percent_cell(_last(g, TRAIN_SUCCESS))}" for g in groups]
    unseen = [f"{g.label} {_percent_cell(t)}" for g in groups if (t := _last(g, TEST_SUCCESS))]
    finding = f"Success on train tasks: {'; '.join(last)}"
    if unseen:
        finding += f"; on test tasks: {'; '.join(unseen)}"
    return Section(
        name="success",
        title="How often it succeeds",
        reading=f"The part of the evaluation episodes that succeed. {SUCCESS} All numbers are of"
        " the latest evaluation; the paper's are of 2M steps: mind how many there are in a row.",
        finding=finding,
        rows=rows,
    )


def tasks_section(group: Group) -> Section:
    """The same task by task, for one method."""
    names = short_names(group.record.tasks)
    goals = bool(with_goals([group]))
    rows = [("task", "split", "final return", *["final success"] * goals)]
    ends: dict[str, float] = {}
    for split, members in (("train", group.record.train), ("test", group.record.test)):
        for task in members:
            last = _last(group, f"eval/{split}/{task}")
            rate = _percent_cell(_last(group, f"eval/success/{split}/{task}"))
            rows.append((names[task], split, _cell(last), *[rate] * goals))
            if last:
                ends[names[task]] = float(np.mean(last))
    low, high = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return Section(
        name="tasks",
        title="Which tasks it learns",
        reading="The same for every task by itself; orange tasks are never trained on."
        + f" {SUCCESS}" * goals,
        finding=f"From {number(ends[low])} on {low} to {number(ends[high])} on {high}",
        rows=rows,
    )


def drivers_section(run: LearningRun, name: str) -> Section:
    """Who acted in the episodes that were learned from."""
    names = short_names(run.record.tasks)
    drivers = known_drivers(run)
    counts = Counter((episode.task, episode.driver) for episode in run.episodes)
    rows = [("on ↓ by →", *(names.get(driver, driver) for driver in drivers))] + [
        (names[task], *(str(counts[task, driver]) for driver in drivers))
        for task in run.record.train
    ]
    transfers = {pair: n for pair, n in counts.items() if pair[1] in run.record.train}
    moved, whole = sum(transfers.values()), len(run.episodes)
    percent = share(moved / max(whole, 1))
    finding = f"{moved} of {whole} episodes ({percent}) were driven by a transferred policy"
    if run.record.method != "mcat":
        shares = Counter(episode.driver for episode in run.episodes)
        finding = "Episodes by driver: " + ", ".join(f"{d} {n}" for d, n in shares.items())
    if transfers:
        target, source = max(transfers, key=transfers.__getitem__)
        most = f"{names.get(source, source)} → {names.get(target, target)}"
        finding += f", most often {most} ({transfers[target, source]})"
    return Section(
        name=name,
        title=f"Who collected in {run.record.name}",
        reading="One row for each training task, from left to right its episodes: grey where the"
        " method's own policies acted (light: random actions), coloured where the policy of another"
        " task was transferred. The table counts the same.",
        finding=finding,
        rows=rows,
    )


def known_drivers(run: LearningRun) -> list[str]:
    """Who may have driven: what the method has, then tasks whose policies MCAT transfers."""
    if run.record.method == "mcat":
        return [RANDOM, SHARED, *run.record.train]
    return list(dict.fromkeys([RANDOM, *(episode.driver for episode in run.episodes)]))


def contexts_section(run: LearningRun, contexts: Contexts, name: str) -> Section:
    """Whether contexts tell tasks apart."""
    finding, rows = contexts_apart(run, contexts)
    return Section(
        name=name,
        title=f"What {run.record.name} knows of the machine it is on",
        reading="Every dot is the context of one stretch of steps; filled ones are of training"
        " tasks, hollow ones of test tasks. Groups in the order of the tasks mean that unseen"
        " machines are recognised as being between known ones.",
        finding=finding,
        rows=rows,
    )
