"""scaled_dot_product_attention: the choice of the implementation, and values and gradients.

The tests compare values with the CPU: bit for bit if the flash kernel runs on both sides, and with
a tolerance if the CPU uses another implementation.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from device import DEVICE, module

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-1,
}

fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable


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


def fused_attention(query, key, value, attn_mask=None, **options):
    """Call the fused operator, even if scaled_dot_product_attention would not choose it."""
    return fused(query, key, value, attn_mask, **options)[0]


def attend(tensors, bias=None, function=F.scaled_dot_product_attention, **options):
    """Return the output, and the gradients of the tensors and of a bias that requires one."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    wanted = leaves + ([bias] if bias is not None and bias.requires_grad else [])
    output = function(*leaves, attn_mask=bias, **options)
    weight = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape)
    gradients = torch.autograd.grad(output, wanted, weight.to(output))
    return [output.detach(), *gradients]


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.device.type == DEVICE and a.stride() == b.stride()
        assert torch.equal(a.cpu(), b)


def assert_close(actual, expected, dtype):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def choice(*tensors, **options):
    return SDPBackend(torch._fused_sdp_choice(*tensors, **options))


# ---- which implementation -----------------------------------------------------------------------


def test_the_backends_own_kernel_is_chosen_and_runs():
    query, key, value = on_device(inputs())
    assert choice(query, key, value) == SDPBackend.OVERRIDEABLE
    output = F.scaled_dot_product_attention(query.requires_grad_(), key, value)
    assert output.grad_fn.name() == "ScaledDotProductFusedAttentionOverrideableBackward0"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_floating_dtype_is_fused(dtype):
    assert choice(*on_device(inputs(dtype))) == SDPBackend.OVERRIDEABLE


def test_shared_heads_use_math():
    tensors = inputs(heads=(4, 2))
    assert choice(*on_device(tensors), enable_gqa=True) == SDPBackend.MATH
    result = F.scaled_dot_product_attention(*on_device(tensors), enable_gqa=True)
    expected = F.scaled_dot_product_attention(*tensors, enable_gqa=True)
    assert_close([result], [expected], torch.float32)


def test_three_dimensions_use_math():
    tensors = [tensor[0] for tensor in inputs()]
    assert choice(*on_device(tensors)) == SDPBackend.MATH
    result = F.scaled_dot_product_attention(*on_device(tensors))
    assert_close([result], [F.scaled_dot_product_attention(*tensors)], torch.float32)


def test_another_head_size_of_values_uses_math():
    query, key, value = inputs()
    value = torch.cat([value, value], -1)
    tensors = on_device([query, key, value])
    assert choice(*tensors) == SDPBackend.MATH
    result = F.scaled_dot_product_attention(*tensors)
    assert_close([result], [F.scaled_dot_product_attention(query, key, value)], torch.float32)


def test_empty_sequences_use_math():
    query, key, value = on_device(inputs())
    assert choice(query, key[:, :, :0], value[:, :, :0]) == SDPBackend.MATH


def test_a_mask_that_requires_a_gradient_uses_math_as_on_the_cpu():
    tensors, bias = inputs(), mask("float")
    here = bias.to(DEVICE).requires_grad_()
    assert choice(*on_device(tensors), attn_mask=here) == SDPBackend.MATH
    assert choice(*on_device(tensors), attn_mask=here.detach()) == SDPBackend.OVERRIDEABLE
    assert_same(attend(on_device(tensors), here), attend(tensors, bias.requires_grad_()))


def test_forward_gradients_use_math():
    query, key, value = on_device(inputs())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, torch.ones_like(query))
        assert choice(dual, key, value) == SDPBackend.MATH


def test_a_program_may_ask_for_math():
    tensors = on_device(inputs())
    with sdpa_kernel(SDPBackend.MATH):
        assert choice(*tensors) == SDPBackend.MATH


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.OVERRIDEABLE])
def test_a_program_may_ask_for_any_fused_kernel(backend):
    tensors = on_device(inputs())
    with sdpa_kernel(backend):
        assert choice(*tensors) == SDPBackend.OVERRIDEABLE


def test_a_call_without_an_enabled_implementation_raises():
    tensors = on_device(inputs(heads=(4, 2)))
    with (
        sdpa_kernel(SDPBackend.OVERRIDEABLE),
        pytest.raises(RuntimeError, match="No viable backend"),
    ):
        F.scaled_dot_product_attention(*tensors, enable_gqa=True)


# ---- values and gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"scale": 0.3}, {"scale": -0.3}], ids=str
)
def test_values_and_gradients_equal_the_cpus_bit_for_bit(dtype, options):
    tensors = inputs(dtype)
    assert_same(attend(on_device(tensors), **options), attend(tensors, **options))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_is_applied_as_on_the_cpu(dtype, kind):
    tensors, bias = inputs(dtype), mask(kind, dtype)
    assert_same(attend(on_device(tensors), bias.to(DEVICE)), attend(tensors, bias))


@pytest.mark.parametrize("queries, keys", [(1, 5), (5, 1), (7, 7)])
def test_causal_attention_of_any_shape_starts_at_the_first_key(queries, keys):
    tensors = inputs(queries=queries, keys=keys)
    assert_same(
        attend(on_device(tensors), is_causal=True),
        attend(tensors, is_causal=True),
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(6, 9), (1, 9), (2, 1, 6, 9), (2, 3, 6, 1)], ids=str)
def test_the_gradient_of_a_bias_has_its_shape(dtype, shape):
    tensors = inputs(dtype)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
    here = bias.to(DEVICE).requires_grad_()
    actual = attend(on_device(tensors), here, fused_attention)
    assert actual[-1].shape == shape
    assert_close(actual, attend(tensors, bias.requires_grad_()), dtype)


@pytest.mark.parametrize("wants_gradient", [False, True])
def test_a_query_whose_keys_are_all_masked_returns_zero(wants_gradient):
    tensors, bias = inputs(), mask("float")
    bias[2] = float("-inf")
    here = bias.to(DEVICE).requires_grad_(wants_gradient)
    output, *gradients = attend(on_device(tensors), here, fused_attention)
    assert (output[:, :, 2] == 0).all()
    assert not any(gradient.isnan().any() for gradient in gradients)


def test_only_the_wanted_gradients_are_computed():
    query, key, value = on_device(inputs())
    key.requires_grad_()
    F.scaled_dot_product_attention(query, key, value, dropout_p=0.2).sum().backward()
    assert key.grad is not None and query.grad is None and value.grad is None


def test_autocast_computes_in_half_precision_and_only_once():
    tensors = on_device(inputs())
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        output = F.scaled_dot_product_attention(*tensors)
        inside = fused(*tensors, return_debug_mask=True)
    assert output.dtype == torch.bfloat16
    outside = fused(*tensors, return_debug_mask=True)
    assert torch.equal(inside[0], outside[0]) and torch.equal(inside[-1], outside[-1])


# ---- dropout ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_draws_the_numbers_of_math(dtype, p):
    tensors = on_device(inputs(dtype))
    torch.manual_seed(5)
    actual = attend(tensors, dropout_p=p)
    state = module.get_rng_state()
    torch.manual_seed(5)
    with sdpa_kernel(SDPBackend.MATH):
        expected = attend(tensors, dropout_p=p)
    assert_close(actual, expected, dtype)
    assert torch.equal(module.get_rng_state(), state)


def test_each_call_drops_other_elements():
    tensors = on_device(inputs())
    first, second = (F.scaled_dot_product_attention(*tensors, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first, second)


def test_without_dropout_the_generator_does_not_advance():
    state = module.get_rng_state()
    attend(on_device(inputs()))
    assert torch.equal(module.get_rng_state(), state)


def test_backward_repeats_the_dropout_of_forward_after_other_draws():
    query, key, value = on_device(inputs(torch.float64))
    value.requires_grad_()
    results = fused(query, key, value, dropout_p=0.5, return_debug_mask=True)
    torch.rand(100, device=DEVICE)
    results[0].sum().backward()
    expected = results[-1].sum(-2).unsqueeze(-1).expand_as(value)
    torch.testing.assert_close(value.grad, expected)


# ---- what the operator itself returns -----------------------------------------------------------


def test_the_results_are_those_that_pytorch_documents():
    query, key, value = inputs()
    output, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, weights = fused(
        *on_device([query, key, value])
    )
    scores = query @ key.mT / 8**0.5
    torch.testing.assert_close(output.cpu(), scores.softmax(-1) @ value)
    torch.testing.assert_close(logsumexp.cpu(), scores.logsumexp(-1))
    assert cum_q is None and cum_k is None and weights is None
    assert seed is None and offset is None  # no dropout
    assert (max_q, max_k) == (6, 9)


def test_seed_and_offset_are_where_dropout_started():
    tensors = on_device(inputs())
    torch.manual_seed(11)
    first = fused(*tensors, dropout_p=0.5)
    second = fused(*tensors, dropout_p=0.5)
    assert first[6].item() == second[6].item() == 11
    assert first[7].item() == 0 < second[7].item()


def test_the_debug_mask_is_the_weights_after_dropout():
    query, key, value = on_device(inputs())
    output, *_, weights = fused(query, key, value, dropout_p=0.5, return_debug_mask=True)
    plain = fused(query, key, value, return_debug_mask=True)[-1]
    kept = weights != 0
    torch.testing.assert_close(weights[kept], plain[kept] * 2)
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(output, weights @ value)


def test_the_fused_operator_supports_values_of_another_head_size():
    query, key, value = inputs()
    value = value[..., :5].contiguous()
    result = fused(*on_device([query, key, value]))[0]
    assert_close([result], [F.scaled_dot_product_attention(query, key, value)], torch.float32)


def test_the_fused_operator_refuses_other_ranks_and_impossible_probabilities():
    tensors = on_device(inputs())
    with pytest.raises(RuntimeError, match="4 dimensions .*, got 3, 3 and 3"):
        fused(*[tensor[0] for tensor in tensors])
    with pytest.raises(RuntimeError, match="dropout_p=1.5: expected a probability"):
        fused(*tensors, dropout_p=1.5)


def test_tensors_of_two_devices_are_refused():
    query, key, value = on_device(inputs())
    with pytest.raises(RuntimeError, match="same device"):
        F.scaled_dot_product_attention(query, key.to(f"{DEVICE}:1"), value)


# ---- gradients of gradients, transforms, tracing ------------------------------------------------


def test_gradients_with_dropout_and_bias_have_gradients():
    query, key, value = on_device(inputs(torch.float64, queries=2, keys=3))
    bias = mask("float", torch.float64, 2, 3).to(DEVICE)

    def attention(*tensors):
        torch.manual_seed(3)
        return fused_attention(*tensors, dropout_p=0.3)

    leaves = [tensor[:1, :1].clone().requires_grad_() for tensor in (query, key, value)]
    assert torch.autograd.gradgradcheck(attention, (*leaves, bias.requires_grad_()))


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
