"""Wrappers for any gymnasium MuJoCo environment: Walker2d-v5, Humanoid-v5, or one of your own.

`DelayedReward` makes rewards rare, `MaskActuators` and `CrippleLeg` switch motors off,
`PerturbPhysics` scales masses, damping, sizes …, and `StabilityGuard` reports a simulation that
blew up, which MuJoCo itself hides. Their arguments are plain JSON, so `env.spec` can be saved and
rebuilt, and environments built with them can run in other processes.

The hidden physics is in `info["context"]` after every reset and step, and in
`env.get_wrapper_attr("context")`: a flat dict of factors, where 1 (or absence) means unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from mcat.envs.physics import (
    Factors,
    actuators_below,
    actuators_of,
    fault,
    mark_body,
    perturb,
    restore,
    sensible,
    snapshot,
)
from mcat.envs.simulation import checked_actions
from mcat.errors import UsageError

Env = gym.Env[Any, Any]
StepResult = tuple[Any, float, bool, bool, dict[str, Any]]


class DelayedReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Pays the sum of the rewards every `delay` steps and at the end of the episode, else 0.

    The return of an episode stays what it was (docs/decisions.md#when-a-delayed-reward-is-paid).
    Put it *outside* of `TimeLimit`, as in `DelayedReward(gym.make("Ant-v5"), delay=500)`: inside,
    it would not see the truncation, and what is still owed then would be lost.

    Args:
        env: Any environment with float rewards.
        delay: Steps between payments; 1 changes nothing.
    """

    def __init__(self, env: Env, delay: int) -> None:
        if isinstance(delay, bool) or not isinstance(delay, int) or delay < 1:
            raise UsageError(f"delay must be a whole number of steps, at least 1, got {delay!r}")
        RecordConstructorArgs.__init__(self, delay=delay)
        gym.Wrapper.__init__(self, env)
        self.delay = delay
        self._steps = 0
        self._owed = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode with nothing owed."""
        self._steps = 0
        self._owed = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> StepResult:
        """Step, and pay if it is time to."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._owed += float(reward)
        paid = 0.0
        if self._steps % self.delay == 0 or terminated or truncated:
            paid, self._owed = self._owed, 0.0
        return observation, paid, terminated, truncated, info


class _Bound(gym.Wrapper[Any, Any, Any, Any]):
    """Holds on to parts of the simulation, and takes hold again where it is unpickled or copied.

    What it held there would be a copy that no step ever touches.
    """

    _parts: tuple[str, ...]

    def _bind(self) -> None:
        """Set the attributes that `_parts` names."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind()


class _ContextWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `own_context` to whatever context the wrapped environment reports."""

    own_context: dict[str, float]

    @property
    def context(self) -> dict[str, float]:
        """The factors of this wrapper and of those inside it."""
        inner = self.env.get_wrapper_attr("context") if self.env.has_wrapper_attr("context") else {}
        return {**inner, **self.own_context}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._with_context(info)

    def step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), terminated, truncated, self._with_context(info)

    def _with_context(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "context": {**info.get("context", {}), **self.own_context}}


class MaskActuators(_ContextWrapper, RecordConstructorArgs):
    """Switches off the motors of some joints: their control is 0 whatever the action says.

    A torque motor then gives no torque (a position servo would hold its zero angle). The masked
    action is also what a control cost sees.

    Args:
        env: A MuJoCo environment whose actions are its controls.
        joints: Names of joints, or one name; their motors need none.
    """

    def __init__(self, env: Env, joints: Sequence[str] | str) -> None:
        joints = [joints] if isinstance(joints, str) else list(joints)
        RecordConstructorArgs.__init__(self, joints=joints)
        gym.Wrapper.__init__(self, env)
        model = _model_of(env, self)
        if env.action_space.shape != (model.nu,):
            raise UsageError(
                f"{type(self).__name__} needs one action per motor: "
                f"{model.nu} motors, action space {env.action_space}"
            )
        self.actuators = actuators_of(model, joints)
        self.own_context = {f"control.{joint}": 0.0 for joint in joints}

    def step(self, action: Any) -> StepResult:
        """Step with the masked motors at rest."""
        action = np.array(action)
        action[self.actuators] = 0
        return super().step(action)


class CrippleLeg(MaskActuators):
    """Switches off every motor at or below one body, and paints that limb red.

    Args:
        env: A MuJoCo environment whose actions are its controls.
        body: The body the limb starts with, such as Ant's "front_left_leg".
    """

    def __init__(self, env: Env, body: str) -> None:
        RecordConstructorArgs.__init__(self, body=body)
        model = _model_of(env, self)
        driven = model.actuator_trnid[actuators_below(model, body), 0]
        super().__init__(env, [model.joint(joint).name for joint in driven])
        mark_body(model, body)


# The physics each model had before any PerturbPhysics touched it, so that wrapping an environment
# a second time does not scale what is scaled already.
_PRISTINE: WeakKeyDictionary[mujoco.MjModel, mujoco.MjModel] = WeakKeyDictionary()


class PerturbPhysics(_Bound, _ContextWrapper, RecordConstructorArgs):
    """Multiplies physical quantities of the robot, each time starting from the pristine ones.

    Every quantity takes one factor for the whole robot, or `{name: factor}`; see
    `mcat.envs.physics.perturb` for what the names are and what size means. Mass and inertia are
    apart: give both the same factor to change the density. Constants that MuJoCo derives are
    brought up to date. A change takes effect at the next `reset`; `close` undoes it. An environment
    takes one such wrapper: give it all the factors, and change them with `set`.

    Args:
        env: A MuJoCo environment, that is one with `model` and `data`.
        mass: By body.
        inertia: By body.
        damping: By joint.
        armature: By joint.
        friction: By geom or by body.
        gear: By actuator or by joint.
        gravity: One factor only.
        size: By geom or by body.
    """

    _parts = ("_model",)

    def __init__(
        self,
        env: Env,
        *,
        mass: Factors | None = None,
        inertia: Factors | None = None,
        damping: Factors | None = None,
        armature: Factors | None = None,
        friction: Factors | None = None,
        gear: Factors | None = None,
        gravity: float | None = None,
        size: Factors | None = None,
    ) -> None:
        given = {
            "mass": mass,
            "inertia": inertia,
            "damping": damping,
            "armature": armature,
            "friction": friction,
            "gear": gear,
            "gravity": gravity,
            "size": size,
        }
        changes = {quantity: factors for quantity, factors in given.items() if factors is not None}
        RecordConstructorArgs.__init__(self, _disable_deepcopy=False, **changes)
        gym.Wrapper.__init__(self, env)
        inner: Any = env
        while isinstance(inner, gym.Wrapper):
            if isinstance(inner, PerturbPhysics):
                raise UsageError("this environment has a PerturbPhysics already: use its set(...)")
            inner = inner.env
        model = _model_of(env, self)
        self._pristine = _PRISTINE.get(model) or snapshot(model)
        self._bind()
        self.own_context = {}  # nothing is in effect before the first reset
        self.set(**changes)

    def _bind(self) -> None:
        self._model = _model_of(self.env, self)
        _PRISTINE.setdefault(self._model, self._pristine)

    def set(self, **changes: Factors) -> None:
        """Take these factors, and 1 for all not named, from the next `reset` on."""
        xml_path = getattr(self.unwrapped, "fullpath", None)
        self._changed = perturb(self._pristine, changes, xml_path)
        self._next_context: dict[str, float] = {}
        for quantity, factors in changes.items():
            if isinstance(factors, int | float):
                self._next_context[quantity] = float(factors)
            else:
                self._next_context |= {f"{quantity}.{n}": float(f) for n, f in factors.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Apply the factors and start an episode."""
        restore(self._model, self._changed)
        self.own_context = self._next_context
        return super().reset(seed=seed, options=options)

    def close(self) -> None:
        """Give the model its pristine physics back and close the environment."""
        restore(self._model, self._pristine)
        super().close()


class StabilityGuard(_Bound, RecordConstructorArgs):
    """Tells when a simulation diverged, and refuses actions that would make it.

    MuJoCo answers a state that is not finite or far too large by silently starting over in the
    middle of the episode. Here the step returns the last good observation, reward 0, truncated,
    `info["unstable"] = True` and what happened in `info["fault"]`, such as "BADQACC@dof 3". The
    same follows a reward that is not finite or beyond 1e10. Actions of a wrong shape or with NaN
    or infinite values raise `UsageError`.
    """

    _parts = ("_data", "_warnings")

    def __init__(self, env: Env) -> None:
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        _model_of(env, self)
        self._bind()
        self._last_good: Any = None

    def _bind(self) -> None:
        self._data: mujoco.MjData = self.env.get_wrapper_attr("data")
        self._warnings = self._data.warning.number  # a live view

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and forget old faults."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._warnings[:] = 0
        self._last_good = copy.copy(observation)
        return observation, info

    def step(self, action: Any) -> StepResult:
        """Step, unless the action is bad, and see whether the state survived."""
        checked_actions(action, self.action_space.shape or ())
        observation, reward, terminated, truncated, info = self.env.step(action)
        what = fault(self._data) if any(self._warnings.tolist()) else None
        reward = float(reward)
        if what is None and not sensible(reward):
            what = f"reward {reward:g}"
        if what is None:
            self._last_good = copy.copy(observation)
            return observation, reward, terminated, truncated, info
        self._warnings[:] = 0
        info = {**info, "unstable": True, "fault": what}
        return copy.copy(self._last_good), 0.0, False, True, info


def _model_of(env: Env, wrapper: object) -> mujoco.MjModel:
    model = getattr(env.unwrapped, "model", None)
    if not isinstance(model, mujoco.MjModel) or not hasattr(env.unwrapped, "data"):
        raise UsageError(
            f"{type(wrapper).__name__} needs a MuJoCo environment, "
            f"got {type(env.unwrapped).__name__}"
        )
    return model
