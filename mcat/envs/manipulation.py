"""Meta-World's table-top tasks with the paper's 14-number state and sparse reward.

The physics, start states and dense rewards are Meta-World's own; the state is, bit for bit,
`obs39[np.r_[0:11, 36:39]]` of its `step`. Only what `step` does beyond that is left out: it spends
most of its time on a reward and contact search that a sparse reward does not need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from mcat.envs.physics import dofs_of, refresh_constants, snapshot
from mcat.envs.simulation import Array, Simulation
from mcat.errors import UsageError, unknown

SPARSE_RADIUS = 0.05  # the paper's one radius (C.1); Meta-World's own differ by task
CLEARANCE = 0.15  # Meta-World's reset loops for ever if object and goal are closer than this in xy
GRIPPER_JOINTS = ("r_close", "l_close")
MAX_DRAWS = 100


@dataclass(frozen=True, kw_only=True)
class _Item:
    """The thing a task moves: where Meta-World reads its position and orientation from."""

    # Kind and name of the model element whose `xpos` counts.
    position: tuple[str, str] = ("body", "obj")
    # The element whose `xmat` counts; None where Meta-World reports four zeros.
    rotation: tuple[str, str] | None = ("geom", "objGeom")
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)  # added to the position
    # Compare with the goal in xy only: a drawer's handle is 5 cm above its goal, so in 3-D it would
    # never arrive.
    flat: bool = False


_ITEMS = {
    "push": _Item(),
    "coffee-push": _Item(rotation=("geom", "mug")),
    "sweep-into": _Item(),
    "reach": _Item(),
    "drawer-close": _Item(
        position=("body", "drawer_link"), rotation=None, offset=(0.0, -0.16, 0.05), flat=True
    ),
    "soccer": _Item(position=("body", "soccer_ball"), rotation=("body", "soccer_ball")),
    "plate-slide": _Item(position=("geom", "puck"), rotation=("geom", "puck")),
}


_PARSED: dict[str, mujoco.MjModel] = {}


class _ParsedOnce:
    """Reads each XML file once: parsing one takes 0.2 s, a copy of what came of it 8 ms."""

    fullpath: str

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        if self.fullpath not in _PARSED:
            _PARSED[self.fullpath] = super()._initialize_simulation()[0]  # type: ignore[misc]
        model = snapshot(_PARSED[self.fullpath])
        return model, mujoco.MjData(model)


@cache
def _environment(robot: str) -> type[Any]:
    """Meta-World's class of a robot, never a `Meta-World/*` id: those ignore seeds."""
    own = ALL_V3_ENVIRONMENTS[f"{robot}-v3"]
    return type(own.__name__, (_ParsedOnce, own), {})


class Manipulation(Simulation):
    """One Meta-World task: hand 3, gripper 1, object position 3 and quaternion 4, goal 3.

    What it is paid for: docs/decisions.md#meta-worlds-tasks-and-rewards.

    Args:
        robot: A key of `_ITEMS`; Meta-World calls it `<robot>-v3`.
        gripper: Factor on armature and damping of both gripper joints.
        goal: Where the hand must go (reach only); None draws a goal per episode.
        reward: "sparse" pays 1 per step within 5 cm of the goal, "dense" is Meta-World's v2.
    """

    def __init__(
        self,
        robot: str,
        *,
        gripper: float = 1.0,
        goal: tuple[float, float, float] | None = None,
        reward: str = "sparse",
    ) -> None:
        if robot not in _ITEMS:
            raise unknown("Meta-World robot", robot, _ITEMS)
        if reward not in ("sparse", "dense"):
            raise unknown("reward", reward, ("sparse", "dense"))
        self._env: Any = _environment(robot)()
        self._env._freeze_rand_vec = True  # every reset starts from `_last_rand_vec`
        super().__init__(self._env.model, self._env.data, self._env.frame_skip)
        self.action_size = 4
        self.robot = robot
        self._dense = reward == "dense"
        self._set_bounds()
        self._keep_views()
        self._fixed_goal = self._check_goal(goal)
        self._state = np.zeros(14)  # what the dense reward reads
        self._distance = math.inf
        if gripper != 1.0:
            dofs = dofs_of(self.model, GRIPPER_JOINTS)
            self.model.dof_armature[dofs] *= gripper
            self.model.dof_damping[dofs] *= gripper
            refresh_constants(self.model)

    def _keep_views(self) -> None:
        """Live views of the few numbers a step needs; looking them up by name is slow."""
        data, item = self.data, _ITEMS[self.robot]
        self._mocap = data.mocap_pos[0]
        self._hand = data.body("hand").xpos
        self._claws = data.body("rightclaw").xpos, data.body("leftclaw").xpos
        self._tips = data.site("rightEndEffector").xpos, data.site("leftEndEffector").xpos
        kind, name = item.position
        self._position = getattr(data, kind)(name).xpos
        self._offset = np.array(item.offset)
        self._rotation = None
        if item.rotation:
            kind, name = item.rotation
            self._rotation = getattr(data, kind)(name).xmat
        self._measured = slice(2) if item.flat else slice(3)
        self._goal = np.zeros(3)

    def _set_bounds(self) -> None:
        """Bounds that hold, and are the same for every task so that tasks can be mixed.

        Meta-World's own space says that visible goals are zero.
        """
        low, high = self._env._HAND_SPACE.low, self._env._HAND_SPACE.high  # holds all goals too
        anywhere, unit = np.full(3, np.inf), np.ones(4)
        self._hand_low, self._hand_high = low, high
        self.observation_low = np.hstack([low, 0.0, -anywhere, -unit, low])
        self.observation_high = np.hstack([high, 1.0, anywhere, unit, high])
        self._start_low: Array = self._env._random_reset_space.low
        self._start_high: Array = self._env._random_reset_space.high

    # --- start states -----------------------------------------------------------------------------

    def _check_goal(self, goal: tuple[float, float, float] | None) -> Array | None:
        """The goal of every episode, or None if it is drawn; refuses goals that cannot be."""
        if goal is None:
            # Sweep-into draws a goal but then uses the centre of its hole.
            return np.array(self._env.goal) if self.robot == "sweep-into" else None
        if self.robot != "reach":
            raise UsageError(f"{self.robot} has no parameter 'goal': only reach has")
        point = np.array(goal, dtype=np.float64)
        low, high = self._env.hand_low, self._env.hand_high
        if point.shape != (3,) or not np.all((low <= point) & (point <= high)):
            box = ", ".join(f"{a:g}..{b:g}" for a, b in zip(low, high, strict=True))
            raise UsageError(f"goal {goal} is out of the hand's reach: x, y, z must be in {box}")
        if _gap(self._farthest_start(point), point) < CLEARANCE:
            raise UsageError(
                f"goal {goal} is closer than {CLEARANCE} to every place the object can start at: "
                "move it away from x 0, y 0.65, for example to y 0.8"
            )
        return point

    def _farthest_start(self, goal: Array) -> Array:
        """The corner of the object's start box that is farthest from `goal` in xy."""
        low, high = self._start_low[:3], self._start_high[:3]
        return np.where(np.abs(goal - low) > np.abs(goal - high), low, high)

    def _draw_start(self, rng: np.random.Generator) -> Array:
        """Meta-World's random vector, object then goal, never one its reset would hang on."""
        for _ in range(MAX_DRAWS):
            start = rng.uniform(self._start_low, self._start_high)
            if start.size == 3:  # drawer-close draws a drawer and nothing else
                return start
            if self._fixed_goal is not None:
                start[3:] = self._fixed_goal
            if _gap(start[:3], start[3:]) >= CLEARANCE:
                return start
        start[:3] = self._farthest_start(start[3:])  # a goal beside the object's box
        return start

    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode that depends on `rng` alone, not on earlier ones."""
        self._env._last_rand_vec = self._draw_start(rng)
        self._env.reset()
        self._goal[:] = self._env._target_pos
        self._distance = self._goal_distance()
        self.forget_faults()

    # --- steps ------------------------------------------------------------------------------------

    def advance(self, action: Array) -> float:
        """Move the hand by up to 1 cm per axis, squeeze the gripper by `action[3]`."""
        env = self._env
        move = np.minimum(np.maximum(action[:3], -1.0), 1.0) * env.action_scale
        np.minimum(np.maximum(self._mocap + move, env.mocap_low), env.mocap_high, out=self._mocap)
        self.data.ctrl[:] = action[3], -action[3]
        mujoco.mj_step(self.model, self.data, self.frame_skip)
        mujoco.mj_forward(self.model, self.data)  # positions of the new state, not the one before
        self._distance = self._goal_distance()
        if self._dense:
            self.observe(self._state)
            # Meta-World's rewards read entries 3 to 6 only, which are at the same place in both.
            return float(env.compute_reward(action, self._state)[0])
        return float(self._distance < SPARSE_RADIUS)

    def observe(self, out: Array) -> None:
        """Write the 14 numbers; the hand is clipped to its box as Meta-World does."""
        np.minimum(np.maximum(self._hand, self._hand_low), self._hand_high, out=out[:3])
        right, left = self._claws
        out[3] = min(_norm(right - left) / 0.1, 1.0)
        np.add(self._position, self._offset, out=out[4:7])
        out[7:11] = 0.0 if self._rotation is None else quaternion(self._rotation)
        out[11:] = self._goal

    def info(self) -> dict[str, Any]:
        """Whether and how near the object (the fingertips in reach) is to the goal."""
        return {"success": float(self._distance < SPARSE_RADIUS), "distance": self._distance}

    def _goal_distance(self) -> float:
        if self.robot == "reach":
            right, left = self._tips
            return _norm((right + left) / 2.0 - self._goal)
        return _norm((self._position + self._offset - self._goal)[self._measured])


class HandReach(Manipulation):
    """Reach as Appendix E has it: the state is where the hand is, the action where it moves.

    The fingers get 0, as Meta-World's script gives them, and nobody is shown the goal
    (docs/decisions.md#state-action-and-start-of-the-reach-tasks).
    """

    def __init__(self, **parameters: Any) -> None:
        super().__init__("reach", **parameters)
        self.action_size = 3
        self.observation_low, self.observation_high = self._hand_low, self._hand_high

    def advance(self, action: Array) -> float:
        """Move the hand by up to 1 cm per axis."""
        return super().advance(np.append(action, 0.0))

    def observe(self, out: Array) -> None:
        """Write where the hand is; into 14 numbers, as the dense reward wants them, all."""
        super().observe(self._state)
        out[:] = self._state[: len(out)]


def quaternion(matrix: Array) -> tuple[float, float, float, float]:
    """The (x, y, z, w) of a flat rotation matrix, equal to scipy's `Rotation` bit for bit.

    Shepperd's method: divide by the largest component, found from trace and diagonal.
    """
    xx, xy, xz, yx, yy, yz, zx, zy, zz = matrix.tolist()
    trace = xx + yy + zz
    largest = max(xx, yy, zz, trace)
    if largest == xx:
        q = (1.0 - trace + 2.0 * xx, yx + xy, zx + xz, zy - yz)
    elif largest == yy:
        q = (xy + yx, 1.0 - trace + 2.0 * yy, zy + yz, xz - zx)
    elif largest == zz:
        q = (xz + zx, yz + zy, 1.0 - trace + 2.0 * zz, yx - xy)
    else:
        q = (zy - yz, xz - zx, yx - xy, 1.0 + trace)
    x, y, z, w = q
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return x / norm, y / norm, z / norm, w / norm


def _norm(vector: Array) -> float:
    """The same as `np.linalg.norm`, without its overhead."""
    return math.sqrt(vector.dot(vector))


def _gap(start: Array, goal: Array) -> float:
    """The distance in xy, computed as Meta-World's reset does."""
    return float(np.linalg.norm(start[:2] - goal[:2]))
