"""SAC updates per second: ours with either kind of critics, and stable-baselines3's, in one run.

    python benchmarks/sac.py [--robot halfcheetah] [--rounds 12] [--updates 100]

As `td3.py` does it: batch 256, networks of 2 x 256, one thread, every contender its own replay
memory. An update is one of critics, actor and temperature. `normalised` has critics without target
networks, at the same sizes; preset fast updates the actor only every third time.
"""

from __future__ import annotations

import json

import torch
from stable_baselines3 import SAC as SB3SAC
from td3 import Updates, measure, updates_of, updates_of_sb3

from mcat.agents.configs import SACConfig
from mcat.agents.sac import SAC


def ours(obs: int, act: int) -> Updates:
    return updates_of(SAC(obs, act, SACConfig(), torch.Generator().manual_seed(0)), obs, act)


def normalised(obs: int, act: int) -> Updates:
    config = SACConfig(critics="normalised")
    return updates_of(SAC(obs, act, config, torch.Generator().manual_seed(0)), obs, act)


def stable_baselines3(obs: int, act: int) -> Updates:
    return updates_of_sb3(SB3SAC, obs, act)


def main() -> None:
    ratio = measure((ours, normalised, stable_baselines3), __doc__.splitlines()[0])
    theirs = ratio["stable_baselines3"]
    print(f"ours / stable-baselines3         {theirs:.2f} x the updates per CPU second")
    print(f"normalised / stable-baselines3   {theirs / ratio['normalised']:.2f} x")
    print(json.dumps({name: round(value, 3) for name, value in ratio.items()}))


if __name__ == "__main__":
    main()
