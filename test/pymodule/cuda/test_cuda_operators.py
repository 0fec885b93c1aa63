"""Operators in CUDA mode: results equal the CPU's, and operators that only CUDA has work."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

MODELS = {
    "linear": (nn.Linear(8, 4), (3, 8)),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        (2, 3, 8, 8),
    ),
    "lstm": (nn.LSTM(4, 5, 2), (3, 2, 4)),
    "transformer": (nn.TransformerEncoderLayer(16, 2, batch_first=True, dropout=0.0), (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_step_of_training_has_the_values_of_the_cpu(name):
    model, shape = MODELS[name]
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        there = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(there.parameters(), lr=0.1, momentum=0.9)
        output = there(torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).to(device))
        output = output[0] if isinstance(output, tuple) else output
        output.square().mean().backward()
        optimizer.step()
        assert output.device.type == device
        results.append([output.detach().cpu(), *(p.detach().cpu() for p in there.parameters())])
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(here, there)


def test_outer_products_run_no_triton_kernel():
    """PyTorch has Triton kernels for a few operators since 2.13; here the CPU's kernels run."""
    a, b = torch.rand(2, 3, 1), torch.rand(2, 1, 4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        product = torch.bmm(a.cuda(), b.cuda())
    torch.testing.assert_close(product.cpu(), torch.bmm(a, b))
    assert [event.key for event in profile.key_averages() if "_native" in event.key] == []


def test_numbers_drawn_are_those_of_a_gpu():
    """The published numbers of NVIDIA GPUs for manual_seed(0)."""
    torch.manual_seed(0)
    drawn = torch.rand(3, device="cuda")
    assert [round(each, 4) for each in drawn.tolist()] == [0.3990, 0.5167, 0.0249]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ctc_loss(reduction):
    torch.manual_seed(0)
    logits, targets = torch.randn(10, 2, 5), torch.randint(1, 5, (2, 3))
    lengths = torch.tensor([10, 9]), torch.tensor([3, 2])
    losses, gradients = [], []
    for device in ("cpu", "cuda"):
        there = logits.detach().clone().to(device).requires_grad_()
        loss = F.ctc_loss(there.log_softmax(2), targets.to(device), *lengths, reduction=reduction)
        loss.backward()
        losses.append(loss.detach().cpu())
        gradients.append(there.grad.cpu())
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_of_half_as_float32(function, dtype):
    values = torch.randn(4, 7).to(dtype)
    there = values.cuda().requires_grad_()
    result = function(there, 1, dtype=torch.float32)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.cpu(), function(values.float(), 1))
    here = values.float().requires_grad_()
    function(here, 1).square().sum().backward()
    result.square().sum().backward()
    assert there.grad.dtype == dtype
    torch.testing.assert_close(there.grad.cpu(), here.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_half_with_results_in_float32(dtype):
    one, other, bias = (torch.randn(2, 3, 3).to(dtype) for _ in range(3))
    wide = [each.float() for each in (one, other, bias)]
    one, other, bias = (each.cuda() for each in (one, other, bias))
    products = {
        torch.mm(one[0], other[0], out_dtype=torch.float32): wide[0][0] @ wide[1][0],
        torch.bmm(one, other, out_dtype=torch.float32): wide[0] @ wide[1],
        torch.addmm(bias[0], one[0], other[0], out_dtype=torch.float32): torch.addmm(
            wide[2][0], wide[0][0], wide[1][0]
        ),
        torch.baddbmm(bias, one, other, out_dtype=torch.float32): torch.baddbmm(
            wide[2], wide[0], wide[1]
        ),
    }
    for there, here in products.items():
        assert there.dtype == torch.float32
        torch.testing.assert_close(there.cpu(), here)
    out = torch.empty(0, device="cuda")
    assert torch.mm(one[0], other[0], out_dtype=torch.float32, out=out) is out
    torch.testing.assert_close(out.cpu(), wide[0][0] @ wide[1][0])
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        torch.mm(one[0].double(), other[0].double(), out_dtype=torch.float32)


def test_autocast_and_scaler():
    model = nn.Linear(8, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0)
    before = model.weight.detach().clone()
    with torch.autocast("cuda"):
        output = model(torch.ones(2, 8, device="cuda"))
        assert output.dtype == torch.float16
        assert F.softmax(output, 1).dtype == torch.float32
    scaler.scale(output.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.weight, before)
    model.weight.grad = torch.full_like(model.weight, torch.inf)
    kept = model.weight.detach().clone()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model.weight, kept) and scaler.get_scale() == scale / 2


def test_sentences_are_cudas():
    with pytest.raises(torch.cuda.OutOfMemoryError) as ran_out:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    assert re.match(
        r"CUDA out of memory\. Tried to allocate 32768\.00 GiB\. GPU 0 has a total capacity of .*"
        r"try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation\.  "
        r"See documentation for Memory Management  \(https://docs\.pytorch\.org/.*\)$",
        str(ran_out.value),
    )
    with pytest.raises(torch.AcceleratorError, match=r"^CUDA error: invalid device ordinal"):
        torch.ones(1, device="cuda:63")
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
        torch.ones(2, device="cuda") + torch.ones(2)


def test_properties_are_those_of_the_profile():
    properties = torch.cuda.get_device_properties(0)
    assert repr(properties).startswith("_CudaDeviceProperties(name='NVIDIA H100")
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability() == (9, 0)
    assert properties.multi_processor_count == 132
    assert properties.shared_memory_per_block_optin == 227 * 1024
    assert properties.regs_per_multiprocessor == 65536
    assert properties.L2_cache_size == 50 << 20
    assert properties.memory_clock_rate * properties.memory_bus_width > 0
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(properties.uuid))
    assert bytes(properties.uuid.bytes).hex() == str(properties.uuid).replace("-", "")
    assert str(properties.uuid) != str(torch.cuda.get_device_properties(1).uuid)
    assert f"uuid={properties.uuid}, L2_cache_size=50MB)" in repr(properties)
    assert properties.gcnArchName == properties.name == torch.cuda.get_device_name()


def test_events_and_streams_order_work(close_gate):
    side = torch.cuda.Stream(priority=-1)
    assert side.priority == -1 and torch.cuda.Stream.priority_range() == (0, -3)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        gate = close_gate()
        first.record()
        torch.cuda._sleep(20_000_000)
        last.record()
    assert not last.query()
    gate.open()
    torch.cuda.current_stream().wait_stream(side)
    last.synchronize()
    assert first.elapsed_time(last) >= 10
    assert torch.cuda.current_stream().cuda_stream == 0
    assert repr(side) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={side.cuda_stream:#x}>"
