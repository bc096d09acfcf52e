"""The page that compares runs: its first sentence, its tables and pictures, and what is missing."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest

from mcat.errors import CannotCreateError, MissingInputError
from mcat.reports.comparison import figures
from mcat.reports.comparison.contrast import Comparison
from mcat.reports.comparison.page import write_comparison
from mcat.reports.comparison.sections import (
    curves_section,
    failures_section,
    intervals_section,
    making,
    notes,
    pairwise_section,
    paper_section,
    profile_section,
)
from mcat.reports.comparison.verdict import percent, score, signed, verdict
from mcat.safe_io import write_json
from tests.reports.comparison.made_up import made_up

FAMILIES = {"ant-cripple": 282, "hopper-size": 1915}


def compared(gains, *, families=FAMILIES, seeds=3, **facts):
    """Runs whose returns are the paper's number times 1.0, 1.1, …, times what a variant gains."""
    return [
        made_up(variant, seed, [size * gain * (1 + seed / 10) * part for part in (0.5, 1)],
                family=family, **facts)
        for variant, gain in gains.items()
        for family, size in families.items()
        for seed in range(seeds)
    ]  # fmt: skip


def first_sentence(runs):
    return verdict(Comparison(runs=tuple(runs))).headline


def test_the_first_sentence_is_the_answer():
    runs = compared({"MCAT": 1, "no transfer": 0.5})
    # Pairs of one seed all differ by half, whichever are drawn.
    assert first_sentence(runs) == (
        "“no transfer” earns 50 % less on unseen tasks than “MCAT”"
        " (95 % interval −50 % to −50 %; 3 seeds, 2 families): a clear difference."
    )
    same = compared({"MCAT": 1}) + [
        made_up("same", seed, [0, size * (1.2 - seed / 10)], family=family)
        for family, size in FAMILIES.items()
        for seed in range(3)
    ]
    found = verdict(Comparison(runs=tuple(same)))
    assert re.fullmatch(
        r"“same” earns as much on unseen tasks as “MCAT” \(95 % interval −\d+ % to \d+ %;"
        r" 3 seeds, 2 families\): no clear difference\.",
        found.headline,
    )
    assert found.tone == "unclear"
    assert found.details[0] == "All runs are compared after 200 steps."
    assert "fewer than 5 seeds" in found.details[1]
    assert len(verdict(Comparison(runs=tuple(compared({"a": 1, "b": 2}, seeds=5)))).details) == 1


def test_so_few_runs_that_chance_could_part_them_are_a_hint():
    """Chance alone parts three from three in 1 case of 10."""
    one_family = {"ant-cripple": 282}
    few = verdict(Comparison(runs=tuple(compared({"a": 1, "b": 2}, families=one_family))))
    assert few.headline == (
        "“b” earns 100 % more on unseen tasks than “a” (95 % interval 100 % to 100 %;"
        " 3 seeds, 1 family): a hint, as chance alone does that in 10 % of cases."
    )
    assert few.tone == "unclear"
    more = compared({"a": 1, "b": 2}, families=one_family, seeds=5)
    assert first_sentence(more).endswith("5 seeds, 1 family): a clear difference.")


def test_the_same_is_asked_for_equal_computing():
    """The variant earns twice as much at equal steps, which take it four times as long."""
    runs = compared({"plain": 1}, cpu=(10, 20)) + compared({"slow": 2}, cpu=(20, 80))
    found = verdict(Comparison(runs=tuple(runs)))
    assert found.headline.startswith("“slow” earns 100 % more on unseen tasks than “plain” (")
    assert found.details[1] == (
        "For equal CPU seconds instead: “slow” earns as much on unseen tasks as “plain”"
        " (95 % interval 0 % to 0 %; 3 seeds, 2 families): no clear difference."
    )
    few = [run for run in runs if run.run.record.seed < 2]
    said = verdict(Comparison(runs=tuple(few))).details[1]
    assert "For equal CPU seconds instead: too few seeds to say: “slow” earns as much" in said
    guessed = compared({"plain": 1, "slow": 2}, seconds=(10, 20))  # not measured, so not claimed
    assert "CPU" not in " ".join(verdict(Comparison(runs=tuple(guessed))).details)


def test_seconds_of_several_machines_and_commits_are_not_alike(tmp_path):
    runs = compared({"plain": 1, "slow": 2}, cpu=(10, 20))
    for number, one in enumerate(runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        host = {"name": f"node{number % 2}"}
        (folder / "run.json").write_text(json.dumps({"host": host, "commit": str(number % 3)}))
        object.__setattr__(one.run.record, "folder", folder)
    said = verdict(Comparison(runs=tuple(runs))).details[1]
    assert said.endswith(
        " Mind that the runs are of 2 machines and 3 commits: a second of one may not be a second"
        " of another."
    )


def test_the_first_sentence_and_the_row_of_all_families_say_the_same():
    """A family that scores far above the others in the paper's unit outweighs none of them."""
    runs = [
        made_up(variant, seed, [0, gain * size + seed], family=family)
        for family, size, gains in (("ant-cripple", 100, (1, 1.2)), ("hopper-size", 9000, (1, 0.9)))
        for variant, gain in zip(("a", "b"), gains, strict=True)
        for seed in range(3)
    ]
    sentence = first_sentence(runs)
    rows = intervals_section(Comparison(runs=tuple(runs))).rows
    (_, _, one, *_), (_, _, other, *_) = rows[1:3]
    gain = float(other) / float(one) - 1
    assert f"“b” earns {100 * gain:.0f} % more" in sentence


def test_numbers_that_round_to_nothing_have_no_sign():
    assert (score(-0.001), signed(-0.001), percent(-0.00001)) == ("0.00", "+0.00", "0.0 %")
    assert (score(-0.01), signed(-0.01)) == ("−0.01", "−0.01")


def test_why_runs_on_mirror_images_have_no_number_of_the_paper():
    mirrored = made_up("x", 0, [1, 2], tasks=(("a", "a-viewmirror"), ("b",)))
    reading = paper_section(Comparison(runs=(mirrored,))).reading
    assert reading.endswith("(--no-mirror in mcat metatrain does without).")
    assert "mirror" not in paper_section(Comparison(runs=(made_up("x", 0, [1, 2]),))).reading


def test_too_few_seeds_are_said_and_families_with_enough_count():
    runs = compared({"MCAT": 1, "no transfer": 0.5}, seeds=2)
    says = "“no transfer” earns 50 % less on unseen tasks than “MCAT” (2 seeds, 2 families)."
    assert first_sentence(runs) == f"Too few seeds to say: {says}"
    more = [made_up(v, 2, [0, 300], family="hopper-size") for v in ("MCAT", "no transfer")]
    assert "; 3 seeds, 1 of 2 families): " in first_sentence(runs + more)


def test_many_variants_are_counted():
    sentence = first_sentence(compared({"MCAT": 1, "a": 0.5, "b": 2, "c": 1}))
    assert sentence == (
        "Beside “MCAT”, on unseen tasks “b” clearly earns more and “a” clearly earns less;"
        " 1 of 3 show no clear difference."
    )
    assert first_sentence(compared({"MCAT": 1, "a": 1, "b": 1})) == (
        "None of 2 variants clearly differs on unseen tasks from “MCAT”."
    )
    few = first_sentence(compared({"MCAT": 1, "a": 1, "b": 1}, seeds=1))
    assert few == "Too few seeds to say which of 3 variants earns most on unseen tasks."


def test_one_variant_is_told_what_it_earned():
    assert first_sentence(compared({"fast": 1})) == (
        "“fast” earns 1.10 times what the paper's MCAT did after 2M steps, on unseen tasks"
        " (95 % interval 1.03 to 1.18; 3 seeds, 2 families)."
    )
    alone = compared({"fast": 1}, families={"ant-cripple": 282}, seeds=1)
    assert first_sentence(alone) == (
        "“fast” earns 282 on unseen tasks of ant-cripple (1 seed: too few for an interval)."
    )
    other = compared({"fast": 1}, families={"mine": 3, "yours": 4})
    assert first_sentence(other) == "“fast” was run on 2 families: see what it earned on each."


def test_returns_below_zero_are_compared_by_score():
    runs = [
        made_up(variant, seed, [0, base + seed], family="mine", tasks=(("a",), ()))
        for variant, base in (("x", -12), ("y", -4))
        for seed in range(3)
    ]
    # From −12 to −2: the means −11 and −3 are the scores 0.1 and 0.9.
    assert first_sentence(runs) == (
        "“y” earns 0.80 more as a score (0 is the worst run of its family, 1 the best)"
        " on training tasks than “x” (95 % interval +0.80 to +0.80; 3 seeds, 1 family):"
        " a hint, as chance alone does that in 10 % of cases."
    )


def test_variants_without_a_family_in_common_are_named():
    runs = [made_up("x", 0, [1, 2]), made_up("y", 0, [1, 2], family="hopper-size")]
    assert first_sentence(runs) == "No family was evaluated with “x” and with “y”."


def test_the_table_has_the_papers_number_and_the_steps_in_each_row():
    runs = compared({"MCAT": 1, "no transfer": 0.5}, train=[1, 7])
    runs.append(made_up("no transfer", 9, [5], steps=(100,), state="running"))
    runs.append(made_up("no transfer", 8, [], steps=(), state="diverged"))
    rows = paper_section(Comparison(runs=tuple(runs))).rows
    assert rows[1] == ("ant-cripple", "MCAT", "3", "200", "310 [282, 338]", "7 [7, 7]",
                       "156 (MCAT, 1M) †")  # fmt: skip
    assert rows[2][:4] == ("ant-cripple", "no transfer", "4; 1 running; 1 diverged", "200")
    assert rows[4][-1] == "1,982 (MCAT, 1M) †"
    few = paper_section(Comparison(runs=(made_up("x", 0, [1, 2]), made_up("x", 1, [1, -3]))))
    assert few.rows[1][4] == "2 and −3 (too few seeds)"


def test_intervals_cover_all_families_and_each():
    rows = intervals_section(Comparison(runs=tuple(compared({"MCAT": 1, "half": 0.5})))).rows
    assert [row[:3] for row in rows[1:3]] == [
        ("all families", "MCAT", "1.00"),
        ("all families", "half", "0.50"),
    ]
    assert rows[3] == ("ant-cripple", "MCAT", "1.00", "0.91 to 1.09", "3")
    rows = intervals_section(Comparison(runs=tuple(compared({"MCAT": 1})))).rows
    assert rows[2] == ("ant-cripple", "MCAT", "1.10", "1.00 to 1.20", "3")  # in the paper's unit
    partly = [*compared({"MCAT": 1}), made_up("new", 0, [1, 2])]
    rows = intervals_section(Comparison(runs=tuple(partly))).rows
    assert [row[1] for row in rows[1:]] == ["MCAT", "MCAT", "new", "MCAT"]


def test_curves_are_looked_at_three_times():
    runs = compared({"MCAT": 1}, families={"ant-cripple": 1000}, seeds=1, cpu=(30, 80))
    comparison = Comparison(runs=tuple(runs))
    steps = curves_section(comparison, "test", "step")
    assert steps.rows[1][2:] == ("200", "–", "500 (too few seeds)", "1,000 (too few seeds)")
    cpu = curves_section(comparison, "test", "cpu")
    assert cpu.rows[1][2:] == ("80", "–", "500 (too few seeds)", "1,000 (too few seeds)")
    assert "time that passed" not in cpu.reading
    older = Comparison(runs=(*runs, made_up("MCAT", 1, [1, 2], seconds=(1, 2))))
    assert "1 of 2 runs did not measure CPU time" in curves_section(older, "test", "cpu").reading


def test_pairs_have_probabilities_and_differences():
    runs = compared({"MCAT": 1, "half": 0.5}, families={"ant-cripple": 1000, "hopper-size": 1000})
    rows = pairwise_section(Comparison(runs=tuple(runs))).rows
    cells = ("0.00 [0.00, 0.00]", "–", "−50 % [−50 %, −50 %]", "−50 % [−50 %, −50 %]")
    assert rows[1] == ("half", "all families", *cells)
    # Halves of 1000, 1100 and 1200; only one of 27 resamples is three times the first.
    assert rows[2] == ("half", "ant-cripple", "0.00 [0.00, 0.00]", "–", "−275 [−300, −250]",
                       "−550 [−600, −500]")  # fmt: skip
    apart = (made_up("x", 0, [1, 2]), made_up("y", 1, [3, 4]))
    assert pairwise_section(Comparison(runs=apart)).rows[1][-1] == "no seed in common"


def test_profiles_count_runs():
    rows = profile_section(Comparison(runs=tuple(compared({"MCAT": 0.7})))).rows
    assert rows[1] == ("MCAT", "6", "100 %", "100 %", "67 %", "0 %")  # 0.70, 0.77, 0.84


def test_failures_and_what_is_missing_are_told():
    runs = (
        made_up("x", 0, [1, 2]),
        made_up("x", 1, [1], steps=(100,), state="running", folder="late"),
        made_up("x", 2, [], steps=(), folder="new", state="running"),
        made_up("x", 3, [1], steps=(100,), state="waiting", folder="stopped"),
        made_up("x", 0, [1], steps=(100,), folder="again"),
        made_up("x", 4, [1], steps=(100,), state="diverged", failure="losses are no numbers",
                attempts=2, folder="lost"),
    )  # fmt: skip
    comparison = Comparison(runs=runs)
    assert list(notes(comparison)) == [
        "1 of 6 runs were stopped and wait to go on.",
        "again is left out: another run of x, ant-cripple, seed 0 came further.",
        "late has come to 100 of 200 steps and is left out.",
        "new is not evaluated yet and left out.",
        "stopped has come to 100 of 200 steps and is left out.",
    ]
    assert failures_section(comparison).rows[1:] == [
        ("lost", "x", "4", "diverged", "100", "2", "losses are no numbers")
    ]
    assert failures_section(Comparison(runs=runs[:1])) is None


def test_the_making_counts_hours_and_commits(tmp_path):
    runs = []
    for seed, commit in enumerate(("a" * 40, "a" * 40, "b" * 40)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        made = {"commit": commit, "dirty": seed == 2, "command": "mcat metatrain", "versions":
                {"torch": "2.1" if seed else "2.0"}}  # fmt: skip
        write_json(folder / "run.json", made)
        runs.append(made_up("x", seed, [1, 2], cpu=(900, 1800), folder=folder))
    facts, rows = making(Comparison(runs=tuple(runs)))
    assert dict(facts) == {
        "runs": "3",
        "core hours": "1.50",
        "commits": "aaaaaaaaaa (2 runs), bbbbbbbbbb+ (1 run)",
        "versions": "torch 2.0 and 2.1",
    }
    assert rows[1] == ("0", "x", "done", "200", "0.50", "1", "aaaaaaaaaa", "mcat metatrain")


@pytest.fixture
def drawn(monkeypatch):
    """Drawing functions return the figure instead of its PNG."""
    monkeypatch.setattr(figures, "png", lambda figure: figure)
    return figures


def test_runs_that_share_no_look_are_not_drawn(drawn):
    """Where episodes end early, each seed has steps of its own, and a short run one look."""
    runs = [made_up("MCAT", seed, [3], steps=(at,)) for seed, at in enumerate((131, 115))]
    assert drawn.draw_curves(Comparison(runs=tuple(runs)), "test", "step", "title") is None


def test_pictures_show_every_family_and_the_papers_line(drawn):
    runs = [*compared({"MCAT": 1, "half": 0.5}), made_up("half", 7, [3, 4], family="mine")]
    comparison = Comparison(runs=tuple(runs))
    panels = drawn.draw_curves(comparison, "test", "step", "title").axes
    assert [axes.get_title("left") for axes in panels] == ["ant-cripple", "hopper-size", "mine"]
    mean, half, paper = panels[0].get_lines()
    assert mean.get_ydata() == pytest.approx([155.1, 310.2])
    assert half.get_ydata() == pytest.approx([77.55, 155.1])
    assert paper.get_ydata() == [155.7, 155.7]
    assert len(panels[0].collections) == 2  # bands; one seed has none
    assert not panels[2].collections
    few = Comparison(runs=tuple(compared({"MCAT": 1}, seeds=2)))
    mean, *single, paper = drawn.draw_curves(few, "test", "step", "title").axes[0].get_lines()
    assert mean.get_ydata() == pytest.approx([148.05, 296.1])
    assert [list(line.get_ydata()) for line in single] == [
        pytest.approx([141.0, 282.0]), pytest.approx([155.1, 310.2])
    ]  # fmt: skip
    comparison = Comparison(runs=tuple(runs[:-1]))
    panels = drawn.draw_intervals(comparison, "title").axes
    assert [axes.get_title("left") for axes in panels] == [
        "all families",
        "ant-cripple",
        "hopper-size",
    ]
    labels = [text.get_text() for text in panels[0].get_yticklabels()]
    assert labels == ["MCAT", "half"]
    (axes,) = drawn.draw_profile(comparison, "title").axes
    shares = axes.get_lines()[0].get_ydata()
    assert (shares[0], shares[-1]) == (1, 0)


def page_of(runs, folder, **options):
    *files, page = write_comparison(runs, folder, title="transfer", **options)
    text = page.read_text()
    seen = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: seen.append((tag, dict(attributes)))
    parser.feed(text)
    assert "script" not in {tag for tag, _ in seen}
    return [path.name for path in files], text, seen


def test_the_page_has_all_parts_in_order_and_needs_no_other_file(tmp_path):
    runs = compared({"MC<b>AT": 1, "half": 0.5}, cpu=(1, 2))
    runs.append(made_up("half", 9, [], steps=(), state="diverged", failure="<i>no</i>"))
    about = [("plan", "sweep.toml")]
    files, text, seen = page_of(
        runs, tmp_path / "new" / "out", about=about, refresh=60, progress="3 of 9."
    )
    assert files == ["results.csv", "results.parquet", "intervals.png", "curves-test.png",
                     "curves-train.png", "curves-cpu.png", "profile.png"]  # fmt: skip
    ids = [own["id"] for tag, own in seen if tag == "section"]
    assert ids == ["returns", "intervals", "curves-test", "curves-train", "curves-cpu", "profile",
                   "pairs", "failures", "making"]  # fmt: skip
    assert [tag for tag, _ in seen].count("img") == 5
    assert not {"b", "i"} & {tag for tag, _ in seen}
    metas = [own.get("http-equiv") for tag, own in seen if tag == "meta"]
    assert "refresh" in metas
    assert "Content-Security-Policy" in metas
    assert text.index("<h1>") < text.index("“half” earns") < text.index("<table>")
    assert "sweep.toml" in text
    assert text.index("</h1>") < text.index("3 of 9.") < text.index("All runs are compared")


CASES = {
    "one seed": compared({"x": 1, "y": 2}, seeds=1),
    "one variant": compared({"x": 1}, cpu=(1, 2)),
    "one run": compared({"x": 1}, seeds=1, families={"ant-cripple": 1}),
    "no test tasks": [made_up("x", 0, [1, 2], tasks=(("a",), ()), family="hopper")],
    "all the same": [made_up(v, s, [1, 1], family="mine") for v in "xy" for s in range(3)],
    "one evaluation": [made_up("x", 0, [3], steps=(100,), cpu=(7,)), made_up("y", 0, [1, 2])],
    "unlike tasks": [made_up("x", 0, [1, 2]), made_up("y", 0, [3, 4], tasks=(("a",), ("c",)))],
    "mixed": [made_up("x", 0, [1, 2]), made_up("x", 0, [1, 2], family="m", tasks=(("a",), ()))],
    "all diverged": [made_up(v, 0, [1], steps=(100,), state="diverged") for v in "xy"],
}


@pytest.mark.parametrize("runs", CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("error")
def test_whatever_there_is_has_a_page(tmp_path, runs):
    files, text, seen = page_of(runs, tmp_path)
    assert "intervals.png" in files
    assert "nan" not in re.sub(r"<img[^>]*>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "refresh" not in {own.get("http-equiv") for tag, own in seen if tag == "meta"}


def test_before_an_evaluation_it_says_so(tmp_path):
    runs = [made_up("x", seed, [], steps=(), state="waiting") for seed in range(2)]
    files, text, _ = page_of(runs, tmp_path)
    assert files == ["results.csv", "results.parquet"]
    assert "Nothing to compare yet: none of 2 runs was evaluated" in text
    assert (tmp_path / "results.csv").read_text().count("waiting") == 4


def test_without_matplotlib_there_are_tables(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    files, text, seen = page_of(compared({"x": 1, "y": 2}), tmp_path)
    assert files == ["results.csv", "results.parquet"]
    assert "pip install &#x27;mcat-rl[plot]&#x27;" in text
    assert "img" not in {tag for tag, _ in seen}


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(MissingInputError, match="nothing to compare: there are no runs"):
        list(write_comparison([], tmp_path, title="x"))
    (tmp_path / "file").write_text("precious")
    with pytest.raises(CannotCreateError, match="cannot write"):
        list(write_comparison(compared({"x": 1}), tmp_path / "file", title="x"))
