"""Compares each distribution with SciPy's, by Kolmogorov-Smirnov or chi-square tests.

Seeds are fixed, so the numbers never change, and a test that passes once always passes. A correct
distribution fails one seed in a thousand. A wrong one hardly passes with 10^5 numbers.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from device import DEVICE

NUMBERS = 100_000
LEAST_P = 1e-3


def empty(dtype=torch.float32):
    return torch.empty(NUMBERS, dtype=dtype, device=DEVICE)


def full(value, dtype=torch.float32):
    return torch.full((NUMBERS,), value, dtype=dtype, device=DEVICE)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(2024)


CONTINUOUS: dict[str, tuple[Callable[[], torch.Tensor], object]] = {
    "uniform": (lambda: empty().uniform_(-1, 3), stats.uniform(-1, 4)),
    "uniform of doubles": (lambda: empty(torch.float64).uniform_(), stats.uniform()),
    "normal": (lambda: empty().normal_(2, 3), stats.norm(2, 3)),
    "normal of doubles": (lambda: empty(torch.float64).normal_(), stats.norm()),
    "normal of tensors": (lambda: torch.normal(full(2.0), full(3.0)), stats.norm(2, 3)),
    "real part of complex normals": (
        lambda: torch.randn(NUMBERS, dtype=torch.complex64, device=DEVICE).real,
        stats.norm(0, 0.5**0.5),
    ),
    "log_normal": (lambda: empty().log_normal_(0.5, 0.75), stats.lognorm(0.75, scale=np.exp(0.5))),
    "cauchy": (lambda: empty().cauchy_(1, 2), stats.cauchy(1, 2)),
    "cauchy of doubles": (lambda: empty(torch.float64).cauchy_(), stats.cauchy()),
    "exponential": (lambda: empty().exponential_(1.7), stats.expon(scale=1 / 1.7)),
    "exponential of doubles": (lambda: empty(torch.float64).exponential_(), stats.expon()),
    "whole range of float": (lambda: empty().random_(), stats.uniform(0, 2**24 + 1)),
    "whole range of int64": (lambda: empty(torch.int64).random_(), stats.uniform(0, 2.0**63)),
    "wide range": (lambda: empty(torch.int64).random_(-5, 2**40), stats.uniform(-5, 2.0**40 + 5)),
    "gamma, shape below 1": (lambda: torch._standard_gamma(full(0.5)), stats.gamma(0.5)),
    "gamma": (lambda: torch._standard_gamma(full(3.0)), stats.gamma(3.0)),
    "gamma of doubles": (lambda: torch._standard_gamma(full(3.0, torch.float64)), stats.gamma(3)),
    "part of a Dirichlet sample": (
        lambda: torch._sample_dirichlet(
            torch.tensor([1.0, 2.0, 3.0], device=DEVICE).expand(NUMBERS, 3)
        )[:, 1],
        stats.beta(2, 4),
    ),
    "slopes of rrelu": (
        lambda: -torch.nn.functional.rrelu(full(-1.0), 0.2, 0.7, training=True),
        stats.uniform(0.2, 0.5),
    ),
    "poisson of a large mean": (lambda: torch.poisson(full(9e6)), stats.norm(9e6, 3e3)),
    "Beta": (lambda: torch.distributions.Beta(full(2.0), full(5.0)).sample(), stats.beta(2, 5)),
    "Gumbel": (
        lambda: torch.distributions.Gumbel(full(1.0), full(2.0)).sample(),
        stats.gumbel_r(1, 2),
    ),
    "Laplace": (
        lambda: torch.distributions.Laplace(full(1.0), full(2.0)).sample(),
        stats.laplace(1, 2),
    ),
    "StudentT": (lambda: torch.distributions.StudentT(full(4.0)).sample(), stats.t(4)),
    "Weibull": (
        lambda: torch.distributions.Weibull(full(2.0), full(1.5)).sample(),
        stats.weibull_min(1.5, scale=2),
    ),
    "VonMises": (
        lambda: torch.distributions.VonMises(full(0.0), full(3.0)).sample(),
        stats.vonmises(3),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution(name):
    draw, distribution = CONTINUOUS[name]
    numbers = draw().double().cpu().numpy()
    assert stats.kstest(numbers, distribution.cdf).pvalue > LEAST_P


DISCRETE: dict[str, tuple[Callable[[], torch.Tensor], object]] = {
    "geometric": (lambda: empty().geometric_(0.3), stats.geom(0.3)),
    "geometric of integers": (lambda: empty(torch.int32).geometric_(0.05), stats.geom(0.05)),
    "bernoulli": (lambda: empty().bernoulli_(0.3), stats.bernoulli(0.3)),
    "bernoulli of bool": (lambda: empty(torch.bool).bernoulli_(0.3), stats.bernoulli(0.3)),
    "bernoulli of doubles": (lambda: empty(torch.float64).bernoulli_(0.3), stats.bernoulli(0.3)),
    "bernoulli of tensors": (lambda: torch.bernoulli(full(0.3)), stats.bernoulli(0.3)),
    "randint": (
        lambda: torch.randint(-3, 20, (NUMBERS,), device=DEVICE),
        stats.randint(-3, 20),
    ),
    "whole range of int8": (lambda: empty(torch.int8).random_(), stats.randint(0, 128)),
    "bool": (lambda: empty(torch.bool).random_(), stats.bernoulli(0.5)),
    "dropout": (
        lambda: torch.nn.functional.dropout(full(1.0), 0.3) > 0,
        stats.bernoulli(0.7),
    ),
    "dropout of half": (
        lambda: torch.nn.functional.dropout(full(1.0, torch.float16), 0.3) > 0,
        stats.bernoulli(0.7),
    ),
    "dropout of doubles": (
        lambda: torch.nn.functional.dropout(full(1.0, torch.float64), 0.3) > 0,
        stats.bernoulli(0.7),
    ),
    "poisson": (lambda: torch.poisson(full(3.5)), stats.poisson(3.5)),
    "poisson by rejection": (lambda: torch.poisson(full(300.0)), stats.poisson(300)),
    "binomial": (lambda: torch.binomial(full(10.0), full(0.3)), stats.binom(10, 0.3)),
    "binomial by rejection": (
        lambda: torch.binomial(full(100.0), full(0.6)),
        stats.binom(100, 0.6),
    ),
    "NegativeBinomial": (
        lambda: torch.distributions.NegativeBinomial(full(5.0), full(0.4)).sample(),
        stats.nbinom(5, 0.6),
    ),
}


def p_of_counts(numbers: np.ndarray, distribution) -> float:
    """Return the chi-square p-value. Cells expect at least five values; the last has all others."""
    low, high = distribution.ppf([1e-6, 1 - 1e-6])
    values = np.arange(int(low), int(high) + 1)
    expected = distribution.pmf(values) * numbers.size
    values, expected = values[expected >= 5], expected[expected >= 5]
    found = np.array([np.count_nonzero(numbers == value) for value in values])
    found[-1] += numbers.size - found.sum()
    expected[-1] += numbers.size - expected.sum()
    return stats.chisquare(found, expected).pvalue


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distribution(name):
    draw, distribution = DISCRETE[name]
    assert p_of_counts(draw().double().cpu().numpy(), distribution) > LEAST_P


def test_categories_with_replacement():
    weights = torch.tensor([3.0, 0.0, 1.0, 4.0, 2.0], device=DEVICE)
    drawn = torch.multinomial(weights, NUMBERS, replacement=True).cpu().numpy()
    found = np.bincount(drawn, minlength=5)
    assert found[1] == 0
    expected = np.array([3, 1, 4, 2]) / 10 * NUMBERS
    assert stats.chisquare(found[[0, 2, 3, 4]], expected).pvalue > LEAST_P


def test_pairs_of_categories_without_replacement():
    weights = np.array([3.0, 1.0, 4.0, 2.0])
    rows = torch.tensor(weights, dtype=torch.float32, device=DEVICE).expand(NUMBERS, 4)
    first, second = torch.multinomial(rows, 2).cpu().numpy().T
    assert (first != second).all()
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    share = [weights[i] / 10 * weights[j] / (10 - weights[i]) for i, j in pairs]
    found = [np.count_nonzero((first == i) & (second == j)) for i, j in pairs]
    assert stats.chisquare(found, np.array(share) * NUMBERS).pvalue > LEAST_P


def test_permutations_of_four():
    found: dict[tuple[int, ...], int] = {}
    for _ in range(4800):
        drawn = tuple(torch.randperm(4, device=DEVICE).tolist())
        found[drawn] = found.get(drawn, 0) + 1
    assert len(found) == 24
    assert stats.chisquare(list(found.values())).pvalue > LEAST_P


def test_places_in_a_long_permutation():
    places = torch.randperm(NUMBERS, device=DEVICE).double().cpu().numpy()
    assert stats.kstest(places[: NUMBERS // 2], stats.randint(0, NUMBERS).cdf).pvalue > LEAST_P
    ranks = stats.spearmanr(np.arange(NUMBERS), places)
    assert ranks.pvalue > LEAST_P


@pytest.mark.parametrize("lag", [1, 2, 256, 256 * 132])
def test_neighbours_are_not_correlated(lag):
    numbers = torch.randn(1 << 19, device=DEVICE).double().cpu().numpy()
    assert stats.pearsonr(numbers[:-lag], numbers[lag:]).pvalue > LEAST_P
