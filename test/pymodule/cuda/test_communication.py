"""Copies between devices: torch.cuda.comm and DataParallel."""

import copy
import re

import pytest
import torch
import torch.cuda.comm as comm

pytestmark = pytest.mark.filterwarnings("error:PyTorch is not compiled with NCCL")

HERE, THERE = "cuda:0", "cuda:1"


def devices_of(tensors):
    return [str(tensor.device) for tensor in tensors]


def refused(sentence):
    return pytest.raises(RuntimeError, match=re.escape(sentence))


# ---- broadcast -----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["cpu", HERE, THERE])
def test_broadcast_gives_each_device_a_tensor(source):
    tensor = torch.arange(6.0, device=source).reshape(2, 3).t()
    copies = comm.broadcast(tensor, [0, 1, 0])
    assert devices_of(copies) == [HERE, THERE, HERE]
    assert all(result.tolist() == tensor.tolist() for result in copies)
    assert [result is tensor for result in copies] == [
        source == HERE,
        source == THERE,
        source == HERE,
    ]


def test_broadcast_writes_to_outputs():
    tensor = torch.arange(3.0)
    out = [torch.empty(3, device=HERE), torch.empty(3, device=THERE, dtype=torch.float64)]
    result = comm.broadcast(tensor, out=out)
    assert all(one is other for one, other in zip(result, out, strict=True))
    assert [output.tolist() for output in out] == [[0.0, 1.0, 2.0]] * 2


def test_broadcast_refuses_wrong_outputs():
    tensor = torch.arange(3.0)
    with refused("CUDA tensors, but output tensor at index 1 has device 'cpu'"):
        comm.broadcast(tensor, out=[torch.empty(3, device=HERE), torch.empty(3)])
    with refused("source tensor [3], but output tensor at index 0 has shape [2, 2]"):
        comm.broadcast(tensor, out=[torch.empty(2, 2, device=HERE)])
    with refused("Expected non-negative device index, but got -1"):
        torch._C._broadcast(tensor, [0, -1])


def sparse(device):
    return torch.tensor([[0.0, 2.0], [3.0, 0.0]], device=device).to_sparse()


@pytest.mark.parametrize("buffer_size", [1, 16, 1 << 20])
def test_coalesced_broadcast_keeps_the_order(buffer_size):
    tensors = [
        torch.arange(4.0, device=HERE),
        torch.arange(5, device=HERE),
        sparse(HERE),
        torch.ones(2, 3, device=HERE).t(),
        torch.arange(3, device=HERE),
        torch.arange(2.0, device=HERE, requires_grad=True),
        2 * sparse(HERE),
    ]
    here, there = comm.broadcast_coalesced(tensors, [0, 1], buffer_size)
    assert all(one is other for one, other in zip(here, tensors, strict=True))
    for result, tensor in zip(there, tensors, strict=True):
        assert str(result.device) == THERE and not result.requires_grad
        assert (result.dtype, result.layout) == (tensor.dtype, tensor.layout)
        assert result.to_dense().tolist() == tensor.to_dense().tolist()


@pytest.mark.parametrize(("buffer_size", "copies"), [(1, 3), (8, 2), (12, 1)])
def test_coalesced_broadcast_copies_as_much_at_once_as_it_may(buffer_size, copies):
    tensors = [torch.ones(1, device=HERE) for _ in range(3)]
    there = comm.broadcast_coalesced(tensors, [0, 1], buffer_size)[1]
    assert len({tensor.untyped_storage().data_ptr() for tensor in there}) == copies


def test_coalesced_broadcast_gives_each_tensor_its_version():
    tensors = [torch.zeros(2, device=HERE), torch.ones(2, device=HERE)]
    first, second = comm.broadcast_coalesced(tensors, [0, 1])[1]
    first.add_(1)
    assert (first._version, second._version) == (1, 0)


def test_coalesced_broadcast_is_from_the_first_device():
    with refused("All tensors must be on devices[0]: 1"):
        comm.broadcast_coalesced([torch.ones(1, device=HERE)], [1, 0])


# ---- scatter -------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["cpu", HERE, THERE])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("chunk_sizes", [None, [1, 4]])
def test_scatter_gives_each_device_a_part(source, dim, chunk_sizes):
    tensor = torch.arange(25.0, device=source).reshape(5, 5)
    expected = tensor.cpu().split(chunk_sizes or 3, dim)
    parts = comm.scatter(tensor, [0, 1], chunk_sizes, dim)
    assert devices_of(parts) == [HERE, THERE]
    assert all(torch.equal(part.cpu(), want) for part, want in zip(parts, expected, strict=True))
    out = [torch.empty_like(part) for part in parts]
    assert all(
        one is other for one, other in zip(comm.scatter(tensor, dim=dim, out=out), out, strict=True)
    )
    assert all(torch.equal(one, other) for one, other in zip(out, parts, strict=True))


def test_part_that_stays_is_a_view():
    tensor = torch.arange(4.0, device=THERE)
    part = comm.scatter(tensor, [0, 1])[1]
    part.zero_()
    assert tensor.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_scatter_of_less_than_there_are_devices():
    assert devices_of(comm.scatter(torch.ones(1, 2), [0, 1])) == [HERE]


@pytest.mark.parametrize("make", [torch.cuda.Stream, torch.Stream])
def test_scatter_uses_the_streams(close_gate, make):
    stream = make("cuda:1")
    tensor = torch.arange(1024.0).pin_memory()
    # The first launch of a kind is synchronous.
    comm.scatter(-tensor, [0, 1], streams=[None, stream])
    torch.cuda.synchronize(1)
    gate = close_gate(torch.cuda.current_stream(1))
    part = comm.scatter(tensor, [0, 1], streams=[None, stream])[1]
    with torch.cuda.stream(stream):
        assert part.tolist() == list(range(512, 1024))
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
    gate.open()


def test_stream_of_the_part_that_stays_is_not_asked():
    tensor = torch.arange(4.0, device=HERE)
    parts = comm.scatter(tensor, [0, 1], streams=[torch.cuda.Stream(1), None])
    assert devices_of(parts) == [HERE, THERE]


def test_scatter_refuses_invalid_arguments():
    tensor = torch.ones(4, 2)
    here, there = torch.empty(2, 2, device=HERE), torch.empty(2, 2, device=THERE)
    with refused("Expected at least one device to scatter to"):
        comm.scatter(tensor, [])
    with refused("same length, but got len(devices) = 2 and len(chunk_sizes) = 1"):
        comm.scatter(tensor, [0, 1], [4])
    with refused("expects split_sizes to sum exactly to 4"):
        comm.scatter(tensor, [0, 1], [1, 2])
    with refused("Expected non-negative device index, but got -2"):
        torch._C._scatter(tensor, [-2], None, 0, None)
    with refused(
        "the stream at index 0 (was 1) to match the device supplied at that index (expected 0)"
    ):
        comm.scatter(tensor, [0, 1], streams=[torch.cuda.Stream(1), None])
    with refused("Need torch.cuda.Stream or None"):
        comm.scatter(tensor, [0, 1], streams=[3])
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
        comm.scatter(tensor, [0, 1], dim=2)
    with refused("Expected at least one output tensor to scatter to"):
        comm.scatter(tensor, out=[])
    with refused("CUDA tensors, but output tensor at index 1 has device 'cpu'"):
        comm.scatter(tensor, out=[here, torch.empty(2, 2)])
    with refused("Output tensor at index 1 has incorrect shape: [2, 2, 1]"):
        comm.scatter(tensor, out=[here, there.unsqueeze(2)])
    with refused("at dim 0. Expected 4, but got total size 3"):
        comm.scatter(tensor, out=[here, there[:1]], dim=-2)


# ---- gather --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("destination", "expected"), [(0, HERE), (1, THERE), (None, HERE)])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_puts_parts_together(destination, expected, dim):
    parts = [torch.ones(2, 2, device=HERE), torch.zeros(2, 2, device=THERE)]
    result = comm.gather(parts, dim, destination)
    assert str(result.device) == expected
    assert torch.equal(result.cpu(), torch.cat([part.cpu() for part in parts], dim))


def test_gather_goes_to_the_host_or_to_an_output():
    parts = [torch.arange(2.0, device=THERE), torch.arange(3.0, device=HERE)]
    assert comm.gather(parts, destination="cpu").tolist() == [0, 1, 0, 1, 2]
    for device in ("cpu", HERE, THERE):
        out = torch.empty(5, device=device)
        assert comm.gather(parts, out=out) is out
        assert out.tolist() == [0, 1, 0, 1, 2]


def test_gather_keeps_a_common_memory_format():
    shape = (2, 3, 4, 5)
    here = torch.randn(shape, device=HERE).to(memory_format=torch.channels_last)
    there = torch.randn(shape, device=THERE)
    assert comm.gather([here, there]).is_contiguous()
    result = comm.gather([here, there.to(memory_format=torch.channels_last)])
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result.cpu(), torch.cat([here.cpu(), there.cpu()]))


def test_gather_refuses_invalid_arguments():
    here = torch.ones(2, 2, device=HERE)
    with refused("Expected at least one tensor to gather from"):
        comm.gather([])
    with refused("CUDA tensors, but tensor at index 1 has device 'cpu'"):
        comm.gather([here, torch.ones(2, 2)])
    with refused("tensor at index 1 has 1 dimensions, (expected 2)"):
        comm.gather([here, here[0]])
    with refused("Input tensor at index 1 has invalid shape [2, 1], but expected [2, 2]"):
        comm.gather([here, here[:, :1]])
    with refused("Expected out tensor to have shape [4, 2], but got [3, 2]"):
        comm.gather([here, here], out=torch.empty(3, 2))


def test_sums_of_several_devices():
    there = torch.ones(3, device=THERE)
    result = comm.reduce_add([torch.arange(3.0, device=HERE), there], destination=1)
    assert (str(result.device), result.tolist()) == (THERE, [1.0, 2.0, 3.0])
    (total,) = comm.reduce_add_coalesced([[there], [torch.ones(3, device=HERE)]], 1)
    assert total.tolist() == [2.0, 2.0, 2.0]


# ---- DataParallel --------------------------------------------------------------------------------


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 3),
    )


def train(module, device, labels_device=None, batches=4):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(batches):
        images = torch.randn(6, 1, 8, 8, generator=generator).to(device)
        labels = torch.randint(3, (6,), generator=generator).to(labels_device or device)
        loss = torch.nn.functional.cross_entropy(module(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("inputs", ["on the host", "on the first device"])
@pytest.mark.parametrize("device_ids", [None, [0, 1], [1, 0]])
def test_data_parallel_trains_as_the_host_does(device_ids, inputs):
    expected = network()
    host_losses = train(expected, "cpu")
    first = f"cuda:{device_ids[0]}" if device_ids else "cuda:0"
    module = torch.nn.DataParallel(network().to(first), device_ids)
    losses = train(module, "cpu" if inputs == "on the host" else first, first)
    torch.testing.assert_close(losses, host_losses, rtol=1e-4, atol=1e-5)
    for name, parameter in expected.named_parameters():
        found = module.module.get_parameter(name).cpu()
        torch.testing.assert_close(found, parameter, rtol=1e-4, atol=1e-5)


def test_replicas_run_on_all_devices():
    seen = []
    module = network().cuda()
    module.register_forward_hook(lambda module, inputs, output: seen.append(output.device.index))
    output = torch.nn.DataParallel(module)(torch.ones(4, 1, 8, 8, device=HERE))
    assert sorted(seen) == [0, 1] and str(output.device) == HERE


def test_buffers_of_the_first_device_are_updated():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).cuda()
    expected = copy.deepcopy(module).cpu()
    inputs = torch.arange(8.0).reshape(4, 2)
    torch.nn.DataParallel(module)(inputs.cuda())
    expected(inputs[:2])  # the part of the first device
    torch.testing.assert_close(module[1].running_mean.cpu(), expected[1].running_mean)


def test_parallel_apply_and_replicate():
    module = torch.nn.Linear(3, 2).cuda()
    replicas = torch.nn.parallel.replicate(module, [0, 1])
    inputs = torch.nn.parallel.scatter(torch.ones(4, 3), [0, 1])
    outputs = torch.nn.parallel.parallel_apply(replicas, inputs)
    result = torch.nn.parallel.gather(outputs, "cpu")
    torch.testing.assert_close(result, module.cpu()(torch.ones(4, 3)))
