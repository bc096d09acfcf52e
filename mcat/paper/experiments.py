"""The paper's tables and figures of meta-training: which plan of runs makes each of them."""

from __future__ import annotations

from dataclasses import dataclass

TRAIN, TEST = "eval/train", "eval/test"  # as columns of a run's metrics
TRAIN_SUCCESS, TEST_SUCCESS = "eval/success/train", "eval/success/test"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure that is made from runs of `mcat metatrain`."""

    title: str  # what it is in the paper
    plan: str  # the plan of `mcat sweep` that has its runs
    steps: int | None  # after how many the paper looks at them; None where it does not say
    columns: tuple[str, ...] = (TEST, TRAIN)  # what it prints, as columns of a run's metrics
    # In place of the plan's own, as `mcat sweep --variant` takes them.
    variants: tuple[str, ...] = ()
    imitates: bool = False  # whether it is about self-imitation, which not all presets have
    contexts: bool = False  # whether it has a picture of contexts


EXPERIMENTS = {
    "families": Experiment(
        title="Table 2, Figures 3 and 6: MCAT on five families",
        plan="families",
        steps=2_000_000,
        variants=("MCAT",),
    ),
    "methods": Experiment(
        title="Table 2, Figure 3: MCAT beside the methods it is compared with",
        plan="methods",
        steps=2_000_000,
    ),
    "transfer-effect": Experiment(
        title="Table 3, Figure 7: what policy transfer adds",
        plan="transfer",
        steps=1_000_000,
    ),
    "delays": Experiment(
        title="Table 4, Figure 8: sparser rewards", plan="delays", steps=1_000_000
    ),
    "task-sets": Experiment(
        title="Appendix D.3, Figure 9: more and less diverse tasks",
        plan="task-sets",
        steps=1_000_000,
    ),
    "no-sil": Experiment(
        title="Appendix D.4: MCAT without self-imitation",
        plan="no-sil",
        steps=2_000_000,
        imitates=True,
    ),
    "contrastive": Experiment(
        title="Appendix D.5, Figures 10 and 11: MCAT without the contrastive loss",
        plan="contrastive",
        steps=None,
        contexts=True,
    ),
    "cycle-in-mcat": Experiment(
        title="Appendix D.6: the translator of Zhang et al. inside MCAT",
        plan="cycle-in-mcat",
        steps=2_000_000,
    ),
    "metaworld": Experiment(
        title="Appendix C.4: five objects of Meta-World, tested on a sixth",
        plan="metaworld",
        steps=2_000_000,
        columns=(TRAIN, TEST, TRAIN_SUCCESS, TEST_SUCCESS),
    ),
}
"""By the name that `mcat reproduce` takes."""
