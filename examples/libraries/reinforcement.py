"""stable-baselines3: algorithms with device="cuda" learn what they learn on the CPU."""

import tempfile
import warnings

import torch
from stable_baselines3 import DQN, PPO

warnings.filterwarnings("ignore", "You are trying to run PPO on the GPU")
for algorithm, options in (PPO, {"n_steps": 64, "batch_size": 32}), (DQN, {"learning_starts": 20}):
    sums = []
    for device in "cpu", "cuda":
        agent = algorithm("MlpPolicy", "CartPole-v1", device=device, seed=0, **options)
        agent.learn(128)
        assert agent.device.type == device
        sums.append(sum(parameter.double().abs().sum() for parameter in agent.policy.parameters()))
    torch.testing.assert_close(sums[1].cpu(), sums[0], rtol=1e-2, atol=0)
    assert algorithm("MlpPolicy", "CartPole-v1", **options).device.type == "cuda"  # "auto"
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        agent.save(file.name)
        loaded = algorithm.load(file.name, device="cuda:1")
    loaded.predict(loaded.observation_space.sample())
    assert next(loaded.policy.parameters()).device.index == 1
