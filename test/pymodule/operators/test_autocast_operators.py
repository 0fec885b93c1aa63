"""Autocast, operator by operator: compares the policies with PyTorch's, and every result's dtype
and value with the CPU, which computes in the dtype that the operator's policy prescribes.

The arguments come from PyTorch's own test lists for CUDA. Operators that they omit have arguments
here.
"""

import contextlib

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch.utils._python_dispatch import TorchDispatchMode
from torch_openreg._releases import RELEASE
from torch_openreg.openreg.amp import policies

from device import DEVICE, KEY, module

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated"),
    pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim"),
]

LOWER = [name for name in vars(AutocastTestLists("cpu")) if name.endswith("_fp16")]
FLOAT32 = [name for name in vars(AutocastTestLists("cpu")) if name.endswith("_fp32")]
CUDNN = {"cudnn_convolution", "cudnn_convolution_transpose"}
WITHOUT_POLICY = ["torch_expect_builtin_promote", "methods_expect_builtin_promote"]


def lists_of(device):
    torch.manual_seed(0)
    return AutocastTestLists(device)


@pytest.fixture(scope="module")
def lists():
    return lists_of(DEVICE)


def entries(*names):
    """Name the entries that can run: none of cuDNN, of Python 2's division, or malformed einsum."""
    cpu = AutocastTestLists("cpu")
    left_out = CUDNN | {"__div__", "einsum"}
    return [
        pytest.param(name, number, id=f"{name}-{entry[0]}-{number}")
        for name in names
        for number, entry in enumerate(getattr(cpu, name))
        if entry[0] not in left_out
    ]


def map_tensors(change, value):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(change, each) for each in value)
    return value


def on_cpu_in(dtype, value):
    """Copy tensors to the CPU, floating-point ones in a dtype."""
    return map_tensors(lambda t: t.cpu().to(dtype if t.is_floating_point() else t.dtype), value)


def functions(list_name, name):
    """Return each function with the name: in the module, and as a method."""
    modules = {"nn": torch._C._nn, "linalg": torch._C._linalg, "methods": torch.Tensor}
    owners = {modules.get(list_name.split("_")[0], torch), torch.Tensor}
    return [getattr(owner, name) for owner in owners if hasattr(owner, name)]


def assert_same(actual, expected, dtype, tolerance=None):
    """Compare results: bit for bit without a tolerance, because the kernels are the same."""
    if isinstance(expected, (list, tuple)):
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other, dtype, tolerance)
        return
    assert actual.device.type == DEVICE
    assert actual.dtype == expected.dtype == dtype
    bounds = {"rtol": 0, "atol": 0} if tolerance is None else tolerance
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **bounds)


# Kernels that round in other places than the CPU's: a whole cell is one kernel, as on CUDA.
FUSED = {"lstm_cell", "gru_cell"}
CLOSE = {"rtol": 1e-2, "atol": 1e-2}


def check_entry(lists, list_name, number, fast_dtype, prescribed):
    name, arguments, *rest = getattr(lists, list_name)[number]
    keywords = rest[0] if rest and isinstance(rest[0], dict) else {}
    for function in functions(list_name, name):
        with torch.autocast(DEVICE, dtype=fast_dtype):
            actual = function(*arguments, **keywords)
        on_cpu = on_cpu_in(prescribed, arguments)
        is_half = prescribed == torch.float16
        if is_half:  # openreg computes it in float32 and rounds the results
            on_cpu = on_cpu_in(torch.float32, on_cpu)
        expected = function(*on_cpu, **keywords)
        if is_half:
            expected = map_tensors(torch.Tensor.half, expected)
        assert_same(actual, expected, prescribed, CLOSE if name in FUSED or is_half else None)


# ---- the table -----------------------------------------------------------------------------------


def test_operators_with_a_policy_are_those_of_cuda():
    on_cuda = {
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
    }
    ours = {
        f"aten::{entry.operator}" + (f".{entry.overload}" if entry.overload else "")
        for entry in policies()
    }
    # A build with CUDA registers _cudnn_rnn. openreg lacks the policy of an operator new in 2.14.
    lacking = CUDNN | {"_cudnn_rnn"} | ({"linalg_matrix_sqrth"} if RELEASE >= (2, 14) else set())
    if RELEASE < (2, 13):  # which has an overload for names of dimensions
        lacking.add("norm.names_ScalarOpt_dim")
    assert ours == on_cuda - {f"aten::{name}" for name in lacking}


def test_operators_with_a_policy_have_a_kernel():
    for entry in policies():
        name = f"aten::{entry.operator}" + (f".{entry.overload}" if entry.overload else "")
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, f"Autocast{KEY}"), name


def test_policies_are_those_of_the_lists():
    table = {entry.operator: entry.policy for entry in policies()}
    lists = lists_of("cpu")

    def listed(*names):
        return {entry[0] for name in names for entry in getattr(lists, name)} & set(table)

    assert {table[name] for name in listed("banned")} == {"banned"}
    assert {table[name] for name in listed("torch_need_autocast_promote")} == {"promote"}
    assert {table[name] for name in listed(*LOWER)} == {"lower_precision"}
    assert {table[name] for name in listed(*FLOAT32)} == {
        "float32",
        "float32_set_dtype",
        "float32_append_dtype",
    }
    assert not listed(*WITHOUT_POLICY)


def test_norm_names_the_overloads_that_are_called_instead():
    replaced = {e.overload: e.replacement for e in policies() if e.replacement}
    assert replaced == {"Scalar": "ScalarOpt_dtype", "ScalarOpt_dim": "ScalarOpt_dim_dtype"}


# ---- the lists -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fast_dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "number"), entries(*LOWER))
def test_operator_in_lower_precision(lists, name, number, fast_dtype):
    check_entry(lists, name, number, fast_dtype, prescribed=fast_dtype)


@pytest.mark.parametrize("fast_dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "number"), entries(*FLOAT32))
def test_operator_in_float32(lists, name, number, fast_dtype):
    check_entry(lists, name, number, fast_dtype, prescribed=torch.float32)


@pytest.mark.parametrize(("name", "number"), entries("torch_need_autocast_promote"))
def test_operator_in_the_widest_type(lists, name, number):
    check_entry(lists, name, number, torch.float16, prescribed=torch.float32)


@pytest.mark.parametrize(("name", "number"), entries(*WITHOUT_POLICY))
def test_operator_that_promotes_by_itself(lists, name, number):
    function, arguments, dtype = getattr(lists, name)[number]
    for call in functions(name, function):
        with torch.autocast(DEVICE):
            actual = call(*arguments)
        expected = call(*map_tensors(torch.Tensor.cpu, arguments))
        if isinstance(expected, bool):
            assert actual is expected
        else:
            assert_same(actual, expected, dtype)


def test_banned_operator_is_refused_in_the_words_of_cuda(lists):
    ((name, arguments, module),) = lists.banned
    on_cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    with pytest.raises(RuntimeError) as words:
        torch.ops.aten.binary_cross_entropy.default.redispatch(on_cuda, *arguments)
    with pytest.raises(RuntimeError) as ours, torch.autocast(DEVICE):
        getattr(module, name)(*arguments)
    assert str(ours.value) == str(words.value)
    assert "are unsafe to autocast" in str(ours.value)


def test_banned_operator_is_allowed_without_autocast(lists):
    ((name, arguments, module),) = lists.banned
    expected = getattr(module, name)(*on_cpu_in(torch.float32, arguments))
    with torch.autocast(DEVICE, enabled=False):
        assert_same(getattr(module, name)(*arguments), expected, torch.float32)


# ---- what the lists leave out --------------------------------------------------------------------

ATEN = torch.ops.aten


def halves(*shape):
    return torch.rand(*shape, dtype=torch.float16, device=DEVICE)


def floats(*shape):
    return torch.rand(*shape, device=DEVICE)


def resized(name, dimensions, *more):
    shape = [4] * dimensions
    return getattr(ATEN, name).default, (halves(1, 2, *shape), [6] * dimensions, *more)


OTHERS = {
    "einsum": lambda: (torch.einsum, ("ij,jk->ik", floats(4, 5), floats(5, 3))),
    "scaled_dot_product_attention": lambda: (
        torch.nn.functional.scaled_dot_product_attention,
        (floats(1, 2, 8, 8), floats(1, 2, 8, 8), floats(1, 2, 8, 8)),
    ),
    "frobenius_norm": lambda: (ATEN.frobenius_norm.dim, (halves(4, 4), [0])),
    "nuclear_norm": lambda: (ATEN.nuclear_norm.default, (halves(4, 4),)),
    "nuclear_norm of dimensions": lambda: (ATEN.nuclear_norm.dim, (halves(4, 4), [0, 1])),
    "native_layer_norm": lambda: (
        ATEN.native_layer_norm.default,
        (halves(4, 4), [4], halves(4), floats(4), 1e-5),
    ),
    "huber_loss": lambda: (ATEN.huber_loss.default, (halves(4, 4), floats(4, 4))),
    "pow of a number": lambda: (ATEN.pow.Scalar, (2.0, halves(4))),
    "linalg_vector_norm": lambda: (torch.linalg.vector_norm, (halves(4),)),
    "linalg_matrix_norm": lambda: (torch.linalg.matrix_norm, (halves(4, 4), 1)),
    "linalg_matrix_norm by name": lambda: (torch.linalg.matrix_norm, (halves(4, 4), "fro")),
    "upsample_nearest1d": lambda: resized("upsample_nearest1d", 1),
    "upsample_nearest2d": lambda: resized("upsample_nearest2d", 2),
    "upsample_nearest3d": lambda: resized("upsample_nearest3d", 3),
    "_upsample_nearest_exact1d": lambda: resized("_upsample_nearest_exact1d", 1),
    "_upsample_nearest_exact2d": lambda: resized("_upsample_nearest_exact2d", 2),
    "_upsample_nearest_exact3d": lambda: resized("_upsample_nearest_exact3d", 3),
    "upsample_linear1d": lambda: resized("upsample_linear1d", 1, False),
    "upsample_bilinear2d": lambda: resized("upsample_bilinear2d", 2, False),
    "_upsample_bilinear2d_aa": lambda: resized("_upsample_bilinear2d_aa", 2, False),
    "upsample_trilinear3d": lambda: resized("upsample_trilinear3d", 3, False),
    "upsample_bicubic2d": lambda: resized("upsample_bicubic2d", 2, False),
    "_upsample_bicubic2d_aa": lambda: resized("_upsample_bicubic2d_aa", 2, False),
}

# These exist on CUDA only. The reference is the device without autocast, on explicitly cast
# arguments.
FUSED_CELLS = {
    "_thnn_fused_lstm_cell": lambda: (floats(2, 32), floats(2, 32), floats(2, 8), floats(32)),
    "_thnn_fused_gru_cell": lambda: (floats(2, 24), floats(2, 24), floats(2, 8), floats(24)),
}

FLASH = "_scaled_dot_product_flash_attention"


def test_every_operator_with_a_policy_is_tried():
    lists = lists_of("cpu")
    tried = {entry[0] for value in vars(lists).values() for entry in value}
    tried |= {name.split()[0] for name in OTHERS} | set(FUSED_CELLS) | {FLASH}
    assert {entry.operator for entry in policies()} <= tried


@pytest.mark.parametrize("name", OTHERS)
def test_operator_that_the_lists_omit(name):
    policy_of = {entry.operator: entry.policy for entry in policies()}
    lower = policy_of[name.split()[0]] == "lower_precision"
    prescribed = torch.float16 if lower else torch.float32
    function, arguments = OTHERS[name]()
    with torch.autocast(DEVICE):
        actual = function(*arguments)
    expected = function(*on_cpu_in(prescribed, arguments))
    assert_same(actual, expected, prescribed, CLOSE if lower else {"rtol": 1e-5, "atol": 1e-6})


@pytest.mark.parametrize("name", FUSED_CELLS)
def test_fused_cell_runs_in_lower_precision(name):
    arguments = FUSED_CELLS[name]()
    cell = getattr(ATEN, name).default
    with torch.autocast(DEVICE):
        actual = cell(*arguments)
    expected = cell(*(argument.half() for argument in arguments))
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == torch.float16
        assert torch.equal(one, other)


def test_flash_attention_gets_lower_precision():
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            seen.append((operator.name(), [a.dtype for a in args if isinstance(a, torch.Tensor)]))
            return operator(*args, **(kwargs or {}))

    # Only CUDA mode has such a kernel, but the arguments that it would get are visible in both
    # modes.
    outcome = contextlib.nullcontext() if DEVICE == "cuda" else pytest.raises(NotImplementedError)
    arguments = [floats(1, 2, 8, 8) for _ in range(3)]
    with outcome, torch.autocast(DEVICE), Watch():
        getattr(ATEN, FLASH).default(*arguments)
    assert (f"aten::{FLASH}", [torch.float16] * 3) in seen


# ---- arguments of every kind ---------------------------------------------------------------------


def test_doubles_and_integers_are_left_alone():
    for dtype in (torch.float64, torch.int32):
        x = torch.ones(2, 2, dtype=dtype, device=DEVICE)
        with torch.autocast(DEVICE):
            if dtype.is_floating_point:  # there are no matrix products of integers
                assert (x @ x).dtype == dtype
            assert torch.addcmul(x, x, x).dtype == dtype


def test_tensors_in_lists_and_optional_ones_are_cast():
    x, bias = floats(3, 3), floats(3)
    with torch.autocast(DEVICE):
        assert torch.linalg.multi_dot([x, x, x]).dtype == torch.float16
        assert torch.nn.functional.linear(x.half(), x.half(), bias).dtype == torch.float16
        assert torch.nn.functional.linear(x.half(), x.half(), None).dtype == torch.float16


def test_an_explicit_dtype_is_kept():
    x = halves(4)
    with torch.autocast(DEVICE):
        assert torch.sum(x, dtype=torch.float16).dtype == torch.float16
        assert torch.softmax(x, 0, dtype=torch.float64).dtype == torch.float64
        assert torch.sum(x.double()).dtype == torch.float64
        assert torch.norm(x.double()).dtype == torch.float64


def test_an_optional_argument_does_not_widen_the_type():
    # On CUDA, too, the bias does not affect the dtype in which bilinear computes.
    arguments = halves(2, 3), halves(2, 3), halves(4, 3, 3), floats(4)
    with torch.autocast(DEVICE):
        assert torch.bilinear(*arguments).dtype == torch.float16


def test_another_half_type_than_autocasts_is_refused():
    x = torch.ones(4, dtype=torch.bfloat16, device=DEVICE)
    words = "Unexpected floating ScalarType in at::autocast::prioritize"
    with pytest.raises(RuntimeError, match=words), torch.autocast(DEVICE):
        torch.dot(x, x)


def test_in_place_operators_keep_their_dtype():
    x = torch.zeros(2, 2, device=DEVICE)
    ones = torch.ones(2, 2, device=DEVICE)
    with torch.autocast(DEVICE):
        x.addmm_(ones, ones)
    assert x.dtype == torch.float32
    assert x.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_operators_called_by_others_are_not_cast_again():
    # Otherwise softmax in the math implementation of attention would return float32.
    q = halves(1, 2, 8, 8)
    with (
        torch.autocast(DEVICE),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        assert torch.nn.functional.scaled_dot_product_attention(q, q, q).dtype == torch.float16


def test_calls_that_need_no_cast_allocate_no_copies():
    def allocations():
        before = module.memory_stats()["allocation.all.allocated"]
        x @ x  # kernels for some processors allocate temporary memory
        return module.memory_stats()["allocation.all.allocated"] - before

    x = halves(64, 64)
    x @ x  # the first call makes the output plan
    expected = allocations()
    with torch.autocast(DEVICE):
        assert allocations() == expected


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_recurrent_layers_have_results_of_lower_precision(kind, dtype):
    layers = kind(4, 4, num_layers=2, device=DEVICE)
    with torch.autocast(DEVICE, dtype):
        result, state = layers(torch.ones(3, 2, 4, device=DEVICE))
    assert result.dtype == dtype
    assert {each.dtype for each in (state if isinstance(state, tuple) else [state])} == {dtype}
    result.float().sum().backward()
    assert layers.weight_ih_l0.grad.dtype == torch.float32
