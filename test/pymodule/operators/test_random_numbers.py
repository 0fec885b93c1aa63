"""Random numbers equal those of an NVIDIA GPU: known answers, element by element.

*Published* answers were printed by GPUs, in issues and notebooks about PyTorch, with the digits
that were printed. *Derived* answers follow from the documented algorithms (Philox4x32-10 and the
mapping of PyTorch's CUDA kernels) and were computed independently of openreg. While a tensor fits
in one wave of threads, its numbers do not depend on the GPU.
"""

import pytest
import torch

from device import DEVICE, module


def check(actual, expected, digits=4):
    """Compare a tensor with numbers printed to `digits` digits; integers and masks exactly."""
    expected = torch.tensor(expected).to(actual.dtype)
    tolerance = 0.51 * 10**-digits if actual.is_floating_point() else 0
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=tolerance)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def offset():
    return module.default_generators[0].get_offset()


def test_published_rand():
    first = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096]
    second = [0.9722, 0.7910, 0.4690, 0.3300, 0.3345, 0.3783, 0.7640, 0.6405, 0.1103, 0.3594]
    check(torch.rand(10, device=DEVICE), first)
    check(torch.rand(10, device=DEVICE), second)


def test_published_randn():
    expected = [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284]
    expected += [-1.0745, -0.3631, -1.6711, 2.2655, 0.3117, -0.1842, 1.2866, 1.1820]
    check(torch.randn(64, device=DEVICE)[:16], expected)


def test_published_randn_of_doubles():
    expected = [-0.3104, -0.0343, 0.1756, -2.2804, 0.5039, 0.5596, -0.0750, 0.9691]
    check(torch.randn(64, dtype=torch.float64, device=DEVICE)[:8], expected)


def test_published_randint():
    check(torch.randint(0, 100, (8,), device=DEVICE), [41, 97, 91, 72, 53, 4, 3, 33])


def test_published_initial_weights():
    torch.manual_seed(42)
    check(torch.empty(1, device=DEVICE).uniform_(-1, 1), [0.2259])
    check(torch.empty(1, device=DEVICE).uniform_(-1, 1), [0.9754])


def test_published_randn_of_more_than_one_wave(python):
    result = python(
        """
        import torch
        from device import DEVICE
        torch.manual_seed(42)
        x = torch.randn(1, 64, 2048, device=DEVICE)[0].cpu()
        for row in (0, 61, 63):
            print(*(f"{value:.4f}" for value in x[row, [0, 1, 2, -3, -2, -1]]))
        """,
        OPENREG_PROFILE="28x1536",
    )
    assert result.stdout.splitlines() == [
        "0.1940 2.1614 -0.1721 1.4540 -2.7733 -0.8932",
        "-0.4861 0.3358 1.0578 -0.7282 0.5087 0.1318",
        "-1.2356 -0.4083 -0.4695 -0.4841 1.2850 -0.0282",
    ]


def test_derived_rand_of_doubles():
    expected = [0.880520, 0.939658, 0.712927, 0.067758]
    check(torch.rand(4, dtype=torch.float64, device=DEVICE), expected, 6)


def test_derived_exponential():
    x = torch.empty(4, device=DEVICE).exponential_()
    check(x, [0.91868, 0.66033, 3.69167, 0.06179], 5)


def test_derived_exponential_of_doubles():
    x = torch.empty(4, dtype=torch.float64, device=DEVICE).exponential_()
    check(x, [0.127242, 0.062239, 0.338376, 2.691817], 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_derived_geometric(dtype):
    drawn = torch.empty(8, dtype=dtype, device=DEVICE).geometric_(0.3)
    assert drawn.tolist() == [3, 2, 11, 1, 1, 1, 3, 1]


def test_derived_poisson():
    drawn = torch.poisson(torch.full((8,), 4.0, device=DEVICE))
    assert drawn.tolist() == [7, 3, 1, 4, 2, 4, 7, 3]
    assert offset() == 20


def test_derived_binomial():
    count, p = torch.full((4,), 10.0, device=DEVICE), torch.tensor(0.3, device=DEVICE)
    assert torch.binomial(count, p.expand(4)).tolist() == [2, 2, 2, 4]
    assert offset() == 44


def test_derived_gamma():
    drawn = torch._standard_gamma(torch.full((4,), 2.0, device=DEVICE))
    check(drawn, [0.7353, 1.1756, 0.9810, 1.8612])
    assert offset() == 12


def test_log_normal_is_the_exponential_of_a_normal():
    normal = torch.empty(1000, device=DEVICE).normal_(0.5, 0.25)
    torch.manual_seed(0)
    drawn = torch.empty(1000, device=DEVICE).log_normal_(0.5, 0.25)
    torch.testing.assert_close(drawn, normal.exp(), rtol=1e-5, atol=0)


def test_cauchy_is_the_tangent_of_a_uniform():
    u = torch.rand(1000, device=DEVICE)
    torch.manual_seed(0)
    drawn = torch.empty(1000, device=DEVICE).cauchy_(1, 2)
    expected = 1 + 2 * torch.tan(torch.pi * (u.double() - 0.5))
    torch.testing.assert_close(drawn.double(), expected, rtol=1e-3, atol=1e-4)


def test_dirichlet_is_gammas_over_their_sum():
    alpha = torch.tensor([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]], device=DEVICE)
    gammas = torch._standard_gamma(alpha)
    torch.manual_seed(0)
    drawn = torch._sample_dirichlet(alpha)
    torch.testing.assert_close(drawn, gammas / gammas.sum(-1, keepdim=True))


def test_rrelu_scales_what_is_not_positive_by_its_noise():
    x = torch.linspace(-1, 1, 101, device=DEVICE).requires_grad_()
    result = torch.nn.functional.rrelu(x, 0.25, 0.75, training=True)
    result.sum().backward()
    assert torch.equal(result[x > 0], x[x > 0])
    slopes = x.grad[x <= 0]
    assert slopes.min() >= 0.25 and slopes.max() <= 0.75 and slopes.unique().numel() > 40
    torch.testing.assert_close(result[x <= 0], (x * x.grad)[x <= 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_derived_bernoulli_with_one_probability(dtype):
    x = torch.empty(8, dtype=dtype, device=DEVICE).bernoulli_(0.5)
    check(x, [1, 0, 1, 0, 0, 0, 1, 0])


def test_derived_bernoulli_with_a_probability_an_element():
    check(torch.bernoulli(torch.full((8,), 0.5, device=DEVICE)), [1.0, 0, 0, 0, 0, 0, 1, 0])
    assert offset() == 12


def test_derived_randint_on_both_sides_of_the_change_to_64_bits():
    x = torch.randint(0, 2**28, (3,), device=DEVICE)
    check(x, [23709069, 9268906, 109209433])
    torch.manual_seed(0)
    x = torch.randint(0, 2**28 - 1, (3,), device=DEVICE)
    check(x, [103278811, 71636457, 107075191])


def test_derived_random_without_bounds():
    x = torch.empty(4, dtype=torch.int32, device=DEVICE).random_()
    check(x, [1713891541, 71636449, 107075191, 1890126524])
    torch.manual_seed(0)
    x = torch.empty(2, dtype=torch.int64, device=DEVICE).random_()
    check(x, [7361108121267848589, 307676209692372650])


@pytest.mark.parametrize(
    ("n", "beginning", "words"),
    [
        (5, [1, 4, 2, 0, 3], 12),
        (10, [0, 1, 9, 5, 7, 8, 6, 3, 4, 2], 16),
        (40000, [34688, 3340, 1956, 33336, 28149, 29806], 40004),
    ],
)
def test_derived_randperm(n, beginning, words):
    x = torch.randperm(n, device=DEVICE)
    check(x[: len(beginning)], beginning)
    assert torch.equal(x.sort().values.cpu(), torch.arange(n))
    assert offset() == words


@pytest.mark.parametrize(
    ("n", "dtype", "mask"),
    [
        (16, torch.float32, [1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0]),
        (6, torch.float32, [1, 0, 0, 0, 1, 0]),
        (5, torch.float32, [1, 0, 1, 0, 0]),
        (8, torch.float16, [1, 0, 0, 0, 0, 1, 0, 1]),
    ],
)
def test_derived_dropout(n, dtype, mask):
    x = torch.ones(n, dtype=dtype, device=DEVICE)
    result, drawn = torch.native_dropout(x, 0.5, True)
    check(drawn, [bool(value) for value in mask])
    check(result, [2.0 * value for value in mask])
    torch.manual_seed(0)
    check(torch.nn.functional.dropout(x, 0.5), [2.0 * value for value in mask])


def test_derived_multinomial():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], device=DEVICE)
    check(torch.multinomial(weights, 1), [3])
    torch.manual_seed(0)
    check(torch.multinomial(weights, 4), [3, 1, 0, 2])
    torch.manual_seed(0)
    check(torch.multinomial(weights, 8, replacement=True), [2, 2, 0, 3, 3, 3, 2, 3])


def test_offset_moves_by_whole_blocks_of_four_words():
    torch.rand(4, device=DEVICE)
    assert offset() == 4
    # one wave of the default GPU: 132 multiprocessors, 2048 threads each, four numbers per call
    torch.rand(132 * 2048 * 4, device=DEVICE)
    assert offset() == 8
    torch.rand(132 * 2048 * 4 + 1, device=DEVICE)
    assert offset() == 16


def test_dense_tensors_are_filled_in_memory_order():
    expected = torch.rand(2, 3, 4, 5, device=DEVICE).flatten()
    torch.manual_seed(0)
    x = torch.empty(2, 3, 4, 5, device=DEVICE).to(memory_format=torch.channels_last)
    x.uniform_()
    assert torch.equal(x.permute(0, 2, 3, 1).flatten(), expected)


def test_strided_tensors_are_filled_in_place_and_gaps_left_alone():
    expected = torch.rand(10, device=DEVICE)
    torch.manual_seed(0)
    base = torch.zeros(20, device=DEVICE)
    base[::2].uniform_()
    assert torch.equal(base[::2], expected)
    assert base[1::2].count_nonzero().item() == 0


def test_half_types_are_rounded_from_float():
    expected = torch.randn(100, device=DEVICE)
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        assert torch.equal(torch.randn(100, dtype=dtype, device=DEVICE), expected.to(dtype))


def test_uniform_never_returns_its_upper_bound():
    x = torch.rand(1 << 20, dtype=torch.float16, device=DEVICE)
    assert x.min().item() >= 0 and x.max().item() < 1


def test_moments_are_those_of_the_distributions():
    n = 1 << 20
    cases = [
        (torch.rand(n, device=DEVICE), 1 / 2, 1 / 12),
        (torch.randn(n, device=DEVICE), 0, 1),
        (torch.empty(n, device=DEVICE).exponential_(2.0), 1 / 2, 1 / 4),
        (torch.empty(n, device=DEVICE).bernoulli_(0.3), 0.3, 0.21),
        (torch.randint(0, 10, (n,), device=DEVICE).float(), 4.5, 8.25),
    ]
    for x, mean, variance in cases:
        # the standard error of the mean of a million draws is a thousandth of the deviation
        assert abs(x.mean().item() - mean) < 5e-3 * variance**0.5
        assert abs(x.var().item() / variance - 1) < 1e-2


def test_numbers_do_not_depend_on_the_device_of_the_same_profile():
    torch.manual_seed(3)
    first = torch.randn(1000, device=f"{DEVICE}:0")
    assert torch.equal(torch.randn(1000, device=f"{DEVICE}:1").cpu(), first.cpu())


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_permutations_of_every_small_size_are_permutations(seed):
    torch.manual_seed(seed)
    for n in range(20):
        assert sorted(torch.randperm(n, device=DEVICE).tolist()) == list(range(n))
