"""Results of translations as they could be, to make pages of."""

from dataclasses import replace

import numpy as np

from mcat.agents.returns import Returns
from mcat.transfer.result import (
    ON_SOURCE,
    TRANSFERRED,
    UNTRANSLATED,
    ContextPoints,
    Machine,
    ReturnMatrix,
    TransferResult,
)
from mcat.translator.grade import Trust
from mcat.translator.report import FitReport

HOSTILE = '<script src="https://evil.example/x.js">alert(1)</script>&"\' $\\frac{ \n\x01 機械'


def machine(name, number=1):
    files = tuple(f"logs/{name}-{index}.h5" for index in range(number))
    hashes = tuple(f"{index:x}" * 64 for index in range(number))
    return Machine(name=name, files=files, hashes=hashes, transitions=100_000, episodes=100)


def trust(rng, size):
    after = rng.uniform(0.1, 0.5, size)
    return Trust(
        untranslated=0.471,
        translated=0.352,
        reachable=0.298,
        closer=(0.0912, 0.147),
        model_error=0.0613,
        missed=0.0127,
        scatter=0.718,
        improving=0.05,
        variety=0.6,
        no_equivalent=0.23,
        per_dimension_untranslated=(after * 1.4).tolist(),
        per_dimension_translated=after.tolist(),
    )


def fit(rng, size):
    def curve(start, end):
        steps = np.linspace(0, 10_000, 41)
        noise = rng.normal(1, 0.03, steps.size)
        values = (end + (start - end) * np.exp(-steps / 2000)) * noise
        return [(int(step), float(value)) for step, value in zip(steps, values, strict=True)]

    return FitReport(
        curves={
            "held-out forward error": curve(0.9, 0.06),
            "forward loss": curve(1.2, -1.1),
            "contrastive loss": curve(5.5, 0.8),
            "translation loss": curve(0.47, 0.35),
        },
        numbers={"dead dimensions": 3.0},
        forward_error=rng.gamma(2, 0.03, size).tolist(),
    )


def pair():
    """A pair with everything: HalfCheetah's size, and hand paths for good measure."""
    rng = np.random.default_rng(0)
    source = np.tanh(rng.normal(0, 1.5, (500, 6)))
    translated = np.clip(source * [0.9, 1.1, -1, 1, 0.5, 1] + rng.normal(0, 0.1, (500, 6)), -1, 1)
    time = np.linspace(0, 1, 80)[:, None]
    ends = {
        ON_SOURCE: (0.05, 0.85, 0.08),
        UNTRANSLATED: (0.0, 0.7, 0.2),
        TRANSFERRED: (0.04, 0.84, 0.09),
    }
    paths = {
        label: [
            ((0, 0.6, 0.2) + time * np.subtract(end, (0, 0.6, 0.2)) + shift * time**2).tolist()
            for shift in rng.normal(0, 0.01, (3, 3))
        ]
        for label, end in ends.items()
    }
    means = {ON_SOURCE: 5121, UNTRANSLATED: 2355, TRANSFERRED: 2937}
    return TransferResult(
        method="ours",
        preset="cpu",
        seed=3,
        command="mcat translate --src a.h5 --tgt b.h5",
        provenance={
            "commit": "b120005c",
            "dirty": True,
            "versions": {"python": "3.11.9", "torch": "2.13"},
            "host": {"system": "Linux"},
        },
        config={"context": {"history": 10}},
        machines=(machine("halfcheetah-armature0.1", 2), machine("halfcheetah-armature0.5")),
        policy="good",
        fit=fit(rng, 17),
        trust=trust(rng, 17),
        scatter={"source": source.tolist(), "translated": translated.tolist()},
        returns=tuple(
            Returns(label=label, values=tuple(rng.normal(mean, 350, 100)))
            for label, mean in means.items()
        ),
        paths=paths,
        seconds={"fit": 321.5, "evaluate": 20.1},
    )


def cells(rows):
    return tuple(map(tuple, rows))


def many(tasks=5):
    rng = np.random.default_rng(1)
    places = np.arange(tasks)
    far = np.abs(places[:, None] - places)
    before = 5000.0 - 600 * far
    after = before * (1 + 0.06 * far) - 40
    before, after = before.tolist(), after.tolist()
    before[-1] = after[-1] = [None] * tasks  # this task has no policy
    errors = [[40.0] * tasks] * (tasks - 1) + [[None] * tasks]
    numbers = np.repeat(places, 60)
    points = rng.normal(0, 0.4, (numbers.size, 10)) + np.eye(10)[numbers] * 3
    names = [f"halfcheetah-armature0.{index + 1}" for index in range(tasks)]
    return replace(
        pair(),
        machines=tuple(map(machine, names)),
        trust=None,
        scatter={},
        returns=(),
        paths={},
        skipped="halfcheetah-armature0.5 has no packaged policy, so it is no source.",
        matrix=ReturnMatrix(
            names=tuple(names),
            untranslated=cells(before),
            transferred=cells(after),
            untranslated_error=cells(errors),
            transferred_error=cells(errors),
        ),
        contexts=ContextPoints(points=points.tolist(), tasks=numbers.tolist()),
    )


def own_robot():
    """Data of a machine that cannot be simulated, with names nobody should trust."""
    result = pair()
    target = replace(machine("mine"), name=HOSTILE, files=(HOSTILE,))
    return replace(
        result,
        machines=(result.machines[0], target),
        policy=HOSTILE,
        command=f"mcat translate --tgt {HOSTILE}",
        config={HOSTILE: HOSTILE},
        provenance={"commit": None, "versions": {HOSTILE: HOSTILE}},
        fit=replace(result.fit, curves={"$\\frac{$" + HOSTILE: result.fit.curves["forward loss"]}),
        returns=(),
        paths={},
        skipped=f"no simulator is known for {HOSTILE}",
    )


RESULTS = {"pair": pair(), "own robot": own_robot(), "many": many()}
PICTURES = {
    "pair": {"returns", "mismatch", "dimensions", "curves", "forward-error", "actions", "paths"},
    "own robot": {"mismatch", "dimensions", "curves", "forward-error", "actions"},
    "many": {"improvement", "curves", "forward-error", "contexts"},
}
