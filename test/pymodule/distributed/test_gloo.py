"""The backend "gloo" treats device tensors as it treats CPU tensors."""

import contextlib
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import own_device

from device import DEVICE

pytestmark = pytest.mark.own_processes

SHAPE = (4, 3)


def numbers(dtype, shape=SHAPE):
    """Values that differ by rank, and are the same for each device."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(1, 7, shape, generator=generator).to(dtype)


def empties(tensor, count=2):
    return [torch.zeros_like(tensor) for _ in range(count)]


# Each takes a tensor and returns what the collective wrote, or its Work and that.


def broadcast(tensor, **options):
    return dist.broadcast(tensor, 1, **options), [tensor]


def all_reduce(tensor, op=dist.ReduceOp.SUM, **options):
    return dist.all_reduce(tensor, op, **options), [tensor]


def reduce(tensor, **options):
    work = dist.reduce(tensor, 1, **options)
    return work, [tensor] if dist.get_rank() == 1 else []


def all_gather(tensor, **options):
    outputs = empties(tensor)
    return dist.all_gather(outputs, tensor, **options), outputs


def all_gather_into_tensor(tensor, **options):
    output = torch.cat(empties(tensor))
    return dist.all_gather_into_tensor(output, tensor, **options), [output]


def all_gather_coalesced(tensor, **options):
    lists = [empties(tensor), empties(tensor)]
    work = dist.all_gather_coalesced(lists, [tensor, tensor * tensor], **options)
    return work, [*lists[0], *lists[1]]


def gather(tensor, **options):
    outputs = empties(tensor) if dist.get_rank() == 0 else None
    return dist.gather(tensor, outputs, 0, **options), outputs or []


def scatter(tensor, **options):
    inputs = [tensor, tensor * tensor] if dist.get_rank() == 0 else None
    output = torch.zeros_like(tensor)
    return dist.scatter(output, inputs, 0, **options), [output]


def reduce_scatter(tensor, **options):
    output = torch.zeros_like(tensor)
    return dist.reduce_scatter(output, [tensor, tensor * tensor], **options), [output]


def reduce_scatter_tensor(tensor, **options):
    output = torch.zeros_like(tensor)
    return dist.reduce_scatter_tensor(output, torch.cat([tensor, tensor]), **options), [output]


def all_to_all(tensor, **options):
    outputs = empties(tensor)
    return dist.all_to_all(outputs, [tensor, tensor * tensor], **options), outputs


def all_to_all_single(tensor, **options):
    output = torch.zeros_like(tensor)
    return dist.all_to_all_single(output, tensor, **options), [output]


def all_to_all_single_uneven(tensor, **options):
    splits = [1, 3]
    own = splits[dist.get_rank()]
    output = torch.zeros(2 * own, 3, dtype=tensor.dtype, device=tensor.device)
    work = dist.all_to_all_single(output, tensor, [own, own], splits, **options)
    return work, [output]


def all_reduce_sparse(tensor, **options):
    sparse = (tensor * (tensor > 0)).to_sparse()
    return dist.all_reduce(sparse, **options), [sparse]


def messages(tensor, **options):
    output, other = torch.zeros_like(tensor), 1 - dist.get_rank()
    if dist.get_rank() == 0:
        dist.send(tensor, other)
        dist.recv(output)
    else:
        assert dist.recv(output, other) == 0
        dist.send(tensor, other)
    return None, [output]


def batch_of_messages(tensor, **options):
    outputs, other = empties(tensor), 1 - dist.get_rank()
    pairs = [(dist.isend, tensor), (dist.irecv, outputs[0]), (dist.isend, tensor * tensor)]
    pairs.append((dist.irecv, outputs[1]))
    for work in dist.batch_isend_irecv([dist.P2POp(op, each, other) for op, each in pairs]):
        work.wait()
    return None, outputs


def coalesced(tensor, **options):
    outputs = [torch.cat(empties(tensor)), torch.cat(empties(tensor))]
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_gather_into_tensor(outputs[0], tensor)
        dist.all_gather_into_tensor(outputs[1], tensor * tensor)
    manager.wait()
    return None, outputs


COLLECTIVES = [
    broadcast,
    all_reduce,
    reduce,
    all_gather,
    all_gather_into_tensor,
    all_gather_coalesced,
    gather,
    scatter,
    reduce_scatter,
    reduce_scatter_tensor,
    all_to_all,
    all_to_all_single,
    all_to_all_single_uneven,
    all_reduce_sparse,
]
OTHERS = [messages, batch_of_messages, coalesced]


def results(collective, dtype, options, wait):
    """The results on the CPU and on the device, as CPU tensors."""
    both = []
    warnings.simplefilter("ignore")
    for device in torch.device("cpu"), own_device():
        tensor = numbers(dtype).to(device)
        work, outputs = collective(tensor, **options)
        if wait:
            work.wait()
        assert all(output.device == device for output in outputs)
        both.append([output.to_dense().cpu() for output in outputs])
    return both


def compare(ranks, *arguments):
    for on_cpu, on_device in ranks.call(results, *arguments):
        assert len(on_cpu) == len(on_device)
        for expected, actual in zip(on_cpu, on_device, strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("collective", [*COLLECTIVES, *OTHERS])
def test_as_on_the_cpu(ranks, collective):
    compare(ranks, collective, torch.float32, {}, False)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_asynchronously(ranks, collective):
    compare(ranks, collective, torch.float32, {"async_op": True}, True)


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "uint8", "int8", "int32", "int64", "bool"]
)
@pytest.mark.parametrize("collective", [all_reduce, all_gather, all_to_all_single])
def test_dtypes(ranks, collective, dtype):
    compare(ranks, collective, getattr(torch, dtype), {}, False)


def test_complex_numbers_are_summed(ranks):
    compare(ranks, all_reduce, torch.complex64, {}, False)


@pytest.mark.parametrize("op", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
def test_operations(ranks, op):
    dtype = torch.int32 if op.startswith("B") else torch.float32
    compare(ranks, all_reduce, dtype, {"op": getattr(dist.ReduceOp, op)}, False)


def sum_of_parts():
    """Uses a column, which is not contiguous, and a view in the middle of memory."""
    sums = []
    for device in torch.device("cpu"), own_device():
        tensor = numbers(torch.float32, (8, 8)).to(device)
        dist.all_reduce(tensor[2:5])
        dist.all_reduce(tensor[6:].t())
        sums.append(tensor.cpu())
    return sums


def test_views(ranks):
    for expected, actual in ranks.call(sum_of_parts):
        assert torch.equal(actual, expected)


def sum_of_nothing():
    tensor = torch.ones(0, 3, device=own_device())
    dist.broadcast(tensor, 0)
    return tensor.shape


def test_tensors_without_elements(ranks):
    assert ranks.call(sum_of_nothing) == [(0, 3)] * 2


def objects():
    gathered = [None, None]
    dist.all_gather_object(gathered, {"rank": dist.get_rank()})
    tensors = [torch.full((2,), dist.get_rank(), device=own_device())]
    dist.broadcast_object_list(tensors, 1, device=own_device())
    return gathered, tensors[0].tolist(), tensors[0].device.type


def test_objects(ranks):
    expected = ([{"rank": 0}, {"rank": 1}], [1, 1], DEVICE)
    assert ranks.call(objects) == [expected] * 2


def groups():
    both, own = dist.new_group([0, 1]), dist.new_group([1], use_local_synchronization=True)
    tensor = torch.ones(2, device=own_device())
    dist.all_reduce(tensor, group=both)
    if dist.get_rank() == 1:
        dist.all_reduce(tensor, group=own)
    dist.monitored_barrier(both)
    dist.barrier(both)
    dist.barrier(both, device_ids=[dist.get_rank()])
    dist.destroy_process_group(both)
    return tensor.tolist()


def test_other_groups(ranks):
    assert ranks.call(groups) == [[2, 2]] * 2


def futures():
    tensor = torch.full((3,), 1.0 + dist.get_rank(), device=own_device())
    future = dist.all_reduce(tensor, async_op=True).get_future()
    twice = future.then(lambda done: done.value()[0] * 2).wait()
    lists = [torch.zeros_like(tensor) for _ in range(2)]
    gathered = dist.all_gather(lists, tensor, async_op=True)
    gathered.wait()
    same = [a.data_ptr() == b.data_ptr() for a, b in zip(gathered.result(), lists, strict=True)]
    return twice.tolist(), twice.device == own_device(), same, gathered.is_success()


def test_futures_and_results_are_tensors_of_the_device(ranks):
    assert ranks.call(futures) == [([6, 6, 6], True, [True, True], True)] * 2


def sequence_of_both():
    """Calls with CPU and device tensors alternate, and the first wait comes after all of them."""
    works, tensors = [], []
    for step in range(20):
        device = own_device() if step % 2 else "cpu"
        tensors.append(torch.full((100,), float(step + dist.get_rank()), device=device))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    dist.barrier()
    assert all(work.is_completed() for work in works)
    return [tensor[0].item() for tensor in tensors]


def test_collectives_of_both_kinds_have_one_order(ranks):
    expected = [2.0 * step + 1 for step in range(20)]
    assert ranks.call(sequence_of_both) == [expected] * 2


# ---- errors --------------------------------------------------------------------------------------


def sentence(function, *arguments):
    with warnings.catch_warnings(), contextlib.suppress(AssertionError):
        warnings.simplefilter("ignore")
        try:
            function(*arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}".split("\n")[0].split("Exception raised")[0]
    return "nothing"


def refusals():
    device = own_device()
    one = torch.ones(2, device=device)
    away = torch.ones(2, device=torch.device(DEVICE, 1 - dist.get_rank()))
    return [
        sentence(dist.all_reduce_coalesced, [one, one]),
        sentence(dist.all_reduce, one, dist.ReduceOp.BAND),
        sentence(dist.all_gather, [one, away], one),
        sentence(dist.all_gather, [one.cpu(), one.cpu()], one),
        sentence(dist.all_gather, [one, torch.ones(3, device=device)], one),
        sentence(dist.send, torch.ones(3, 3, device=device).t()[0], 1 - dist.get_rank()),
        sentence(dist.all_reduce, one.to_sparse(), dist.ReduceOp.MAX),
    ]


def test_calls_that_gloo_rejects_for_cuda_are_rejected(ranks):
    coalesced, band, away, mixed, sizes, strided, sparse = ranks.call(refusals)[0]
    assert coalesced == (
        "RuntimeError: ProcessGroupGloo::allreduce_coalesced: unsupported device type " + DEVICE
    )
    assert band == "RuntimeError: Cannot use ReduceOp.BAND with non-integral dtype"
    assert away == (
        "RuntimeError: tensors in the nested tensor vectors need to be on the same device"
    )
    assert mixed.startswith("RuntimeError: ProcessGroupGloo::allgather: invalid tensor type")
    assert sizes.startswith("RuntimeError: ProcessGroupGloo::allgather: invalid tensor size")
    assert strided == "RuntimeError: input tensor has to be contiguous"
    assert sparse == (
        "RuntimeError: ProcessGroupGloo::allreduce: unsupported reduction operation "
        "(allreduce of sparse tensors only works with ReduceOp.SUM)"
    )
