"""CSV logs of a two-joint arm, in N·m and at uneven rates, to a guarded 50 Hz loop on another."""

import os
import tempfile
from pathlib import Path

import numpy as np

from mcat.agents import export_onnx, open_policy
from mcat.agents.policies.foreign.imported import Bounds, ImportedPolicy, layered
from mcat.datasets import import_logs, read_card
from mcat.robot import Guard, Ticks, latency_of
from mcat.translator import ActionConfig, ContextConfig, TransferredPolicy, fit_pair

CARD = """episode = "run"\ntime = "t_ms"\ntime_unit = "ms"\nrate = 50\n
[observations]\n"q*" = "rad"\n"dq*" = "rad/s"\n[actions]\n"tau*" = {unit = "N·m", limit = 8}"""
# On B the shoulder's motor was mounted the other way round, and both are weaker.
GEARS, GOAL = {"A": [1.0, 0.6], "B": [-0.75, 0.5]}, np.float32([0.6, -0.4])


def moved(state, torque, arm, seconds):
    """Stands for your robot: the arm a moment later. mcat never sees this."""
    for _ in range(round(seconds * 500)):
        force = torque * GEARS[arm] - 1.5 * state[2:] - 2 * np.sin(state[:2])
        state = state + np.concatenate([state[2:], force]) / 500
    return state


def logs_of(arm):
    """Random torques: variety teaches what each motor does. Rows come every 14 to 26 ms."""
    rng, text = np.random.default_rng(0), "run,t_ms,q1,q2,dq1,dq2,tau1,tau2,case_temp\n"
    for run in range(25):
        state, now = rng.normal(size=4), 0
        for torque, wait in zip(rng.uniform(-8, 8, (80, 2)), rng.integers(7, 14, 80), strict=True):
            text += ",".join(map(str, (run, 2 * now, *state, *torque, 31))) + "\n"
            state, now = moved(state, torque, arm, wait / 500), now + wait
    Path(f"{arm}.csv").write_text(text)
    return import_logs([f"{arm}.csv"], read_card("arm.toml"))


def drive(label, policy, arm):
    """Three seconds in real time; the guard believes what B's logs have seen, and a tenth more."""
    state, guard, ticks = np.zeros(4), Guard(policy, b.card.within(b.store), slew=400), Ticks(50)
    for _ in ticks.run(seconds=3):
        state = moved(state, guard(state), arm, 1 / 50)
    print(f"{label} on {arm}: {np.abs(state[:2] - GOAL).max():.2f} rad off; {guard}; {ticks}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    Path("arm.toml").write_text(CARD)
    a, b = logs_of("A"), logs_of("B")
    print(*a.said, *b.said, sep="\n")
    gains = np.array([[-20, 0, -6, 0], [0, -30, 0, -8]], np.float32)  # springs and brakes, in N·m
    layers = layered([(gains, -gains[:, :2] @ GOAL)], "relu")  # your controller may be a file
    limits = Bounds(np.float32([-8, -8]), np.float32([8, 8]))
    controller = ImportedPolicy(layers, limits, activation="relu", squashed=False)
    translator = fit_pair(
        a.card.scale(a.store), b.card.scale(b.store), quiet=True,
        context=ContextConfig(encoder_hidden=(32,), forward_hidden=(64, 64), max_steps=500),
        action=ActionConfig(hidden=(64, 64), embedding=32, steps=400),
    ).with_cards(a.card, b.card)  # small networks for a small robot  # fmt: skip
    export_onnx(TransferredPolicy(controller, translator), "b.onnx")
    policy = open_policy(Path("b.onnx"))
    print(latency_of(policy, 4))
    drive("A's controller", controller, "A")
    drive("A's controller", controller, "B")
    drive("translated", policy, "B")
