"""How long does one action take? Ours in torch against the exported file in onnxruntime.

One thread, one observation at a time, as on a robot; both take turns in short windows of one run.

    python benchmarks/act.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.policies.foreign.export import export_onnx
from mcat.agents.policies.foreign.onnx_policy import load_onnx
from mcat.agents.policies.names import packaged_path
from mcat.agents.policies.policy import load_policy
from mcat.envs.tasks import Task
from mcat.translator.action import ActionTranslator
from mcat.translator.configs import ActionConfig, ContextConfig
from mcat.translator.context import ContextModel
from mcat.translator.fit import LearnedTranslator
from mcat.translator.networks import mlp
from mcat.translator.policy import TransferredPolicy
from mcat.types import AnyPolicy, started

OBS, ACT = 17, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--actions", type=int, default=200, help="in each window")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"µs per action, median of {options.windows} windows (fastest), one thread")
    for name, policy in policies().items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.onnx"
            difference = export_onnx(policy, path).usual
            rivals = {"ours": policy, "onnxruntime": load_onnx(path)}
            rivals["bare session"] = bare(path) if not hasattr(policy, "start_episode") else None
            times = measure(rivals, options.windows, options.actions)
        ours = statistics.median(times["ours"])
        print(f"{name} (largest difference {difference:.1e})")
        for rival, seconds in times.items():
            median = statistics.median(seconds)
            print(
                f"  {rival:<14}{median * 1e6:8.1f} ({min(seconds) * 1e6:.1f}) µs"
                f"   {ours / median:5.2f} x ours"
            )


def policies() -> dict[str, AnyPolicy]:
    """A packaged policy, the same behind a translator, and one with a memory, in usual sizes."""
    good = load_policy(packaged_path("good", Task("halfcheetah", armature=0.1)))
    config = ContextConfig()
    model = ContextModel(OBS, ACT, 1, config).requires_grad_(False)
    network = ActionTranslator(OBS, ACT, ActionConfig()).requires_grad_(False)
    size = config.context_size
    actor = MLP((OBS + size, 256, 256, ACT), 1, torch.Generator().manual_seed(0))
    encoder = mlp(
        config.history * (OBS + ACT), config.encoder_hidden, size, config.encoder_activation
    )
    context = ContextPolicy(
        actor.requires_grad_(False),
        encoder.requires_grad_(False),
        torch.ones(OBS),
        history=config.history,
        activation=config.encoder_activation,
    )
    return {
        "packaged policy, 17-256-256-6": good,
        "the same, translated": TransferredPolicy(good, LearnedTranslator(model, network)),
        f"context policy, K = {config.history}": context,
    }


def bare(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The file as a robot's own program runs it, without our checks."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return lambda obs: session.run(["action"], {"observation": obs[None]})[0][0]


def measure(
    rivals: dict[str, AnyPolicy | None], windows: int, actions: int
) -> dict[str, list[float]]:
    """Seconds per action of each window."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {name: [] for name, rival in rivals.items() if rival}
    for _ in range(windows):
        observations = rng.standard_normal((actions, OBS)).astype(np.float32)
        for name in found:
            rival = rivals[name]
            assert rival is not None
            act = started(rival)
            act(observations[0])
            before = time.perf_counter()
            for obs in observations:
                act(obs)
            found[name].append((time.perf_counter() - before) / actions)
    return found


if __name__ == "__main__":
    main()
