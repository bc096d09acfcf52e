"""What a comparison of runs says: for each part of its page a finding and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mcat.agents.returns import SUCCESS
from mcat.errors import counted
from mcat.paper.experiments import TRAIN_SUCCESS
from mcat.paper.meta import has_other_tasks
from mcat.reports.comparison.contrast import Comparison, values_of
from mcat.reports.comparison.looks import Axis, FamilyRuns, Measure, Scores, as_group
from mcat.reports.comparison.results import SPLITS, ComparedRun, provenance_of
from mcat.reports.comparison.statistics import (
    FEWEST,
    Estimate,
    improvement,
    iqm_estimate,
    paired_difference,
)
from mcat.reports.comparison.verdict import minus, percent, score, signed
from mcat.reports.printed import (
    PAPER_COLUMN,
    PAPER_METHOD,
    caveat,
    learner_note,
    paper_cell,
    paper_cells,
    paper_value,
)
from mcat.reports.sections import Array, Rows, Section, number

PARTS = (0.25, 0.5, 1.0)  # of the steps that all have taken
ALL = "all families"
_NONE = "–"
INTERVALS = (
    "Numbers are interquartile means (IQM, the mean of the middle half) over seeds, in brackets"
    f" where 95 % of the resampled ones lie; below {FEWEST} seeds the single returns. A run that"
    " diverged counts as the worst of all on its tasks."
)


def paper_section(comparison: Comparison) -> Section:
    """What each variant earned in each family, beside what is printed."""
    heading = ("family", "variant", "seeds", "steps", "test return", "train return", PAPER_COLUMN)
    goals = any(_at(family, "train", ComparedRun.success_rates) for family in comparison.families)
    rows: list[tuple[str, ...]] = [(*heading, *["test success", "train success"] * goals)]
    for family in comparison.families:
        looks = {split: _at(family, split) for split in SPLITS}
        rates = {split: _at(family, split, ComparedRun.success_rates) for split in SPLITS}
        for variant in comparison.variants:
            runs = [run for run in family.runs if run.variant == variant]
            if runs:
                rows.append(
                    (
                        family.name,
                        variant,
                        _seeds(runs, looks[family.split]),
                        _NONE if family.steps is None else f"{family.steps:,.0f}",
                        _cell(looks["test"], variant),
                        _cell(looks["train"], variant),
                        paper_cell(as_group(max(runs, key=lambda run: run.run.steps))),
                        *[_cell(rates[s], variant, percent) for s in ("test", "train")] * goals,
                    )
                )
        goals_printed = any(paper_value(as_group(run), TRAIN_SUCCESS) for run in family.runs)
        if rates["train"] and goals_printed:
            printed = paper_cells(family.runs[0].run.record.family)
            train, test, train_success, test_success = printed
            rows.append((family.name, PAPER_METHOD, "3", "2,000,000", test, train, _NONE,
                         test_success, train_success))  # fmt: skip
    return Section(
        name="returns",
        title="What was earned, beside the paper",
        reading=f"Mean returns when all runs of a family had taken equally many steps. {INTERVALS}"
        " The paper's numbers are of that method and delay after the steps named beside them: mind"
        f" how many there are in a row. {learner_note(rows)}".rstrip()
        + f" {SUCCESS}" * goals
        + f" {mirror_note(comparison.runs)}".rstrip()
        + caveat([as_group(run) for family in comparison.families for run in family.runs]),
        finding="",
        rows=rows,
    )


def mirror_note(runs: Sequence[ComparedRun]) -> str:
    """Why runs that learned on mirror images too have no number of the paper; empty without any."""
    families = sorted({r.run.record.family for r in runs if has_other_tasks(r.run.record)})
    if not families:
        return ""
    return (
        f"{', '.join(families)}: mirror images are trained on too, and the test task may be one of"
        " them, so no number of the paper is of these tasks (--no-mirror in mcat metatrain does"
        " without)."
    )


def _at(family: FamilyRuns, split: str, measure: Measure = ComparedRun.returns) -> Scores:
    return {} if family.steps is None else family.scores(split, family.steps, measure=measure)


def _seeds(runs: list[ComparedRun], scores: Scores) -> str:
    """How many runs count, and what has become of the others."""
    count = len(scores.get(runs[0].variant, {}))
    states = Counter(run.state for run in runs if run.state != "done")
    return "; ".join([str(count), *(f"{number} {state}" for state, number in states.items())])


def _cell(scores: Scores, variant: str, text: Callable[[float], str] = "{:z,.0f}".format) -> str:
    """An IQM with its interval; of few seeds what each of them earned."""
    if variant not in scores:
        return _NONE
    values = values_of(scores[variant])
    found = iqm_estimate([values])
    if found.interval is None:
        return minus(" and ".join(map(text, values))) + " (too few seeds)"
    return minus("{} [{}, {}]".format(*map(text, (found.value, *found.interval))))


def intervals(comparison: Comparison) -> dict[str, dict[str, tuple[Estimate, Array]]]:
    """Family, first all of them → variant → IQM as a score, and the scores of its runs."""
    found: dict[str, dict[str, tuple[Estimate, Array]]] = {}
    if len(comparison.final) > 1:
        strata = {variant: comparison.strata(variant) for variant in comparison.variants}
        everywhere = {
            variant: (iqm_estimate(own), np.concatenate(own))
            for variant, own in strata.items()
            if len(own) == len(comparison.final)  # else it is no mean over the same families
        }
        found |= {ALL: everywhere} if everywhere else {}
    for name, scores in comparison.final.items():
        found[name] = {}
        for variant in comparison.variants:
            if variant in scores:
                values = comparison.scale.scores(name, values_of(scores[variant]))
                found[name][variant] = iqm_estimate([values]), values
    return found


def intervals_section(comparison: Comparison) -> Section:
    """IQM with intervals, all families on one scale."""
    rows = [("family", "variant", "IQM of scores", "95 % interval", "runs")]
    for name, variants in intervals(comparison).items():
        for variant, (found, values) in variants.items():
            limits = "too few seeds"
            if found.interval is not None:
                limits = " to ".join(map(score, found.interval))
            rows.append((name, variant, score(found.value), limits, str(len(values))))
    several = (
        " Over all families a family in which all variants score much higher or lower than"
        " elsewhere is cut away by the IQM."
    )
    return Section(
        name="intervals",
        title="How sure is that?",
        reading=f"Scores: {comparison.scale.words}. Dots are IQMs with intervals of 95 %, rings"
        " single runs, alone where there are too few seeds."
        + several
        * (len(comparison.final) > 1 and comparison.scale.kind != "reference"),
        finding=f"Scores after equally many steps ({comparison.scale.words})",
        rows=rows,
    )


def curves_section(comparison: Comparison, split: str, axis: Axis) -> Section:
    """Returns while learning, family by family."""
    along = "environment steps" if axis == "step" else "CPU seconds"
    rows = [("family", "variant", along, *(f"at {percent(part)} of them" for part in PARTS))]
    for family in comparison.families:
        end = family.reached(axis)
        if end is None or not any(run.tasks(split) for run in family.runs):
            continue
        looks = [family.scores(split, part * end, axis) for part in PARTS]
        for variant in comparison.variants:
            if any(variant in scores for scores in looks):
                cells = [_cell(scores, variant) for scores in looks]
                rows.append((family.name, variant, f"{end:,.0f}", *cells))
    reading = (
        f"Returns on {split} tasks against {along}: IQM over seeds with a band of 95 % from"
        f" {FEWEST} seeds on, and thin lines for the runs below that. The table looks at what all"
        " runs of a family have reached, each run at its latest evaluation until then."
    )
    timed = [run.cpu_is_measured for run in comparison.runs if len(run.evaluations)]
    if axis == "cpu" and not all(timed):
        reading += (
            f" {timed.count(False)} of {len(timed)} runs did not measure CPU time: of those it is"
            " the time that passed."
        )
    name = f"curves-{split}" if axis == "step" else "curves-cpu"
    title = f"How it is learned: {split} tasks" if axis == "step" else "And for equal computing?"
    finding = f"Return on {split} tasks against {along}"
    return Section(name=name, title=title, reading=reading, finding=finding, rows=rows)


def profile_section(comparison: Comparison) -> Section:
    """How scores are distributed over runs."""
    levels = (0.25, 0.5, 0.75, 1.0)
    rows = [("variant", "runs", *(f"above {level:g}" for level in levels))]
    for variant in comparison.variants:
        if strata := comparison.strata(variant):
            values = np.concatenate(strata)
            shares = [percent(float((values > level).mean())) for level in levels]
            rows.append((variant, str(len(values)), *shares))
    return Section(
        name="profile",
        title="Is it a few good runs, or all of them?",
        reading="The share of runs, of all families together, that score above what is on the"
        f" horizontal axis ({comparison.scale.words}). A curve above another everywhere is better"
        " in the worst and in the best runs alike; where they cross, one is the safer and the"
        " other the higher.",
        finding="Share of runs that score above a threshold",
        rows=rows,
    )


def pairwise_section(comparison: Comparison) -> Section:
    """Every variant beside the reference."""
    first, *others = comparison.variants
    looks = {part: comparison.scores(part) for part in PARTS}
    shown = (f"more at {percent(part)} of the steps" for part in PARTS)
    rows: list[tuple[str, ...]] = [("variant", "family", f"P(earns more than {first})", *shown)]
    for variant in others:
        contrasts = [comparison.contrast(variant, part) for part in PARTS]
        if (last := contrasts[-1]) and len(last.families) > 1:
            cells = [
                _NONE if c is None else _signed(c.difference, percent if c.relative else signed)
                for c in contrasts
            ]
            rows.append((variant, ALL, _probability(last.probability), *cells))
        for name, scores in comparison.final.items():
            if {first, variant} <= scores.keys():
                likely = improvement([values_of(scores[first])], [values_of(scores[variant])])
                cells = [_paired(looks[part][name], first, variant) for part in PARTS]
                rows.append((variant, name, _probability(likely), *cells))
    return Section(
        name="pairs",
        title=f"Each variant beside {first}",
        reading="First the probability that a run of the variant earns more than one of the"
        " reference with another seed; one half means no difference. Then what it earned more: in"
        " a family the mean difference between runs of the same seed, over all families that of the"
        " IQMs as a part of what the reference earned. In brackets intervals of 95 %; of twenty of"
        " them one misses by chance alone.",
        finding="",
        rows=rows,
    )


def _probability(found: Estimate) -> str:
    return _bracketed(f"{found.value:.2f}", found, lambda value: f"{value:.2f}")


def _signed(found: Estimate, text: Any) -> str:
    sign = "+" if found.value > 0 and not text(found.value).startswith("+") else ""
    return _bracketed(sign + text(found.value), found, text)


def _bracketed(value: str, found: Estimate, text: Any) -> str:
    if found.interval is None:
        return f"{value} (too few seeds)"
    return f"{value} [{text(found.interval.low)}, {text(found.interval.high)}]"


def _paired(scores: Scores, first: str, variant: str) -> str:
    """The difference between runs of the same seed."""
    one, other = scores.get(first, {}), scores.get(variant, {})
    if not (shared := sorted(one.keys() & other.keys())):
        return _NONE if not one or not other else "no seed in common"
    values = [np.array([own[key] for key in shared]) for own in (one, other)]
    return _signed(paired_difference(*values), lambda value: minus(number(value)))


def failures_section(comparison: Comparison) -> Section | None:
    """Runs that ended badly, with the last line they said."""
    lost = [run for run in comparison.runs if run.state in ("failed", "diverged")]
    if not lost:
        return None
    rows = [("run", "variant", "seed", "state", "steps", "attempts", "its last line")]
    for run in lost:
        record = run.run.record
        rows.append(
            (record.name, run.variant, str(record.seed), run.state, f"{run.run.steps:,}",
             str(run.attempts), run.failure or _NONE)
        )  # fmt: skip
    return Section(
        name="failures",
        title="What went wrong",
        reading="Runs that diverged count as the worst of all on their tasks. Runs that failed for"
        " another reason count as far as they came.",
        finding="",
        rows=rows,
    )


def notes(comparison: Comparison) -> Iterator[str]:
    """What is missing yet."""
    waiting = sum(run.state == "waiting" for run in comparison.runs)
    if waiting:
        yield f"{waiting} of {len(comparison.runs)} runs were stopped and wait to go on."
    for family in comparison.families:
        end = family.steps
        for run in family.repeated:
            kind = f"{run.variant}, {family.name}, seed {run.run.record.seed}"
            yield f"{run.run.record.name} is left out: another run of {kind} came further."
        for run in family.runs:
            if run.state == "diverged":
                continue
            name = run.run.record.name
            if not len(run.evaluations):
                yield f"{name} is not evaluated yet and left out."
            elif end is not None and run.run.metrics["step"][run.evaluations[-1]] < end:
                yield f"{name} has come to {run.run.steps:,} of {end:,.0f} steps and is left out."


def making(comparison: Comparison) -> tuple[list[tuple[str, str]], Rows]:
    """What made the runs, and what they cost: facts about all, and a table of each."""
    rows = [("run", "variant", "state", "steps", "CPU hours", "attempts", "commit", "command")]
    commits: Counter[str] = Counter()
    versions: dict[str, set[str]] = {}
    hours, timed = 0.0, True
    for run in comparison.runs:
        made = provenance_of(run.run)
        commit = str(made.get("commit") or "unknown")[:10] + "+" * bool(made.get("dirty"))
        commits[commit] += 1
        for package, version in (made.get("versions") or {}).items():
            versions.setdefault(str(package), set()).add(str(version))
        seconds = run.places("cpu")
        seconds = seconds[np.isfinite(seconds)]
        own = float(seconds[-1]) / 3600 if len(seconds) else 0.0
        hours, timed = hours + own, timed and (run.cpu_is_measured or not len(seconds))
        rows.append(
            (run.run.record.name, run.variant, run.state, f"{run.run.steps:,}", f"{own:.2f}",
             str(run.attempts), commit, str(made.get("command", _NONE)))
        )  # fmt: skip
    unsure = "" if timed else " (where CPU time was not measured, the time that passed)"
    facts = [
        ("runs", str(len(comparison.runs))),
        ("core hours", f"{hours:.2f}{unsure}"),
        (
            "commits",
            ", ".join(f"{name} ({counted(count, 'run')})" for name, count in commits.items()),
        ),
        ("versions", ", ".join(f"{k} {' and '.join(sorted(v))}" for k, v in versions.items())),
    ]
    return facts, rows
