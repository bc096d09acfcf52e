"""A family of your own: machines to learn on, others to be tested on, and one policy for all.

The sizes are those of a trial, seconds long: they show the way, not a policy that runs. Leave out
the replacements and take `PRESETS["fast"]` for one that does.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from mcat.agents import (
    PRESETS,
    Evaluator,
    evaluate_run,
    find_policy,
    load_policy,
    metatrain,
    open_run,
)
from mcat.envs import FAMILIES, Family, Task


def cheetah(armature):
    """A cheetah whose joints have this rotor inertia (kg m²). It is paid every 100 steps."""
    return Task("halfcheetah", armature=armature, delay=100, horizon=200)


# `mcat envs list` has the robots, `mcat envs show halfcheetah` what can be changed in one.
mine = Family(
    name="my-cheetahs",
    title="Cheetahs of mine",
    varies=("armature",),
    train=(cheetah(0.15), cheetah(0.25), cheetah(0.35)),
    test=(cheetah(0.45),),
)
# By this name scripts know it; commands take a file (any_robot.py) or `module:function`.
FAMILIES[mine.name] = mine

trial = PRESETS["smoke"]
config = replace(trial, family=mine.name, steps=4_200, mcat=replace(trial.mcat, start_steps=1_800))

with tempfile.TemporaryDirectory() as folder:  # a run of yours stays: Path("runs/my-cheetahs")
    run = Path(folder) / "my-cheetahs"
    result = metatrain(config, run, quiet="--quiet" in sys.argv)

    # On the machines of the family; each episode begins without knowing which one it is on.
    for found in evaluate_run(open_run(run, "all"), episodes=3, seed=0, quiet=True):
        print(f"{found.label}: {found.mean:.0f} ± {found.standard_error:.0f}")

    # The policy is one file, and acts on any machine with as many sensors and motors.
    heavy = cheetah(1.2)
    policies = {
        "the policy": load_policy(result.policy),
        "random actions": find_policy("random", heavy, np.random.default_rng(0)),
    }
    for name, policy in policies.items():
        returns = Evaluator(heavy, episodes=3, seed=0).returns(policy)
        print(f"{name} on {heavy.label()}: {returns.mean():.0f}")
