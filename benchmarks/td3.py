"""TD3 updates per second: ours, stable-baselines3's, and a plain PyTorch one, in one run.

    python benchmarks/td3.py [--robot halfcheetah] [--rounds 12] [--updates 100]

Every contender samples its own replay memory (20,000 random transitions, same sizes) and makes one
TD3 update: batch 256, networks of 2 x 256, one thread. They take turns, so that what else the
machine does hits all alike. Two times are given for each: the median over the rounds of the wall
clock, and of the CPU time this process got. `products` is the time of the matrix products alone,
in the shapes and orientations of one update: no TD3 that computes the same can be faster than
that with this BLAS.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import TD3 as SB3TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch import nn
from torch.nn import functional

from mcat.agents.configs import TD3Config
from mcat.agents.learner import Learner
from mcat.agents.replay import Replay
from mcat.agents.td3 import TD3
from mcat.envs.tasks import Task

BATCH, HIDDEN, STORED = 256, 256, 20_000

Updates = Callable[[int], None]


def ours(obs: int, act: int) -> Updates:
    return updates_of(TD3(obs, act, TD3Config(), torch.Generator().manual_seed(0)), obs, act)


def updates_of(agent: Learner, obs: int, act: int) -> Updates:
    """Those of a learner of ours, from a replay memory of ours."""
    rng = np.random.default_rng(0)
    replay = Replay(obs, act, STORED)
    for _ in range(STORED):
        s, a, s2 = rng.standard_normal(obs), rng.uniform(-1, 1, act), rng.standard_normal(obs)
        replay.add(s, a, rng.standard_normal(), s2, False)

    def run(count: int) -> None:
        for _ in range(count):
            agent.update(replay.sample(rng, BATCH))

    return run


class _Spaces(gym.Env[np.ndarray, np.ndarray]):
    """What stable-baselines3 wants to see of an environment."""

    def __init__(self, obs: int, act: int) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (obs,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (act,), np.float32)


def stable_baselines3(obs: int, act: int) -> Updates:
    return updates_of_sb3(SB3TD3, obs, act)


def updates_of_sb3(kind: type[OffPolicyAlgorithm], obs: int, act: int) -> Updates:
    """Those of a learner of stable-baselines3, from its own replay memory."""
    rng = np.random.default_rng(0)
    model = kind(
        "MlpPolicy",
        _Spaces(obs, act),
        learning_rate=3e-4,
        batch_size=BATCH,
        buffer_size=STORED,
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]},
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    for _ in range(STORED):
        s, a, s2 = rng.standard_normal(obs), rng.uniform(-1, 1, act), rng.standard_normal(obs)
        flags = np.zeros(1)
        assert model.replay_buffer is not None
        model.replay_buffer.add(s, s2, a, rng.standard_normal(1), flags, [{}])
    return lambda count: model.train(gradient_steps=count, batch_size=BATCH)


def textbook(obs: int, act: int) -> Updates:
    """The update as sfujim/TD3 and CleanRL write it."""

    def mlp(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(inputs, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, outputs),
        )

    rng = np.random.default_rng(0)
    columns = [
        rng.standard_normal((STORED, width)).astype(np.float32) for width in (obs, act, 1, obs)
    ]
    actor = nn.Sequential(mlp(obs, act), nn.Tanh())
    critics = nn.ModuleList([mlp(obs + act, 1), mlp(obs + act, 1)])
    actor_target, critics_target = copy.deepcopy(actor), copy.deepcopy(critics)
    actor_adam = torch.optim.Adam(actor.parameters(), 3e-4)
    critic_adam = torch.optim.Adam(critics.parameters(), 3e-4)

    def run(count: int) -> None:
        for update in range(count):
            index = rng.integers(STORED, size=BATCH)
            s, a, r, s2 = (torch.as_tensor(column[index]) for column in columns)
            with torch.no_grad():
                noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
                x2 = torch.cat([s2, (actor_target(s2) + noise).clamp(-1, 1)], 1)
                y = r + 0.99 * torch.min(critics_target[0](x2), critics_target[1](x2))
            x = torch.cat([s, a], 1)
            loss = functional.mse_loss(critics[0](x), y) + functional.mse_loss(critics[1](x), y)
            critic_adam.zero_grad()
            loss.backward()
            critic_adam.step()
            if update % 2:
                loss = -critics[0](torch.cat([s, actor(s)], 1)).mean()
                actor_adam.zero_grad()
                loss.backward()
                actor_adam.step()
                for net, target in ((actor, actor_target), (critics, critics_target)):
                    for p, t in zip(net.parameters(), target.parameters(), strict=True):
                        t.data.copy_(0.005 * p.data + 0.995 * t.data)

    return run


def products(obs: int, act: int) -> Updates:
    """The matrix products of one update, as often as it needs them on average."""
    needed: list[tuple[float, torch.Tensor, torch.Tensor]] = []

    def count(inputs: int, outputs: int, forward: float, weights: float, inputs_too: float) -> None:
        widths = ((inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, outputs))
        for i, o in widths:
            x, w, g = torch.randn(BATCH, i), torch.randn(o, i), torch.randn(BATCH, o)
            needed.append((forward, x, w.T))
            # In the faster of the two orientations, as in mcat.agents.networks.
            needed.append((weights, g.T, x) if i >= o else (weights, x.T, g))
            needed.append((inputs_too if i == inputs else weights + inputs_too, g, w))

    # Critics: two targets and two values each time; the actor's loss needs one every 2nd time,
    # with the gradient of its input and without that of its weights.
    count(obs + act, 1, forward=4.5, weights=2, inputs_too=0.5)
    # Actor: the target each time; its own actions and weight gradients every 2nd time.
    count(obs, act, forward=1.5, weights=0.5, inputs_too=0)

    outputs = [torch.empty(len(a), b.shape[1]) for _, a, b in needed]

    def run(count: int) -> None:
        for update in range(count):  # in turn, so that operands leave the cache as in an update
            for (rate, a, b), out in zip(needed, outputs, strict=True):
                for _ in range(int((update + 1) * rate) - int(update * rate)):
                    torch.mm(a, b, out=out)

    return run


def measure(makers: Sequence[Callable[[int, int], Updates]], about: str) -> dict[str, float]:
    """Let contenders take turns and print their times; returns CPU times by that of `ours`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--robot", default="halfcheetah")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--updates", type=int, default=100, help="per contender and round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spec = Task(options.robot).spec
    runs = {make.__name__: make(spec.observation_size, spec.action_size) for make in makers}

    wall: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            run(10)
            started = time.perf_counter(), time.process_time()
            run(options.updates)
            wall[name].append((time.perf_counter() - started[0]) / options.updates * 1e3)
            cpu[name].append((time.process_time() - started[1]) / options.updates * 1e3)

    print(f"{options.robot}, batch {BATCH}, 2 x {HIDDEN}, 1 thread, torch {torch.__version__}")
    for name in runs:
        ms, busy = np.median(wall[name]), np.median(cpu[name])
        print(f"{name:18} {ms:6.2f} ms wall  {busy:6.2f} ms CPU  {1e3 / ms:6.0f} updates/s")
    return {name: float(np.median(np.divide(cpu[name], cpu["ours"]))) for name in runs}


def main() -> None:
    ratio = measure((ours, stable_baselines3, textbook, products), __doc__.splitlines()[0])
    print(
        f"ours / stable-baselines3   {ratio['stable_baselines3']:.2f} x the updates per CPU second"
    )
    print(f"ours / textbook            {ratio['textbook']:.2f} x")
    print(f"share of the products      {ratio['products']:.0%} of our time")
    print(json.dumps({name: round(value, 3) for name, value in ratio.items()}))


if __name__ == "__main__":
    main()
