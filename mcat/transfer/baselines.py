"""What else could be done with the same logs and the same real steps: `mcat adapt --baselines`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.adaptation.run import adapt
from mcat.errors import UsageError
from mcat.progress import Notify, ignore
from mcat.safe_io import io_errors, is_file, write_json
from mcat.transfer.adaptation import Inputs
from mcat.types import PolicyFunction

FOLDER, LINES_FILE = "baselines", "policies.json"
TRANSLATED, PLAIN = "translated, not adapted", "source policy as it is"
LABELS = {
    "scratch": "from scratch",
    "fine-tuned": "source policy, fine-tuned",
    "logs": "logs alone: offline RL, then real steps",
    "cloning": "cloning of the logs",
}


class Baseline(NamedTuple):
    """An adaptation with other settings."""

    name: str
    config: AdaptConfig
    policy: PolicyFunction | None


def require_comparable(config: AdaptConfig) -> None:
    """Refuse baselines that could not be compared."""
    if config.task is None:
        raise UsageError(
            "--baselines needs a simulator (--env): each of them takes as many real steps again"
        )
    if not config.episodes_to_look:
        raise UsageError("--baselines compares returns: say by --episodes how many to run")


def baselines(config: AdaptConfig, plain: PolicyFunction | None) -> list[Baseline]:
    """The settings of all baselines, with the budget of `config`; `plain` is not translated."""
    config = replace(config, evaluation_episodes=config.episodes_to_look)
    clones = replace(config.learner, greed=0.0)
    found = [Baseline("logs", replace(config, anchor="logged"), None)]
    if config.steps:
        assert config.task is not None, "require_comparable was not called"
        start = min(config.task.horizon, config.steps // 5)
        alone = replace(config, offline_updates=0, log_share=0.0, random_steps=start)
        found.append(Baseline("scratch", alone, None))
    if plain is not None and config.steps:
        tuned = replace(config, anchor="policy", learner=clones, log_share=0.0)
        found.append(Baseline("fine-tuned", tuned, plain))
    cloned = replace(config, anchor="logged", learner=clones, steps=0)
    return [*found, Baseline("cloning", cloned, None)]


def run_baselines(
    config: AdaptConfig,
    inputs: Inputs,
    folder: Path,
    *,
    quiet: bool = False,
    notify: Notify = ignore,
) -> None:
    """Run those that are not there yet, each in a folder of its own, and go on with the others."""
    place = folder / FOLDER
    with io_errors(place, "write"):
        place.mkdir(exist_ok=True)
    if not is_file(place / LINES_FILE):
        _run_policies(config, inputs, place / LINES_FILE, quiet=quiet)
    for name, settings, policy in baselines(config, inputs.plain):
        notify(f"baseline: {LABELS[name]}")
        adapt(
            settings, place / name, inputs.logs, policy, log_task=inputs.log_task,
            card=inputs.card, made_of=inputs.made_of, resume=True, quiet=quiet, notify=notify,
        )  # fmt: skip


def _run_policies(config: AdaptConfig, inputs: Inputs, path: Path, *, quiet: bool) -> None:
    """What the policies earn that nothing was learned for, from the same starts."""
    from mcat.agents.evaluation import Trial, run_episodes

    assert config.task is not None, "require_comparable was not called"
    acting: dict[str, PolicyFunction | None] = {PLAIN: inputs.plain}
    if inputs.policy is not inputs.plain:
        acting[TRANSLATED] = inputs.policy
    trials = [Trial(label, act, config.task) for label, act in acting.items() if act is not None]
    returns, _ = run_episodes(
        trials, episodes=config.episodes_to_look, seed=config.evaluation_seed, quiet=quiet
    )
    write_json(path, {item.label: list(item.values) for item in returns})
