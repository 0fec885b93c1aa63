"""Autocast regions: switches, nesting, threads, the cache of weights, and the interaction with
other parts of PyTorch.
"""

import threading
import warnings

import pytest
import torch
from modes import openreg_only
from torch.utils.checkpoint import checkpoint

from device import DEVICE, module


def ones(*shape, **options):
    return torch.ones(*(shape or (2, 2)), device=DEVICE, **options)


# ---- switches ------------------------------------------------------------------------------------


def test_autocast_is_available():
    assert torch.amp.is_autocast_available(DEVICE)


def test_result_is_that_of_casting_by_hand():
    a, b = torch.rand(8, 8, device=DEVICE), torch.rand(8, 8, device=DEVICE)
    with torch.autocast(DEVICE):
        result = a @ b
    assert torch.equal(result, a.half() @ b.half())


def test_lower_precision_is_float16_unless_chosen():
    assert torch.get_autocast_dtype(DEVICE) == torch.float16
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.get_autocast_dtype(DEVICE) == torch.bfloat16
        assert (ones() @ ones()).dtype == torch.bfloat16
    assert torch.get_autocast_dtype(DEVICE) == torch.float16


def test_lower_precision_can_be_set():
    torch.set_autocast_dtype(DEVICE, torch.bfloat16)
    try:
        assert torch.get_autocast_dtype(DEVICE) == torch.bfloat16
        with torch.autocast(DEVICE):
            assert (ones() @ ones()).dtype == torch.bfloat16
    finally:
        torch.set_autocast_dtype(DEVICE, torch.float16)


def test_autocast_can_be_switched_without_a_region():
    torch.set_autocast_enabled(DEVICE, True)
    try:
        assert torch.is_autocast_enabled(DEVICE)
        assert not torch.is_autocast_enabled("cpu")
        assert (ones() @ ones()).dtype == torch.float16
    finally:
        torch.set_autocast_enabled(DEVICE, False)
    assert (ones() @ ones()).dtype == torch.float32


def test_regions_nest():
    x = ones()
    with torch.autocast(DEVICE):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
            with torch.autocast(DEVICE, enabled=False):
                assert not torch.is_autocast_enabled(DEVICE)
                assert (x @ x).dtype == torch.float32
            assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float16
    assert not torch.is_autocast_enabled(DEVICE)
    assert (x @ x).dtype == torch.float32


def test_one_region_object_can_be_entered_again():
    region = torch.autocast(DEVICE)
    for _ in range(2):
        with region:
            assert (ones() @ ones()).dtype == torch.float16
        assert (ones() @ ones()).dtype == torch.float32


def test_autocast_is_left_after_an_exception():
    with pytest.raises(KeyError), torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
        raise KeyError
    assert not torch.is_autocast_enabled(DEVICE)
    assert torch.get_autocast_dtype(DEVICE) == torch.float16
    assert torch.is_autocast_cache_enabled()


def test_operator_that_fails_leaves_autocast_on():
    with torch.autocast(DEVICE):
        with pytest.raises(RuntimeError):
            torch.mm(ones(), ones(3, 3))
        assert (ones() @ ones()).dtype == torch.float16


def test_autocast_belongs_to_the_thread():
    seen = []

    def work():
        seen.append(torch.is_autocast_enabled(DEVICE))
        with torch.autocast(DEVICE, torch.bfloat16):
            seen.append((ones() @ ones()).dtype)

    with torch.autocast(DEVICE):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert (ones() @ ones()).dtype == torch.float16
    assert seen == [False, torch.bfloat16]


def test_autocast_leaves_other_devices_alone():
    host = torch.ones(2, 2)
    with torch.autocast(DEVICE):
        assert (host @ host).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (ones() @ ones()).dtype == torch.float32


def test_autocast_of_two_devices_at_once():
    host = torch.ones(2, 2)
    with torch.autocast(DEVICE), torch.autocast("cpu"):
        assert (ones() @ ones()).dtype == torch.float16
        assert (host @ host).dtype == torch.bfloat16


def test_autocast_decorates_functions():
    @torch.autocast(DEVICE, dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(ones()).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled(DEVICE)


# ---- what it says --------------------------------------------------------------------------------


def warning_of(device, dtype):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        region = torch.autocast(device, dtype=dtype)
    return [str(warning.message) for warning in caught], region


@openreg_only("torch.autocast takes any dtype for cuda")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8])
def test_unsupported_dtype_disables_autocast_with_pytorchs_warning(dtype):
    (words,), region = warning_of(DEVICE, dtype)
    start, _ = words.split(" Autocast only supports dtypes of ")
    (like,), _ = warning_of("cpu", dtype)
    assert start == like.split(" Autocast only supports dtypes of ")[0].replace("CPU", DEVICE)
    assert words.endswith("dtypes of torch.float16, torch.bfloat16 currently.")
    with region:
        assert (ones(dtype=torch.float16) @ ones(dtype=torch.float16)).dtype == torch.float16
        assert (ones() @ ones()).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, None])
def test_supported_dtype_does_not_warn(dtype):
    assert warning_of(DEVICE, dtype)[0] == []


def test_device_that_does_not_exist_is_refused():
    words = "User specified an unsupported autocast device_type 'vulkan'"
    with pytest.raises(RuntimeError, match=words):
        torch.autocast("vulkan", dtype=torch.float16)


def test_supported_dtypes_are_the_half_types():
    if DEVICE != "cuda":  # PyTorch does not query it
        assert module.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert module.is_bf16_supported() is True


def test_bfloat16_and_tf32_are_native_from_capability_8_on(python):
    code = """
    import torch
    from device import module
    print(module.is_bf16_supported(), module.is_bf16_supported(False))
    print(module.is_tf32_supported())
    """
    assert python(code, OPENREG_PROFILE="a100").stdout == "True True\nTrue\n"
    assert python(code, OPENREG_PROFILE="t4").stdout == "True False\nFalse\n"


# ---- the interface of torch.cuda.amp -------------------------------------------------------------


def test_own_autocast_accepts_the_arguments_of_torch_cuda_amp():
    with module.amp.autocast():
        assert (ones() @ ones()).dtype == torch.float16
    with module.amp.autocast(True, torch.bfloat16):
        assert (ones() @ ones()).dtype == torch.bfloat16
    with module.amp.autocast(enabled=False):
        assert (ones() @ ones()).dtype == torch.float32
    with module.amp.autocast(cache_enabled=False):
        assert not torch.is_autocast_cache_enabled()


def test_own_autocast_decorates_functions():
    @module.amp.autocast(dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(ones()).dtype == torch.bfloat16


# ---- the cache of weights ------------------------------------------------------------------------


def casts_during(work):
    """Return how many casts to lower precision the work makes."""
    casts = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator is torch.ops.aten._to_copy.default:
                casts.append(args[0].shape)
            return operator(*args, **(kwargs or {}))

    with Watch():
        work()
    return len(casts)


@pytest.fixture
def weight():
    return torch.rand(4, 4, device=DEVICE, requires_grad=True)


def test_weight_is_cast_once_inside_one_region(weight):
    x = ones(4, 4, dtype=torch.float16)

    def twice():
        x @ weight
        x @ weight

    with torch.autocast(DEVICE):
        assert casts_during(twice) == 1
    with torch.autocast(DEVICE):
        assert casts_during(twice) == 1  # again, because the cache ended with the region


def test_weight_is_cast_for_each_use_without_the_cache(weight):
    x = ones(4, 4, dtype=torch.float16)

    def twice():
        x @ weight
        x @ weight

    with torch.autocast(DEVICE, cache_enabled=False):
        assert casts_during(twice) == 2


def test_cache_lasts_until_the_outermost_region_ends(weight):
    x = ones(4, 4, dtype=torch.float16)
    with torch.autocast(DEVICE):
        with torch.autocast(DEVICE):
            x @ weight
        assert casts_during(lambda: x @ weight) == 0


def test_cache_can_be_cleared(weight):
    x = ones(4, 4, dtype=torch.float16)
    with torch.autocast(DEVICE):
        x @ weight
        torch.clear_autocast_cache()
        assert casts_during(lambda: x @ weight) == 1


def test_cast_weights_are_freed_when_the_region_ends(weight):
    before = module.memory_allocated()
    with torch.autocast(DEVICE):
        with torch.no_grad():
            weight @ weight
        assert module.memory_allocated() > before
    assert module.memory_allocated() == before


def test_non_leaf_tensors_are_not_cached():
    x = ones(4, 4, requires_grad=True) * 2
    with torch.autocast(DEVICE):
        assert casts_during(lambda: (x @ x, x @ x)) == 4


# ---- autograd ------------------------------------------------------------------------------------


def test_gradients_of_an_autocast_step_have_the_dtype_of_the_weights():
    layer = torch.nn.Linear(4, 1).to(DEVICE)
    with torch.autocast(DEVICE):
        loss = layer(ones(2, 4)).sum()
    loss.backward()
    assert loss.dtype == torch.float32
    assert layer.weight.grad.dtype == torch.float32
    assert layer.weight.grad.tolist() == [[2.0] * 4]


def test_backward_uses_the_dtypes_of_forward():
    weight = ones(4, 4, requires_grad=True)
    with torch.autocast(DEVICE):
        hidden = ones(4, 4) @ weight
        hidden.retain_grad()
        loss = (hidden @ weight).float().sum()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss.backward()
    assert hidden.grad.dtype == torch.float16
    assert weight.grad.dtype == torch.float32


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_computes_again_under_the_same_autocast(use_reentrant):
    seen = []

    def block(x, weight):
        y = x @ weight
        seen.append(y.dtype)
        return torch.relu(y).square()

    gradients = []
    for save in (False, True):
        torch.manual_seed(0)
        x = torch.rand(4, 4, device=DEVICE, requires_grad=True)
        weight = torch.rand(4, 4, device=DEVICE, requires_grad=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            if save:
                y = checkpoint(block, x, weight, use_reentrant=use_reentrant)
            else:
                y = block(x, weight)
        y.float().sum().backward()
        gradients.append((x.grad, weight.grad))
    assert seen == [torch.bfloat16] * 3
    assert all(map(torch.equal, *gradients))


def square_function(**options):
    """Return an autograd.Function that records what forward and backward saw, and the records."""
    seen = []
    forward_options = {key: value for key, value in options.items() if value is not None}

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=DEVICE, **forward_options)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled(DEVICE)))
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type=DEVICE)
        def backward(ctx, gradient):
            seen.append((gradient.dtype, torch.is_autocast_enabled(DEVICE)))
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    return Square, seen


def test_custom_function_runs_in_the_given_dtype_without_autocast():
    square, seen = square_function(cast_inputs=torch.float32)
    x = torch.full((2,), 3.0, dtype=torch.float16, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE):
        square.apply(x).sum().backward()
    assert seen == [(torch.float32, False), (torch.float32, False)]
    assert x.grad.tolist() == [6.0, 6.0]


def test_backward_of_a_custom_function_uses_the_autocast_of_forward():
    square, seen = square_function()
    x = torch.full((2,), 3.0, dtype=torch.float16, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE):
        loss = square.apply(x).sum()
    loss.backward()
    assert seen == [(torch.float16, True), (torch.float16, True)]


def test_our_own_decorators_of_custom_functions_are_for_this_device():
    class Double(torch.autograd.Function):
        @staticmethod
        @module.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32
            return x * 2

        @staticmethod
        @module.amp.custom_bwd
        def backward(ctx, gradient):
            assert not torch.is_autocast_enabled(DEVICE)
            return gradient * 2

    x = ones(3, dtype=torch.float16, requires_grad=True)
    with torch.autocast(DEVICE):
        Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


# ---- transformations -----------------------------------------------------------------------------


def test_functional_gradients_under_autocast():
    def loss(weight, x):
        return (x @ weight).float().square().sum()

    weight, x = torch.rand(4, 4, device=DEVICE), torch.rand(3, 4, device=DEVICE)
    with torch.autocast(DEVICE):
        gradient = torch.func.grad(loss)(weight, x)
    leaf = weight.clone().requires_grad_()
    (x.half() @ leaf.half()).float().square().sum().backward()
    assert gradient.dtype == torch.float32
    assert torch.equal(gradient, leaf.grad)


def test_vectorised_maps_under_autocast():
    a, b = torch.rand(5, 4, 3, device=DEVICE), torch.rand(5, 3, 2, device=DEVICE)
    with torch.autocast(DEVICE):
        mapped = torch.func.vmap(torch.mm)(a, b)
        mapped_exp = torch.func.vmap(torch.exp)(a.half())
    assert mapped.dtype == torch.float16
    torch.testing.assert_close(mapped, torch.bmm(a.half(), b.half()))
    assert torch.equal(mapped_exp, a.half().float().exp())


@pytest.mark.parametrize("inside", [True, False])
def test_compiled_function_casts_as_the_plain_one(inside):
    layer = torch.nn.Linear(4, 4).to(DEVICE)
    x = torch.rand(3, 4, device=DEVICE)

    def plain(x):
        return torch.softmax(layer(x), dim=1), layer(x)

    def with_region(x):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return plain(x)

    torch._dynamo.reset()
    compiled = torch.compile(with_region if inside else plain, backend="aot_eager", fullgraph=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=not inside):
        actual = compiled(x)
    expected = with_region(x)
    assert [a.dtype for a in actual] == [torch.float32, torch.bfloat16]
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)
    actual[0].sum().backward()
    assert layer.weight.grad.dtype == torch.float32
