"""What can translating action by action earn at best? The limit of `mcat translate`, by simulators.

In every step on the target the two simulators themselves are asked: where would the source go from
this very state with the policy's action, and which action of the target leads nearest to it? No
model is learned, so none is wrong: what this earns is what one-step translation is worth, and a
learned translator (`--translator`, a folder of `mcat translate`) can be held against it.

    python benchmarks/ideal.py --row halfcheetah --row ant --episodes 5
    python benchmarks/ideal.py --row ant --translator ant-cripple0-to-ant-cripple3
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.evaluation import Evaluator
from mcat.agents.policies.names import find_source_policy
from mcat.envs.env import simulate
from mcat.envs.families import family
from mcat.envs.tasks import Task
from mcat.translator import TransferredPolicy
from mcat.types import PolicyFunction

Array = NDArray[np.float64]
STATE = mujoco.mjtState.mjSTATE_INTEGRATION
NUDGE, ROUNDS, REWEIGHTED = 1e-2, 2, 4
PRICE = 0.3  # of leaving the source's action, as H pays it


class Machine:
    """A simulation that can be put into any state."""

    def __init__(self, task: Task) -> None:
        self.simulation = simulate(task)
        self.actions = self.simulation.action_size

    def start(self, seed: int) -> Array:
        """Start an episode; what is seen."""
        self.simulation.reset(np.random.default_rng(seed))
        return self.seen()

    def seen(self) -> Array:
        """What its sensors say."""
        out = np.zeros(self.simulation.observation_low.size)
        self.simulation.observe(out)
        return out

    @property
    def state(self) -> Array:
        """All that its physics depends on."""
        model, data = self.simulation.model, self.simulation.data
        state = np.zeros(mujoco.mj_stateSize(model, STATE))
        mujoco.mj_getState(model, data, state, STATE)
        return state

    @state.setter
    def state(self, state: Array) -> None:
        mujoco.mj_setState(self.simulation.model, self.simulation.data, state, STATE)

    def step(self, action: Array) -> tuple[Array, float]:
        """What is seen after an action, and what it was paid."""
        out = np.zeros(self.simulation.observation_low.size)
        return out, self.simulation.step(action, out)

    def after(self, state: Array, action: Array) -> Array:
        """What would be seen after an action in that state."""
        self.state = state
        return self.step(action)[0]


class Ideal:
    """L_trans with the two simulators in place of F, minimised in every step.

    Args:
        source: The machine whose policy acts.
        target: The machine that is to do the same.
        policy: The source's.
        price: What it costs to leave the policy's action.
        even: All numbers that are seen count alike, as printed; else by how far actions move them.
    """

    def __init__(
        self, source: Task, target: Task, policy: PolicyFunction, price: float, *, even: bool
    ) -> None:
        self.source, self.target, self.policy = Machine(source), Machine(target), policy
        self.price = price
        self.spread, self.weights = self._units(np.random.default_rng(0), even)

    def _units(self, rng: np.random.Generator, even: bool, steps: int = 500) -> tuple[Array, Array]:
        """The spread of each number's change, and what it counts."""
        machine, seen = self.source, self.source.start(0)
        changes, reach = [], np.zeros(len(seen))
        for _ in range(steps):
            state = machine.state
            one, two = rng.uniform(-1, 1, (2, machine.actions))
            reach += np.abs(self.target.after(state, one) - self.target.after(state, two))
            action = self.policy(seen[None])[0] + 0.3 * rng.normal(size=machine.actions)
            after, _ = machine.step(np.clip(action, -1, 1).astype(float))
            changes.append(after - seen)
            seen = after
        spread = np.maximum(np.std(changes, axis=0), 1e-9)
        weights = np.ones_like(spread) if even else reach / spread
        return spread, weights / weights.sum()

    def off(self, seen: Array, wanted: Array) -> float:
        """How far from what is wanted, in spreads."""
        return float(np.abs((seen - wanted) / self.spread) @ self.weights)

    def nearest(self, state: Array, wanted: Array, given: Array) -> Array:
        """The action that leads nearest: Gauss-Newton, reweighted for absolute errors."""

        def cost(seen: Array, action: Array) -> float:
            return self.off(seen, wanted) + self.price * float(np.abs(action - given).mean())

        best, seen = given, self.target.after(state, given)
        for _ in range(ROUNDS):
            slopes = np.stack([self._slope(state, best, seen, i) for i in range(len(best))], axis=1)
            error = (seen - wanted) / self.spread
            proposed = best
            for _ in range(REWEIGHTED):
                left = error + slopes @ (proposed - best)
                rows = self.weights / np.maximum(np.abs(left), 1e-3)
                pull = self.price / len(best) / np.maximum(np.abs(proposed - given), 1e-2) + 1e-9
                square = slopes.T @ (rows[:, None] * slopes) + np.diag(pull)
                toward = slopes.T @ (rows * (slopes @ best - error)) + pull * given
                proposed = np.clip(np.linalg.solve(square, toward), -1, 1)
            for share in (1.0, 0.5, 0.25):
                tried = best + share * (proposed - best)
                if cost(after := self.target.after(state, tried), tried) < cost(seen, best):
                    best, seen = tried, after
                    break
        return best

    def _slope(self, state: Array, action: Array, seen: Array, entry: int) -> Array:
        nudged = action.copy()
        nudged[entry] += (step := NUDGE if action[entry] < 0 else -NUDGE)
        slope: Array = (self.target.after(state, nudged) - seen) / self.spread / step
        return slope

    def episode(self, seed: int, horizon: int) -> tuple[float, float, float]:
        """Return, and mean distance from what is wanted before and after translation."""
        live, seen = self.target, self.target.start(seed)
        total = before = after = 0.0
        for _ in range(horizon):
            state = live.state
            given = np.clip(self.policy(seen[None])[0], -1, 1).astype(float)
            wanted = self.source.after(state, given)
            action = self.nearest(state, wanted, given)
            before += self.off(live.after(state, given), wanted)
            live.state = state
            seen, reward = live.step(action)
            after += self.off(seen, wanted)
            total += reward
        return total, before / horizon, after / horizon


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row", action="append", choices=("halfcheetah", "ant"))
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--policy", default="good")
    parser.add_argument("--translator", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for row in options.row or ("halfcheetah", "ant"):
        pair = family(f"{row}-pair")
        source, target = pair.train[0], pair.test[0]
        policy = find_source_policy(options.policy, source, np.random.default_rng(0))
        print(f"{row}: {options.policy} of {source.label()} on {target.label()}")
        rivals = {"as it is": policy}
        if options.translator:
            rivals["translated"] = TransferredPolicy(policy, options.translator)
        evaluator = Evaluator(target, options.episodes, 0)
        found = {name: evaluator.returns(rival) for name, rival in rivals.items()}
        for even, price in itertools.product((False, True), (0.0, PRICE)):
            ideal = Ideal(source, target, policy, price, even=even)
            runs = [ideal.episode(seed, target.horizon) for seed in range(options.episodes)]
            returns, before, after = (np.array(column) for column in zip(*runs, strict=True))
            name = f"ideal, {'even' if even else 'weighed'}, price {price:g}"
            found[name] = returns
            print(f"  {name}: {1 - after.mean() / before.mean():.0%} of a step's mismatch removed")
        limit = max(values.mean() for name, values in found.items() if name.startswith("ideal"))
        for name, values in found.items():
            error, ratio = values.std() / len(values) ** 0.5, values.mean() / limit
            print(f"  {name:<26}{values.mean():8.1f} ± {error:<6.1f}{ratio:6.2f} of the limit")


if __name__ == "__main__":
    main()
