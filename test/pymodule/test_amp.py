"""Autocast: dtypes of results, the switch, and the policies, against PyTorch's own lists."""

import threading

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

# On the CPU the lists serve to name the cases; each test takes its arguments from the device's.
NAMES = AutocastTestLists("cpu")
CUDNN = ("cudnn_convolution", "cudnn_convolution_transpose")


@pytest.fixture(scope="module")
def lists():
    return AutocastTestLists("openreg")


def cases(*names):
    return [
        pytest.param(name, number, id=f"{name}-{entry[0]}-{number}")
        for name in names
        for number, entry in enumerate(getattr(NAMES, name))
        if entry[0] not in CUDNN and not (name.startswith("methods") and entry[0] == "__div__")
    ]


def owner(name, first):
    if name.startswith("methods"):
        return type(first)
    if name.startswith("nn"):
        return torch._C._nn
    if name.startswith("linalg"):
        return torch._C._linalg
    return torch


def run(lists, name, number):
    """Run one entry of PyTorch's lists under autocast; return the dtype of its result."""
    function, arguments, *rest = getattr(lists, name)[number]
    keywords = rest[0] if rest and isinstance(rest[0], dict) else {}
    with torch.amp.autocast("openreg"):
        result = getattr(owner(name, arguments[0]), function)(*arguments, **keywords)
    result = result[0] if isinstance(result, tuple) else result
    assert result.is_openreg
    return result.dtype


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
@pytest.mark.parametrize(
    ("name", "number"), [c for c in cases("torch_fp16") if "einsum" not in c.id]
)
def test_operator_of_the_lower_precision_list_of_torch(lists, name, number):
    assert run(lists, name, number) == torch.float16


@pytest.mark.parametrize(("name", "number"), cases("nn_fp16", "linalg_fp16", "methods_fp16"))
def test_operator_of_the_other_lower_precision_lists(lists, name, number):
    assert run(lists, name, number) == torch.float16


@pytest.mark.parametrize(("name", "number"), cases("torch_fp32", "nn_fp32", "methods_fp32"))
def test_operator_of_the_float32_lists(lists, name, number):
    assert run(lists, name, number) == torch.float32


@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim")
@pytest.mark.parametrize(("name", "number"), cases("torch_need_autocast_promote"))
def test_operator_of_the_promotion_list(lists, name, number):
    assert run(lists, name, number) == torch.float32


@pytest.mark.parametrize(
    ("name", "number"), cases("torch_expect_builtin_promote", "methods_expect_builtin_promote")
)
def test_operator_that_promotes_by_itself(lists, name, number):
    function, arguments, dtype = getattr(lists, name)[number]
    with torch.amp.autocast("openreg"):
        result = getattr(owner(name, arguments[0]), function)(*arguments)
    assert isinstance(result, bool) or result.dtype == dtype


def test_result_is_that_of_casting_by_hand():
    a, b = torch.rand(8, 8, device="openreg"), torch.rand(8, 8, device="openreg")
    with torch.autocast("openreg"):
        result = a @ b
    assert torch.equal(result, a.half() @ b.half())


def test_banned_operator_is_refused_in_the_words_of_cuda():
    x = torch.rand(4, device="openreg")
    with (
        pytest.raises(RuntimeError, match="are unsafe to autocast"),
        torch.autocast("openreg"),
    ):
        torch.nn.functional.binary_cross_entropy(x, x)


def test_banned_operator_is_allowed_without_autocast():
    x = torch.rand(4, device="openreg")
    assert torch.nn.functional.binary_cross_entropy(x, x.round()).isfinite()


def test_lower_precision_is_float16_unless_chosen():
    assert torch.get_autocast_dtype("openreg") == torch.float16
    x = torch.ones(2, 2, device="openreg")
    with torch.autocast("openreg", dtype=torch.bfloat16):
        assert torch.get_autocast_dtype("openreg") == torch.bfloat16
        assert (x @ x).dtype == torch.bfloat16
    assert torch.get_autocast_dtype("openreg") == torch.float16


def test_lower_precision_can_be_set():
    torch.set_autocast_dtype("openreg", torch.bfloat16)
    try:
        assert torch.get_autocast_dtype("openreg") == torch.bfloat16
    finally:
        torch.set_autocast_dtype("openreg", torch.float16)


def test_autocast_can_be_switched_off_inside():
    x = torch.ones(2, 2, device="openreg")
    with torch.autocast("openreg"):
        assert torch.is_autocast_enabled("openreg")
        with torch.autocast("openreg", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float16
    assert not torch.is_autocast_enabled("openreg")
    assert (x @ x).dtype == torch.float32


def test_autocast_is_left_after_an_exception():
    with pytest.raises(KeyError), torch.autocast("openreg"):
        raise KeyError
    assert not torch.is_autocast_enabled("openreg")


def test_autocast_belongs_to_the_thread():
    seen = []
    with torch.autocast("openreg"):
        thread = threading.Thread(target=lambda: seen.append(torch.is_autocast_enabled("openreg")))
        thread.start()
        thread.join()
    assert seen == [False]


def test_autocast_leaves_other_devices_alone():
    host = torch.ones(2, 2)
    with torch.autocast("openreg"):
        assert (host @ host).dtype == torch.float32
    device = host.openreg()
    with torch.autocast("cpu"):
        assert (device @ device).dtype == torch.float32


def test_autocast_leaves_doubles_and_integers_alone():
    with torch.autocast("openreg"):
        double = torch.ones(2, 2, dtype=torch.float64, device="openreg")
        assert (double @ double).dtype == torch.float64
        integer = torch.ones(2, 2, dtype=torch.int32, device="openreg")
        assert (integer @ integer).dtype == torch.int32


def test_in_place_operators_keep_their_dtype():
    with torch.autocast("openreg"):
        x = torch.zeros(2, 2, device="openreg")
        x.addmm_(torch.ones(2, 2, device="openreg"), torch.ones(2, 2, device="openreg"))
    assert x.dtype == torch.float32
    assert x.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_weight_is_cast_once_inside_one_region():
    layer = torch.nn.Linear(4, 4).openreg()
    x = torch.ones(2, 4, device="openreg")
    with torch.autocast("openreg"):
        layer(x)
        before = torch.openreg.memory_stats()["allocation.all.allocated"]
        cached = layer(x)
        with_cache = torch.openreg.memory_stats()["allocation.all.allocated"] - before
    with torch.autocast("openreg", cache_enabled=False):
        before = torch.openreg.memory_stats()["allocation.all.allocated"]
        fresh = layer(x)
        without_cache = torch.openreg.memory_stats()["allocation.all.allocated"] - before
    assert torch.equal(cached, fresh)
    assert with_cache < without_cache


def test_gradients_of_an_autocast_step_have_the_dtype_of_the_weights():
    layer = torch.nn.Linear(4, 1).openreg()
    with torch.autocast("openreg"):
        loss = layer(torch.ones(2, 4, device="openreg")).sum()
    loss.backward()
    assert loss.dtype == torch.float32
    assert layer.weight.grad.dtype == torch.float32
    assert layer.weight.grad.tolist() == [[2.0] * 4]


def test_dtype_that_is_not_supported_disables_autocast_with_a_warning():
    x = torch.ones(2, 2, dtype=torch.float16, device="openreg")
    warned = pytest.warns(
        UserWarning, match="In openreg autocast, but the target dtype is not supported"
    )
    with warned, torch.autocast("openreg", dtype=torch.float32):
        assert (x @ x).dtype == torch.float16


def test_supported_dtypes_are_the_half_types():
    assert torch.openreg.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.openreg.is_bf16_supported() is True


def test_bfloat16_is_native_from_capability_8_on(python):
    code = """
    import torch
    print(torch.openreg.is_bf16_supported(), torch.openreg.is_bf16_supported(False))
    """
    assert python(code, OPENREG_PROFILE="a100").stdout == "True True\n"
    assert python(code, OPENREG_PROFILE="t4").stdout == "True False\n"


def test_our_own_autocast_takes_the_arguments_of_torch_cuda_amp():
    x = torch.ones(2, 2, device="openreg")
    with torch.openreg.amp.autocast():
        assert (x @ x).dtype == torch.float16
    with torch.openreg.amp.autocast(True, torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with torch.openreg.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32


def test_our_own_autocast_decorates_functions():
    @torch.openreg.amp.autocast(dtype=torch.bfloat16)
    def product(x):
        return x @ x

    assert product(torch.ones(2, 2, device="openreg")).dtype == torch.bfloat16


def test_custom_functions_run_in_the_dtype_asked_for():
    seen = []

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.openreg.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("openreg")))
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.openreg.amp.custom_bwd
        def backward(ctx, gradient):
            seen.append((gradient.dtype, torch.is_autocast_enabled("openreg")))
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    x = torch.full((2,), 3.0, dtype=torch.float16, device="openreg", requires_grad=True)
    with torch.autocast("openreg"):
        y = Square.apply(x)
        y.sum().backward()
    assert seen == [(torch.float32, False), (torch.float32, False)]
    assert x.grad.tolist() == [6.0, 6.0]


def test_policies_name_operators_that_exist():
    policies = torch.openreg.amp.policies()
    assert len(policies) > 100
    for entry in policies:
        packet = getattr(torch.ops.aten, entry.operator)
        assert (entry.overload or "default") in packet.overloads(), entry


def test_policies_agree_with_the_lists_of_pytorch():
    policies = {entry.operator: entry.policy for entry in torch.openreg.amp.policies()}
    assert policies["mm"] == policies["conv2d"] == policies["linear"] == "lower_precision"
    assert policies["exp"] == policies["layer_norm"] == policies["mse_loss"] == "float32"
    assert policies["softmax"] == policies["sum"] == "float32_set_dtype"
    assert policies["norm"] == "float32_append_dtype"
    assert policies["addcmul"] == policies["scatter_add"] == "promote"
    assert policies["binary_cross_entropy"] == "banned"
