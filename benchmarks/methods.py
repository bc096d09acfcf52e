"""One update of each method of meta-training, ours and in plain PyTorch, in one run.

    python benchmarks/methods.py [--rounds 8] [--updates 20] [--preset cpu]

Five tasks with the sizes of a HalfCheetah, preset cpu: 255 rows an update (MQL's with ten steps
before each), networks of 2 x 256, one thread; ours draws its rows from the replay, the plain ones
have them ready. Plain is written as one would write it down: `nn.Linear`, one network after
another, one task after another where tasks have networks of their own (Distral), one backward pass
per task (PCGrad). `mcat` is MCAT's update of policy and critics with self-imitation; what C, F and
H take comes on top. They take turns; given is the median CPU time.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mcat.agents.gaussian import gaussian
from mcat.agents.meta.algorithm import RANDOM, Round, TaskSet
from mcat.agents.meta.mcat import MCAT
from mcat.agents.meta.methods.maths import kl_to_prior, product_of_gaussians, variances
from mcat.agents.meta.methods.multitask import MultiTask
from mcat.agents.meta.methods.registry import METHODS
from mcat.config import overlay
from mcat.datasets import EpisodeStore

STATES, ACTIONS, TASKS, EACH, HORIZON = 17, 6, 5, 51, 1000
Updates = Callable[[], None]
NAMES = tuple(METHODS)


def task_set() -> TaskSet:
    names = tuple(f"task{number}" for number in range(TASKS))
    return TaskSet(train=names, test=(), observation_size=STATES, action_size=ACTIONS,
                   horizon=HORIZON, delay=500, make=None)  # type: ignore[arg-type]  # fmt: skip


def experience() -> Round:
    rng, episodes = np.random.default_rng(0), EpisodeStore(STATES, ACTIONS)
    for task in range(TASKS):
        path = rng.standard_normal((HORIZON + 1, STATES), dtype=np.float32)
        episodes.append_episode(
            observations=path[:-1], next_observations=path[1:], task=task,
            actions=rng.uniform(-1, 1, (HORIZON, ACTIONS)).astype(np.float32),
            rewards=rng.standard_normal(HORIZON).astype(np.float32),
        )  # fmt: skip
    return Round(step=TASKS * HORIZON, episodes=episodes, drivers=(RANDOM,) * TASKS)


def ours(method: str, preset: str) -> Updates:
    changes = {f"{method}.start_steps": 0}
    config = overlay(METHODS[method].presets[preset], changes)
    agent = METHODS[method].make(task_set(), config, np.random.SeedSequence(0))
    for _ in range(2):
        agent.remember(experience())
    if isinstance(agent, MCAT):
        return agent._policy_updates()
    assert isinstance(agent, MultiTask)
    agent._begin()
    return agent._update_once


# --- the same in plain PyTorch --------------------------------------------------------------


def mlp(inputs: int, outputs: int, hidden: Sequence[int] = (256, 256)) -> nn.Sequential:
    sizes, layers = (inputs, *hidden, outputs), []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rows(tasks: int, width: int) -> tuple[Tensor, ...]:
    """States with codes, actions, rewards and next states with codes, by task."""
    shapes = ((STATES + width,), (ACTIONS,), (1,), (STATES + width,))
    return tuple(torch.randn(tasks, EACH, *shape) for shape in shapes)


def drawn(actor: nn.Module, obs: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_std = actor(obs).chunk(2, -1)
    log_std = log_std.clamp(-20, 2)
    noise = torch.randn_like(mean)
    raw = mean + log_std.exp() * noise
    slope = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))
    density = (-(noise**2) / 2 - log_std - np.log(2 * np.pi) / 2 - slope).sum(-1, keepdim=True)
    return torch.tanh(raw), density


def track(nets: Iterable[nn.Module], targets: Iterable[nn.Module]) -> None:
    for net, target in zip(nets, targets, strict=True):
        for p, t in zip(net.parameters(), target.parameters(), strict=True):
            t.data.copy_(0.005 * p.data + 0.995 * t.data)


class PlainSAC:
    """Networks of one SAC, its losses, and steps of its optimisers."""

    def __init__(self, width: int) -> None:
        self.actor = mlp(STATES + width, 2 * ACTIONS)
        self.critics = nn.ModuleList(mlp(STATES + width + ACTIONS, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.adams = {
            "actor": torch.optim.Adam(self.actor.parameters(), 3e-4),
            "critics": torch.optim.Adam(self.critics.parameters(), 3e-4),
            "alpha": torch.optim.Adam([self.log_alpha], 3e-4),
        }

    def critic_loss(self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor) -> Tensor:
        """Of both critics."""
        with torch.no_grad():
            a2, density = drawn(self.actor, s2)
            x2 = torch.cat((s2, a2), -1)
            y = torch.min(self.targets[0](x2), self.targets[1](x2))
            y = r + 0.99 * (y - self.log_alpha.exp() * density)
        x = torch.cat((s, a), -1)
        return sum(((q(x) - y) ** 2).mean() for q in self.critics)

    def actor_loss(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """And the log densities of its actions."""
        a, density = drawn(self.actor, s)
        x = torch.cat((s, a), -1)
        value = torch.min(self.critics[0](x), self.critics[1](x))
        return (self.log_alpha.exp().detach() * density - value).mean(), density.detach()

    def step(self, name: str, loss: Tensor) -> None:
        """Descend along a loss."""
        self.adams[name].zero_grad()
        loss.backward()
        self.adams[name].step()

    def finish(self, density: Tensor) -> None:
        """The temperature's step, and the targets."""
        self.step("alpha", (self.log_alpha.exp() * (-density + ACTIONS)).mean())
        track(self.critics, self.targets)

    def update(self, *columns: Tensor) -> None:
        """All of it."""
        self.step("critics", self.critic_loss(*columns))
        loss, density = self.actor_loss(columns[0])
        self.step("actor", loss)
        self.finish(density)


def plain_hipbmdp() -> Updates:
    sac, model, columns = PlainSAC(10), mlp(STATES + ACTIONS + 10, STATES, (256,)), rows(TASKS, 10)
    theta = nn.Parameter(torch.randn(TASKS, 10))
    adam = torch.optim.Adam([*model.parameters(), theta], 1e-3)

    def update() -> None:
        sac.update(*columns)
        own = torch.arange(TASKS).repeat_interleave(EACH)
        other = own[torch.randperm(len(own))]
        s, a = (x.flatten(0, 1) for x in (columns[0][..., :STATES], columns[1]))
        effect = model(torch.cat((s, a, theta[own]), 1))
        otherwise = model(torch.cat((s, a, theta[other]), 1))
        far = (effect - otherwise).norm(dim=1).detach()
        metric = (((theta[own] - theta[other]) ** 2).sum(1) + 1e-12).sqrt() - far
        loss = ((effect - s) ** 2).mean() / 2 + 0.1 * (metric**2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()

    return update


def plain_pcgrad() -> Updates:
    sac, columns = PlainSAC(TASKS), rows(TASKS, TASKS)

    def surgery(name: str, losses: list[Tensor]) -> None:
        parameters = sac.adams[name].param_groups[0]["params"]
        found = []
        for loss in losses:
            own = torch.autograd.grad(loss, parameters)
            found.append(torch.cat([g.flatten() for g in own]))
        projected = []
        for i, gradient in enumerate(found):
            for j in torch.randperm(TASKS).tolist():
                product = gradient @ found[j]
                if i != j and product < 0:
                    gradient = gradient - product / (found[j] @ found[j]) * found[j]
            projected.append(gradient)
        step, place = torch.stack(projected).mean(0), 0
        for p in parameters:
            p.grad = step[place : place + p.numel()].view_as(p)
            place += p.numel()
        sac.adams[name].step()

    def update() -> None:
        tasks = list(zip(*columns, strict=True))
        surgery("critics", [sac.critic_loss(*own) for own in tasks])
        losses, densities = zip(*(sac.actor_loss(own[0]) for own in tasks), strict=True)
        surgery("actor", list(losses))
        sac.finish(torch.cat(densities))

    return update


def plain_distral() -> Updates:
    sacs, prior, columns = [PlainSAC(0) for _ in range(TASKS)], mlp(STATES, 12), rows(TASKS, 0)
    adam = torch.optim.Adam(prior.parameters(), 3e-4)

    def update() -> None:
        loss = torch.zeros(())
        for sac, own in zip(sacs, zip(*columns, strict=True), strict=True):
            with torch.no_grad():
                gaussian(prior(own[3]), -5)  # log π0 of the next actions
            sac.step("critics", sac.critic_loss(*own))
            gaussian(prior(own[0]), -5)  # and of those of the actor's loss
            sac.step("actor", sac.actor_loss(own[0])[0])
            track(sac.critics, sac.targets)
            with torch.no_grad():
                policy = gaussian(sac.actor(own[0]), -5)
            loss = loss + policy.kl(gaussian(prior(own[0]), -5)).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()

    return update


def plain_pearl() -> Updates:
    sac, columns = PlainSAC(5), rows(TASKS, 0)
    encoder, context = mlp(2 * STATES + ACTIONS + 1, 10, (128, 128)), torch.randn(TASKS, 64, 41)
    adam = torch.optim.Adam(encoder.parameters(), 3e-4)

    def update() -> None:
        mean, raw = encoder(context).chunk(2, -1)
        mean, variance = product_of_gaussians(mean, variances(raw))
        z = (mean + variance.sqrt() * torch.randn_like(mean))[:, None].expand(-1, EACH, -1)
        s, a, r, s2 = columns
        obs = torch.cat((s, z), -1)
        loss = sac.critic_loss(obs, a, r, torch.cat((s2, z.detach()), -1))
        adam.zero_grad()
        sac.step("critics", loss + 0.1 * kl_to_prior(mean, variance).sum())
        adam.step()
        sac.step("actor", sac.actor_loss(obs.detach())[0])
        track(sac.critics, sac.targets)

    return update


def plain_mql() -> Updates:
    row, n = STATES + ACTIONS + 1, TASKS * EACH
    grus = nn.ModuleList(nn.GRU(row, 20, batch_first=True) for _ in range(2))
    actor = mlp(STATES + 20, ACTIONS)
    critics = nn.ModuleList(mlp(STATES + 20 + ACTIONS, 1) for _ in range(2))
    nets = (grus[0], grus[1], actor, critics)
    slow = copy.deepcopy(nets)
    actor_adam = torch.optim.Adam([*actor.parameters(), *grus[0].parameters()], 3e-4)
    critic_adam = torch.optim.Adam([*critics.parameters(), *grus[1].parameters()], 3e-4)
    s, s2, a, r = (torch.randn(n, size) for size in (STATES, STATES, ACTIONS, 1))
    past, past2 = torch.randn(n, 10, row), torch.randn(n, 10, row)
    count = 0

    def seen(gru: nn.Module, states: Tensor, windows: Tensor) -> Tensor:
        return torch.cat((states, gru(windows)[1][0]), 1)

    def update() -> None:
        nonlocal count
        with torch.no_grad():
            noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
            a2 = (torch.tanh(slow[2](seen(slow[0], s2, past2))) + noise).clamp(-1, 1)
            x2 = torch.cat((seen(slow[1], s2, past2), a2), 1)
            y = r + 0.99 * torch.min(slow[3][0](x2), slow[3][1](x2))
        x = torch.cat((seen(grus[1], s, past), a), 1)
        loss = sum(((q(x) - y) ** 2).mean() for q in critics)
        critic_adam.zero_grad()
        loss.backward()
        critic_adam.step()
        count += 1
        if count % 2 == 0:
            with torch.no_grad():
                known = seen(grus[1], s, past)
            own = torch.tanh(actor(seen(grus[0], s, past)))
            actor_adam.zero_grad()
            (-critics[0](torch.cat((known, own), 1)).mean()).backward()
            actor_adam.step()
            track(nets, slow)

    return update


PLAIN = {"pearl": plain_pearl, "mql": plain_mql, "distral": plain_distral,
         "hipbmdp": plain_hipbmdp, "pcgrad": plain_pcgrad}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=20, help="per contender and round")
    parser.add_argument("--preset", default="cpu", help="another than cpu is not put beside plain")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    runs: dict[str, Callable[[], object]] = {name: ours(name, options.preset) for name in NAMES}
    beside = PLAIN if options.preset == "cpu" else {}
    runs |= {f"plain {name}": make() for name, make in beside.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            run()
            started = time.process_time()
            for _ in range(options.updates):
                run()
            times[name].append((time.process_time() - started) / options.updates * 1e3)
    about = f"{TASKS} tasks, preset {options.preset}, 1 thread, torch {torch.__version__}"
    print(f"halfcheetah, {about}")
    medians = {name: float(np.median(own)) for name, own in times.items()}
    ratios = {}
    for name in NAMES:
        line = f"{name:8} {medians[name]:6.2f} ms  {medians[name] / medians['mcat']:5.2f} x MCAT's"
        if name in beside:
            ratios[name] = float(np.median(np.divide(times[f"plain {name}"], times[name])))
            line += (
                f"   plain {medians[f'plain {name}']:6.2f} ms   ours {ratios[name]:.2f} x as fast"
            )
        print(line)
    print(json.dumps({name: round(value, 3) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
