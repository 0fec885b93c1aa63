"""The integration points of a backend.

They are a DispatchStub kernel, custom operators with autograd and Meta kernels, and the two routes
to CPU kernels.
"""

import pytest
import torch
from modes import openreg_only

from device import DEVICE, KEY

ops = torch.ops.openreg

DIFFERENTIABLE = ("custom_abs_differentiable", "custom_abs_fallthrough")
SHARING = ("custom_autograd_fn_returns_self", "custom_autograd_fn_aliasing")
REAL_DTYPES = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def kernel_of(operator, key):
    """Return the line of the dispatcher's table for a dispatch key."""
    table = torch._C._dispatch_dump_table(operator)
    return next(line for line in table.splitlines() if line.startswith(f"{key}:"))


def values(dtype, *shape):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)


# ---- abs, through a DispatchStub ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["aten::abs", "aten::abs_", "aten::abs.out"])
def test_abs_is_served_by_the_kernel_behind_the_stub(name):
    assert "operators/abs.cpp" in kernel_of(name, KEY)


@pytest.mark.parametrize("dtype", REAL_DTYPES, ids=str)
def test_abs_of_every_real_dtype_is_the_cpus(dtype):
    x = values(dtype, 7, 129)
    assert torch.equal(x.to(DEVICE).abs().cpu(), x.abs())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_abs_of_complex_numbers_is_real_and_the_cpus_to_the_bit(dtype):
    x = torch.randn(1001, dtype=dtype)
    result = x.to(DEVICE).abs()
    assert result.dtype == dtype.to_real()
    assert torch.equal(result.cpu(), x.abs())


def test_abs_keeps_negative_zero_infinity_and_nan_apart():
    x = torch.tensor([-0.0, float("-inf"), float("nan")])
    zero, infinity, nan = x.to(DEVICE).abs().cpu()
    assert not torch.signbit(zero) and infinity == float("inf") and nan.isnan()


def test_abs_of_the_smallest_integer_is_itself():
    x = torch.tensor([-(2**31)], dtype=torch.int32, device=DEVICE)
    assert x.abs().item() == -(2**31)


def test_abs_writes_to_a_strided_out_and_nothing_between():
    x = values(torch.float32, 4, 5)
    memory = torch.full((4, 12), -7.0)
    on_device = memory.to(DEVICE)
    torch.abs(x, out=memory[:, :10:2])
    torch.abs(x.to(DEVICE), out=on_device[:, :10:2])
    assert torch.equal(on_device.cpu(), memory)
    assert (memory[:, 1::2] == -7).all()


def test_abs_reads_transposed_broadcast_and_reversed_memory():
    x = values(torch.float32, 6, 8)
    for view in (
        lambda t: t.t(),
        lambda t: t[:, :1].expand(6, 8),
        lambda t: t[1::2, 3:],
        lambda t: t.flip(0),
    ):
        assert torch.equal(view(x.to(DEVICE)).abs().cpu(), view(x).abs())


def test_abs_resizes_an_empty_out():
    out = torch.empty(0, device=DEVICE)
    torch.abs(torch.tensor([-1.0, 2.0], device=DEVICE), out=out)
    assert out.tolist() == [1, 2]


def test_abs_in_place_writes_to_its_argument():
    x = torch.tensor([-1.0, 2.0], device=DEVICE)
    address = x.data_ptr()
    assert x.abs_() is x
    assert x.data_ptr() == address and x.tolist() == [1, 2]


def test_abs_of_nothing_is_nothing():
    assert torch.empty(0, 3, device=DEVICE).abs().shape == (0, 3)


def test_abs_of_booleans_is_itself():
    values = torch.tensor([True, False], device=DEVICE)
    assert values.abs().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_abs_refuses_an_out_elsewhere(dtype):
    x = torch.ones(2, dtype=dtype, device=f"{DEVICE}:0")
    for device in ("cpu", f"{DEVICE}:1"):
        with pytest.raises(RuntimeError, match="same device"):
            torch.abs(x, out=torch.empty(2, device=device))


# ---- operators of our own and autograd ----------------------------------------------------------


@pytest.mark.parametrize("name", ["custom_abs", *DIFFERENTIABLE])
def test_a_custom_operator_computes_on_the_device(name):
    x = values(torch.float32, 3, 4)
    result = getattr(ops, name)(x.to(DEVICE))
    assert result.device == torch.device(f"{DEVICE}:0")
    assert torch.equal(result.cpu(), x.abs())


def test_a_custom_operator_has_no_cpu_kernel():
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        ops.custom_abs(torch.ones(1))


def test_without_an_autograd_kernel_a_backward_pass_warns_and_no_gradient_comes():
    x = torch.tensor([-2.0, 3.0], device=DEVICE, requires_grad=True)
    result = ops.custom_abs(x)
    with pytest.warns(UserWarning, match="autograd kernel was not registered"):
        result.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_a_differentiable_operator_has_the_derivatives_of_abs(name, dtype):
    x = torch.randn(5, dtype=dtype, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(ops, name), x)


def test_an_autograd_kernel_decides_what_autograd_records():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    assert "AbsBackward" not in ops.custom_abs_differentiable(x).grad_fn.name()
    assert ops.custom_abs_fallthrough(x).grad_fn.name() == "AbsBackward0"


def test_the_dispatcher_shows_the_three_autograd_forms():
    name = "openreg::custom_abs"
    assert "[backend fallback]" in kernel_of(name, f"Autograd{KEY}")
    line = kernel_of(f"{name}_differentiable", f"Autograd{KEY}")
    assert "custom.cpp" in line and "fallthrough" not in line
    line = kernel_of(f"{name}_fallthrough", f"Autograd{KEY}")
    assert "custom.cpp" in line and "fallthrough" in line


@pytest.mark.parametrize("name", SHARING)
def test_an_autograd_function_may_return_memory_of_its_argument(name):
    x = torch.randn(4, device=DEVICE, requires_grad=True)
    result = getattr(ops, name)(x)
    assert result.data_ptr() == x.data_ptr()
    assert torch.equal(result, x)
    result.sum().backward()
    assert x.grad.tolist() == [0.5] * 4


@pytest.mark.parametrize("name", SHARING)
def test_an_autograd_function_runs_without_gradients(name):
    x = torch.randn(4, device=DEVICE, requires_grad=True)
    with torch.no_grad():
        result = getattr(ops, name)(x)
    assert result.grad_fn is None and result.data_ptr() == x.data_ptr()


# ---- Meta kernels and tracing -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["custom_abs", *DIFFERENTIABLE])
def test_a_meta_kernel_predicts_what_the_kernel_returns(name):
    operator = getattr(ops, name)
    for x in (
        torch.randn(2, 3, dtype=torch.complex64),
        torch.randn(4, 3).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ):
        predicted = operator(x.to("meta"))
        actual = operator(x.to(DEVICE))
        assert predicted.is_meta
        assert (predicted.shape, predicted.stride(), predicted.dtype) == (
            actual.shape,
            actual.stride(),
            actual.dtype,
        )


@pytest.mark.parametrize("name", SHARING)
def test_a_meta_kernel_shares_the_arguments_memory(name):
    x = torch.empty(2, 3, device="meta")
    result = getattr(ops, name)(x)
    assert result.untyped_storage()._cdata == x.untyped_storage()._cdata


@pytest.mark.parametrize("name", ["custom_abs_differentiable", *SHARING])
def test_a_custom_operator_compiles_with_its_gradient(name):
    torch._dynamo.reset()
    operator = getattr(ops, name)
    eager = torch.randn(6, device=DEVICE, requires_grad=True)
    traced = eager.detach().clone().requires_grad_()
    compiled = torch.compile(lambda x: operator(x) * 3, backend="aot_eager", fullgraph=True)
    expected, result = operator(eager) * 3, compiled(traced)
    assert torch.equal(result, expected)
    expected.sum().backward()
    result.sum().backward()
    assert torch.equal(traced.grad, eager.grad)


@pytest.mark.parametrize("name", ["custom_abs", "custom_abs_fallthrough"])
def test_a_custom_operator_without_an_autograd_kernel_compiles_forward(name):
    torch._dynamo.reset()
    operator = getattr(ops, name)
    x = torch.randn(6, device=DEVICE)
    compiled = torch.compile(lambda x: operator(x) + 1, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), x.abs() + 1)


@openreg_only("it cannot be imported later than PyTorch")
def test_importing_the_meta_kernels_imports_nothing_that_torch_did_not(python):
    code = """
        import sys
        import torch
        before = set(sys.modules)
        import torch_openreg
        new = {name for name in set(sys.modules) - before if name.startswith("torch.")}
        assert "torch.openreg.amp" in new
        assert all(name.startswith("torch.openreg") for name in new), new
        """
    python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


# ---- routes to CPU kernels ----------------------------------------------------------------------


def test_an_operator_with_a_cpu_kernel_has_the_boxed_launch():
    assert kernel_of("aten::lgamma", KEY) == f"{KEY}: openreg: boxed launch [kernel]"


def test_an_operator_that_a_program_defines_takes_the_fallback():
    with torch.library._scoped_library("integration_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CPU")
        line = kernel_of("integration_test::twice", KEY)
        assert "boxed.cpp" in line and "[backend fallback]" in line
        x = torch.ones(2, device=DEVICE)
        result = torch.ops.integration_test.twice(x)
        assert result.device == x.device and result.tolist() == [2, 2]
