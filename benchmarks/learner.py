"""Steps and CPU seconds to a return on one task: ours against stable-baselines3 and sb3-contrib.

    python benchmarks/learner.py [--target 1500] [--limit 60000] [--seeds 0,1]

HalfCheetah with armature 0.2 and dense rewards, 1,000-step episodes, the same for all: every 2,000
steps five deterministic episodes of 1,000 steps are run (not timed), and the clock stops when their
mean return reaches the target. Contenders take turns, seed by seed, on one thread. `TD3` is
stable-baselines3's as it comes; `CrossQ` is sb3-contrib's with our widths and batch, as its own
1,024-wide critics are made for a GPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

import mcat  # noqa: F401  registers the ids
from mcat.agents.evaluation import Evaluator
from mcat.agents.single.config import TrainConfig
from mcat.agents.single.trainer import Trainer
from mcat.envs.tasks import Task

TASK = Task("halfcheetah", armature=0.2)
EVERY, EPISODES = 2000, 5


class Outcome(NamedTuple):
    """When the target was reached; None if it was not within the limit."""

    steps: int | None
    seconds: float
    best: float


class Clock:
    """CPU seconds of this process, but for what is excluded."""

    def __init__(self) -> None:
        self._started = time.process_time()

    def excluding(self, work: Callable[[], float]) -> float:
        """The result of `work`, whose time does not count."""
        before = time.process_time()
        found = work()
        self._started += time.process_time() - before
        return found

    @property
    def seconds(self) -> float:
        """So far."""
        return time.process_time() - self._started


def mean_return(act: Callable[[Any], Any]) -> float:
    return float(Evaluator(TASK, EPISODES, seed=1).returns(act).mean())


def ours(seed: int, target: float, limit: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        (out / "replay").mkdir(parents=True)
        config = TrainConfig(task=TASK, steps=limit, seed=seed, episode_lengths=None)
        trainer, clock, best = Trainer(config, out), Clock(), -np.inf
        act = partial(trainer.learner.act, deployed=True)
        for step in range(1, limit + 1):
            trainer._one_step()
            if step % EVERY == 0 and step > config.start_steps:
                best = max(best, clock.excluding(lambda: mean_return(act)))
                if best >= target:
                    return Outcome(step, clock.seconds, best)
        return Outcome(None, clock.seconds, best)


def peer(make: Callable[[gym.Env[Any, Any], int], Any]) -> Callable[[int, float, int], Outcome]:
    """A learner of stable-baselines3's kind."""

    def run(seed: int, target: float, limit: int) -> Outcome:
        from stable_baselines3.common.callbacks import BaseCallback

        class Watch(BaseCallback):
            def __init__(self) -> None:
                super().__init__()
                self.clock, self.best, self.reached = Clock(), -np.inf, 0

            def _on_step(self) -> bool:
                if self.n_calls % EVERY:
                    return True
                act = lambda obs: self.model.predict(obs, deterministic=True)[0]  # noqa: E731
                self.best = max(self.best, self.clock.excluding(lambda: mean_return(act)))
                if self.best >= target:
                    self.reached = self.n_calls
                return not self.reached

        watch = Watch()
        model = make(gym.make("mcat/HalfCheetah-v0", armature=0.2), seed)
        watch.clock = Clock()
        model.learn(limit, callback=watch)
        return Outcome(watch.reached or None, watch.clock.seconds, watch.best)

    return run


def sb3_td3(env: gym.Env[Any, Any], seed: int) -> Any:
    from stable_baselines3 import TD3

    return TD3("MlpPolicy", env, seed=seed, device="cpu")


def sb3_crossq(env: gym.Env[Any, Any], seed: int) -> Any:
    from sb3_contrib import CrossQ

    widths = {"net_arch": {"pi": [128, 128], "qf": [128, 128]}}
    return CrossQ(
        "MlpPolicy", env, seed=seed, device="cpu", batch_size=128, policy_kwargs=widths,
        learning_starts=5000,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=float, default=1500.0)
    parser.add_argument("--limit", type=int, default=60_000)
    parser.add_argument("--seeds", default="0,1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    contenders = {
        "ours": ours,
        "sb3-contrib CrossQ": peer(sb3_crossq),
        "stable-baselines3 TD3": peer(sb3_td3),
    }
    found: dict[str, list[Outcome]] = {name: [] for name in contenders}
    print(f"HalfCheetah, armature 0.2, dense: to a mean return of {options.target:,.0f}")
    for seed in map(int, options.seeds.split(",")):
        for name, run in contenders.items():
            outcome = run(seed, options.target, options.limit)
            found[name].append(outcome)
            at = f"{outcome.steps:,} steps" if outcome.steps else f"not in {options.limit:,} steps"
            print(
                f"  seed {seed}  {name:22} {at:>22} {outcome.seconds:8.0f} CPU s"
                f"   best {outcome.best:,.0f}", flush=True
            )  # fmt: skip
    mine = np.mean([one.seconds for one in found["ours"]])
    for name in list(contenders)[1:]:
        seconds = np.mean([one.seconds for one in found[name]])
        bound = "" if all(one.steps for one in found[name]) else "at least "
        print(f"  {name} / ours: {bound}{seconds / mine:.1f} x the CPU seconds")


if __name__ == "__main__":
    main()
