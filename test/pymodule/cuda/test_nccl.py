"""torch.cuda.nccl: collectives between the devices of a process."""

import concurrent.futures
import textwrap

import pytest
import torch
from peers import Peer
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


COMBINED = [torch.sum, torch.prod, torch.amax, torch.amin, torch.mean]


@pytest.mark.parametrize("op", range(5))
def test_all_reduce_gives_all_the_result(op):
    values, inputs = tensors()
    outputs = [torch.empty_like(tensor) for tensor in inputs]
    expected = COMBINED[op](values, 0)
    nccl.all_reduce(inputs, outputs, op)
    assert all(torch.equal(output.cpu(), expected) for output in outputs)
    assert torch.equal(inputs[1].cpu(), values[1])
    nccl.all_reduce(inputs, op=op)
    assert all(torch.equal(tensor.cpu(), expected) for tensor in inputs)


def test_the_tensors_may_be_a_set():
    values, inputs = tensors()
    nccl.all_reduce(set(inputs))
    assert all(torch.equal(tensor.cpu(), values.sum(0)) for tensor in inputs)


def test_settings_and_versions_of_the_process_group():
    group = torch.distributed.ProcessGroupNCCL
    assert group.get_build_nccl_version() == group.get_runtime_nccl_version() == nccl.version()
    names = ("DEFAULT", "EFFICIENCY", "ZERO")
    assert [getattr(group, f"NCCL_CTA_POLICY_{name}") for name in names] == [0, 1, 2]


def test_symmetric_memory_over_nccl(python):
    code = """
    import torch
    import torch.distributed._symmetric_memory as symm_mem
    for _ in range(2):
        symm_mem.set_backend("NCCL")
        tensor = symm_mem.empty(8, device="cuda").fill_(3)
        print(symm_mem.get_backend("cuda"), tensor.sum().item())
    """
    assert python(textwrap.dedent(code)).stdout == "NCCL 24.0\n" * 2


@pytest.mark.parametrize("root", [0, 1])
def test_reduce_gives_one_the_result(root):
    values, inputs = tensors()
    nccl.reduce(inputs, root=root)
    assert torch.equal(inputs[root].cpu(), values.sum(0))
    assert torch.equal(inputs[1 - root].cpu(), values[1 - root])


@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_copies_one_tensor_to_all(root):
    values, inputs = tensors()
    nccl.broadcast(inputs, root, streams=[torch.cuda.Stream(0), torch.cuda.Stream(1)])
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    assert all(torch.equal(tensor.cpu(), values[root]) for tensor in inputs)


def test_collectives_use_the_streams(close_gate):
    values, inputs = tensors()
    # The first launch of a kind is synchronous.
    nccl.broadcast([tensor.clone() for tensor in inputs])
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


def test_invalid_arguments_are_refused():
    _, inputs = tensors()
    with pytest.raises(RuntimeError, match="can't be empty"):
        nccl.all_reduce([])
    with pytest.raises(RuntimeError, match="input of length 2 and output of length 1"):
        nccl.all_reduce(inputs, inputs[:1])
    with pytest.raises(RuntimeError, match="invalid root: expected one of 0 to 1, but got 2"):
        nccl.broadcast(inputs, 2)
    with pytest.raises(RuntimeError, match="inputs of 4 elements and outputs of 8, but got"):
        nccl.all_gather(inputs, [tensor.clone() for tensor in inputs])
    with pytest.raises(RuntimeError, match="number of streams is not equal"):
        nccl.broadcast(inputs, streams=[None])
    with pytest.raises(RuntimeError, match="same dtype"):
        nccl.broadcast([inputs[0], inputs[1].double()])
    with pytest.raises(RuntimeError, match="contiguous"):
        nccl.broadcast([tensor[::2] for tensor in inputs])
    with pytest.raises(RuntimeError, match="unique devices"):
        nccl.broadcast([inputs[0], inputs[0]])
    with pytest.raises(RuntimeError, match="dense tensors on CUDA devices"):
        nccl.broadcast([inputs[0], torch.ones(4)])
    with pytest.raises(RuntimeError, match="op must be one of 0 to 4, but got 9"):
        nccl.all_reduce(inputs, op=9)


def test_version_is_that_of_the_build_with_cuda():
    assert nccl.version() == (2, 29, 7)


def test_a_missing_side_is_waited_for(close_gate):
    """Each device works on its own stream; none finishes before all have started."""
    values, inputs = tensors()
    nccl.all_reduce([tensor.clone() for tensor in inputs])
    for index in (0, 1):
        torch.cuda.synchronize(index)
    gate = close_gate(torch.cuda.current_stream(1))
    nccl.all_reduce(inputs)
    assert not torch.cuda.current_stream(0).query()
    gate.open()
    assert inputs[0].tolist() == values.sum(0).tolist()


def test_collectives_of_several_streams_are_in_the_order_of_the_calls():
    values, inputs = tensors()
    streams = [[torch.cuda.Stream(index) for index in (0, 1)] for _ in range(3)]
    for index in (0, 1):
        torch.cuda.synchronize(index)
    for each in streams:
        nccl.all_reduce(inputs, streams=each)
    for index in (0, 1):
        torch.cuda.synchronize(index)
    assert torch.equal(inputs[1].cpu(), values.sum(0) * 4)


def join(unique_id, rank):
    torch.cuda.set_device(rank)
    return nccl.init_rank(2, unique_id, rank)


def test_communicators_are_joined_one_by_one():
    values, inputs = tensors()
    unique_id = nccl.unique_id()
    assert isinstance(unique_id, bytes) and unique_id != nccl.unique_id()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        communicators = list(threads.map(join, [unique_id] * 2, range(2)))
    nccl.all_reduce(inputs, comms=communicators)
    assert torch.equal(inputs[1].cpu(), values.sum(0))
    with pytest.raises(RuntimeError, match="on the same devices"):
        nccl.all_reduce(inputs, comms=communicators[::-1])
    with pytest.raises(RuntimeError, match="number of communicators"):
        nccl.all_reduce(inputs, comms=communicators[:1])
    with pytest.raises(RuntimeError, match="an id from torch.cuda.nccl.unique_id"):
        nccl.init_rank(2, b"something", 0)
    with pytest.raises(RuntimeError, match="rank must be one of 0 to 1, but got 2"):
        nccl.init_rank(2, unique_id, 2)


def reduce_with_another_process(unique_id, rank):
    communicator = join(unique_id, rank)
    tensor = torch.full((3,), rank + 1.0, device="cuda")
    nccl.all_reduce([tensor], comms=[communicator])
    return tensor.tolist()


@pytest.mark.own_processes
def test_communicators_join_processes():
    with Peer() as first, Peer() as second:
        unique_id = first.call(nccl.unique_id)
        for rank, peer in enumerate((first, second)):
            peer.start(reduce_with_another_process, unique_id, rank)
        assert [peer.finish() for peer in (first, second)] == [[3, 3, 3]] * 2
    with pytest.raises(RuntimeError, match="has ended"):
        nccl.init_rank(2, unique_id, 0)


def test_parallel_training_reduces_by_it(monkeypatch):
    """The gradients of replicas are reduced to the first device."""
    used = []
    reduce = nccl.reduce
    monkeypatch.setattr(
        nccl, "reduce", lambda *arguments, **options: used.append(reduce(*arguments, **options))
    )
    network = torch.nn.DataParallel(torch.nn.Linear(4, 4).cuda())
    network(torch.ones(4, 4, device="cuda")).sum().backward()
    assert used and torch.equal(network.module.bias.grad.cpu(), torch.full((4,), 4.0))


def test_hash_of_tensors_is_of_their_bytes():
    """The hash that PyTorch logs with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    hash_of = torch._C._distributed_c10d._hash_tensors
    tensor = torch.arange(4, device="cuda")
    assert hash_of([tensor]) == hash_of([tensor.cpu()]) != hash_of([tensor + 1])
    assert hash_of([tensor, tensor]) != hash_of([tensor])
