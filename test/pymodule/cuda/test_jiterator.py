"""torch.cuda.jiterator: pointwise functions in C++, compared with PyTorch's operators."""

import pytest
import torch

from device import module

jiterator = torch.cuda.jiterator
ADD = "template <typename T> T add(T x, T y, T alpha) { return x + alpha * y; }"
BOTH = """template <typename T> void both(T x, T y, T& sum, T& product) {
  sum = x + y;
  product = x * y;
}"""
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.uint8, torch.complex64, torch.complex128),
)


@pytest.fixture(scope="module")
def add():
    return jiterator._create_jit_fn(ADD, alpha=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_result_is_that_of_the_operator(dtype, add):
    x = torch.arange(12, device="cuda").view(3, 4).to(dtype)
    y = torch.tensor([1, 2, 3, 5], device="cuda", dtype=dtype)
    assert torch.equal(add(x, y, alpha=2), torch.add(x, y, alpha=2))
    assert torch.equal(add(x, y), x + y)


def test_half_precision_is_rounded_once(add):
    x = torch.tensor([2049.0], device="cuda").half()  # 2048
    y = torch.tensor([1.0], device="cuda").half()
    assert add(x, y, alpha=3).item() == torch.tensor(2051.0).half().item()


def test_complex_numbers_are_arguments(add):
    x = torch.ones(2, device="cuda", dtype=torch.complex64)
    assert add(x, x, alpha=2j).tolist() == [1 + 2j] * 2


def test_dtypes_are_promoted_and_layouts_kept(add):
    x = torch.arange(6.0, device="cuda").view(2, 3).t()
    y = torch.arange(3, device="cuda", dtype=torch.int32)[:, None]
    result = add(x, y)
    assert result.dtype == torch.float32
    assert result.stride() == x.stride()
    assert torch.equal(result, x + y)


def test_lazy_conjugation_is_not_seen(add):
    """As on CUDA, where PyTorch documents it in the tests of its operator database."""
    x = torch.tensor([1 + 2j], device="cuda")
    assert add(x.conj(), x * 0).item() == 1 + 2j


def test_numbers_may_be_flags():
    chosen = jiterator._create_jit_fn(
        "template <typename T> T conditional(T x, T y, bool first) { return first ? x : y; }",
        first=False,
    )
    x, y = torch.ones(2, device="cuda"), torch.zeros(2, device="cuda")
    assert chosen(x, y).tolist() == [0, 0]
    assert chosen(x, y, first=True).tolist() == [1, 1]


def test_any_byte_but_zero_is_true(add):
    x = torch.tensor([0, 1, 2], dtype=torch.uint8, device="cuda").view(torch.bool)
    assert add(x, x).view(torch.uint8).tolist() == [0, 1, 1]


def test_several_results():
    both = jiterator._create_multi_output_jit_fn(BOTH, num_outputs=2)
    x, y = torch.tensor([2.0, 3.0], device="cuda"), torch.tensor([5.0, 7.0], device="cuda")
    total, product = both(x, y)
    assert total.tolist() == [7, 10]
    assert product.tolist() == [10, 21]


def test_call_follows_the_work_of_its_stream(add, close_gate):
    x = torch.zeros(4, device="cuda")
    x.add_(1)
    add(x, x)
    module.synchronize()
    side = module.Stream()
    with torch.cuda.stream(side):
        gate = close_gate()
        x.add_(1)
        result = add(x, x)
        assert not side.query()
        gate.open()
    side.synchronize()
    assert result.tolist() == [4] * 4


def test_call_can_be_captured(add):
    x = torch.ones(4, device="cuda")
    add(x, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = add(x, x, alpha=2)
    x.fill_(5)
    graph.replay()
    assert result.tolist() == [15] * 4


def test_tensors_on_two_devices_are_refused(add):
    with pytest.raises(RuntimeError, match="not on the expected device"):
        add(torch.ones(1, device="cuda:0"), torch.ones(1, device="cuda:1"))


def test_an_error_of_the_compiler_is_raised():
    wrong = jiterator._create_jit_fn("template <typename T> T wrong(T x) { return y; }")
    with pytest.raises(Exception, match="y"):
        wrong(torch.ones(1, device="cuda"))


def test_empty_tensors(add):
    assert add(torch.ones(0, device="cuda"), torch.ones(0, device="cuda")).shape == (0,)
