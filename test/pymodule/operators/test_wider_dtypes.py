"""Dtypes that CUDA supports and the CPU lacks are computed in a wider dtype and rounded once."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from device import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")

UNARY = {
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "log",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
}
WIDE = {
    torch.complex32: torch.complex128,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
}


def numbers(*shape, dtype=torch.complex32, seed=0):
    """Return small numbers, so that nothing overflows."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.complex64 if dtype.is_complex else torch.float32
    return (torch.randn(shape, dtype=kind, generator=generator) / 2).to(dtype)


def wide(value):
    if isinstance(value, torch.Tensor) and value.dtype in WIDE:
        return value.to(WIDE[value.dtype])
    return value


def on_device(value):
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


def same(one, other):
    """Return whether bits are equal, because PyTorch's CPU cannot compare complex32."""
    assert one.dtype == other.dtype
    one, other = (torch.view_as_real(x) if x.is_complex() else x for x in (one.cpu(), other.cpu()))
    return torch.equal(one, other)


def check(function, *arguments, dtype):
    """Compare with the CPU's results in the widest dtype, rounded."""
    actual = function(*map(on_device, arguments))
    expected = function(*map(wide, arguments))
    assert actual.dtype == dtype
    digits = {torch.bfloat16: 1e-2}.get(dtype, 2e-3)
    assert_close(actual.cpu().to(expected.dtype), expected, rtol=digits, atol=digits)
    return actual


@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_complex32(name):
    result = torch.float16 if name == "angle" else torch.complex32
    x = numbers(5, 7)
    actual = check(getattr(torch, name), x, dtype=result)
    once = getattr(torch, name)(x.to(torch.complex64)).to(result)
    assert same(actual, once)  # no element is rounded twice


@pytest.mark.parametrize("name", sorted(UNARY - {"angle"}))
def test_in_place_and_out(name):
    x = numbers(5, 7).to(DEVICE)
    expected = getattr(torch, name)(x)
    changed = x.clone()
    assert getattr(changed, name + "_")() is changed
    assert same(changed, expected)
    view = torch.zeros(7, 5, dtype=torch.complex32, device=DEVICE).t()
    assert getattr(torch, name)(x, out=view) is view
    assert same(view, expected) and view.stride() == (1, 5)
    small = torch.empty(0, dtype=torch.complex32, device=DEVICE)
    getattr(torch, name)(x, out=small)
    assert same(small, expected)


ARITHMETIC = {
    "div": lambda x, y: x / y,
    "div by a number": lambda x, y: x / (2 - 1j),
    "pow": lambda x, y: x**y,
    "pow of a number": lambda x, y: 2**x,
    "pow to a number": lambda x, y: x**3,
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "lerp by a tensor": lambda x, y: torch.lerp(x, y, x),
    "ldexp": lambda x, y: torch.ldexp(x, y),
    "logaddexp": torch.logaddexp,
    "sum": lambda x, y: x.sum(),
    "sum of rows": lambda x, y: x.sum(1, keepdim=True),
    "prod": lambda x, y: x.prod(0),
    "logsumexp": lambda x, y: x.logsumexp(1),
    "trace": lambda x, y: x.trace(),
    "flip": lambda x, y: x.flip(1),
    "gather": lambda x, y: x.gather(0, torch.zeros(1, 7, dtype=torch.int64, device=x.device)),
    "tanhshrink": lambda x, y: F.tanhshrink(x),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_of_complex32(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(ARITHMETIC[name], numbers(5, 7), numbers(5, 7, seed=1), dtype=torch.complex32)


def test_explicit_dtype():
    x = numbers(5, dtype=torch.float16)
    assert x.to(DEVICE).sum(dtype=torch.complex32).dtype == torch.complex32
    assert numbers(5).to(DEVICE).prod(0, dtype=torch.complex64).dtype == torch.complex64
    eye = torch.eye(3, dtype=torch.complex32, device=DEVICE)
    assert same(eye, torch.eye(3).to(torch.complex32))


def test_promotion_uses_the_programs_dtypes():
    x, real = numbers(5).to(DEVICE), numbers(5, dtype=torch.float16).to(DEVICE)
    assert (x / real).dtype == (real / (1 + 2j)).dtype == torch.complex32
    assert (x / real.float()).dtype == torch.complex64
    assert (x / real.double()).dtype == torch.complex128


HALF = {
    "avg_pool3d": lambda x: F.avg_pool3d(x.view(1, 2, 4, 4, 4), 2),
    "multi_margin_loss": lambda x: F.multi_margin_loss(
        x.view(16, 8), torch.arange(16, device=x.device) % 8
    ),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(
        x.view(16, 8), torch.arange(128, device=x.device).view(16, 8) % 8 - 1
    ),
    "bilinear": lambda x: F.interpolate(
        x.view(2, 1, 8, 8), (5, 3), mode="bilinear", antialias=True
    ),
    "bicubic": lambda x: F.interpolate(x.view(2, 1, 8, 8), (5, 3), mode="bicubic", antialias=True),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALF)
def test_half_precision_and_its_gradients(name, dtype):
    x = numbers(128, dtype=dtype)
    check(HALF[name], x, dtype=dtype)
    there = x.to(DEVICE).requires_grad_()
    here = x.double().requires_grad_()
    HALF[name](there).sum().backward()
    HALF[name](here).sum().backward()
    assert there.grad.dtype == dtype
    assert_close(there.grad.cpu().double(), here.grad, rtol=1e-2, atol=1e-2)


TRANSFORMS = {
    "fft": torch.fft.fft,
    "ifft2": torch.fft.ifft2,
    "irfft": lambda x: torch.fft.irfft(x, n=8),
    "hfft": lambda x: torch.fft.hfft(x, n=8),
}
if DEVICE == "cuda":  # torch.fft allows float16 on CUDA only
    TRANSFORMS |= {
        "rfft": lambda x: torch.fft.rfft(x.real.contiguous()),
        "fft of real numbers": lambda x: torch.fft.fft(x.real.contiguous()),
    }


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fourier_transforms_of_powers_of_two(name):
    real = name in ("irfft", "hfft")
    check(TRANSFORMS[name], numbers(4, 8), dtype=torch.float16 if real else torch.complex32)


def test_fourier_transforms_of_other_sizes_are_refused():
    words = (
        r"^cuFFT only supports dimensions whose sizes are powers of two when computing in half "
        r"precision, but got a signal size of\[%s\]"
    )
    with pytest.raises(RuntimeError, match=words % "3"):
        torch.fft.fft(numbers(4, 3).to(DEVICE))
    with pytest.raises(RuntimeError, match=words % "6"):
        torch.fft.irfft(numbers(4, 4).to(DEVICE), n=6)
    with pytest.raises(RuntimeError, match=words % "4, 6"):
        torch.fft.fft2(numbers(4, 6).to(DEVICE))


def test_gradients_of_complex32():
    x, y = (numbers(4, 3, seed=seed).to(DEVICE).requires_grad_() for seed in (0, 1))
    (x.tanh() * y.sigmoid() / (y.exp() + 3)).sum().abs().backward()
    a, b = (numbers(4, 3, seed=seed).to(torch.complex128).requires_grad_() for seed in (0, 1))
    (a.tanh() * b.sigmoid() / (b.exp() + 3)).sum().abs().backward()
    assert x.grad.dtype == y.grad.dtype == torch.complex32
    assert_close(x.grad.cpu().to(a.dtype), a.grad, rtol=1e-2, atol=1e-2)
    assert_close(y.grad.cpu().to(b.dtype), b.grad, rtol=1e-2, atol=1e-2)


def test_bools():
    x = torch.tensor([[True, False, True], [False, False, True], [True, True, False]])
    there = x.to(DEVICE)
    assert same(there.abs(), x)
    assert there.trace().item() == 1 and there.trace().dtype == torch.int64
    assert there.median().item() is True and there.nanmedian().dtype == torch.bool
    values, indices = there.median(1)
    assert values.tolist() == [True, False, True] and indices.dtype == torch.int64
    assert_close(F.softsign(there).cpu(), F.softsign(x.float()))


def test_sampled_products_of_half_precision():
    mask = torch.eye(3).to_sparse_csr()
    one, other = numbers(3, 4, dtype=torch.float16), numbers(4, 3, dtype=torch.float16)
    there = torch.sparse.sampled_addmm(
        mask.half().to(DEVICE), one.to(DEVICE), other.to(DEVICE), beta=0.0
    )
    assert there.dtype == torch.float16
    here = torch.sparse.sampled_addmm(mask.double(), one.double(), other.double(), beta=0.0)
    assert_close(there.values().cpu().double(), here.values(), rtol=1e-3, atol=1e-3)


def sparse_numbers(layout, dtype, seed):
    """Return a matrix of 6 x 6 with zeros, on the CPU."""
    dense = numbers(6, 6, dtype=dtype, seed=seed)
    blocks = (2, 2) if layout is torch.sparse_bsr else None
    return (dense * (dense > 0)).to_sparse(layout=layout, blocksize=blocks)


SPARSE_SUMS = {
    "add": lambda x, y: torch.add(x, y, alpha=2),
    "add_": lambda x, y: x.clone().add_(y),
    "sub": lambda x, y: x - y,
    "out": lambda x, y: torch.add(x, y, out=torch.zeros_like(x)),
    "matmul": torch.sparse.mm,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SPARSE_SUMS)
def test_sparse_tensors_of_half_precision(name, dtype):
    x, y = (sparse_numbers(torch.sparse_coo, dtype, seed) for seed in (0, 1))
    actual = SPARSE_SUMS[name](x.to(DEVICE), y.to(DEVICE))
    expected = SPARSE_SUMS[name](x.double(), y.double())
    assert (actual.dtype, actual.layout) == (dtype, torch.sparse_coo)
    assert_close(actual.to_dense().cpu(), expected.to_dense().to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_products_of_compressed_tensors_of_half_precision(layout, dtype):
    x, dense = sparse_numbers(layout, dtype, 0), numbers(6, 4, dtype=dtype, seed=1)
    more = numbers(6, 4, dtype=dtype, seed=2)
    there = x.to(DEVICE)
    for actual, expected in (
        (there @ dense.to(DEVICE), x.to_dense().double() @ dense.double()),
        (
            torch.addmm(more.to(DEVICE), there, dense.to(DEVICE), beta=0.5),
            torch.addmm(more.double(), x.to_dense().double(), dense.double(), beta=0.5),
        ),
    ):
        assert actual.dtype == dtype
        assert_close(actual.cpu(), expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_product_of_two_compressed_tensors_of_half_precision(dtype):
    x, y = (sparse_numbers(torch.sparse_csr, dtype, seed) for seed in (0, 1))
    actual = x.to(DEVICE) @ y.to(DEVICE)
    assert (actual.dtype, actual.layout) == (dtype, torch.sparse_csr)
    expected = x.to_dense().double() @ y.to_dense().double()
    assert_close(actual.to_dense().cpu(), expected.to(dtype))


def test_sparse_gradients_of_half_precision_accumulate():
    table = torch.ones(5, 3, dtype=torch.float16, device=DEVICE, requires_grad=True)
    for row in (1, 1, 4):
        F.embedding(torch.tensor([row], device=DEVICE), table, sparse=True).sum().backward()
    assert table.grad.is_sparse
    assert table.grad.to_dense().sum(1).tolist() == [0, 6, 0, 0, 3]


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_product_of_sparse_masks(layout):
    x, y = torch.tensor([[True, False], [True, True]]), torch.tensor([[True, True], [False, True]])
    product = x.to_sparse(layout=layout).to(DEVICE) * y.to_sparse(layout=layout).to(DEVICE)
    assert product.dtype == torch.bool
    assert torch.equal(product.to_dense().cpu(), x & y)


def test_functions_of_sparse_tensors_write_to_out():
    x = numbers(4, 4).to_sparse_csr()
    out = x.to(DEVICE).clone()
    assert torch.sqrt(x.to(DEVICE), out=out) is out
    assert same(out.values(), x.values().to(torch.complex64).sqrt().to(torch.complex32))


def test_partly_overlapping_memory_is_refused():
    x = numbers(8).to(DEVICE)
    with pytest.raises(RuntimeError, match="more than one element|overlap|single memory location"):
        x[:1].expand(8).exp_()
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.exp(x[1:], out=x[:-1])


def test_computing_in_a_wider_dtype_does_not_wait(close_gate):
    x = numbers(64, 64).to(DEVICE)
    expected = [x.exp(), x.sum(1), x / 3]
    gate = close_gate()
    results = [x.exp(), x.sum(1), x / 3]
    assert not torch.accelerator.current_stream().query()
    gate.open()
    for result, wanted in zip(results, expected, strict=True):
        assert same(result, wanted)


# ---- integers ------------------------------------------------------------------------------------

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


SMALL = [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64]
SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MOVES = {
    "channel_shuffle": lambda x, index: F.channel_shuffle(x, 2),
    "flip": lambda x, index: x.flip(0, 3),
    "gather": lambda x, index: x.gather(3, index),
    "index_select": lambda x, index: x.index_select(3, index[0, 0, 0]),
    "pixel_shuffle": lambda x, index: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x, index: F.pixel_unshuffle(x, 2),
    "scatter": lambda x, index: x.scatter(3, index, x),
    "scatter_": lambda x, index: x.clone().scatter_(3, index, x),
    "take_along_dim": lambda x, index: x.take_along_dim(index, 3),
}


def bits(value):
    return value.cpu().view(SIGNED[value.itemsize])


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("name", MOVES)
def test_small_floats_and_unsigned_integers_are_moved(name, dtype):
    x = torch.arange(-32, 32).view(1, 4, 4, 4)
    x = (x.float() if dtype.is_floating_point else x).to(dtype)
    index = torch.tensor([3, 0, 2, 1]).expand(1, 4, 4, 4)
    actual = MOVES[name](x.to(DEVICE), index.to(DEVICE))
    assert actual.dtype == dtype
    assert torch.equal(bits(actual), MOVES[name](bits(x), index))


@pytest.mark.parametrize("dtype", SMALL)
def test_small_floats_and_unsigned_integers_are_counted_and_found(dtype):
    x = torch.tensor([[0, 1, 2], [0, 0, 3]]).to(dtype).to(DEVICE)
    counts = torch.count_nonzero(x, 1)
    assert counts.dtype == torch.int64
    assert counts.tolist() == [2, 1]
    found = torch.isin(x, torch.tensor([3, 1]).to(dtype).to(DEVICE))
    assert found.tolist() == [[False, True, False], [False, False, True]]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_identity_of_unsigned_integers(dtype):
    assert torch.eye(2, dtype=dtype, device=DEVICE).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_histogram_of_integers(dtype):
    x = torch.arange(100).to(dtype)
    counts = torch.histc(x.to(DEVICE), bins=100, min=0, max=100)
    assert (
        counts.dtype == dtype and counts.tolist() == [1] * 100
    )  # in floating point, 0.29 * 100 would round down wrongly
    assert torch.histc(x.to(DEVICE), bins=3).tolist() == [33, 33, 34]
    assert torch.histc(x.to(DEVICE), bins=2, min=10, max=20).tolist() == [5, 6]
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    assert torch.histc(x.to(DEVICE), bins=2, min=10, max=20, out=out).tolist() == [5, 6]
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x.to(DEVICE), bins=2, min=20, max=10)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_unpooling_of_integers(dtype, dimensions):
    limits = torch.iinfo(dtype)
    values = torch.tensor([limits.min, limits.max, limits.max - 1, 7]).to(dtype)
    shape = {1: (1, 4), 2: (1, 2, 2), 3: (1, 1, 2, 2)}[dimensions]
    places = torch.tensor([0, 3, 5, 6]).view(shape)
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[dimensions - 1]
    size = {1: [8], 2: [2, 4], 3: [1, 2, 4]}[dimensions]
    kernel = {1: 2, 2: (1, 2), 3: (1, 1, 2)}[dimensions]
    result = unpool(values.view(shape).to(DEVICE), places.to(DEVICE), kernel, output_size=size)
    expected = torch.zeros(8, dtype=dtype)
    expected[places.flatten()] = values
    assert result.dtype == dtype and torch.equal(result.cpu().flatten(), expected)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_nansum_of_complex(dtype):
    x = torch.tensor([[1 + 1j, complex("nan")], [complex(0, float("nan")), 2j]], dtype=dtype)
    there = x.to(DEVICE)
    assert torch.nansum(there).item() == 1 + 3j
    assert torch.nansum(there, 0).tolist() == [1 + 1j, 2j]
    assert torch.nanmean(there).item() == (1 + 3j) / 2
    out = torch.empty(2, dtype=dtype, device=DEVICE)
    assert torch.nansum(there, 1, out=out).tolist() == [1 + 1j, 2j]


def test_sparse_complex32_becomes_dense():
    numbers = torch.eye(3, dtype=torch.complex64, device=DEVICE).to(torch.complex32)
    sparse = numbers.to_sparse()
    assert torch.equal(sparse.to_dense(), numbers)
    assert torch.equal((sparse + sparse).to_dense().real, 2 * numbers.real)
    assert torch.equal((numbers + sparse).real, 2 * numbers.real)
    assert sparse.sum().to(torch.complex64).item() == 3
