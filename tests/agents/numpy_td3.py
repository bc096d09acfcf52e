"""TD3 once more, from the paper and without torch."""

from __future__ import annotations

import copy

import numpy as np

from mcat.agents.networks import MLP
from mcat.agents.td3 import TD3


class NumpyTD3:
    """TD3 with back-propagation and Adam spelled out in numpy, in float64."""

    def __init__(self, agent: TD3) -> None:
        self.nets = {
            "actor": self.layers(agent.actor, 0),
            "q1": self.layers(agent.critics, 0),
            "q2": self.layers(agent.critics, 1),
        }
        self.targets = copy.deepcopy(self.nets)
        self.moments = {name: [[0.0, 0.0] for _ in net] for name, net in self.nets.items()}
        self.steps = dict.fromkeys(self.nets, 0)
        self.count = 0

    @staticmethod
    def layers(net: MLP, member: int) -> list[np.ndarray]:
        return [p.detach()[member].numpy().astype(np.float64) for p in net.layers]

    @staticmethod
    def forward(net, x):
        inputs = []
        for i in range(0, len(net), 2):
            inputs.append(x)
            x = x @ net[i].T + net[i + 1]
            if i + 2 < len(net):
                x = np.maximum(x, 0)
        return x, inputs

    @staticmethod
    def backward(net, inputs, g):
        gradients = [None] * len(net)
        for i in reversed(range(0, len(net), 2)):
            x = inputs[i // 2]
            gradients[i], gradients[i + 1] = g.T @ x, g.sum(0, keepdims=True)
            g = g @ net[i]
            if i:
                g = g * (x > 0)
        return gradients, g

    def adam(self, name, gradients):
        self.steps[name] += 1
        t = self.steps[name]
        for p, g, moment in zip(self.nets[name], gradients, self.moments[name], strict=True):
            moment[0] = 0.9 * moment[0] + 0.1 * g
            moment[1] = 0.999 * moment[1] + 0.001 * g * g
            p -= 3e-4 * moment[0] / (1 - 0.9**t) / (np.sqrt(moment[1] / (1 - 0.999**t)) + 1e-8)

    def update(self, s, a, r, s2, d, noise):
        noise = np.clip(noise * 0.2, -0.5, 0.5)
        a2 = np.clip(np.tanh(self.forward(self.targets["actor"], s2)[0]) + noise, -1, 1)
        x2 = np.hstack([s2, a2])
        q2 = np.minimum(*(self.forward(self.targets[name], x2)[0] for name in ("q1", "q2")))
        y = r + 0.99 * (1 - d) * q2
        critic_loss = 0.0
        for name in ("q1", "q2"):
            q, inputs = self.forward(self.nets[name], np.hstack([s, a]))
            critic_loss += np.mean((q - y) ** 2)
            self.adam(name, self.backward(self.nets[name], inputs, 2 * (q - y) / len(s))[0])
        self.count += 1
        actor_loss = None
        if self.count % 2 == 0:
            raw, actor_inputs = self.forward(self.nets["actor"], s)
            q, inputs = self.forward(self.nets["q1"], np.hstack([s, np.tanh(raw)]))
            actor_loss = -np.mean(q)
            g = self.backward(self.nets["q1"], inputs, np.full_like(q, -1 / len(s)))[1]
            g = g[:, s.shape[1] :] * (1 - np.tanh(raw) ** 2)
            self.adam("actor", self.backward(self.nets["actor"], actor_inputs, g)[0])
            for name, net in self.nets.items():
                for p, target in zip(net, self.targets[name], strict=True):
                    target += 0.005 * (p - target)
        return critic_loss, actor_loss
