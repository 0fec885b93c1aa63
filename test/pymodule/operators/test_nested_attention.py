"""Attention of nested tensors: CUDA's choice of the kernel, and values and gradients.

PyTorch has these kernels for CUDA only. In openreg mode attention of nested tensors is math.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from device import DEVICE

pytestmark = [
    pytest.mark.skipif(DEVICE != "cuda", reason="kernels of CUDA"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]

FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
LENGTHS = (5, 9, 3, 1)
TOLERANCE = {torch.float16: 2e-3, torch.float32: 1e-5}


def sequences(heads=4, width=16, lengths=LENGTHS, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, heads, width, generator=generator).to(dtype) for n in lengths]


def nested(parts, layout=torch.strided):
    return torch.nested.nested_tensor(parts, layout=layout, device=DEVICE)


def attend(query, key, value, **options):
    """Attend with heads as the second dimension, and return it as the third one again."""
    heads = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    return F.scaled_dot_product_attention(*heads, **options).transpose(1, 2)


def expected(queries, keys, values, **options):
    results = []
    heads = max(each[0].size(1) for each in (queries, keys, values))
    for parts in zip(queries, keys, values, strict=True):
        wide = [part.float().expand(-1, heads, -1).transpose(0, 1) for part in parts]
        results.append(F.scaled_dot_product_attention(*wide, **options).transpose(0, 1))
    return results


def check(actual, wanted, dtype):
    for one, other in zip(actual.unbind(), wanted, strict=True):
        assert one.dtype == dtype
        bound = TOLERANCE[dtype]
        torch.testing.assert_close(one.cpu().float(), other, rtol=bound, atol=bound)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(FLASH, torch.float16), (EFFICIENT, torch.float16), (EFFICIENT, torch.float32)],
    ids=str,
)
def test_the_kernels_take_nested_tensors(kernel, dtype, layout):
    parts = [sequences(dtype=dtype, seed=seed) for seed in range(3)]
    with sdpa_kernel(kernel):
        result = attend(*(nested(each, layout) for each in parts))
    check(result, expected(*parts), dtype)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_gradients_of_flash_attention(layout):
    parts = sequences()
    tensor = nested(parts, layout).requires_grad_()
    attend(tensor, tensor, tensor).unbind()[1].square().sum().backward()
    leaf = parts[1].float().requires_grad_()
    expected([leaf], [leaf], [leaf])[0].square().sum().backward()
    torch.testing.assert_close(
        tensor.grad.unbind()[1].cpu().float(), leaf.grad, rtol=1e-2, atol=1e-2
    )
    assert not tensor.grad.unbind()[0].any()


def test_causal_attention_and_a_scale():
    parts = sequences()
    options = {"is_causal": True, "scale": 0.3}
    tensor = nested(parts)
    with sdpa_kernel(FLASH):
        result = attend(tensor, tensor, tensor, **options)
    check(result, expected(parts, parts, parts, **options), torch.float16)


@pytest.mark.parametrize("heads", [(1, 4, 4), (4, 1, 4), (4, 4, 1), (1, 1, 4), (4, 1, 1)], ids=str)
def test_one_head_is_that_of_all_others(heads):
    parts = [sequences(heads=count, seed=seed) for seed, count in enumerate(heads)]
    with sdpa_kernel(FLASH):
        result = attend(*map(nested, parts))
    check(result, expected(*parts), torch.float16)


def test_one_sequence_is_that_of_all_others():
    queries = sequences()
    keys, values = sequences(lengths=(6,), seed=1), sequences(lengths=(6,), seed=2)
    with sdpa_kernel(FLASH):
        result = attend(*map(nested, (queries, keys, values)))
    check(result, expected(queries, keys * 4, values * 4), torch.float16)


REFUSED = {
    "no sequence may be empty": lambda: [nested(sequences(lengths=(3, 0)))] * 3,
    "heads may not differ": lambda: [nested([torch.ones(3, h, 16).half() for h in (2, 4)])] * 3,
    "keys have the lengths of values": lambda: [
        *[nested(sequences())] * 2,
        nested(sequences(lengths=LENGTHS[::-1])),
    ],
    "batch sizes fit": lambda: [nested(sequences(lengths=(2,) * n)) for n in (1, 3, 4)],
    "numbers of heads fit": lambda: [nested(sequences(heads=count)) for count in (1, 2, 4)],
    "float64": lambda: [nested(sequences(dtype=torch.float64))] * 3,
    "all are nested or none": lambda: (
        torch.ones(4, 5, 4, 16, device=DEVICE, dtype=torch.float16),
        *[nested(sequences())] * 2,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:openreg. .* attention is not used")
def test_others_are_refused(name):
    with (
        sdpa_kernel([FLASH, EFFICIENT]),
        pytest.raises(RuntimeError, match="No available kernel. Aborting execution."),
    ):
        attend(*REFUSED[name]())


@pytest.mark.filterwarnings("ignore:openreg. .* attention is not used")
def test_the_memory_efficient_kernel_has_no_gradients():
    tensor = nested(sequences()).requires_grad_()
    with sdpa_kernel(EFFICIENT), pytest.raises(RuntimeError, match="No available kernel"):
        attend(tensor, tensor, tensor)


def test_programs_may_ask():
    tensor = nested(sequences()).transpose(1, 2)
    dense = torch.ones(2, 4, 8, 16, device=DEVICE)
    cuda = torch.backends.cuda
    answers = [(tensor, True), (dense, False), (dense.half(), True), (dense.cpu(), False)]
    for query, flash in answers:
        params = cuda.SDPAParams(query, query, query, None, 0.0, False, False)
        assert cuda.can_use_flash_attention(params) == flash
        assert cuda.can_use_efficient_attention(params) == (query.device.type == "cuda")
    params = cuda.SDPAParams(dense, dense, dense, None, 0.0, False, False)
    with pytest.warns(UserWarning, match="flash attention is not used: it supports float16"):
        cuda.can_use_flash_attention(params, debug=True)
    with sdpa_kernel(SDPBackend.MATH):
        assert not cuda.can_use_efficient_attention(params)


def test_views_do_not_write_to_memory_that_pending_work_reads(close_gate):
    """The tables of a nested tensor are host memory, and making a view does not wait."""
    tensor = nested(sequences())
    starts, other = torch.arange(64, device=DEVICE), torch.zeros(64, dtype=torch.int64).to(DEVICE)
    other.copy_(starts)
    gate = close_gate()
    other.copy_(starts)
    del starts  # its memory is free for the stream
    views = [tensor.transpose(1, 2) for _ in range(8)]
    gate.open()
    assert other.tolist() == list(range(64))
    assert all(view.size(1) == 4 for view in views)
