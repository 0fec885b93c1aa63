"""scaled_dot_product_attention: the choice of the implementation, and values and gradients.

The tests compare values with the CPU: bit for bit if the flash kernel runs on both sides, and with
a tolerance if one side uses another implementation. test/pymodule/plans/test_attention_plans.py
compares the choice with that of PyTorch's CUDA build.
"""

import pytest
import torch
import torch.nn.functional as F
from modes import openreg_only
from torch.nn.attention import SDPBackend, sdpa_kernel

from device import DEVICE, module

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-1,
}

SINCE_2_14 = torch.__version__ >= "2.14"
FUSED = FLOATS[:1] + FLOATS[2:]  # CUDA computes float64 by math
FLASH, EFFICIENT = (
    (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    if DEVICE == "cuda"
    else (SDPBackend.OVERRIDEABLE, SDPBackend.OVERRIDEABLE)
)


def inputs(dtype=torch.float32, queries=6, keys=9, heads=(3, 3)):
    """Return query, key and value of two batches, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads[0], queries, 8), (2, heads[1], keys, 8), (2, heads[1], keys, 8)]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def mask(kind, dtype=torch.float32, queries=6, keys=9):
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(queries, keys, generator=generator, dtype=dtype)
    return values > -0.5 if kind == "bool" else values


def on_device(tensors):
    return [tensor.detach().to(DEVICE) for tensor in tensors]


def attend(tensors, bias=None, **options):
    """Return the output, and the gradients of the tensors and of a bias that requires one."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    wanted = leaves + ([bias] if bias is not None and bias.requires_grad else [])
    output = F.scaled_dot_product_attention(*leaves, attn_mask=bias, **options)
    weight = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape)
    gradients = torch.autograd.grad(output, wanted, weight.to(output))
    return [output.detach(), *gradients]


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.device.type == DEVICE
        assert torch.equal(a.cpu(), b)


def assert_close(actual, expected, dtype):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def assert_as_on_the_cpu(tensors, bias=None, **options):
    """Compare bit for bit. Float16 is computed in float32 and rounded."""
    here = attend(on_device(tensors), None if bias is None else bias.to(DEVICE), **options)
    if tensors[0].dtype != torch.float16:
        assert_same(here, attend(tensors, bias, **options))
        return
    wide_bias = bias.float() if bias is not None and bias.is_floating_point() else bias
    wide = attend([tensor.float() for tensor in tensors], wide_bias, **options)
    assert_same(here[:1], [wide[0].half()])
    assert_close(here, [each.half() for each in wide], torch.float16)


def choice(*tensors, **options):
    return SDPBackend(torch._fused_sdp_choice(*tensors, **options))


# ---- which implementation -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype, expected",
    [
        (torch.float32, EFFICIENT),
        (torch.float64, SDPBackend.MATH),
        (torch.float16, FLASH),
        (torch.bfloat16, FLASH),
    ],
    ids=str,
)
def test_the_choice_is_cudas(dtype, expected):
    assert choice(*on_device(inputs(dtype))) == expected


def test_the_chosen_operator_runs():
    names = {
        torch.float32: "ScaledDotProductEfficientAttentionBackward0",
        torch.bfloat16: "ScaledDotProductFlashAttentionBackward0",
    }
    for dtype, name in names.items():
        query, key, value = on_device(inputs(dtype))
        output = F.scaled_dot_product_attention(query.requires_grad_(), key, value)
        if DEVICE != "cuda":
            name = "ScaledDotProductFusedAttentionOverrideableBackward0"
        assert output.grad_fn.name() == name


@pytest.mark.parametrize(
    "dtype, expected",
    [(torch.float32, EFFICIENT if SINCE_2_14 else SDPBackend.MATH), (torch.float16, FLASH)],
)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
def test_heads_that_are_shared(dtype, expected, options):
    tensors = inputs(dtype, heads=(4, 2), queries=9)
    assert choice(*on_device(tensors), enable_gqa=True) == expected
    actual = attend(on_device(tensors), enable_gqa=True, **options)
    assert_close(actual, attend(tensors, enable_gqa=True, **options), dtype)


def test_three_dimensions_use_math():
    tensors = [tensor[0] for tensor in inputs()]
    assert choice(*on_device(tensors)) == SDPBackend.MATH
    result = F.scaled_dot_product_attention(*on_device(tensors))
    assert_close([result], [F.scaled_dot_product_attention(*tensors)], torch.float32)


@pytest.mark.parametrize("dtype", FUSED, ids=str)
def test_values_may_have_another_head_size(dtype):
    query, key, value = inputs(dtype)
    value = torch.cat([value, value], -1)
    assert choice(*on_device([query, key, value])) == EFFICIENT
    assert_close(attend(on_device([query, key, value])), attend([query, key, value]), dtype)


def test_empty_sequences_use_math():
    query, key, value = on_device(inputs())
    assert choice(query, key[:, :, :0], value[:, :, :0]) == SDPBackend.MATH


def test_forward_gradients_use_math():
    query, key, value = on_device(inputs())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, torch.ones_like(query))
        assert choice(dual, key, value) == SDPBackend.MATH


def test_a_program_may_ask_for_math():
    tensors = on_device(inputs())
    with sdpa_kernel(SDPBackend.MATH):
        assert choice(*tensors) == SDPBackend.MATH


def test_a_program_may_ask_for_a_fused_kernel():
    tensors = on_device(inputs(torch.float16))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert choice(*tensors) == FLASH
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert choice(*tensors) == EFFICIENT
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        assert choice(*tensors) == FLASH


@openreg_only("CUDA has no overrideable kernel")
def test_a_program_may_ask_for_the_backends_kernel():
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        assert choice(*on_device(inputs())) == SDPBackend.OVERRIDEABLE


def test_priorities_decide_between_two_kernels():
    tensors = on_device(inputs(torch.float16))
    order = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]
    with sdpa_kernel(order, set_priority=True):
        assert choice(*tensors) == EFFICIENT


def test_a_call_without_an_enabled_implementation_raises_and_says_why():
    tensors = on_device(inputs())
    with (
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        pytest.warns(UserWarning, match="flash attention .* supports float16 and bfloat16"),
        pytest.raises(RuntimeError, match="No available kernel. Aborting execution."),
    ):
        F.scaled_dot_product_attention(*tensors)


# ---- values and gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FUSED, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"scale": 0.3}, {"scale": -0.3}], ids=str
)
def test_values_and_gradients_equal_the_cpus_bit_for_bit(dtype, options):
    assert_as_on_the_cpu(inputs(dtype), **options)


@pytest.mark.parametrize("dtype", FUSED, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_is_applied_as_on_the_cpu(dtype, kind):
    assert_as_on_the_cpu(inputs(dtype), mask(kind, dtype))


@pytest.mark.parametrize("queries, keys", [(1, 5), (5, 1), (7, 7)])
def test_causal_attention_of_any_shape_starts_at_the_first_key(queries, keys):
    tensors = inputs(queries=queries, keys=keys)
    assert_same(
        attend(on_device(tensors), is_causal=True),
        attend(tensors, is_causal=True),
    )


def test_math_has_the_values_of_the_cpu():
    tensors = inputs(torch.float64)
    assert_close(attend(on_device(tensors)), attend(tensors), torch.float64)


@pytest.mark.parametrize("dtype", FUSED, ids=str)
@pytest.mark.parametrize("shape", [(6, 9), (1, 9), (3, 1, 9), (2, 1, 6, 9), (2, 3, 6, 1)], ids=str)
def test_the_gradient_of_a_bias_has_its_shape(dtype, shape):
    tensors = inputs(dtype)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
    here = bias.to(DEVICE).requires_grad_()
    assert choice(*on_device(tensors), attn_mask=here) == EFFICIENT
    actual = attend(on_device(tensors), here)
    assert actual[-1].shape == shape
    assert_close(actual, attend(tensors, bias.requires_grad_()), dtype)


@pytest.mark.parametrize("wants_gradient", [False, True])
def test_a_query_whose_keys_are_all_masked_returns_zero(wants_gradient):
    tensors, bias = inputs(), mask("float")
    bias[2] = float("-inf")
    here = bias.to(DEVICE).requires_grad_(wants_gradient)
    output, *gradients = attend(on_device(tensors), here)
    assert (output[:, :, 2] == 0).all()
    assert not any(gradient.isnan().any() for gradient in gradients)


def test_only_the_wanted_gradients_are_computed():
    query, key, value = on_device(inputs())
    key.requires_grad_()
    F.scaled_dot_product_attention(query, key, value, dropout_p=0.2).sum().backward()
    assert key.grad is not None and query.grad is None and value.grad is None


def test_the_gradients_of_packed_projections():
    packed = torch.randn(2, 6, 3, 4, 8, generator=torch.Generator().manual_seed(3))

    def gradient(packed):
        leaf = packed.clone().requires_grad_()
        query, key, value = (leaf[:, :, i].transpose(1, 2) for i in range(3))
        F.scaled_dot_product_attention(query, key, value).square().sum().backward()
        return leaf.grad

    torch.testing.assert_close(gradient(packed.to(DEVICE)).cpu(), gradient(packed))


def test_autocast_computes_in_half_precision():
    tensors = on_device(inputs())
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        output = F.scaled_dot_product_attention(*tensors)
    assert output.dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):  # is not the device's
        assert F.scaled_dot_product_attention(*tensors).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_attention_is_asynchronous(close_gate, dtype, dropout):
    tensors = [tensor.requires_grad_() for tensor in on_device(inputs(dtype))]

    def work():
        output = F.scaled_dot_product_attention(*tensors, dropout_p=dropout)
        return [output.detach(), *torch.autograd.grad(output, tensors, torch.ones_like(output))]

    torch.manual_seed(1)
    expected = work()
    module.synchronize()
    torch.manual_seed(1)
    gate = close_gate()
    results = work()
    assert not module.current_stream().query()
    gate.open()
    for result, wanted in zip(results, expected, strict=True):
        assert torch.equal(result, wanted)


# ---- dropout ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FUSED, ids=str)
def test_dropout_keeps_or_scales_each_weight(dtype):
    query, key, _ = on_device(inputs(dtype, queries=64, keys=64))
    eye = torch.eye(64, dtype=dtype, device=DEVICE).expand(2, 3, 64, 64)
    with sdpa_kernel(SDPBackend.MATH):
        weights = F.scaled_dot_product_attention(query, key, eye)
    dropped = F.scaled_dot_product_attention(query, key, eye, dropout_p=0.25)
    kept = dropped != 0
    assert 0.2 < 1 - kept.float().mean().item() < 0.3
    torch.testing.assert_close(
        dropped[kept], weights[kept] / 0.75, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("dtype", FUSED, ids=str)
def test_dropout_of_everything_returns_zeros(dtype):
    output, *gradients = attend(on_device(inputs(dtype)), dropout_p=1.0)
    assert (output == 0).all() and all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("dtype", FUSED, ids=str)
def test_a_seed_repeats_dropout(dtype):
    tensors = on_device(inputs(dtype))
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(attend(tensors, dropout_p=0.5))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert not torch.equal(attend(tensors, dropout_p=0.5)[0], results[0][0])


# CUDA's host code: 32 words for each head; one for each weight.
@pytest.mark.parametrize(
    "dtype, words", [(torch.float16, 2 * 3 * 32), (torch.float32, 2 * 3 * 6 * 9)], ids=str
)
def test_dropout_takes_the_words_that_cuda_takes(dtype, words):
    torch.manual_seed(5)
    F.scaled_dot_product_attention(*on_device(inputs(dtype)), dropout_p=0.5)
    offset = module.get_rng_state()[8:].view(torch.int64).item()
    assert offset == words


def test_without_dropout_the_generator_does_not_advance():
    state = module.get_rng_state()
    attend(on_device(inputs()))
    assert torch.equal(module.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_backward_repeats_the_dropout_of_forward_after_other_draws(dtype):
    query, key, _ = on_device(inputs(dtype, queries=8, keys=8))
    eye = torch.eye(8, dtype=dtype, device=DEVICE).expand(2, 3, 8, 8).clone().requires_grad_()
    output = F.scaled_dot_product_attention(query, key, eye, dropout_p=0.5)
    torch.rand(100, device=DEVICE)
    output.sum().backward()
    expected = output.detach().sum(-2).unsqueeze(-1).expand_as(eye)
    torch.testing.assert_close(eye.grad, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# ---- what the operators return ------------------------------------------------------------------


def reference(query, key, value):
    scores = query.float() @ key.float().mT / 8**0.5
    return scores.softmax(-1) @ value.float(), scores.logsumexp(-1)


@pytest.mark.skipif(DEVICE != "cuda", reason="the operator is CUDA's")
def test_the_results_of_flash_attention():
    tensors = inputs(torch.bfloat16)
    output, logsumexp, cum_q, cum_k, max_q, max_k, state, unused, weights = (
        torch.ops.aten._scaled_dot_product_flash_attention(*on_device(tensors))
    )
    expected, expected_logsumexp = reference(*tensors)
    torch.testing.assert_close(output.cpu().float(), expected, rtol=0.01, atol=0.01)
    torch.testing.assert_close(logsumexp.cpu(), expected_logsumexp, rtol=0.01, atol=0.01)
    assert cum_q is None and cum_k is None and (max_q, max_k) == (6, 9)
    assert state.dtype == unused.dtype == torch.uint64
    assert state.shape == (2,) and unused.shape == () and weights.shape == (0,)


@pytest.mark.skipif(DEVICE != "cuda", reason="the operator is CUDA's")
def test_the_results_of_efficient_attention():
    tensors = inputs()
    operator = torch.ops.aten._scaled_dot_product_efficient_attention
    output, logsumexp, seed, offset = operator(*on_device(tensors), None, True)
    expected, expected_logsumexp = reference(*tensors)
    torch.testing.assert_close(output.cpu(), expected)
    assert logsumexp.shape == (2, 3, 32) and output.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(logsumexp[..., :6].cpu(), expected_logsumexp)
    assert seed.device.type == offset.device.type == (DEVICE if SINCE_2_14 else "cpu")
    assert operator(*on_device(tensors), None, False)[1].shape == (2, 3, 0)


@pytest.mark.skipif(DEVICE != "cuda", reason="the operator is CUDA's")
def test_the_weights_after_dropout():
    query, key, value = on_device(inputs(torch.bfloat16))
    torch.manual_seed(11)
    output, *_, state, _, weights = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.5, return_debug_mask=True
    )
    assert state.tolist() == [11, 0]
    kept = weights.clamp(min=0)
    torch.testing.assert_close(output, kept @ value, rtol=0.05, atol=0.05)
    assert 0 < (weights < 0).sum() < weights.numel()


@openreg_only("CUDA has no overrideable kernel")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_backends_operator_supports_every_dtype(dtype):
    tensors = inputs(dtype)
    output, logsumexp, cum_q, cum_k, max_q, max_k, *_ = (
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable(*on_device(tensors))
    )
    expected, expected_logsumexp = reference(*tensors)
    torch.testing.assert_close(output.cpu().float(), expected, rtol=0.01, atol=0.01)
    torch.testing.assert_close(
        logsumexp[..., :6].cpu().float(), expected_logsumexp, rtol=0.01, atol=0.01
    )
    assert cum_q is None and cum_k is None and (max_q, max_k) == (6, 9)


@openreg_only("the operator is that of backends")
def test_other_ranks_heads_and_impossible_probabilities_are_refused():
    fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    tensors = on_device(inputs())
    with pytest.raises(RuntimeError, match="4 dimensions .*, got 3, 3 and 3"):
        fused(*[tensor[0] for tensor in tensors])
    with pytest.raises(RuntimeError, match="divisible by that of key and value, got 3, 2 and 2"):
        fused(*on_device(inputs(heads=(3, 2))))
    with pytest.raises(RuntimeError, match="dropout_p=1.5: expected a probability"):
        fused(*tensors, dropout_p=1.5)


def test_tensors_of_two_devices_are_refused():
    query, key, value = on_device(inputs())
    with pytest.raises(RuntimeError, match="same device"):
        F.scaled_dot_product_attention(query, key.to(f"{DEVICE}:1"), value)


# ---- gradients of gradients, transforms, tracing ------------------------------------------------


def test_the_flash_kernel_has_no_second_derivative_as_on_the_cpu():
    for device in ("cpu", DEVICE):
        query, key, value = (tensor.to(device).requires_grad_() for tensor in inputs())
        output = F.scaled_dot_product_attention(query, key, value)
        (gradient,) = torch.autograd.grad(output.sum(), query, create_graph=True)
        with pytest.raises(RuntimeError, match="_backward is not implemented"):
            gradient.sum().backward()


def test_attention_maps_over_a_dimension():
    tensors = [torch.stack([tensor, tensor * 2]) for tensor in inputs()]
    mapped = torch.vmap(F.scaled_dot_product_attention)
    assert torch.equal(mapped(*on_device(tensors)).cpu(), mapped(*tensors))


@pytest.mark.parametrize("layout", ["heads_first", "length_first"])
def test_attention_compiles_with_its_gradients(layout):
    torch._dynamo.reset()
    tensors = on_device(inputs())
    if layout == "length_first":
        tensors = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]

    def attention(query, key, value):
        output = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return output.reshape(2, 18, 8)

    def run(function):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        output = function(*leaves)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), leaves)]

    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
    for actual, expected in zip(run(compiled), run(attention), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.skipif(DEVICE != "cuda", reason="the operator is CUDA's")
def test_gradient_of_flash_attention_takes_seeds_on_the_host():
    query, key, value = (torch.randn(1, 2, 8, 16, device=DEVICE).half() for _ in range(3))
    output, logsumexp, _, _, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value
    )

    def gradients(device):
        seed, offset = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *(torch.ones_like(output), query, key, value, output, logsumexp),
            *(None, None, 8, 8, 0.0, False, seed, offset),
        )

    torch.testing.assert_close(gradients("cpu"), gradients(DEVICE))
