"""What a tracer promises for each operator of openreg's own: shapes, strides, dtypes of results.

A compiled program is laid out by the results of fake tensors. An operator that returns other
strides fails in compiled code, or gives wrong values there.
"""

import warnings
from unittest import mock

import pytest
import torch
import torch._dynamo  # registers what tracing needs
import torch.nn.functional as F  # noqa: N812
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch_openreg import _C
from torch_openreg._releases import RELEASE

from device import DEVICE, module

aten = torch.ops.aten


def returns_new_tensors(name):
    schema = torch._C._get_schema(*(name.split(".") + [""])[:2])
    has_out = any(each.is_out for each in schema.arguments)
    return not has_out and any(
        "Tensor" in str(each.type) and each.alias_info is None for each in schema.returns
    )


# Operators that run openreg's code, not PyTorch's for the CPU.
OWN = {
    name
    for name, how in _C.operators().items()
    if how == "native" and name.startswith("aten::") and returns_new_tensors(name)
}
# With the reason why a tracer does not see them, or what else tests them.
UNTRACED = {
    "aten::_copy_from": "below tracers, for copy_",
    "aten::_cslt_compress": "PyTorch has no function for fake tensors",
    "aten::_copy_from_and_resize": "below tracers, for copy_",
    "aten::_nested_from_padded": "there are no fake tensors of nested layout",
    "aten::baddbmm.dtype": "PyTorch's own function for fake tensors raises TypeError",
    "aten::convolution_backward_overrideable": "below tracers, for convolution_backward",
    "aten::convolution_overrideable": "below tracers, for convolution",
    "aten::lstm.input": "traced as other operators (test_compile.py)",
}
if DEVICE != "cuda":
    UNTRACED["aten::log_sigmoid_forward"] = "PyTorch's decomposition asks for the device type"
# PyTorch traces a decomposition, whose strides are not those of CUDA's kernel. Ours are.
DECOMPOSED = {
    "aten::_fused_rms_norm_backward",
    "aten::_log_softmax_backward_data",
    "aten::pixel_shuffle",
    "aten::pixel_unshuffle",
}


def describe(value, has_strides=True):
    """Return shape, strides and dtype of a tensor. Strides of single elements have no meaning."""
    if not isinstance(value, torch.Tensor):
        return value
    if not has_strides:
        return tuple(value.shape), value.dtype
    strides = [
        stride for size, stride in zip(value.shape, value.stride(), strict=True) if size != 1
    ]
    return tuple(value.shape), strides if value.numel() else [], value.dtype


class Comparison(TorchDispatchMode):
    """Runs each operator also on fake tensors, and notes results that differ."""

    def __init__(self):
        super().__init__()
        self.operators = set()
        self.differences = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.name().removesuffix(".default")
        if name not in OWN or name in UNTRACED:
            return function(*args, **kwargs)
        mode = FakeTensorMode()
        fake_args, fake_kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        results = function(*args, **kwargs)
        self.operators.add(name)
        with mode:
            promised = function(*fake_args, **fake_kwargs)
        # PyTorch promises a tensor in the place of some results that are None.
        pairs = zip(tree_leaves(results), tree_leaves(promised), strict=True)
        strides = name not in DECOMPOSED
        described = [
            (describe(a, strides), describe(b, strides)) for a, b in pairs if a is not None
        ]
        got, expected = zip(*described, strict=True)
        if got != expected:
            given = [describe(each) for each in tree_leaves((args, kwargs))]
            self.differences.append(f"{function}{given}: {got}, but traced {expected}")
        return results


# ---- layouts ------------------------------------------------------------------------------------


def transposed(tensor):
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() > 1 else tensor


def with_gaps(tensor):
    return tensor.repeat_interleave(2, -1)[..., ::2] if tensor.dim() else tensor


def channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats:
        return tensor
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def heads_inside(tensor):
    return tensor.transpose(0, 1).contiguous().transpose(0, 1) if tensor.dim() > 1 else tensor


def between_heads(tensor):
    return tensor.transpose(1, 2).contiguous().transpose(1, 2) if tensor.dim() > 3 else tensor


LAYOUTS = {
    "contiguous": lambda tensor: tensor,
    "transposed": transposed,
    "gaps": with_gaps,
    "channels last": channels_last,
    "first swapped": heads_inside,
    "heads inside": between_heads,
}


class Inputs:
    """Tensors on the device, in one layout."""

    def __init__(self, layout):
        self.layout = LAYOUTS[layout]

    def floats(self, *shape, dtype=torch.float32, grad=True):
        made = torch.rand(shape, device=DEVICE, dtype=dtype) + 0.1
        return self.layout(made).detach().requires_grad_(grad)


# ---- programs -----------------------------------------------------------------------------------


def attention(kernel, dtype, bias=None, lengths=(6, 6), heads=(4, 4), dropout=0.0):
    def run(make):
        query = make.floats(2, heads[0], lengths[0], 8, dtype=dtype)
        key, value = (make.floats(2, heads[1], lengths[1], 8, dtype=dtype) for _ in range(2))
        mask = None if bias is None else make.floats(*bias, dtype=dtype)
        with torch.nn.attention.sdpa_kernel([kernel, torch.nn.attention.SDPBackend.MATH]):
            return F.scaled_dot_product_attention(
                query, key, value, mask, dropout, enable_gqa=heads[0] != heads[1]
            )

    return run


def packed(is_flash):
    def run(make):
        dtype = torch.float16 if is_flash else torch.float32
        query, key, value = (make.floats(1, 10, 2, 8, dtype=dtype, grad=False) for _ in range(3))
        starts = torch.tensor([0, 4, 10], dtype=torch.int32, device=DEVICE)
        if is_flash:
            query, key, value = (each[0] for each in (query, key, value))
            out, logsumexp, state, unused, _ = aten._flash_attention_forward(
                query, key, value, starts, starts, 6, 6, 0.0, False, False
            )
            aten._flash_attention_forward_no_dropout_inplace(
                out.clone(), query, key, value, starts, starts, 6, 6, 0.0, False, False
            )
            saved = (out, logsumexp, starts, starts, 6, 6, 0.0, False, state, unused)
            return aten._flash_attention_backward(out, query, key, value, *saved)
        out, logsumexp, seed, offset, _, _ = aten._efficient_attention_forward(
            query, key, value, None, starts, starts, 6, 6, 0.0, 0, True
        )
        saved = (out, starts, starts, 6, 6, logsumexp, 0.0, seed, offset, 0, False)
        return aten._efficient_attention_backward(out, query, key, value, None, *saved)

    return run


def batch_norm_parts(make):
    x = make.floats(4, 3, 5, 5, grad=False)
    weight, running = torch.ones(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    mean, invstd = aten.batch_norm_stats(x, 1e-5)
    counts = torch.ones(2, device=DEVICE)
    two = mean.repeat(2, 1), invstd.repeat(2, 1)
    aten.batch_norm_gather_stats(x, *two, running, running, 0.1, 1e-5, 4)
    aten.batch_norm_gather_stats_with_counts(x, *two, running, running, 0.1, 1e-5, counts)
    aten.batch_norm_update_stats(x, running, running, 0.1)
    out = aten.batch_norm_elemt(x, weight, weight, mean, invstd, 1e-5)
    sums = aten.batch_norm_backward_reduce(out, x, mean, invstd, weight, True, True, True)
    count = torch.ones(1, device=DEVICE, dtype=torch.int32)
    aten.batch_norm_backward_elemt(out, x, mean, invstd, weight, sums[0], sums[1], count)


def integer_products(make):
    matrix = torch.ones(32, 32, dtype=torch.int8, device=DEVICE)
    aten._int_mm(matrix, matrix)
    pairs = torch.ones(8, 64, dtype=torch.uint8, device=DEVICE)
    weight = aten._convert_weight_to_int4pack(pairs, 2)
    scales = torch.ones(4, 8, 2, dtype=torch.bfloat16, device=DEVICE)
    x = make.floats(2, 128, dtype=torch.bfloat16, grad=False).contiguous()
    aten._weight_int4pack_mm(x, weight, 32, scales)


def recurrent(cell):
    def run(make):
        layer = cell(6, 8).to(DEVICE)
        return layer(make.floats(3, 6))

    return run


def convolution(dimensions, **options):
    def run(make):
        kind = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dimensions]
        weight = make.floats(4, 4 // options.get("groups", 1), *[3] * dimensions)
        return kind(make.floats(2, 4, *[6] * dimensions), weight, make.floats(4), **options)

    return run


def random_numbers(make):
    p = make.floats(4, 6, grad=False).clamp(0.2, 0.8)
    aten.bernoulli(p)
    aten.poisson(p)
    aten.binomial(p * 8, p)
    aten._standard_gamma(p)
    aten._sample_dirichlet(p)
    aten.multinomial(p, 2)
    aten.normal(p, 1.0)
    aten.normal(0.0, p)
    aten.normal(p, p)
    aten.native_dropout(p, 0.5, True)
    noise = torch.empty_like(p)
    aten.rrelu_with_noise(p, noise, 0.1, 0.3, True)


def products(make):
    a, b = (make.floats(3, 4, 4, dtype=torch.float16, grad=False) for _ in range(2))
    aten.mm(a[0], b[0], torch.float32)
    aten.bmm(a, b, torch.float32)
    if RELEASE >= (2, 13):  # 2.12 cannot trace it
        aten.addmm(a[1].float(), a[0], b[0], torch.float32)
    aten.baddbmm(a.float(), a, b, torch.float32)


def matrices(make):
    a = make.floats(3, 5, 4)
    factors = torch.linalg.lu_factor_ex(a)
    return [*torch.linalg.lu(a), factors.LU]


def unpooling(make):
    with torch.no_grad():
        flat, places = F.max_pool2d(torch.rand(2, 3, 8, 8, device=DEVICE), 2, return_indices=True)
        deep, holes = F.max_pool3d(torch.rand(2, 3, 4, 4, 4, device=DEVICE), 2, return_indices=True)
        F.max_unpool2d(make.layout(flat), places, 2)
        F.max_unpool3d(make.layout(deep), holes, 2)


def bags(make):
    table = make.floats(7, 5)
    tokens, starts = torch.tensor([[1, 2, 4, 3], [0, 3, 0, 0]], device=DEVICE)
    starts = starts[:2]
    aten._embedding_bag_forward_only(table.detach(), tokens, starts)
    return [F.embedding_bag(tokens, table, starts, mode=mode) for mode in ("sum", "mean", "max")]


def pointwise(make):
    x = make.floats(2, 4, 6, 6)
    return [
        x.abs(),
        F.logsigmoid(x),
        x.softmax(1),
        x.log_softmax(-1),
        torch.nansum(x, 1),
        torch.nansum(x),
        aten._foreach_add.Tensor([x.detach()], torch.ones((), device=DEVICE))[0],
        F.rms_norm(x, (6,), make.floats(6)),
        F.rms_norm(x, (6, 6)),
        torch.histc(x.detach(), 5),
        torch.linalg.svd(x.detach(), driver="gesvd").S,
        x.detach().to(torch.complex64).abs(),
        torch._lazy_clone(x.detach()),
    ]


def semi_structured(make):
    matrix = torch.tensor([0, 0, 1, 1], device=DEVICE).half().tile((64, 32))
    elements, meta = sparse_semi_structured_from_dense_cutlass(matrix)
    x = make.floats(128, 16).detach().half()
    bias = torch.ones(64, device=DEVICE).half()
    compressed = torch._cslt_compress(matrix)
    with mock.patch.object(module, "get_device_capability", lambda device=None: (8, 0)):
        return [
            torch._sparse_semi_structured_mm(elements, meta, x),
            torch._sparse_semi_structured_addmm(bias, elements, meta, x),
            torch._sparse_semi_structured_linear(x.t(), elements, meta, bias=bias),
            torch._cslt_sparse_mm(compressed, x),
            torch._cslt_sparse_mm(compressed, x, transpose_result=True),
        ]


def shuffles(make):
    rows, image = make.floats(2, 4, 6), make.floats(2, 4, 6, 6)
    aten.native_channel_shuffle(rows.detach(), 2)
    return [F.channel_shuffle(rows, 2), F.pixel_shuffle(image, 2), F.pixel_unshuffle(image, 2)]


def factories(make):
    torch.arange(5, device=DEVICE)
    torch.arange(1, 5, device=DEVICE)
    torch.arange(1, 5, 0.5, device=DEVICE)
    torch.empty_strided((2, 3), (1, 4), device=DEVICE)
    torch.empty(2, 4, 3, 3, device=DEVICE, memory_format=torch.channels_last)
    torch._efficientzerotensor((2, 3), device=DEVICE)
    key = torch.tensor([1, 2], device=DEVICE).to(torch.uint64)
    aten._philox_key_split(aten._philox_key_fold_in(key, 1), 3)


EFFICIENT, FLASH = (
    torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION,
    torch.nn.attention.SDPBackend.FLASH_ATTENTION,
)
PROGRAMS = {
    "efficient attention": attention(EFFICIENT, torch.float32),
    "efficient attention with a bias": attention(EFFICIENT, torch.float32, (2, 4, 6, 6)),
    "efficient attention with a bias for all heads": attention(
        EFFICIENT, torch.float32, (2, 1, 6, 6)
    ),
    "efficient attention of two lengths": attention(EFFICIENT, torch.float16, lengths=(6, 10)),
    "efficient attention with dropout": attention(EFFICIENT, torch.float32, dropout=0.5),
    "flash attention": attention(FLASH, torch.float16),
    "flash attention of two lengths": attention(FLASH, torch.bfloat16, lengths=(6, 10)),
    "flash attention with shared heads": attention(FLASH, torch.float16, heads=(4, 2)),
    "flash attention with dropout": attention(FLASH, torch.float16, dropout=0.5),
    "packed flash attention": packed(True),
    "packed efficient attention": packed(False),
    "batch norm in parts": batch_norm_parts,
    "LSTM cell": recurrent(torch.nn.LSTMCell),
    "GRU cell": recurrent(torch.nn.GRUCell),
    "convolution of signals": convolution(1),
    "convolution of images": convolution(2),
    "convolution with strides": convolution(2, stride=2, padding=1, groups=2),
    "convolution of volumes": convolution(3),
    "random numbers": random_numbers,
    "products": products,
    "matrices": matrices,
    "unpooling": unpooling,
    "bags of embeddings": bags,
    "integer products": integer_products,
    "pointwise": pointwise,
    "semi_structured": semi_structured,
    "shuffles": shuffles,
    "factories": factories,
}


def compare(program, layout):
    comparison = Comparison()
    torch.manual_seed(0)
    with warnings.catch_warnings(), comparison:
        warnings.simplefilter("ignore")
        results = [each for each in tree_leaves(program(Inputs(layout)))]
        results = [
            each for each in results if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        if results:
            gradients = [LAYOUTS[layout](torch.ones_like(each)) for each in results]
            torch.autograd.backward(results, gradients)
    return comparison


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_laid_out_as_traced(program, layout):
    comparison = compare(PROGRAMS[program], layout)
    assert not comparison.differences, "\n".join(comparison.differences)


def test_each_operator_of_our_own_is_compared():
    compared = set().union(*(compare(each, "contiguous").operators for each in PROGRAMS.values()))
    untraced = set(UNTRACED) | ({"aten::addmm.dtype"} if RELEASE < (2, 13) else set())
    assert OWN - compared == untraced
