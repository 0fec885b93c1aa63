"""Messages between two ranks, and coalesced calls."""

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, own_device, ranks_of

from device import DEVICE

pytestmark = [pytest.mark.own_processes, pytest.mark.ranks_queue]


@pytest.fixture(scope="module", params=[False, True], ids=["lazy", "bound"])
def ranks(request, tmp_path_factory):
    """Three ranks, connected by their first call or from the start."""
    folder = tmp_path_factory.mktemp("group")
    with ranks_of(folder, 3, request.param, devices=3, backend=BACKEND) as ranks:
        yield ranks


def full(value, count=4):
    return torch.full((count,), float(value), device=own_device())


def send_without_the_third():
    """A communicator for the whole group would wait for the third rank."""
    rank = dist.get_rank()
    tensor = full(rank)
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
    return tensor.tolist()


def test_messages_are_of_two_ranks_alone(tmp_path):
    with ranks_of(tmp_path, 3, devices=3, backend=BACKEND) as ranks:
        for peer in ranks.peers[:2]:
            peer.start(send_without_the_third)
        assert [peer.finish() for peer in ranks.peers[:2]] == [[0] * 4, [0] * 4]


def pass_on(count):
    """Send around the ring; some ranks receive before they send."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, theirs = full(rank, count), full(-1, count)
    if rank == 0:
        dist.send(mine, 1)
        dist.recv(theirs, size - 1)
    else:
        dist.recv(theirs, rank - 1)
        dist.send(mine, (rank + 1) % size)
    return theirs.unique().tolist()


@pytest.mark.parametrize("count", [0, 3, 1 << 20])
def test_ring(ranks, count):
    expected = [[], [], []] if count == 0 else [[2], [0], [1]]
    assert ranks.call(pass_on, count) == expected


def exchange_all():
    """Exchange with all ranks and itself, concurrently, in a different order on each rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    outputs = [full(-1, 1 << 18) for _ in range(size)]
    operations = []
    for step in range(size):
        peer = (rank + step) % size
        operations.append(dist.P2POp(dist.irecv, outputs[peer], peer))
        operations.append(dist.P2POp(dist.isend, full(10 * rank + peer, 1 << 18), peer))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [output.unique().item() for output in outputs]


def test_batch(ranks):
    for _ in range(2):
        assert ranks.call(exchange_all) == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]


def send_in_order():
    rank = dist.get_rank()
    if rank == 0:
        works = [dist.isend(full(value), 1) for value in range(5)]
    elif rank == 1:
        tensors = [full(-1) for _ in range(5)]
        works = [dist.irecv(tensor, 0) for tensor in tensors]
    else:
        return None
    for work in works:
        work.wait()
    return [tensor[0].item() for tensor in tensors] if rank == 1 else None


def test_messages_of_a_pair_are_in_order(ranks):
    assert ranks.call(send_in_order) == [None, [0, 1, 2, 3, 4], None]


def coalesce():
    size = dist.get_world_size()
    tensors = [full(dist.get_rank() + each, each + 1) for each in range(3)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    inputs = [full(dist.get_rank() + each, 2) for each in range(2)]
    outputs = [full(-1, 2 * size) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager():
        for output, given in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, given)
    scattered = [full(-1, 2) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager():
        for output, given in zip(scattered, outputs, strict=True):
            dist.reduce_scatter_tensor(output, given)
    others = [full(dist.get_rank()) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager(
        device=torch.device(DEVICE), async_ops=True
    ) as old:
        for root, tensor in enumerate(others):
            dist.broadcast(tensor, root)
    old.wait()
    return [
        [tensor[0].item() for tensor in tensors],
        [output.tolist() for output in outputs],
        [output[0].item() for output in scattered],
        [tensor[0].item() for tensor in others],
    ]


def test_collectives_that_are_called_together(ranks):
    for rank, (sums, gathered, scattered, others) in enumerate(ranks.call(coalesce)):
        assert sums == [3, 6, 9]
        assert gathered == [[0, 0, 1, 1, 2, 2], [1, 1, 2, 2, 3, 3]]
        assert scattered == [3 * rank, 3 * (rank + 1)]
        assert others == [0, 1]


def coalesce_nothing():
    with dist.distributed_c10d._coalescing_manager(device=torch.device(DEVICE)):
        pass
    tensor = full(1)
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_nothing_is_called_together(ranks):
    assert ranks.call(coalesce_nothing) == [3, 3, 3]


def send_objects():
    torch.get_device_module(DEVICE).set_device(own_device())
    if dist.get_rank() == 0:
        dist.send_object_list([{"a": 1}, "b"], 1)
    elif dist.get_rank() == 1:
        objects = [None, None]
        dist.recv_object_list(objects, 0)
        return objects
    return None


def test_objects(ranks):
    assert ranks.call(send_objects) == [None, [{"a": 1}, "b"], None]


def receive_from_any():
    try:
        dist.recv(full(0))
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    return None


def test_receiving_from_any_rank_is_refused(ranks):
    name = f"ProcessGroup{BACKEND.upper()} does not support recvAnysource"
    assert ranks.call(receive_from_any) == [("NotImplementedError", name)] * 3
