"""Models of stable-baselines3 after a few steps of learning."""

import stable_baselines3 as sb3

SHORT = {
    "TD3": {"learning_starts": 10},
    "SAC": {"learning_starts": 10},
    "DDPG": {"learning_starts": 10},
    "PPO": {"n_steps": 32, "batch_size": 16, "n_epochs": 1},
    "A2C": {},
}


def trained(name, env="Pendulum-v1", net=(16, 12), **kwargs):
    """A model after a few steps of learning."""
    settings = {"net_arch": list(net), **kwargs.pop("policy_kwargs", {})}
    model = getattr(sb3, name)(
        "MlpPolicy", env, policy_kwargs=settings, seed=0, device="cpu", **SHORT[name], **kwargs
    )
    return model.learn(40)
