"""Where the time of meta-training goes, and what our ways of saving it are worth.

    python benchmarks/metatrain.py [--quick]

1. Seconds of one iteration of preset `cpu` on halfcheetah-armature, by phase. The episodes are
   real; the policy makes only some of its updates, and their time is scaled up.
2. What presets `cpu` and `paper` spend on C and F until they predict held-out episodes of the same
   rounds equally well. A whole iteration of `paper` is too long, so a few steps of it are timed,
   and its errors are those of a thinned schedule: one of the M future steps per window, which has
   the same expected gradient. How the two compare after those few steps is said.
3. Our update of TD3 with contexts and self-imitation against the same maths written plainly:
   modules of torch.nn, a pass per critic and kind of rows, contexts encoded batch by batch. First
   both make some updates from the same weights and draws, and every loss must agree.

Contenders take turns where they can. Times of 2 and 3 are those the process got from the CPU.
"""

from __future__ import annotations

import argparse
import copy
import csv
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from forward_curve import learning_curve
from torch import Tensor, nn

from mcat.agents.configs import CreditConfig, ImitationConfig, TD3Config
from mcat.agents.credit.credit import Credit
from mcat.agents.meta.config import PRESETS
from mcat.agents.meta.mcat import MCAT
from mcat.agents.meta.rounds import load_rounds
from mcat.agents.meta.run import metatrain
from mcat.agents.meta.updates import PolicyUpdates
from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.sil import SelfImitation
from mcat.agents.td3 import TD3
from mcat.datasets import EpisodeStore
from mcat.translator.context import ContextModel
from mcat.translator.windows import past_of

TASKS, HORIZON = 5, 1000  # of halfcheetah-armature
STATES, ACTIONS = 17, 6
UPDATES = TASKS * HORIZON  # of the policy per iteration
BATCH = 256
BLOCK = 10  # updates of the policy between turns


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of everything is measured."""

    iterations: int  # after two rounds of random actions
    update_share: float
    steps: int  # of C and F, with one future step
    paper_steps: int  # with all
    stored: int  # transitions in replay
    blocks: int


FULL = Size(iterations=2, update_share=0.2, steps=400, paper_steps=30, stored=100_000, blocks=30)
QUICK = Size(iterations=1, update_share=0.01, steps=100, paper_steps=8, stored=20_000, blocks=10)


# --- 1. an iteration ----------------------------------------------------------------------


def iterations(size: Size, out: Path) -> None:
    """A short run of preset cpu, and the time columns of its metrics."""
    preset = PRESETS["cpu"]
    random = 2 * UPDATES  # environment steps; the second round is held out from C and F
    config = replace(
        preset,
        steps=random + size.iterations * UPDATES,
        evaluation_episodes=1,
        evaluate_every=1000,
        mcat=replace(preset.mcat, start_steps=random, updates_per_step=size.update_share),
    )
    started = time.monotonic(), time.process_time()
    metatrain(config, out, quiet=True)
    got = (time.process_time() - started[1]) / (time.monotonic() - started[0])
    with (out / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(float(row["step"])) > random]
    phases = ("collect", *MCAT.phases)
    seconds = {p: statistics.median(float(row[f"time/{p}"]) for row in rows) for p in phases}
    seconds["policy"] /= size.update_share
    total = sum(seconds.values())
    print(f"one iteration of preset cpu: {UPDATES:,} steps of {preset.family} (wall clock)")
    names = ("collect", "C and F", "H", "TD3 and self-imitation")
    for name, value in zip(names, seconds.values(), strict=True):
        print(f"  {name:<28}{value:>8.1f} s  {value / total:>6.0%}")
    minutes = 200_000 / UPDATES * total / 60
    print(f"  {'all':<28}{total:>8.1f} s, or {minutes:.0f} min for 200K steps")
    print(f"  ({size.update_share:.0%} of the policy's updates were made and scaled up; the process"
          f" got {got:.0%} of a core: with a whole one {got * minutes:.0f} min)")  # fmt: skip


# --- 2. the forward model -----------------------------------------------------------------


def forward_models(size: Size, rounds: list[EpisodeStore]) -> None:
    """Both presets on the same rounds, up to the error that the worse one gets to."""
    held_out = [rounds[1].task(task) for task in range(TASKS)]
    joined = EpisodeStore.concatenate([rounds[0], *rounds[2:]])
    training = [joined.task(task) for task in range(TASKS)]
    configs = {name: PRESETS[name].mcat.context for name in ("cpu", "paper")}
    curves = {
        name: learning_curve(
            replace(config, all_future=False, likelihood="mean"), training, held_out, size.steps
        )
        for name, config in configs.items()
    }
    exact = learning_curve(configs["paper"], training, held_out, size.paper_steps)[-1]
    thinned = min(curves["paper"], key=lambda point: abs(point.steps - exact.steps))
    last = curves["cpu"][-1]
    seconds = {"cpu": last.seconds / last.steps, "paper": exact.seconds / exact.steps}

    wanted = max(min(point.error for point in curve) for curve in curves.values())
    print(f"C and F, {len(joined):,} transitions, to a held-out error of {wanted:.3f}")
    cost = {}
    for name, config in configs.items():
        steps = next(point.steps for point in curves[name] if point.error <= wanted)
        rows = steps * 2 * config.batch_size * (config.future if config.all_future else 1)
        cost[name] = np.array([steps * seconds[name], rows])
        print(f"  {name:<8}{steps:>5} steps of {1e3 * seconds[name]:5.0f} ms: {cost[name][0]:>8.2f}"
              f" CPU s, {rows:>10,} rows through F")  # fmt: skip
    ratio = cost["paper"] / cost["cpu"]
    print(f"  paper / cpu                {ratio[0]:.1f} x the CPU time, {ratio[1]:.1f} x the rows")
    print(f"  (paper after {exact.steps} steps: error {exact.error:.3f}; thinned, after"
          f" {thinned.steps}: {thinned.error:.3f})")  # fmt: skip
    whole = {name: config.max_steps * seconds[name] / 60 for name, config in configs.items()}
    print(f"  whole iterations, extrapolated: paper {whole['paper']:.0f} min, cpu at most"
          f" {whole['cpu']:.1f} min")  # fmt: skip


# --- 3. the policy's update ---------------------------------------------------------------


def random_episodes(steps: int, rng: np.random.Generator) -> EpisodeStore:
    """Transitions in episodes with two payments each."""
    states = rng.standard_normal((steps + 1, STATES)).astype(np.float32)
    rewards = np.zeros(steps, np.float32)
    rewards[HORIZON // 2 - 1 :: HORIZON // 2] = rng.uniform(0, 500, steps // (HORIZON // 2))
    return EpisodeStore.from_arrays(
        observations=states[:-1],
        actions=rng.uniform(-1, 1, (steps, ACTIONS)).astype(np.float32),
        next_observations=states[1:],
        rewards=rewards,
        episode_ends=np.arange(HORIZON, steps + 1, HORIZON),
    )


class PlainUpdates:
    """Algorithm 2 as one would write it down, from the weights of a `TD3` on."""

    def __init__(
        self,
        td3: TD3,
        model: ContextModel,
        replay: EpisodeStore,
        imitation: SelfImitation,
        rng: np.random.Generator,
    ) -> None:
        self.config, self.model, self.replay = td3.config, model, replay
        self.imitation, self.rng = imitation, rng
        self.generator = torch.Generator()
        self.generator.set_state(td3.generator.get_state())
        self.actor = nn.Sequential(plain(td3.actor, 0), nn.Tanh())
        self.critics = nn.ModuleList([plain(td3.critics, 0), plain(td3.critics, 1)])
        self.actor_target = copy.deepcopy(self.actor)
        self.critics_target = copy.deepcopy(self.critics)
        rate = td3.config.learning_rate
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), rate)
        self.critic_adam = torch.optim.Adam(self.critics.parameters(), rate)
        self.updates, self.actor_loss = 0, torch.zeros(())

    def inputs(self, episodes: EpisodeStore, indices: np.ndarray) -> tuple[Tensor, ...]:
        """Transitions, and contexts of their histories."""
        rows = episodes.transitions(indices)
        with torch.no_grad():
            z = self.model.encode(past_of(episodes, indices, self.model.config.history))
        return (*map(torch.from_numpy, rows[1:]), z)

    def __call__(self) -> Tensor:
        """One update; returns the losses of critics, actor and self-imitation."""
        config, memory = self.config, self.imitation
        chosen, weights = memory.sample(self.rng, memory.config.batch_size)
        good_s, good_a, _, _, _, good_z = self.inputs(memory.episodes, chosen)
        returns = torch.from_numpy(memory.returns[chosen])[:, None]
        indices = self.rng.integers(len(self.replay), size=BATCH)
        s, a, r, s2, terminal, z = self.inputs(self.replay, indices)
        sz, s2z = torch.cat([s, z], 1), torch.cat([s2, z], 1)

        with torch.no_grad():
            noise = torch.randn(a.shape, generator=self.generator) * config.target_noise
            noise = noise.clamp(-config.target_noise_clip, config.target_noise_clip)
            x2 = torch.cat([s2z, (self.actor_target(s2z) + noise).clamp(-1, 1)], 1)
            q2 = torch.min(self.critics_target[0](x2), self.critics_target[1](x2))
            y = r[:, None] + config.discount * (1 - terminal[:, None]) * q2
        td_loss = sum(nn.functional.mse_loss(q(torch.cat([sz, a], 1)), y) for q in self.critics)
        good_x = torch.cat([good_s, good_z, good_a], 1)
        gains = [(returns - q(good_x)).clamp(min=0) for q in self.critics]
        w = torch.from_numpy(weights)[:, None]
        imitation_loss = sum((w * gain**2).mean() for gain in gains)
        self.critic_adam.zero_grad()
        (td_loss + memory.config.weight * imitation_loss).backward()
        self.critic_adam.step()
        memory.update(chosen, (gains[0] + gains[1]).detach().flatten().numpy())

        self.updates += 1
        if self.updates % config.policy_delay == 0:
            loss = -self.critics[0](torch.cat([sz, self.actor(sz)], 1)).mean()
            self.actor_adam.zero_grad()
            loss.backward()
            self.actor_adam.step()
            self.actor_loss = loss.detach()
            for net, target in (
                (self.actor, self.actor_target),
                (self.critics, self.critics_target),
            ):
                for p, t in zip(net.parameters(), target.parameters(), strict=True):
                    t.data.copy_(config.target_rate * p.data + (1 - config.target_rate) * t.data)
        return torch.stack([td_loss.detach(), self.actor_loss, imitation_loss.detach()])


def plain(network: MLP, member: int) -> nn.Sequential:
    """One network of an ensemble, as modules."""
    layers: list[nn.Module] = []
    for weight, bias in zip(network.layers[::2], network.layers[1::2], strict=True):
        layer = nn.Linear(weight.shape[2], weight.shape[1])
        layer.weight.data.copy_(weight.data[member])
        layer.bias.data.copy_(bias.data[member, 0])
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def policy_updates(size: Size) -> None:
    """The same maths twice: checked, then timed in turns."""
    rng = np.random.default_rng(0)
    replay = random_episodes(size.stored, rng)
    model = ContextModel(STATES, ACTIONS, TASKS, PRESETS["cpu"].mcat.context)
    td3 = TD3(STATES + model.config.context_size, ACTIONS, TD3Config(), torch.Generator())
    memories = [SelfImitation(STATES, ACTIONS, ImitationConfig(), 0.99) for _ in range(2)]
    for memory in memories:
        memory.add(replay)
    theirs = PlainUpdates(td3, model, replay, memories[1], np.random.default_rng(1))
    started = time.process_time()
    ours = PolicyUpdates(
        td3,
        ContextPolicy.of(td3.actor, model),
        replay,
        imitation=memories[0],
        credit=Credit(
            STATES,
            ACTIONS,
            CreditConfig(),
            delay=HORIZON // 2,
            horizon=HORIZON,
            generator=torch.Generator(),
        ),
        rng=np.random.default_rng(1),
        batch_size=BATCH,
    )
    encoding = (time.process_time() - started) / UPDATES  # of all contexts, once an iteration
    for _ in range(20):
        torch.testing.assert_close(ours()[:3], theirs(), rtol=1e-4, atol=1e-4)

    times: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(size.blocks):
        for name, update in (("ours", ours), ("plain", theirs)):
            started = time.process_time()
            for _ in range(BLOCK):
                update()
            times[name].append((time.process_time() - started) / BLOCK)
    ours_ms = 1e3 * (statistics.median(times["ours"]) + encoding)
    ratio = statistics.median(np.divide(times["plain"], np.array(times["ours"]) + encoding))
    print(f"updates of TD3 with contexts and self-imitation, {BATCH} + {BATCH} rows; losses agree")
    print(f"  ours   {ours_ms:6.2f} CPU ms, of them {1e3 * encoding:.2f} for encoding"
          f" {len(replay) + len(memories[0]):,} histories per {UPDATES:,} updates")  # fmt: skip
    print(f"  plain  {1e3 * statistics.median(times['plain']):6.2f} CPU ms")
    print(f"  plain / ours               {ratio:.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    size = QUICK if parser.parse_args().quick else FULL
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        iterations(size, out)
        rounds = [
            new.episodes for new in load_rounds(out / "replay", [None] * (2 + size.iterations))
        ]
    forward_models(size, rounds)
    policy_updates(size)


if __name__ == "__main__":
    main()
