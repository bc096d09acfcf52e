"""The page of `mcat translate` says what its result says, and nothing a stranger slipped in."""

import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from mcat.agents.returns import Returns
from mcat.reports.figures import project
from mcat.reports.sections import gains
from mcat.reports.translation.page import write_page
from mcat.reports.translation.sections import partners, sections
from mcat.reports.translation.verdict import verdict
from mcat.safe_io import write_json
from mcat.transfer.result import (
    CLONED,
    GUESSED,
    LOGGED,
    LOGGED_SOURCE,
    OFFLINE,
    ON_SOURCE,
    TRANSFERRED,
    UNTRANSLATED,
    TransferResult,
)
from tests.reports.translation.results import (
    PICTURES,
    RESULTS,
    many,
    pair,
)

VOID = {"meta", "img"}


class Page(HTMLParser):
    """Reads a page strictly: tags must match; keeps what a reader and a browser would see."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.html = path.read_text()
        self.feed(self.html)
        self.close()
        assert not self.open
        self.text = " ".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def pictures(self):
        prefix = "data:image/png;base64,"
        sources = [value for name, value in self.attributes if name == "src"]
        assert all(value.startswith(prefix) for value in sources)
        return [b64decode(value.removeprefix(prefix)) for value in sources]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folders = {name: tmp_path_factory.mktemp(name) for name in RESULTS}
    for name, result in RESULTS.items():
        assert write_page(result, folders[name]) == folders[name] / "report.html"
    return folders


@pytest.mark.parametrize("name", RESULTS)
def test_the_page_carries_its_pictures_and_loads_nothing(name, pages):
    page = Page(pages[name] / "report.html")
    expected = {"report.html"} | {f"{picture}.png" for picture in PICTURES[name]}
    assert {path.name for path in pages[name].iterdir()} == expected
    files = {path.read_bytes() for path in pages[name].glob("*.png")}
    assert set(page.pictures()) == files
    assert all(png.startswith(b"\x89PNG") and len(png) > 8_000 for png in files)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert not {"href", "srcset", "onload", "onerror"} & {key for key, _ in page.attributes}
    assert "url(" not in page.html
    assert "default-src 'none'" in page.html


def test_pictures_show_what_they_are_given(pages, tmp_path):
    """Other numbers, other pictures; the same numbers, the same bytes."""
    write_page(replace(pair(), trust=None, returns=pair().returns[1:]), tmp_path)
    one, other = pages["pair"], tmp_path
    assert (one / "actions.png").read_bytes() == (other / "actions.png").read_bytes()
    assert (one / "returns.png").read_bytes() != (other / "returns.png").read_bytes()


def test_numbers_are_those_of_the_result(pages):
    result, text = RESULTS["pair"], Page(pages["pair"] / "report.html").text
    for returns in result.returns:
        assert returns.label in text
        assert f"{returns.mean:,.1f} ± {returns.standard_error:,.1f}" in text
        assert f"{min(returns.values):,.1f}" in text
    assert "source actions as they are 0.471 translated actions 0.352" in text
    assert "closer by (95 % interval) 0.0912 to 0.147 best actions found by search 0.298" in text
    assert "error of the models themselves 0.0613" in text
    assert "scatter of held-out steps beside it 0.718" in text
    assert "without an equivalent 23 %" in text
    trust = result.trust
    columns = trust.per_dimension_untranslated, trust.per_dimension_translated
    for index, (before, after) in enumerate(zip(*columns, strict=True)):
        assert f" state {index} {before:.3g} {after:.3g} " in text
    for index, error in enumerate(result.fit.forward_error):
        assert f" state {index} {error:.3g} " in text
    assert f" {result.fit.curves['forward loss'][-1][1]:.3g} 10,000 " in text
    for sentence in result.trust.sentences():
        assert sentence in text
    assert "How far can I trust this transfer" in text
    for fact in (result.command, "b120005c with local changes", "torch 2.13", '"history": 10'):
        assert fact in text
    for side in result.machines:
        assert all(fact in text for fact in (*side.files, *side.hashes, f"{side.transitions:,}"))


def test_strangers_names_are_text_only(pages):
    page = Page(pages["own robot"] / "report.html")
    assert "<script" not in page.html
    assert page.text.count("alert(1)") >= 8  # title, policy, command, data, settings, ...
    assert "機械" in page.text


def test_missing_returns_are_explained(pages):
    text = Page(pages["own robot"] / "report.html").text
    assert "Trained, but not tried out" in text
    assert "No simulator is known for" in text


def test_without_matplotlib_there_are_tables(tmp_path):
    for name in ("pair", "many"):
        write_json(tmp_path / f"{name}.json", RESULTS[name].to_json())
        (tmp_path / name).mkdir()
    code = """
import sys
from pathlib import Path
sys.modules["matplotlib"] = None
from mcat.transfer.result import TransferResult
from mcat.reports.translation.page import write_page
from mcat.safe_io import read_json
for name in ("pair", "many"):
    write_page(TransferResult.from_json(read_json(f"{name}.json")), Path(name))
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    for name in ("pair", "many"):
        assert [path.name for path in (tmp_path / name).iterdir()] == ["report.html"]
        page = Page(tmp_path / name / "report.html")
        assert not page.pictures()
        assert "pip install 'mcat-rl[plot]'" in page.text
        for error in RESULTS[name].fit.forward_error:
            assert f"{error:.3g}" in page.text


LOW, HIGH = [100, 110, 90, 105, 95], [150, 160, 140, 157, 143]


def returns_of(before, after, home=(), cloned=(), offline=(), guessed=()):
    labels = {
        GUESSED: guessed,
        ON_SOURCE: home,
        UNTRANSLATED: before,
        TRANSFERRED: after,
        CLONED: cloned,
        OFFLINE: offline,
    }
    return replace(
        pair(), returns=tuple(Returns(label=k, values=tuple(v)) for k, v in labels.items() if v)
    )


@pytest.mark.parametrize(
    ("result", "tone", "words"),
    [
        (returns_of(LOW, HIGH, [200.0] * 5), "good", "wins back 50 %"),
        (returns_of(LOW, HIGH), "good", "1.50 times as much"),
        (returns_of([0.0] * 5, [350.0] * 5), "good", "350.0 ± 0.0 with"),
        (returns_of(HIGH, LOW), "bad", "Do not deploy"),
        (returns_of(LOW, [90, 130, 95, 100, 101]), "unclear", "may be chance"),
        (returns_of([0.0] * 5, [0.0] * 5), "unclear", "may be chance"),
        (returns_of(LOW[:4], HIGH[:4]), "unclear", "too few episodes"),
        (returns_of([100.0], [900.0]), "unclear", "too few episodes"),
    ],
)
def test_the_verdict_is_honest(result, tone, words):
    found = verdict(result)
    assert found.tone == tone
    assert words in found.details


HIGHER = [200, 210, 190, 207, 193]
WRONG_TOOL = "Translation is the wrong tool here: {} the target's logs earns more"


@pytest.mark.parametrize(
    ("result", "tone", "headline", "words"),
    [
        (returns_of(LOW, HIGH, cloned=HIGHER, offline=LOW), "bad", WRONG_TOOL.format("cloning"),
         "cloning the target's logs earns 200.0 ± 3.9 and offline RL on the target's logs earns"
         " 100.0 ± 3.5."
         " Cloning the target's logs is 50.0 ± 0.0 ahead of translating: the policy is in"
         " clone.safetensors."),
        (returns_of(LOW, LOW, offline=HIGHER), "bad", WRONG_TOOL.format("offline RL on"),
         "the policy is in offline-rl.safetensors"),
        (returns_of(LOW, HIGH, cloned=LOW, offline=LOW), "good",
         "Translation helped, and is the best of what these logs give", "cloning"),
        (returns_of(LOW, HIGH, cloned=HIGH), "good", "Translation helped", "is not clear"),
        (returns_of(HIGHER, LOW, cloned=HIGH), "bad", "Translation made it worse",
         "the policy as it is earns more still"),
        (returns_of(HIGHER, LOW, cloned=LOW), "bad", "Translation made it worse", "cloning"),
        (returns_of(LOW, HIGH, guessed=HIGHER), "bad",
         "Learning spoilt the guess: alone it earns more",
         " The first guess alone, before anything was learned, earns 200.0 ± 3.9, 50.0 ± 0.0 more:"
         " keep it as it is by --set recipe.state.steps=0."),
        (returns_of(LOW, HIGH, guessed=HIGH), "good", "Translation helped",
         "without, 1.50 times as much (mean ± standard error, 5 episodes). The first guess alone,"
         " before anything was learned, earns 150.0 ± 3.9."),
        (returns_of(LOW, LOW, guessed=HIGH, cloned=HIGHER), "bad", WRONG_TOOL.format("cloning"),
         "before anything was learned, earns 150.0 ± 3.9."),
        (returns_of(HIGHER, LOW, guessed=HIGH), "bad", "Translation made it worse",
         "before anything was learned, earns 150.0 ± 3.9."),
        (returns_of(LOW, HIGHER, guessed=LOW, cloned=LOW), "good",
         "Translation helped, and is the best of what these logs give", "earns 100.0 ± 3.5."),
        (returns_of(LOW[:4], HIGH[:4], cloned=HIGHER[:4]), "unclear", "No clear difference",
         "too few episodes"),
    ],
)  # fmt: skip
def test_the_verdict_names_what_else_these_logs_give(result, tone, headline, words):
    found = verdict(result)
    assert (found.tone, found.headline) == (tone, headline)
    assert words in found.details


def test_what_only_logs_tell_is_told():
    logged = (
        Returns(label=LOGGED_SOURCE, values=(5.0, 7.0)),
        Returns(label=LOGGED, values=(1.0, 2.0, 6.0)),
    )
    details = verdict(replace(pair(), returns=(), logged=logged)).details
    assert "the target earns 3.0 an episode (at best 6.0; 3 episodes)" in details
    assert "the source earns 6.0 an episode (at best 7.0; 2 episodes)" in details
    assert "logs" not in verdict(replace(pair(), returns=())).details


def test_alternatives_are_in_table_and_picture(tmp_path):
    result = returns_of(LOW, HIGH, HIGHER, cloned=HIGHER, offline=HIGH)
    logged = (Returns(label=LOGGED, values=(31.0, 32.0)),)
    text = Page(write_page(replace(result, logged=logged), tmp_path)).text
    assert f"{CLONED} 200.0 ± 3.9 190.0 210.0 5" in text
    assert f"{LOGGED} 31.5 ± 0.5 31.0 32.0 2" in text
    finding = next(section.finding for section in sections(result) if section.name == "returns")
    assert finding.endswith("earns more: 100 → 150 on the target; cloned 200; offline RL 150")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Translation removes 25 % of the mismatch; the best actions would remove 37 %"),
        ({"translated": 0.6}, "Translation adds 27 %"),
        ({"translated": 0.47}, "leaves the mismatch as it is"),
        ({"reachable": 0.5}, "no better actions were found"),
        ({"model_error": 0.5}, "The models are off by 0.5: they cannot tell"),
        ({"untranslated": 0.2}, "The machines differ by 0.2 at most"),
    ],
)
def test_the_mismatch_is_told_as_it_is(changed, words):
    result = pair()
    found = sections(replace(result, trust=replace(result.trust, **changed)))
    assert words in next(section.finding for section in found if section.name == "mismatch")


def test_states_are_called_by_their_names(tmp_path):
    names = tuple(f"joint {n} <b>" for n in range(17))
    result = pair()
    named = replace(result.machines[1], observation_names=names)
    page = Page(write_page(replace(result, machines=(result.machines[0], named)), tmp_path))
    assert "joint 3 <b>" in page.text
    assert "<b>" not in page.html
    assert "state 3" not in page.text
    (finding,) = [s.finding for s in sections(result) if s.name == "dimensions"]
    assert "state " in finding


def test_where_trust_is_not_known_the_page_says_so(pages, tmp_path):
    text = Page(pages["many"] / "report.html").text
    assert "How far can I trust this transfer? Not known" in text
    untried = replace(pair(), method="cycle", trust=None, returns=(), paths={})
    assert "Nor were episodes run" in Page(write_page(untried, tmp_path)).text


def test_an_older_estimate_is_left_out_not_misread():
    data = pair().to_json()
    del data["trust"]["closer"]
    assert TransferResult.from_json(data).trust is None
    assert TransferResult.from_json(pair().to_json()).trust.closer == pair().trust.closer


def test_the_verdict_of_many_tasks_counts_clear_differences_of_different_tasks():
    result = many()
    percent, clear = gains(result.matrix)
    assert np.isnan(percent[-1]).all()
    assert percent[0, 3] == pytest.approx(100 * (3200 * 1.18 - 40 - 3200) / 3200)
    assert clear[0, 3]
    assert not clear[0, 0]
    assert verdict(result).headline == "Translation helped 16 of 16 pairs and hurt 0"
    failed = ((0.0,) * 5, *result.matrix.transferred[1:])
    result = replace(result, matrix=replace(result.matrix, transferred=failed))
    assert verdict(result).headline == "Translation helped 12 of 16 pairs and hurt 4"


def test_machines_of_different_size_show_the_source_action_that_is_followed(tmp_path):
    source = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    translated = np.stack([source[:, 1], -source[:, 0], np.zeros(200)], axis=1)
    assert partners(source, translated)[:2] == [1, 0]
    assert partners(source, translated[:, :2]) == [0, 1]  # same size: the same number
    scatter = {"source": source.tolist(), "translated": translated.tolist()}
    result = replace(pair(), scatter=scatter, trust=None, returns=(), paths={})
    text = Page(write_page(result, tmp_path)).text
    assert "+1.00" in text
    assert "-1.00" in text
    assert (tmp_path / "actions.png").exists()


def test_contexts_are_drawn_without_scikit_learn(monkeypatch):
    points = np.random.default_rng(0).normal(0, [5, 2, 0.1], (40, 3))
    places, caption = project(points, seed=0)
    assert "t-SNE" in caption
    assert places.shape == (40, 2)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    places, caption = project(points, seed=0)
    assert "principal components of the contexts (100 % of the variance)" in caption
    assert np.abs(np.corrcoef(places[:, 0], points[:, 0])[0, 1]) > 0.99
