"""`torch.compile` with Inductor: compiled code gives the results of the CPU on a device."""

import copy

import pytest
import torch
from torch import nn
from torch_openreg._C import compiled_launches
from torch_openreg._releases import RELEASE

from device import DEVICE, module


@pytest.fixture
def generated():
    """Fail a test that launches no generated kernel."""
    before = compiled_launches()
    yield
    assert compiled_launches() > before


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def step(model, inputs):
    loss = torch.compile(lambda x: model(x).square().mean(), fullgraph=True)(inputs)
    loss.backward()
    return [loss.detach().cpu(), *(each.grad.cpu() for each in model.parameters())]


def test_step_of_training_is_the_cpus_to_the_bit(generated):
    model, inputs = network(), torch.randn(6, 8)
    moved = copy.deepcopy(model).to(DEVICE)
    expected = step(model, inputs)
    torch._dynamo.reset()
    for result, wanted in zip(step(moved, inputs.to(DEVICE)), expected, strict=True):
        assert torch.equal(result, wanted)


def test_compiled_call_on_a_busy_stream_returns(generated, close_gate):
    model = network().to(DEVICE)
    compiled = torch.compile(model)
    inputs = torch.randn(6, 8, device=DEVICE)
    stream = module.Stream()
    with torch.no_grad(), module.stream(stream):
        for _ in range(2):
            expected = compiled(inputs)
        stream.synchronize()
        gate = close_gate(stream)
        result = compiled(inputs)
        assert not stream.query()
        gate.open()
        assert torch.equal(result, expected)


def test_two_devices_in_one_graph(generated):
    def compute(x, y):
        return (x.sin() + 1), (y.cos() * 2), (x * 3).to(y.device) + y

    x, y = torch.randn(5), torch.randn(5)
    results = torch.compile(compute, fullgraph=True)(x.to(f"{DEVICE}:0"), y.to(f"{DEVICE}:1"))
    assert [each.device.index for each in results] == [0, 1, 1]
    for result, wanted in zip(results, compute(x, y), strict=True):
        torch.testing.assert_close(result.cpu(), wanted)


def test_dropout_with_fallback_is_eagers(generated):
    def drop(x):
        return nn.functional.dropout(x, 0.5) * 2

    inputs = torch.ones(100, device=DEVICE)
    module.manual_seed(5)
    expected = drop(inputs)
    with torch._inductor.config.patch(fallback_random=True):
        compiled = torch.compile(drop)
        module.manual_seed(5)
        assert torch.equal(compiled(inputs), expected)


def test_generated_dropout_follows_the_seed(generated):
    compiled = torch.compile(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x))
    inputs = torch.ones(1000, device=DEVICE)

    def draw(seed):
        module.manual_seed(seed)
        return compiled(inputs), compiled(inputs)

    first, second = draw(1)
    assert not torch.equal(first, second)
    again, _ = draw(1)
    assert torch.equal(again, first)
    other, _ = draw(2)
    assert not torch.equal(other, first)


def test_attention_of_symbolic_sizes(generated):
    def attend(x):
        return nn.functional.scaled_dot_product_attention(x, x * 2, x + 1)

    graphs = []

    def count_graphs(graph, inputs):
        graphs.append(graph)
        return torch._inductor.compile(graph, inputs)

    compiled = torch.compile(attend, fullgraph=True, backend=count_graphs)
    for length in (7, 9, 12):
        inputs = torch.randn(1, 2, length, 8)
        on_device = inputs.to(DEVICE)
        torch._dynamo.mark_dynamic(on_device, 2)
        torch.testing.assert_close(compiled(on_device).cpu(), attend(inputs))
    assert len(graphs) == 1


def test_attention_with_a_function_of_scores_is_the_cpus(generated):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tensors = [torch.randn(1, 2, 128, 16) for _ in range(3)]

    def attend(device):
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=device)

        @torch.compile
        def compiled(query, key, value):
            return flex_attention(
                query, key, value, lambda s, b, h, i, j: s + (i - j) * 0.01, block_mask=mask
            )

        with torch.no_grad():
            return compiled(*(each.to(device) for each in tensors)).cpu()

    assert torch.equal(attend(DEVICE), attend("cpu"))


def test_attention_with_a_function_of_scores_has_gradients_in_eager():
    from torch.nn.attention.flex_attention import flex_attention

    query, key, value = (torch.randn(1, 2, 16, 8, device=DEVICE).requires_grad_() for _ in range(3))
    flex_attention(query, key, value, lambda s, *_: s).sum().backward()
    grads = [each.grad.clone() for each in (query, key, value)]
    for each in (query, key, value):
        each.grad = None
    torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()
    for grad, each in zip(grads, (query, key, value), strict=True):
        torch.testing.assert_close(grad, each.grad)


@pytest.mark.skipif(DEVICE != "cuda", reason="PyTorch refuses other device types")
@pytest.mark.parametrize("reverse", (False, True))
def test_associative_scan(generated, reverse):
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(one, other):  # of linear recurrences
        return one[0] * other[0], other[0] * one[1] + other[1]

    def scan(values, mode):
        return associative_scan(combine, values, 1, reverse=reverse, combine_mode=mode)

    factors = torch.rand(3, 7, 2, device=DEVICE)
    terms = torch.rand(3, 7, 2, device=DEVICE, requires_grad=True)
    results = torch.compile(scan, fullgraph=True)((factors, terms), "pointwise")
    (gradient,) = torch.autograd.grad(results[1].sum(), terms)
    expected = scan((factors, terms), "generic")
    torch.testing.assert_close(results, expected)
    (expected_gradient,) = torch.autograd.grad(expected[1].sum(), terms)
    torch.testing.assert_close(gradient, expected_gradient)


def test_results_of_convolutions_have_the_layout_that_was_traced(generated):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Conv2d(4, 2, 1))
    model = model.to(memory_format=torch.channels_last)
    inputs = torch.randn(2, 3, 6, 6)
    expected = model(inputs)
    result = torch.compile(model.to(DEVICE))(inputs.to(DEVICE))
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)


def test_graph_of_two_streams(generated):
    stream = module.Stream()

    def compute(x):
        y = x + 1
        with stream:
            return y * 2

    inputs = torch.randn(4, device=DEVICE)
    result = torch.compile(compute)(inputs)
    module.synchronize()
    assert torch.equal(result.cpu(), (inputs.cpu() + 1) * 2)


def test_compiled_autograd_of_a_transformer(generated):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(DEVICE)
    inputs = torch.randn(2, 5, 8, device=DEVICE)
    layer(inputs).square().sum().backward()
    expected = [each.grad.cpu() for each in layer.parameters()]
    layer.zero_grad()

    def train(x):
        layer(x).square().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(train)(inputs)
    for parameter, wanted in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), wanted, rtol=1e-4, atol=1e-4)


def test_profile_has_the_names_of_kernels():
    compiled = torch.compile(lambda x: (x.sin() * 2).sum(1))
    inputs = torch.randn(10, 30, device=DEVICE)
    compiled(inputs)
    with torch.profiler.profile() as profile:
        compiled(inputs)
        module.synchronize()
    kernels = {each.name: each.device_type.name for each in profile.events()}
    assert kernels["cpp_fused_mul_sin_sum_0_kernel"] == DEVICE.upper()


def test_another_version_of_our_files_is_another_key(monkeypatch):
    from torch_openreg.inductor import codegen

    key = codegen.Version().uuid()
    assert key == codegen.Version().uuid()
    hash_of = codegen.get_hash_for_files
    monkeypatch.setattr(codegen, "get_hash_for_files", lambda files: hash_of(files, "another"))
    assert codegen.Version().uuid() != key


def test_jagged_rows_are_padded_and_packed():
    values, offsets = torch.randn(10, 3), torch.tensor([0, 2, 6, 10])

    def pad(values, offsets):
        return torch.ops.aten._jagged_to_padded_dense_forward(values * 2, [offsets], [4], 0.5) + 1

    def pack(padded, offsets):
        return torch.ops.aten._padded_dense_to_jagged_forward(padded * 2, [offsets], 10) + 1

    padded = torch.compile(pad)(values.to(DEVICE), offsets.to(DEVICE))
    assert torch.equal(padded.cpu(), pad(values, offsets))
    packed = torch.compile(pack)(padded, offsets.to(DEVICE))
    assert torch.equal(packed.cpu(), pack(padded.cpu(), offsets))


def test_importing_loads_nothing_of_inductor(python):
    python(
        """
        import sys, torch
        from device import DEVICE
        torch.ones(2, device=DEVICE)
        assert not [name for name in sys.modules if name.startswith("torch._inductor")]
        assert "torch_openreg.inductor.codegen" not in sys.modules
        """,
        fresh=True,
    )


@pytest.mark.skipif(RELEASE < (2, 13), reason="2.12 counts the devices")
def test_importing_dynamo_is_no_first_use(python):
    python(
        """
        import os, torch
        import torch._dynamo, torch._inductor.compile_fx
        os.environ["OPENREG_DEVICE_COUNT"] = "3"
        from device import module
        assert module.device_count() == 3
        """
    )
