"""Random operators built on the distributions, what determines their numbers, and generators and
their states.
"""

import math
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from device import DEVICE, module

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EVERY = FLOATING + [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
COMPLEX = [torch.complex64, torch.complex128]


def generator():
    return module.default_generators[0]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(11)


@pytest.fixture
def threads():
    """Change PyTorch's number of threads, and restore it."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# ---- what decides the numbers -------------------------------------------------------------------

LARGE = 300_001  # enough for several threads, and odd

DRAWS = {
    "uniform_": lambda: torch.empty(LARGE, device=DEVICE).uniform_(),
    "normal_": lambda: torch.empty(LARGE, device=DEVICE).normal_(),
    "strided": lambda: torch.empty(LARGE, 3, device=DEVICE)[:, 1].normal_(),
    "half": lambda: torch.empty(LARGE, dtype=torch.float16, device=DEVICE).exponential_(),
    "randint": lambda: torch.randint(0, 2**40, (LARGE,), device=DEVICE),
    "bernoulli": lambda: torch.bernoulli(torch.full((LARGE,), 0.5, device=DEVICE)),
    "dropout": lambda: functional.dropout(torch.ones(LARGE - 1, device=DEVICE)),
    "dropout by elements": lambda: functional.dropout(torch.ones(LARGE, device=DEVICE)),
    "rrelu": lambda: functional.rrelu(-torch.ones(LARGE, device=DEVICE), training=True),
    "poisson": lambda: torch.poisson(torch.full((LARGE,), 4.0, device=DEVICE)),
    "gamma": lambda: torch._standard_gamma(torch.full((LARGE,), 4.0, device=DEVICE)),
    "binomial": lambda: torch.binomial(*torch.full((2, LARGE), 0.9, device=DEVICE)),
    "randperm": lambda: torch.randperm(LARGE, device=DEVICE),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_do_not_depend_on_the_number_of_threads(name, threads):
    results = []
    for count in (1, 2, 5):
        threads(count)
        torch.manual_seed(3)
        results.append(DRAWS[name]())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_offset_advances_at_the_call_independently_of_the_data():
    for draw, words in ((torch.rand, 4), (torch.randn, 4), (torch.randperm, 8 + 4)):
        before = generator().get_offset()
        draw(5, device=DEVICE)
        assert generator().get_offset() - before == words


@pytest.mark.parametrize("dtype", EVERY)
def test_integers_of_every_type_are_in_their_range(dtype):
    drawn = torch.empty(5000, dtype=dtype, device=DEVICE).random_(0, 2)
    assert drawn.double().unique().tolist() == [0, 1]
    drawn = torch.empty(5000, dtype=dtype, device=DEVICE).random_()
    assert drawn.double().min() >= 0


@pytest.mark.parametrize("dtype", FLOATING + COMPLEX)
def test_normal_numbers_of_every_type(dtype):
    drawn = torch.randn(4000, dtype=dtype, device=DEVICE)
    assert drawn.dtype == dtype
    assert abs(drawn.to(torch.complex128).abs().square().mean().item() - 1) < 0.1


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_are_pairs_of_real_ones(dtype):
    drawn = torch.randn(100, dtype=dtype, device=DEVICE)
    torch.manual_seed(11)
    parts = torch.empty(100, 2, dtype=drawn.real.dtype, device=DEVICE).normal_(0, 1 / math.sqrt(2))
    assert torch.equal(torch.view_as_real(drawn), parts)
    torch.manual_seed(11)
    drawn = torch.rand(100, dtype=dtype, device=DEVICE)
    torch.manual_seed(11)
    assert torch.equal(
        torch.view_as_real(drawn), torch.rand(100, 2, dtype=parts.dtype, device=DEVICE)
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.uniform_(),
        lambda x: x.normal_(),
        lambda x: x.log_normal_(),
        lambda x: x.cauchy_(),
        lambda x: x.exponential_(),
        lambda x: x.geometric_(0.5),
        lambda x: x.bernoulli_(0.5),
        lambda x: x.bernoulli_(x),
        lambda x: x.random_(),
        lambda x: x.random_(5),
        lambda x: torch.normal(x, x),
        lambda x: torch.native_dropout(x, 0.5, True)[0],
        lambda x: functional.alpha_dropout(x, 0.5, training=True),
        lambda x: functional.rrelu(x, training=True),
        lambda x: torch.randn_like(x),
        lambda x: torch.randint_like(x, 7),
    ],
)
def test_empty_tensors_draw_nothing(call):
    before = generator().get_offset()
    assert call(torch.empty(0, 3, device=DEVICE)).numel() == 0
    assert generator().get_offset() == before


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: torch.poisson(x), 20),
        (lambda x: torch.binomial(x, x), 44),
        (lambda x: torch._standard_gamma(x), 12),
        (lambda x: torch._sample_dirichlet(x), 12),
    ],
)
def test_operators_with_parameters_draw_for_empty_tensors_too(call, words):
    before = generator().get_offset()  # seen on a GPU
    assert call(torch.empty(0, 3, device=DEVICE)).numel() == 0
    assert generator().get_offset() == before + words


# ---- dropout of all kinds -----------------------------------------------------------------------


def test_dropout_in_place_multiplies_by_a_bernoulli_number():
    x = torch.linspace(-1, 1, 500, device=DEVICE)
    drawn = functional.dropout(x.clone(), 0.3, training=True, inplace=True)
    torch.manual_seed(11)
    noise = torch.empty_like(x).bernoulli_(0.7)
    assert torch.equal(drawn, x * noise.div_(0.7))


def test_alpha_dropout_keeps_mean_and_deviation():
    x = torch.randn(1 << 18, device=DEVICE)
    torch.manual_seed(12)
    drawn = functional.alpha_dropout(x, 0.25, training=True)
    torch.manual_seed(12)
    kept = torch.empty_like(x).bernoulli_(0.75).bool()
    assert drawn[~kept].unique().numel() == 1  # the value of dropped elements
    scale = 1.7580993408473766
    a = 1 / math.sqrt((scale**2 * 0.25 + 1) * 0.75)
    torch.testing.assert_close(drawn[kept], x[kept] * a + scale * a * 0.25, rtol=1e-5, atol=1e-5)
    assert abs(drawn.mean().item()) < 0.01 and abs(drawn.std().item() - 1) < 0.01


@pytest.mark.parametrize(
    "layer", [nn.Dropout1d(0.5), nn.Dropout2d(0.5), nn.Dropout3d(0.5), nn.FeatureAlphaDropout(0.5)]
)
def test_feature_dropout_drops_whole_channels(layer):
    shape = {nn.Dropout1d: (6, 7, 4), nn.Dropout2d: (6, 7, 4, 2)}.get(type(layer), (6, 7, 2, 3, 2))
    drawn = layer(torch.ones(shape, device=DEVICE)).flatten(2)
    assert torch.equal(drawn, drawn[..., :1].expand_as(drawn))
    assert drawn.unique().numel() == 2


def test_dropout_of_probability_one_drops_everything_and_draws_nothing():
    before = generator().get_offset()
    assert functional.dropout(torch.ones(9, device=DEVICE), 1.0).count_nonzero() == 0
    assert generator().get_offset() == before


def test_gradient_of_dropout_is_its_mask():
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = functional.dropout(x, 0.4)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


# ---- initialisation and distributions -----------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "bound"),
    [
        (nn.init.xavier_uniform_, math.sqrt(6 / (40 + 60))),
        (nn.init.kaiming_uniform_, math.sqrt(6 / 40)),
        (nn.init.uniform_, None),
    ],
)
def test_uniform_initialisations_are_uniform_numbers(fill, bound):
    weight = fill(torch.empty(60, 40, device=DEVICE))
    torch.manual_seed(11)
    low, high = (0, 1) if bound is None else (-bound, bound)
    assert torch.equal(weight, torch.empty(60, 40, device=DEVICE).uniform_(low, high))


@pytest.mark.parametrize(
    ("fill", "deviation"),
    [
        (nn.init.xavier_normal_, math.sqrt(2 / (40 + 60))),
        (nn.init.kaiming_normal_, math.sqrt(2 / 40)),
        (nn.init.normal_, 1),
    ],
)
def test_normal_initialisations_are_normal_numbers(fill, deviation):
    weight = fill(torch.empty(60, 40, device=DEVICE))
    torch.manual_seed(11)
    assert torch.equal(weight, torch.empty(60, 40, device=DEVICE).normal_(0, deviation))


def test_truncated_normal_initialisation_stays_within_its_bounds():
    weight = nn.init.trunc_normal_(torch.empty(300, 300, device=DEVICE), std=2, a=-1, b=3)
    assert weight.min() >= -1 and weight.max() <= 3
    assert abs(weight.mean().item() - 0.7257) < 0.02  # scipy.stats.truncnorm(-0.5, 1.5, scale=2)


def test_orthogonal_initialisation_is_orthogonal():
    weight = nn.init.orthogonal_(torch.empty(30, 30, device=DEVICE))
    torch.testing.assert_close(weight @ weight.T, torch.eye(30, device=DEVICE), rtol=0, atol=1e-5)


def test_sparse_initialisation_has_its_zeros():
    weight = nn.init.sparse_(torch.empty(50, 20, device=DEVICE), sparsity=0.3)
    assert ((weight == 0).sum(0) == 15).all()


def test_distributions_on_a_device_sample_on_the_device():
    one = torch.ones(50, device=DEVICE)
    half = one / 2
    samples = [
        torch.distributions.Normal(one, one).sample((3,)),
        torch.distributions.Uniform(-one, one).rsample(),
        torch.distributions.Categorical(half.expand(4, 50)).sample(),
        torch.distributions.Bernoulli(half).sample(),
        torch.distributions.MultivariateNormal(one, torch.diag(one)).sample(),
        torch.distributions.Dirichlet(one).sample(),
        torch.distributions.RelaxedOneHotCategorical(half, half).rsample(),
        torch.distributions.Multinomial(20, half).sample(),
        torch.distributions.Chi2(one).sample(),
        torch.distributions.LogNormal(one, one).sample(),
        torch.distributions.Pareto(one, one).sample(),
    ]
    for sample in samples:
        assert sample.device.type == DEVICE and sample.isfinite().all()


def test_a_gradient_flows_through_a_gamma_sample():
    alpha = torch.full((1000,), 3.0, device=DEVICE, requires_grad=True)
    torch.distributions.Gamma(alpha, torch.ones_like(alpha)).rsample().sum().backward()
    # the mean of a gamma variable is its shape, so the mean derivative is about 1
    assert abs(alpha.grad.mean().item() - 1) < 0.1


# ---- generators ---------------------------------------------------------------------------------


def test_offset_can_be_set_to_any_block():
    own = torch.Generator(device=DEVICE).manual_seed(5)
    numbers = [torch.rand(4, device=DEVICE, generator=own) for _ in range(3)]
    own.set_offset(8)
    assert own.get_offset() == 8
    assert torch.equal(torch.rand(4, device=DEVICE, generator=own), numbers[2])
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        own.set_offset(6)


def test_clone_is_independent():
    own = torch.Generator(device=DEVICE).manual_seed(5)
    torch.rand(4, device=DEVICE, generator=own)
    clone = own.clone_state()
    first = torch.rand(4, device=DEVICE, generator=clone)
    assert own.get_offset() == 4 and clone.get_offset() == 8
    assert torch.equal(torch.rand(4, device=DEVICE, generator=own), first)


def test_graph_safe_states_are_shared():
    own = torch.Generator(device=DEVICE).manual_seed(5)
    state = own.graphsafe_get_state()
    other = torch.Generator(device=DEVICE).manual_seed(6)
    other.graphsafe_set_state(state)
    first = torch.rand(4, device=DEVICE, generator=own)
    assert other.get_offset() == 4 and other.initial_seed() == 5
    second = torch.rand(4, device=DEVICE, generator=other)
    assert not torch.equal(first, second) and own.get_offset() == 8


def test_fork_of_the_device_restores_it():
    torch.rand(3, device=DEVICE)
    before = module.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type=DEVICE):
        torch.manual_seed(1)
        torch.rand(3, device=DEVICE)
    assert torch.equal(module.get_rng_state(), before)


def test_device_module_of_pytorch_has_the_state():
    module = torch.get_device_module(DEVICE)
    state = module.get_rng_state()
    first = torch.rand(3, device=DEVICE)
    module.set_rng_state(state)
    assert torch.equal(torch.rand(3, device=DEVICE), first)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("preserve", [False, True])
def test_checkpoint_repeats_its_draws_if_it_preserves_the_state(use_reentrant, preserve):
    x = torch.ones(4096, device=DEVICE, requires_grad=True)
    y = checkpoint(functional.dropout, x, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    torch.rand(3, device=DEVICE)
    before = generator().get_offset()
    y.sum().backward()
    assert torch.equal(x.grad, y.detach()) is preserve  # the second mask equals the first
    if preserve:
        assert generator().get_offset() == before


def test_threads_that_share_a_generator_draw_different_numbers():
    own = torch.Generator(device=DEVICE).manual_seed(5)
    expected = {tuple(torch.rand(4, device=DEVICE, generator=own).tolist()) for _ in range(200)}
    own.manual_seed(5)
    drawn, start = [], threading.Barrier(4)

    def draw():
        start.wait()
        drawn.extend(tuple(torch.rand(4, device=DEVICE, generator=own).tolist()) for _ in range(50))

    workers = [threading.Thread(target=draw) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(drawn) == 200 and set(drawn) == expected
    assert own.get_offset() == 800


@pytest.mark.parametrize(
    "call",
    [
        lambda x, g: x.uniform_(generator=g),
        lambda x, g: x.bernoulli_(0.5, generator=g),
        lambda x, g: x.random_(generator=g),
        lambda x, g: torch.multinomial(x, 1, generator=g),
        lambda x, g: torch.poisson(x, generator=g),
        lambda x, g: torch.normal(x, x, generator=g),
    ],
)
def test_generator_of_the_host_is_refused(call):
    x = torch.ones(3, device=DEVICE)
    sentence = f"Expected a '{DEVICE}' device type for generator but found 'cpu'"
    with pytest.raises(RuntimeError, match=sentence):
        call(x, torch.Generator())


def test_generator_of_a_device_is_refused_by_the_host():
    sentence = f"Expected a 'cpu' device type for generator but found '{DEVICE}'"
    with pytest.raises(RuntimeError, match=sentence):
        torch.empty(3).uniform_(generator=torch.Generator(device=DEVICE))


def test_generator_of_another_device_of_the_type_is_accepted():
    own = torch.Generator(device=DEVICE).manual_seed(7)
    expected = torch.rand(5, device=DEVICE, generator=own)
    other = torch.Generator(device=f"{DEVICE}:1").manual_seed(7)
    assert torch.equal(torch.rand(5, device=DEVICE, generator=other), expected)
    assert other.get_offset() == 4
    torch.randperm(9, device=DEVICE, generator=other)
    assert other.get_offset() > 4


def test_empty_permutation_ignores_the_generator():
    for device, generator in ((DEVICE, "cpu"), ("cpu", DEVICE), (f"{DEVICE}:0", f"{DEVICE}:1")):
        result = torch.randperm(0, device=device, generator=torch.Generator(device=generator))
        assert result.numel() == 0


@pytest.mark.parametrize(
    ("dtype", "most", "sentence"),
    [
        (torch.uint8, 2**8, "without overflow"),
        (torch.int16, 2**15, "without overflow"),
        (torch.half, 2**11 + 1, "n cannot be greater than 2049 for Half"),
        (torch.float, 2**24 + 1, r"n cannot be greater than 2\^24\+1 for Float"),
        (torch.double, 2**53 + 1, r"n cannot be greater than 2\^53\+1 for Double"),
    ],
)
def test_permutation_too_long_for_its_dtype_is_refused(dtype, most, sentence):
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    if most <= 2**15:
        assert torch.randperm(most, out=out).numel() == most
    with pytest.raises(RuntimeError, match=sentence):
        torch.randperm(most + 1, out=out)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_permutation_in_a_complex_or_bool_dtype_is_refused(dtype):
    with pytest.raises(NotImplementedError, match=f'"randperm_{DEVICE}" not implemented for'):
        torch.randperm(2, dtype=dtype, device=DEVICE)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float, torch.double])
@pytest.mark.parametrize("span", [(float("-inf"), 1), (0, float("nan")), (2, 1), "widest"])
def test_uniform_refuses_bounds_with_the_errors_of_the_cpu(dtype, span):
    most = torch.finfo(dtype).max
    bounds = (-most, most) if span == "widest" else span
    with pytest.raises(RuntimeError) as on_host:
        torch.empty(3, dtype=dtype).uniform_(*bounds)
    with pytest.raises(RuntimeError) as on_device:
        torch.empty(3, dtype=dtype, device=DEVICE).uniform_(*bounds)
    assert str(on_device.value) == str(on_host.value)


@pytest.mark.parametrize("length", [0, 7, 9, 15, 17, 5056])
def test_states_of_other_sizes_are_refused(length):
    own = torch.Generator(device=DEVICE)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        own.set_state(torch.zeros(length, dtype=torch.uint8))


def test_states_of_other_types_are_refused():
    own = torch.Generator(device=DEVICE)
    with pytest.raises((RuntimeError, TypeError), match="RNG state must be a torch.ByteTensor"):
        own.set_state(torch.zeros(16))


def test_a_state_saved_on_a_gpu_is_accepted():
    # seed 3 and offset 8, as CUDA serializes them
    state = torch.tensor([3, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0], dtype=torch.uint8)
    own = torch.Generator(device=DEVICE)
    own.set_state(state)
    assert own.initial_seed() == 3 and own.get_offset() == 8
    assert torch.equal(own.get_state(), state)


def test_large_bounds_of_floats_are_rounded_to_the_dtype():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = torch.empty(1000, dtype=torch.float32, device=DEVICE).random_(2**25 + 1, 2**26 - 1)
    assert drawn.min() >= 2**25 + 1 and drawn.max() <= 2**26 - 2
