"""The machine that real steps are made on: a simulation of ours, or any gymnasium environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.adaptation.tape import Tape
from mcat.agents.single.episode import Episode, Step
from mcat.datasets.cards import Card
from mcat.errors import DataError, RetryError, UsageError, printable

if TYPE_CHECKING:
    import gymnasium as gym

Actions = NDArray[np.float32]
TAPE_FILE = "steps.bin"
_LOST = "NaN, a fault, or killed on the way"


class Simulated(Episode):
    """A task of ours: it can be brought back to any moment."""

    def return_to(self, step: int, seed: int, actions: Actions) -> bool:
        """Return to where a run was after that many real steps, the last of them these actions.

        Returns:
            Whether the episode of then goes on.
        """
        self.replay_to(seed, actions)
        return True

    def close(self) -> None:
        """There is nothing to let go of."""


class Live:
    """An environment that cannot be brought back: what it did is read from a tape.

    After a run was stopped, the learner first sees again what the tape has, then the machine is
    asked to go on, in a new episode. So no real step is ever made twice.

    Raises:
        UsageError: if it is of another machine than the logs.
    """

    def __init__(self, env: gym.Env[Any, Any], name: str, sizes: tuple[int, int]) -> None:
        from gymnasium.spaces import Box

        self.env, self.name = env, name
        seen, done = env.observation_space, env.action_space
        if not isinstance(seen, Box) or not isinstance(done, Box) or not done.is_bounded():
            raise UsageError(
                f"{name}: a live machine has a Box of observations and a bounded Box of actions;"
                " wrap it, for example in gymnasium's FlattenObservation"
            )
        found = int(np.prod(seen.shape)), int(np.prod(done.shape))
        if found != sizes:
            raise UsageError(
                f"{name} has {found[0]} observations and {found[1]} actions, the logs"
                f" {sizes[0]} and {sizes[1]}: they are of another machine"
            )
        self._low, self._high, self._action_space = done.low, done.high, done
        self.seed, self.length, self.earned = 0, 0, 0.0
        self.obs = np.zeros(sizes[0])
        self._place = 0  # on the tape
        self._tape: Tape | None = None

    def record_on(self, tape: Tape) -> None:
        """Let all further steps come from there as far as it goes, then go there."""
        self._tape = tape

    @property
    def tape(self) -> Tape:
        """Where its steps are written."""
        assert self._tape is not None, "record_on was not called"
        return self._tape

    def start(self, seed: int) -> None:
        """Start an episode."""
        self.seed, self.length, self.earned = seed, 0, 0.0
        if self._place < len(self.tape):
            self.obs = self.tape[self._place].obs
            return
        try:
            obs, _ = self.env.reset(seed=seed)
        except Exception as error:  # whatever a machine may raise
            raise self._failed(error) from error
        self.obs = self._vector(obs)
        if not np.isfinite(self.obs).all():
            raise DataError(f"{self.name}: its first observation is NaN or infinite")

    def step(self, action: Actions) -> Step:
        """Take one action in [-1, 1]."""
        asked = self._place == len(self.tape)
        if asked:
            self._ask(action)
        taken = self.tape[self._place]
        self._place += 1
        if not asked and self._place == len(self.tape) and not taken.over:
            self.tape.cut()  # the machine is no longer where the tape ends
            taken = taken._replace(over=True, cut=True)
        self.length += 1
        before = self.obs
        if taken.lost:
            return Step(before, taken.action, 0.0, before, False, True, _LOST, cut=True)
        self.earned += taken.reward
        self.obs = taken.next_obs
        return Step(
            before, taken.action, taken.reward, taken.next_obs, taken.terminal, taken.over, None,
            cut=taken.cut,
        )  # fmt: skip

    def return_to(self, step: int, seed: int, actions: Actions) -> bool:
        """See `Simulated`; only an episode whose next step is on the tape goes on."""
        if step > len(self.tape):
            raise DataError(
                f"{self.tape.path}: it has {len(self.tape)} steps, and the run had made {step}:"
                " restore it from a copy"
            )
        self._place, self.seed, self.length = step, seed, len(actions)
        past = [self.tape[number] for number in range(step - len(actions), step)]
        self.earned = sum(row.reward for row in past)
        if step < len(self.tape) and not (past and past[-1].over):
            self.obs = self.tape[step].obs
            return True
        if past and not past[-1].over:
            self.tape.cut()
        return False

    def close(self) -> None:
        """Let go of it."""
        self.env.close()
        if self._tape is not None:
            self._tape.close()

    def _ask(self, action: Actions) -> None:
        """One real step."""
        tape = self.tape
        tape.ask(self.obs, action)
        stretched = self._low + (action.reshape(self._low.shape) + 1) / 2 * (self._high - self._low)
        try:
            obs, reward, terminated, truncated, info = self.env.step(
                stretched.astype(self._action_space.dtype)
            )
        except Exception as error:  # whatever a machine may raise
            raise self._failed(error) from error
        next_obs, earned = self._vector(obs), float(reward)
        if info.get("fault") or not (np.isfinite(next_obs).all() and np.isfinite(earned)):
            tape.lose()
            return
        over = bool(terminated or truncated)
        tape.answer(earned, next_obs, terminal=bool(terminated), over=over)

    def _vector(self, obs: Any) -> NDArray[np.float64]:
        try:
            row = np.asarray(obs, np.float64).ravel()
        except (TypeError, ValueError):
            row = np.empty(0)
        if row.size != self.obs.size:
            raise DataError(
                f"{self.name}: an observation of {row.size} numbers, not {self.obs.size}"
            )
        return row

    def _failed(self, error: Exception) -> RetryError:
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()), 200)
        return RetryError(
            f"{self.name} failed ({reason}): what it did so far is kept, and the same command with"
            " --resume goes on"
        )


Machine = Simulated | Live
"""Where episodes are run, one after another."""


def require_bounds(name: str, actions: Any, card: Card) -> None:
    """Refuse a machine on which the largest action is another one than in its logs."""
    limits = card.limits
    if limits is None or limits.unit:
        return  # nothing is known of the units but that the logs are scaled to them
    found = np.stack([np.ravel(actions.low), np.ravel(actions.high)]).astype(np.float64)
    wrong = ~np.isclose(found, np.stack(limits), rtol=1e-5, atol=0).all(axis=0)
    if wrong.any():
        number = int(np.argmax(wrong))
        low, high = found[:, number]
        raise UsageError(
            f"{name} takes from {low:g} to {high:g} for what is {card.actions[number]} in the logs:"
            " they must have the same bounds"
        )


def open_machine(
    config: AdaptConfig, live: Live | None, folder: Path, sizes: tuple[int, int]
) -> Machine:
    """The machine of a run, ready to act."""
    if live is not None:
        live.record_on(Tape(folder / TAPE_FILE, *sizes))
        return live
    assert config.task is not None, "real steps need a machine"
    return Simulated(config.task)


def open_live(env_id: str, arguments: Sequence[str], sizes: tuple[int, int]) -> Live:
    """A gymnasium environment as a live machine.

    Args:
        env_id: As `gymnasium.make` takes it: "Id-v0", or "module:Id-v0" to import a module first.
        arguments: Keyword arguments, each as "name=value".
        sizes: Numbers in an observation and in an action of the logs.

    Raises:
        UsageError: if there is no such environment, it refuses its arguments, or does not fit.
    """
    import gymnasium as gym

    given = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UsageError(f"--live-arg takes NAME=VALUE, not '{printable(text)}'")
        given[name.strip()] = _value(value)
    try:
        env = gym.make(env_id, **given)
    except Exception as error:  # gymnasium's own, and whatever an environment may raise
        reason = printable(" ".join(str(error).split()), 200)
        raise UsageError(f"no live machine {printable(env_id)}: {reason}") from error
    return Live(env, env_id, sizes)


def _value(text: str) -> Any:
    """A number, true, false or a list as JSON writes it; else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
