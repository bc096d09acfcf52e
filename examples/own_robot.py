"""Logs of two machines of your own, a translator between them, and a 50 Hz control loop.

A table moves in a plane. Its four sensors say where it is and how fast, its two motors push it. On
machine B the motors were swapped in a repair, and both are weaker.
"""

import time

import numpy as np
import torch

from mcat.datasets import EpisodeStore
from mcat.translator import ActionConfig, ContextConfig, TransferredPolicy, fit_pair

RATE = 50  # Hz, of the logs and of the loop
MOTORS = {"A": np.array([[0.3, 0.0], [0.0, 0.3]]), "B": np.array([[0.0, 0.25], [0.2, 0.0]])}


def move(states, actions, machine):
    """Stands for your robot: what it does in a fiftieth of a second. mcat never sees this."""
    places, speeds = states[:, :2], states[:, 2:]
    return np.hstack([places + speeds / RATE, 0.95 * speeds + actions @ MOTORS[machine]])


def log_of(machine, episodes=40, steps=60):
    """Random actions: variety teaches what each motor does. A file: `mcat.datasets.load(PATH)`."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (steps, episodes, 2))  # as shares of what the motors can
    states = [rng.normal(size=(episodes, 4))]
    for action in actions:
        states.append(move(states[-1], action, machine))
    log = EpisodeStore(observation_size=4, action_size=2)
    for seen, done in zip(np.stack(states, axis=1), actions.swapaxes(0, 1), strict=True):
        log.append_episode(observations=seen[:-1], actions=done, next_observations=seen[1:],
                           rewards=np.zeros(steps))  # fmt: skip
    return log


def policy_a(observations):
    """The controller that is good on A: sensors (n, 4) to motors (n, 2), in [-1, 1]."""
    return np.clip(-1.5 * observations[:, :2] - observations[:, 2:], -1, 1)


def drive(label, policy, machine, seconds=2):
    """The control loop. Says how far from the middle the table ends, and whether it kept up."""
    state, late, due = np.array([[1.0, -0.5, 0.0, 0.0]]), 0, time.perf_counter()
    for _ in range(seconds * RATE):
        state = move(state, policy(state), machine)
        due += 1 / RATE
        late += time.perf_counter() > due
        time.sleep(max(0.0, due - time.perf_counter()))
    far = np.abs(state[0, :2]).max()
    print(f"{label} on {machine}: {far:.2f} from the middle, {late} of {seconds * RATE} steps late")


torch.set_num_threads(1)  # networks are small: more threads only wait for one another
translator = fit_pair(
    log_of("A"), log_of("B"), quiet=True,
    context=ContextConfig(encoder_hidden=(32,), forward_hidden=(64, 64), max_steps=500),
    action=ActionConfig(hidden=(64, 64), embedding=32, steps=400),
)  # small networks for a small robot; leave both out for a real one  # fmt: skip
drive("A's policy", policy_a, "A")
drive("A's policy", policy_a, "B")
drive("translated", TransferredPolicy(policy_a, translator), "B")
