"""GPyTorch: a Gaussian process fitted on a device. Pyro: inference with a default device."""

import gpytorch
import pyro
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal


class Process(gpytorch.models.ExactGP):
    def __init__(self, inputs, targets, likelihood):
        super().__init__(inputs, targets, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, inputs):
        mean, covariance = self.mean(inputs), self.kernel(inputs)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)


def fit(device):
    inputs = torch.linspace(0, 1, 40, device=device)
    targets = torch.sin(6 * inputs)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    process = Process(inputs, targets, likelihood).to(device).train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    optimizer = torch.optim.Adam(process.parameters(), 0.1)
    for _ in range(10):
        optimizer.zero_grad()
        loss = -objective(process(inputs), targets)
        loss.backward()
        optimizer.step()
    return loss.detach().cpu()


def model(data):
    mean = pyro.sample("mean", pyro.distributions.Normal(0.0, 10.0))
    with pyro.plate("data", len(data)):
        pyro.sample("observed", pyro.distributions.Normal(mean, 1.0), obs=data)


torch.testing.assert_close(fit("cuda:1"), fit("cpu"), rtol=1e-4, atol=1e-4)
torch.set_default_device("cuda")
pyro.set_rng_seed(0)
guide = AutoNormal(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
for _ in range(200):
    svi.step(torch.linspace(2, 4, 50))
found = guide.median()["mean"]
assert found.is_cuda and abs(found.item() - 3) < 0.3
