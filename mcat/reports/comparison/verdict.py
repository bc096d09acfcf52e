"""Which variant earns more? The answer in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mcat.errors import counted
from mcat.paper.meta import MCAT, method_of
from mcat.reports.comparison.contrast import Comparison, Contrast, values_of
from mcat.reports.comparison.results import ComparedRun, provenance_of
from mcat.reports.comparison.statistics import Interval, iqm_estimate
from mcat.reports.sections import number
from mcat.safe_io import dump_json

_ENOUGH = 5  # seeds from which on an interval is about as wide as it says


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer as a headline, and what to know before believing it."""

    tone: Literal["good", "unclear"]
    headline: str
    details: tuple[str, ...]


def verdict(comparison: Comparison) -> Verdict:
    """The reference against all other variants, or what it earned if there is no other."""
    if not comparison.final:
        headline = f"Nothing to compare yet: none of {counted(len(comparison.runs), 'run')} was"
        return Verdict(tone="unclear", headline=f"{headline} evaluated", details=())
    first, *others = comparison.variants
    if not others:
        return Verdict(tone="unclear", headline=_alone(comparison), details=_looks(comparison))
    contrasts = [comparison.contrast(variant) for variant in others]
    found = [contrast for contrast in contrasts if contrast]
    sentences = [_sentence(comparison, contrast) for contrast in found]
    apart = [name for name, contrast in zip(others, contrasts, strict=True) if not contrast]
    if apart:
        names = ", ".join(f"“{name}”" for name in apart)
        sentences.append(f"No family was evaluated with “{first}” and with {names}.")
    details = (*_looks(comparison), *_for_equal_computing(comparison, others), *_cautions(found))
    tone: Literal["good", "unclear"] = "good" if any(c.clear for c in found) else "unclear"
    if len(others) == 1:
        return Verdict(tone=tone, headline=sentences[0], details=details)
    headline = _count(comparison, found)
    return Verdict(tone=tone, headline=headline, details=(*sentences, *details))


def _for_equal_computing(comparison: Comparison, others: Sequence[str]) -> tuple[str, ...]:
    """The same question at equal CPU seconds: what takes more of them may earn less there."""
    measured = all(run.cpu_is_measured for run in comparison.runs if len(run.evaluations))
    contrasts = [comparison.contrast(variant, axis="cpu") for variant in others]
    sentences = [_sentence(comparison, contrast) for contrast in contrasts if contrast]
    if not (measured and sentences):
        return ()
    text = " ".join(sentences)
    return (f"For equal CPU seconds instead: {text[0].lower()}{text[1:]}{_unlike(comparison)}",)


def _unlike(comparison: Comparison) -> str:
    """That seconds of one run are not those of another, where that may be so."""
    made = [provenance_of(run.run) for run in comparison.runs]
    machines = {dump_json(own.get("host") or "") for own in made}
    commits = {str(own.get("commit") or "") for own in made}
    found = {"machine": len(machines), "commit": len(commits)}
    several = " and ".join(counted(n, word) for word, n in found.items() if n > 1)
    if not several:
        return ""
    return f" Mind that the runs are of {several}: a second of one may not be a second of another."


def _sentence(comparison: Comparison, contrast: Contrast) -> str:
    value, interval = contrast.difference
    amount = percent(abs(value)) if contrast.relative else score(abs(value))
    kind = "" if contrast.relative else f" as a score ({comparison.scale.words})"
    more = f"{amount} {'less' if value < 0 else 'more'}{kind} {_where(comparison)} than"
    if amount in (percent(0), "0.00"):
        more = f"as much{kind} {_where(comparison)} as"
    says = f"“{contrast.variant}” earns {more} “{comparison.variants[0]}”"
    judged, known = len(contrast.families), len(comparison.final)
    families = _families(judged) if judged == known else f"{judged} of {_families(known)}"
    runs = f"{seeds_text(contrast.seeds)}, {families}"
    if interval is None:
        return f"Too few seeds to say: {says} ({runs})."
    text = percent if contrast.relative else signed
    limits = f"95 % interval {text(interval.low)} to {text(interval.high)}"
    found = "no clear difference"
    if contrast.apart:
        hint = f"a hint, as chance alone does that in {percent(contrast.chance)} of cases"
        found = "a clear difference" if contrast.clear else hint
    return f"{says} ({limits}; {runs}): {found}."


def _count(comparison: Comparison, contrasts: Sequence[Contrast]) -> str:
    """One sentence about many variants."""
    first, where = comparison.variants[0], _where(comparison)
    if all(contrast.difference.interval is None for contrast in contrasts):
        variants = counted(len(comparison.variants), "variant")
        return f"Too few seeds to say which of {variants} earns most {where}."
    names = {
        "more": [f"“{c.variant}”" for c in contrasts if c.clear and c.difference.value > 0],
        "less": [f"“{c.variant}”" for c in contrasts if c.clear and c.difference.value < 0],
    }
    told = [
        f"{', '.join(found)} clearly {'earns' if len(found) == 1 else 'earn'} {word}"
        for word, found in names.items()
        if found
    ]
    rest = len(comparison.variants) - 1 - sum(map(len, names.values()))
    if not told:
        return f"None of {counted(rest, 'variant')} clearly differs {where} from “{first}”."
    others = f"; {rest} of {len(comparison.variants) - 1} show no clear difference" * bool(rest)
    return f"Beside “{first}”, {where} {' and '.join(told)}{others}."


def _alone(comparison: Comparison) -> str:
    """What the only variant earned."""
    (variant,) = comparison.variants
    (name, scores), *more = comparison.final.items()
    strata = comparison.strata(variant)
    runs = seeds_text((min(map(len, strata)), max(map(len, strata))))
    if not more:
        found = iqm_estimate([values_of(scores[variant])])
        says = f"“{variant}” earns {number(found.value)} {_where(comparison)} of {name}"
    elif comparison.scale.kind == "paper" and all(map(_is_mcat, comparison.runs)):
        found = iqm_estimate(strata)
        says = (
            f"“{variant}” earns {found.value:.2f} times what the paper's MCAT did after 2M steps,"
            f" {_where(comparison)}"
        )
        runs += f", {_families(len(strata))}"
    else:
        return f"“{variant}” was run on {_families(1 + len(more))}: see what it earned on each."
    if found.interval is None:
        return f"{says} ({runs}: too few for an interval)."
    return f"{says} (95 % interval {interval_text(found.interval)}; {runs})."


def _is_mcat(run: ComparedRun) -> bool:
    method = method_of(run.run.record)
    return method is not None and method.name == MCAT


def _looks(comparison: Comparison) -> tuple[str, ...]:
    """At which step it was looked."""
    steps = {f.name: f.steps for f in comparison.families if f.steps is not None}
    if len(set(steps.values())) == 1:
        return (f"All runs are compared after {next(iter(steps.values())):,.0f} steps.",)
    by_family = ", ".join(f"{name} {step:,.0f}" for name, step in steps.items())
    return (f"Runs are compared at equal steps in every family: {by_family}.",)


def _cautions(contrasts: Sequence[Contrast]) -> tuple[str, ...]:
    """What makes intervals mean less than they say."""
    judged = [contrast for contrast in contrasts if contrast.difference.interval]
    if judged and min(contrast.seeds[0] for contrast in judged) < _ENOUGH:
        return (
            f"Intervals of fewer than {_ENOUGH} seeds are narrower than they should be: what is"
            " just clear with them is a hint to run more.",
        )
    return ()


def _where(comparison: Comparison) -> str:
    splits = {family.split for family in comparison.families if family.name in comparison.final}
    if splits == {"test"}:
        return "on unseen tasks"
    return "on training tasks" if splits == {"train"} else "on unseen tasks, or on trained ones"


def _families(count: int) -> str:
    return f"{count} famil{'y' if count == 1 else 'ies'}"


def seeds_text(sizes: tuple[int, int]) -> str:
    """How many seeds there are, as in "3 seeds" and "2–5 seeds"."""
    low, high = sizes
    return counted(low, "seed") if low == high else f"{low}–{high} seeds"


def percent(part: float) -> str:
    """A part in percent that may be negative or small."""
    digits = 0 if abs(part) >= 0.01 or part == 0 else 1
    return minus(f"{100 * part:z.{digits}f} %")


def score(value: float) -> str:
    """A score."""
    return minus(f"{value:z.2f}")


def signed(value: float) -> str:
    """A score with a sign."""
    return minus(f"{value:+z.2f}")


def interval_text(interval: Interval) -> str:
    """The limits of an interval."""
    return " to ".join(map(minus, map(number, interval)))


def minus(text: str) -> str:
    """A number with the sign that is as wide as a plus."""
    return text.replace("-", "−")
