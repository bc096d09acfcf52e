"""What the paper printed of its transfer experiments, and the logs each of them needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, permutations
from typing import NamedTuple

from mcat.envs.families import family
from mcat.envs.scripted import SOURCE_POLICY
from mcat.envs.tasks import Task
from mcat.transfer.result import CLONED, GUESSED, OFFLINE, ON_SOURCE, UNTRANSLATED

STEPS = 100_000  # of each log, as in the paper
EXTRA = 50_000  # of the logs that the paper did not have
PRINTED_LOGS = ("paper", "released")  # presets that get no others than those the paper had
ALTERNATIVES = {"cloning": CLONED, "offline-rl": OFFLINE}
"""Methods that take the target's logs alone, which the paper did not compare with."""
METHODS = ("ours", "cycle", *ALTERNATIVES)
Numbers = tuple[float, float | None]


class PolicyOf(NamedTuple):
    """A policy that is not looked for yet: its name, and the task whose it is."""

    name: str
    task: Task


@dataclass(frozen=True, kw_only=True)
class Log:
    """What to collect: whose policy, where, with how much noise."""

    name: str
    task: Task
    policy: PolicyOf
    noise: tuple[float, float] = (0.0, 0.0)
    steps: int = STEPS
    guess: str | None = None  # Hand-made maps by which a policy of another machine acts


class RowLogs(NamedTuple):
    """Logs under the presets that have the paper's alone, and under all others."""

    printed: tuple[Log, ...] = ()
    usual: tuple[Log, ...] = ()

    def __call__(self, preset: str) -> tuple[Log, ...]:
        """Those under a preset."""
        return self.printed if preset in PRINTED_LOGS else self.usual


_NONE = RowLogs()


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One line of a table, or one heat map."""

    name: str  # for the command line
    sources: RowLogs = _NONE  # logs of the source under a preset
    targets: RowLogs = _NONE  # logs of the target
    tasks: RowLogs = _NONE  # in place of both, logs of several tasks
    policy: PolicyOf | None = None  # the policy to transfer; None for each task's own good one
    # What is compared: ours, cycle, reward-aware (ours with L_trans,r), and those of
    # `ALTERNATIVES`.
    methods: tuple[str, ...] = ("ours", "cycle")
    # The paper's numbers: (mean, standard error) by column.
    printed: dict[str, Numbers] = field(default_factory=dict)
    map: str | None = None  # first guess for machines with other spaces or rewards

    @property
    def pair(self) -> bool:
        """Whether it is about one source and one target."""
        return self.policy is not None

    @property
    def chooses(self) -> bool:
        """Whether the best of a training can be chosen: of a pair whose spaces are the same."""
        return self.pair and self.map is None

    def column(self, label: str) -> str:
        """Where the returns of that label belong: in other spaces a policy acts by a guess only."""
        bodies = [logs("cpu")[0].task.spec for logs in (self.sources, self.targets)]
        sizes = {(body.observation_size, body.action_size) for body in bodies}
        return GUESSED if label == UNTRANSLATED and len(sizes) > 1 else label


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Rows under a title."""

    title: str
    rows: tuple[TableRow, ...]


def _printed(
    on_source: float, on_target: float | None, cycle: Numbers, ours: Numbers, **more: Numbers
) -> dict[str, Numbers]:
    numbers: dict[str, Numbers] = {ON_SOURCE: (on_source, None), "cycle": cycle, "ours": ours}
    if on_target is not None:
        numbers[UNTRANSLATED] = (on_target, None)
    return numbers | {name.replace("_", "-"): number for name, number in more.items()}


def _packaged(task: Task) -> Task:
    """The task for which policies come with the package: control cost does not matter to them."""
    return task.replace(control_cost=0.0) if task.robot == "ant" else task


def _own_logs(task: Task) -> RowLogs:
    """What its mediocre policy did; beyond the paper with noise, and what its good one did."""
    label, body = task.label(*_named(task)), _packaged(task)
    mediocre = Log(name=f"{label}-mediocre", task=task, policy=PolicyOf("mediocre", body))
    noisy = replace(mediocre, name=f"{mediocre.name}-noisy", noise=(0.0, 0.5))
    good = Log(
        name=f"{label}-good", task=task, policy=PolicyOf("good", body), noise=(0.0, 0.3),
        steps=EXTRA,
    )  # fmt: skip
    return RowLogs(printed=(mediocre,), usual=(noisy, good))


def _named(task: Task) -> tuple[str, ...]:
    return ("armature",) if task.robot == "halfcheetah" else ()


def _locomotion(
    name: str,
    source: Task,
    target: Task,
    printed: dict[str, Numbers],
    methods: tuple[str, ...] = METHODS,
) -> TableRow:
    policy = PolicyOf("good", _packaged(source))
    own = _own_logs(target)
    # Beyond the paper: what was logged when the source's policy was tried on the target. What F
    # learns from: docs/decisions.md#which-machine-f-knows.
    tried = Log(
        name=f"{target.label(*_named(target))}-good-of-{source.label(*_named(source))}",
        task=target,
        policy=policy,
        noise=(0.0, 0.5),
        steps=EXTRA,
    )
    return TableRow(
        name=name,
        sources=_own_logs(source),
        targets=RowLogs(own.printed, (own.usual[0], tried)),
        policy=policy,
        methods=methods,
        printed=printed,
    )


def _objects(name: str, target: Task, printed: dict[str, Numbers]) -> TableRow:
    """From pushing the cylinder to another object with lighter fingers."""
    source = Task("push")
    policy = PolicyOf(f"scripted:{SOURCE_POLICY[target.robot]}", source)

    def logs(task: Task, own: PolicyOf, tried: Log) -> RowLogs:
        noisy = Log(name=f"{task.label()}-for-{name}", task=task, policy=own, noise=(1.0, 1.0))
        return RowLogs((noisy,), (noisy, tried))

    calm = Log(
        name=f"{source.label()}-for-{name}-calm", task=source, policy=policy, noise=(0.0, 0.4),
        steps=EXTRA,
    )  # fmt: skip
    tried = Log(
        name=f"{target.label()}-tried", task=target, policy=policy._replace(task=target),
        noise=(0.2, 0.8), steps=EXTRA,
    )  # fmt: skip
    return TableRow(
        name=name,
        sources=logs(source, policy, calm),
        targets=logs(target, PolicyOf("scripted", target), tried),
        policy=policy,
        methods=METHODS,
        printed=printed,
    )


def _without_policy(row: TableRow) -> TableRow:
    """The same where nobody has a policy of the target's own, which the paper did not try.

    All that was logged on the target is the source's policy, failing, and random actions.
    """
    tried = row.targets.usual[-1]
    task = tried.task
    random = Log(
        name=f"{task.label(*_named(task))}-random",
        task=task,
        policy=PolicyOf("random", task),
        steps=EXTRA,
    )
    return replace(
        row,
        name=f"{row.name}-tried",
        targets=RowLogs((tried, random), (tried, random)),
        printed=_plain(row.printed),
    )


def _plain(printed: dict[str, Numbers]) -> dict[str, Numbers]:
    """What the paper printed of the source policy, without its translators."""
    return {name: printed[name] for name in (ON_SOURCE, UNTRANSLATED) if name in printed}


def _heat_map(name: str) -> TableRow:
    own = [_own_logs(task) for task in family(name).train]
    printed, usual = (tuple(chain(*logs)) for logs in zip(*own, strict=True))
    return TableRow(name=name, tasks=RowLogs(printed, usual), methods=("ours",))


def _pairs(name: str) -> tuple[TableRow, ...]:
    """Every two tasks of a heat map by themselves, so that each has an estimate of trust."""
    pairs = permutations(family(name).train, 2)
    named = {"-to-".join(task.label(*_named(task)) for task in pair): pair for pair in pairs}
    return tuple(_locomotion(text, *pair, {}, methods=("ours",)) for text, pair in named.items())


def _cost(c: float, *numbers: float) -> TableRow:
    on_source, on_target, cycle, plain, aware = numbers
    return _locomotion(
        f"ant-cost{c}",
        Task("ant", cripple=0, control_cost=c),
        Task("ant", cripple=3, control_cost=c),
        _printed(on_source, on_target, (cycle, None), (plain, None), reward_aware=(aware, None)),
        methods=("ours", "reward-aware", "cycle"),
    )


def _reach(number: int, printed: dict[str, Numbers], *, hand: bool) -> TableRow:
    """From one goal to another: the same arm, other rewards. As printed, H is not guessed.

    As printed, only the `hand` is seen and moved; else there are Meta-World's 14 states and 4
    actions, and what the paper's translators earned is not beside them.
    """
    goals = family("reach-goals")
    robot, ending = ("reach-hand", "-hand") if hand else ("reach", "")
    source, target = (
        Task(robot, goal=task.params["goal"]) for task in (*goals.train, goals.test[number])
    )

    def noisy(task: Task) -> RowLogs:
        short = Log(
            name=task.label("goal"),
            task=task,
            policy=PolicyOf("scripted", task),
            noise=(1.0, 1.0),
            steps=EXTRA,
        )
        long = replace(short, name=f"{short.name}-long", steps=STEPS)
        return RowLogs((long,), (short,))

    return TableRow(
        name=f"reach-goal{number + 1}{ending}",
        sources=noisy(source),
        targets=noisy(target),
        policy=PolicyOf("scripted", source),
        printed=printed if hand else _plain(printed),
        map=f"mirror-x{ending}-states",
    )


def _three_legs() -> TableRow:
    """To a body with one leg more; what was logged first is a guess of both maps, run with noise.

    As printed, the translator itself starts from a guess of the actions alone.
    Where logs shall be the paper's, what it is a guess of is the mediocre policy, without noise, as
    none of the larger body's own comes with the package.
    """
    source, target = Task("halfcheetah", armature=0.1), Task("halfcheetah3leg")
    policy, own = PolicyOf("good", source), _own_logs(source)
    tried = Log(
        name="halfcheetah3leg-tried", task=target, policy=policy, noise=(0.0, 0.5), steps=EXTRA,
        guess="two-to-three-legs",
    )  # fmt: skip
    printed = replace(
        tried, name="halfcheetah3leg-mediocre", policy=PolicyOf("mediocre", source),
        noise=(0.0, 0.0), steps=STEPS,
    )  # fmt: skip
    return TableRow(
        name="three-legs",
        sources=RowLogs(own.printed, own.usual[-1:]),
        targets=RowLogs((printed,), (tried,)),
        policy=policy,
        printed=_printed(5121.4, None, (1957.8, 298.4), (2018.2, 50.8)),
        map="two-to-three-legs-actions",
    )


def _both_by_hand(row: TableRow, guess: str) -> TableRow:
    """The same with more given than the paper had, so that its translators are not beside it."""
    return replace(row, name=f"{row.name}-both", map=guess, printed=_plain(row.printed))


_GOALS = (
    _printed(4855.7, 947.5, (1798.2, 592.4), (3124.3, 1042.0)),
    _printed(4855.7, 1470.2, (1764.0, 316.3), (1937.1, 424.5)),
    _printed(4855.7, 1040.8, (2393.7, 869.8), (2315.7, 1061.5)),
)
_REACH = tuple(_reach(number, printed, hand=False) for number, printed in enumerate(_GOALS))
_PAIRS = (
    _locomotion(
        "halfcheetah",
        Task("halfcheetah", armature=0.1),
        Task("halfcheetah", armature=0.5),
        _printed(5121.4, 2355.0, (3017.1, 44.2), (2937.2, 9.5)),
    ),
    _locomotion(
        "ant",
        Task("ant", cripple=0),
        Task("ant", cripple=3),
        _printed(476.8, 55.8, (97.2, 2.5), (208.1, 8.2)),
    ),
    _objects(
        "cylinder-mug",
        Task("coffee-push", gripper=0.1),
        _printed(317.3, 0.0, (308.1, 75.3), (395.6, 19.4)),
    ),
    _objects(
        "cylinder-cube",
        Task("sweep-into", gripper=0.1),
        _printed(439.7, 0.0, (262.4, 48.1), (446.1, 1.1)),
    ),
)

TABLES = {
    "table1": PaperTable(
        title="Table 1: transfer between two machines",
        rows=(
            *_PAIRS,
            *map(_without_policy, _PAIRS),
        ),
    ),
    "heatmaps": PaperTable(
        title="Heat maps: improvement between any two tasks",
        rows=(_heat_map("halfcheetah-heatmap"), _heat_map("ant-heatmap")),
    ),
    "pairs": PaperTable(
        title="The pairs of the heat maps, one translator each",
        rows=(*_pairs("halfcheetah-heatmap"), *_pairs("ant-heatmap")),
    ),
    "rewards": PaperTable(
        title="Appendix C.3: rewards that depend on the action",
        rows=(
            _cost(0.001, 511.1, 54.7, 133.27, 193.7, 203.1),
            _cost(0.002, 488.4, 53.7, 129.86, 179.3, 195.4),
            _cost(0.005, 475.8, 38.9, 112.36, 148.5, 171.8),
        ),
    ),
    "extension": PaperTable(
        title="Appendix E: other rewards, other bodies",
        rows=(
            *(_reach(number, printed, hand=True) for number, printed in enumerate(_GOALS)),
            _three_legs(),
            *_REACH,
            *(_both_by_hand(row, "mirror-x") for row in _REACH),
            _both_by_hand(_three_legs(), "two-to-three-legs"),
        ),
    ),
}
"""The paper's experiments on transfer by name: what it printed, and how each row is run."""
