"""How fast are many tasks stepped together?

Every contender runs in short windows that alternate within this one process, so that other load on
the machine hits all of them alike; medians are compared, and the fastest windows, which are those
that nothing disturbed. 8 robots with 8 different bodies each; Meta-World's push against the stock
environment.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import gymnasium as gym
import mujoco
import numpy as np

from mcat.envs import Task, TaskVectorEnv

INF = float("inf")
BODIES = {
    "halfcheetah": [Task("halfcheetah", armature=a) for a in np.linspace(0.1, 0.8, 8)],
    "hopper": [Task("hopper", size=s) for s in np.linspace(0.02, 0.07, 8)],
    "ant": [Task("ant", cripple=leg) for leg in (None, 0, 1, 2, 3, 0, 1, 2)],
}
STOCK = {
    "halfcheetah": ("HalfCheetah-v5", {}),
    "hopper": ("Hopper-v5", {"healthy_z_range": (-INF, INF), "healthy_angle_range": (-INF, INF),
                             "healthy_state_range": (-INF, INF)}),
    "ant": ("Ant-v5", {"include_cfrc_ext_in_observation": False, "healthy_z_range": (-INF, INF)}),
}  # fmt: skip


def timed(windows: int, contenders: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Steps per second of each contender in alternating windows."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(windows):
        for name, window in contenders.items():
            rates[name].append(window())
    return rates


def show(title: str, rates: dict[str, list[float]], peers: dict[str, str]) -> None:
    """A line for each contender, with its speed relative to each of some peers."""
    print(f"\n{title}: steps/s and ratios by medians (by the fastest windows)")
    for name, values in rates.items():
        line = f"  {name:26} {statistics.median(values):9,.0f}"
        for peer, label in peers.items():
            median, best = (f(values) / f(rates[peer]) for f in (statistics.median, max))
            line += f"   {median:5.2f} ({best:.2f})x {label}"
        print(line)


def locomotion(robot: str, windows: int, rounds: int) -> None:
    tasks = BODIES[robot]
    ours, shared = TaskVectorEnv(tasks), TaskVectorEnv(tasks, workers=2)
    bare = TaskVectorEnv(tasks)
    stock_id, kwargs = STOCK[robot]
    sync = gym.vector.SyncVectorEnv([lambda: gym.make(stock_id, **kwargs)] * len(tasks))
    for env, simulation in zip(sync.envs, bare.simulations, strict=True):
        env.unwrapped.model = simulation.model  # the same eight bodies
        env.unwrapped.data = mujoco.MjData(simulation.model)
    # Its processes cannot be given other bodies; that of the stock robot costs as much to step.
    parallel = gym.vector.AsyncVectorEnv([lambda: gym.make(stock_id, **kwargs)] * len(tasks))
    same_ids = gym.vector.SyncVectorEnv([task.make for task in tasks])
    actions = np.random.default_rng(0).uniform(-1, 1, (rounds, *ours.action_space.shape))
    actions = actions.astype(np.float32)

    def run(env: gym.vector.VectorEnv) -> Callable[[], float]:
        def window() -> float:
            env.reset(seed=0)
            start = time.perf_counter()
            for batch in actions:
                env.step(batch)
            return rounds * len(tasks) / (time.perf_counter() - start)

        return window

    def bare_loop() -> float:
        bare.reset(seed=0)
        start = time.perf_counter()
        worlds = [(s.model, s.data, s.data.ctrl, s.frame_skip) for s in bare.simulations]
        for batch in actions:
            for (model, data, ctrl, frames), action in zip(worlds, batch, strict=True):
                ctrl[:] = action
                mujoco.mj_step(model, data, frames)
        return rounds * len(tasks) / (time.perf_counter() - start)

    rates = timed(
        windows,
        {
            "TaskVectorEnv": run(ours),
            "TaskVectorEnv, 2 workers": run(shared),
            "gymnasium SyncVectorEnv": run(sync),
            "gymnasium AsyncVectorEnv": run(parallel),
            "SyncVectorEnv of mcat ids": run(same_ids),
            "bare mj_step loop": bare_loop,
        },
    )
    for env in (shared, parallel):
        env.close()
    peers = {"gymnasium SyncVectorEnv": "sync", "bare mj_step loop": "bare"}
    show(f"8 {robot} tasks", rates, peers)


def manipulation(windows: int, rounds: int) -> None:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    stock = ALL_V3_ENVIRONMENTS["push-v3"]()
    stock._freeze_rand_vec, stock.seeded_rand_vec, stock._set_task_called = False, True, True
    stock.seed(0)
    single, together = gym.make("mcat/Push-v0"), TaskVectorEnv([Task("push")])
    actions = np.random.default_rng(0).uniform(-1, 1, (rounds, 4)).astype(np.float32)
    for env in (stock, single, together):
        env.reset()

    def steps(step: Callable[[np.ndarray], object]) -> Callable[[], float]:
        def window() -> float:
            stock.curr_path_length = 0
            single.reset(seed=0)
            together.reset(seed=0)
            start = time.perf_counter()
            for action in actions:
                step(action)
            return rounds / (time.perf_counter() - start)

        return window

    contenders = {
        "gym.make('mcat/Push-v0')": steps(single.step),
        "TaskVectorEnv of one": steps(lambda action: together.step(action[None])),
        "stock Meta-World step": steps(stock.step),
    }
    show("Meta-World push", timed(windows, contenders), {"stock Meta-World step": "stock"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=200, help="steps per window")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for robot in BODIES:
        locomotion(robot, options.windows, options.rounds)
    manipulation(options.windows, options.rounds)


if __name__ == "__main__":
    main()
