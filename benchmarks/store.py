"""How much memory does a store take, and how fast are batches?

Run `python benchmarks/store.py`: a million Ant transitions in episodes of 1,000. Contenders take
turns within this one process and medians are compared, so that other load hits all of them alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from gymnasium.spaces import Box
from stable_baselines3.common.buffers import ReplayBuffer

from mcat.datasets import EpisodeStore

OBS, ACT, LENGTH, BATCH, K = 27, 8, 1000, 256, 10


def timed(windows: int, repeats: int, contenders: dict[str, Callable[[], object]]) -> None:
    """Print the median time per call of each contender and its ratio to the first."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(windows):
        for name, call in contenders.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            seconds[name].append((time.perf_counter() - start) / repeats)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ours = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"  {name:<44}{median * 1e6:>10.0f} µs{median / ours:>8.2f}×")


def fill(rows: int) -> tuple[EpisodeStore, ReplayBuffer, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(rows + 1, OBS)).astype(np.float32)
    arrays = {
        "observations": states[:-1],
        "next_observations": states[1:].copy(),
        "actions": rng.uniform(-1, 1, size=(rows, ACT)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
    }
    store = EpisodeStore(OBS, ACT, capacity=rows)
    start = time.perf_counter()
    for first in range(0, rows, LENGTH):
        store.append_episode(**{n: v[first : first + LENGTH] for n, v in arrays.items()})
    print(f"appending: {rows / (time.perf_counter() - start):,.0f} transitions/s, values checked")

    peer = ReplayBuffer(rows, Box(-np.inf, np.inf, (OBS,)), Box(-1, 1, (ACT,)), "cpu")
    peer.observations[:, 0] = arrays["observations"]
    peer.next_observations[:, 0] = arrays["next_observations"]
    peer.actions[:, 0] = arrays["actions"]
    peer.rewards[:, 0] = arrays["rewards"]
    peer.full = True
    return store, peer, arrays


def loop_histories(arrays: dict[str, np.ndarray], indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """The textbook way: a slice per row."""
    differences = np.zeros((len(indices), K, OBS), np.float32)
    actions = np.zeros((len(indices), K, ACT), np.float32)
    for row, index in enumerate(indices):
        first = max(index - K, index - index % LENGTH)
        if first < index:
            past = slice(first, index)
            delta = arrays["next_observations"][past] - arrays["observations"][past]
            differences[row, first - index :] = delta
            actions[row, first - index :] = arrays["actions"][past]
    return differences, actions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=15)
    options = parser.parse_args()
    store, peer, arrays = fill(options.rows)
    rng = np.random.default_rng(1)

    raw = options.rows * (4 * (2 * OBS + ACT + 1) + 2)
    stored_histories = 4 * options.rows * K * (OBS + ACT)
    print(f"memory: {store.nbytes / 1e6:.0f} MB = {store.nbytes / raw:.4f} × the raw arrays")
    print(f"  with each row's history stored it would be {(raw + stored_histories) / raw:.1f} ×")

    print(f"\n{BATCH} transitions")
    contenders: dict[str, Callable[[], object]] = {
        "EpisodeStore.sample_transitions": lambda: store.sample_transitions(rng, BATCH),
        "stable-baselines3 ReplayBuffer.sample": lambda: peer.sample(BATCH),
    }
    timed(options.windows, 100, contenders)

    wanted = rng.integers(options.rows, size=BATCH)
    for ours, theirs in zip(
        store.histories(wanted, K), loop_histories(arrays, wanted), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)

    def draw() -> np.ndarray:
        return rng.integers(options.rows, size=BATCH)

    def bare() -> None:
        window = draw()[:, None] + np.arange(-K, 0)
        for name in ("next_observations", "observations", "actions"):
            arrays[name].take(window, axis=0, mode="clip")

    print(f"\n{BATCH} histories of {K} steps")
    contenders = {
        "EpisodeStore.histories": lambda: store.histories(draw(), K),
        "a Python loop over the rows": lambda: loop_histories(arrays, draw()),
        "bare numpy.take of as many rows": bare,
    }
    timed(options.windows, 30, contenders)

    print(f"\n{BATCH} futures of {K} steps with their transitions")
    contenders = {
        "EpisodeStore": lambda: store.transitions(store.futures(draw(), K)[0]),
    }
    timed(options.windows, 30, contenders)


if __name__ == "__main__":
    main()
