"""torch.cuda.nccl: collectives among devices of one process."""

import pytest
import torch
from torch.cuda import nccl


def tensors(shape=(4,)):
    torch.manual_seed(0)
    values = torch.randint(1, 9, (2, *shape)).float()
    return values, [values[index].to(f"cuda:{index}") for index in (0, 1)]


def test_it_is_there_for_one_tensor_a_device():
    _, inputs = tensors()
    assert nccl.is_available(inputs)
    assert not nccl.is_available([inputs[0], inputs[0]])
    assert not nccl.is_available([torch.ones(1)])


COMBINED = [torch.sum, torch.prod, torch.amax, torch.amin]


@pytest.mark.parametrize("op", range(4))
def test_all_reduce_gives_all_the_result(op):
    values, inputs = tensors()
    outputs = [torch.empty_like(tensor) for tensor in inputs]
    expected = COMBINED[op](values, 0)
    nccl.all_reduce(inputs, outputs, op)
    assert all(torch.equal(output.cpu(), expected) for output in outputs)
    assert torch.equal(inputs[1].cpu(), values[1])
    nccl.all_reduce(inputs, op=op)
    assert all(torch.equal(tensor.cpu(), expected) for tensor in inputs)


@pytest.mark.parametrize("root", [0, 1])
def test_reduce_gives_one_the_result(root):
    values, inputs = tensors()
    nccl.reduce(inputs, root=root)
    assert torch.equal(inputs[root].cpu(), values.sum(0))
    assert torch.equal(inputs[1 - root].cpu(), values[1 - root])


@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_gives_all_what_one_has(root):
    values, inputs = tensors()
    nccl.broadcast(inputs, root, streams=[torch.cuda.Stream(0), torch.cuda.Stream(1)])
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    assert all(torch.equal(tensor.cpu(), values[root]) for tensor in inputs)


def test_collectives_use_the_streams(close_gate):
    values, inputs = tensors()
    nccl.broadcast([tensor.clone() for tensor in inputs])  # the first of a kind is waited for
    streams = [torch.cuda.Stream(0), torch.cuda.Stream(1)]
    for index in (0, 1):
        torch.cuda.synchronize(index)
    gates = [close_gate(torch.cuda.current_stream(index)) for index in (0, 1)]
    nccl.broadcast(inputs, streams=streams)
    with torch.cuda.stream(streams[1]):
        assert inputs[1].tolist() == values[0].tolist()
    for gate in gates:
        gate.open()


def test_all_gather_gives_all_everything():
    values, inputs = tensors((2, 3))
    outputs = [torch.empty(2, 2, 3, device=tensor.device) for tensor in inputs]
    nccl.all_gather(inputs, outputs)
    assert all(torch.equal(output.cpu(), values) for output in outputs)


def test_reduce_scatter_gives_each_a_part():
    values, inputs = tensors((4, 3))
    outputs = [torch.empty(2, 3, device=tensor.device) for tensor in inputs]
    nccl.reduce_scatter(inputs, outputs)
    for output, expected in zip(outputs, values.sum(0).split(2), strict=True):
        assert torch.equal(output.cpu(), expected)


def test_what_is_wrong_is_refused():
    _, inputs = tensors()
    with pytest.raises(RuntimeError, match="can't be empty"):
        nccl.all_reduce([])
    with pytest.raises(RuntimeError, match="input of length 2 and output of length 1"):
        nccl.all_reduce(inputs, inputs[:1])
    with pytest.raises(RuntimeError, match="unique devices"):
        nccl.broadcast([inputs[0], inputs[0]])
    with pytest.raises(RuntimeError, match="tensors on CUDA devices"):
        nccl.broadcast([inputs[0], torch.ones(4)])
    with pytest.raises(RuntimeError, match="op must be one of 0 to 3, but got 9"):
        nccl.all_reduce(inputs, op=9)
