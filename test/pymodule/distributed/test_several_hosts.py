"""A group with ranks on several hosts gives the same results as a group on one host."""

import ctypes
import os
import shutil
import subprocess

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, BACKENDS, own_device, ranks_of

pytestmark = pytest.mark.own_processes

OP = dist.ReduceOp

# The host of each rank, and the lengths of its buffers: even, interleaved, uneven.
PLACES = {"two and two": "aabb", "in turn": "abab", "three and one": "aaba", "three hosts": "abc"}

CLONE_NEWNET = 0x40000000


# ---- in the ranks --------------------------------------------------------------------------------


def be_on(host):
    os.environ["OPENREG_HOST"] = host


def enter_network(name):
    """Move this thread, and threads that it starts, to another network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{name}") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {name}")
    os.environ["GLOO_SOCKET_IFNAME"] = "veth0"
    be_on(name)


def numbers(rank, count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(1, 5, (count,), generator=generator).to(dtype)


def all_numbers(count, dtype=torch.float32):
    return [numbers(rank, count, dtype) for rank in range(dist.get_world_size())]


def on_device(tensor):
    return tensor.to(own_device())


def empty(count, dtype=torch.float32):
    return torch.zeros(count, dtype=dtype, device=own_device())


def all_reduce(op, dtype, count):
    tensor = on_device(numbers(dist.get_rank(), count, dtype))
    dist.all_reduce(tensor, op)
    return tensor.cpu()


def reduce(root, count):
    tensor = on_device(numbers(dist.get_rank(), count))
    dist.reduce(tensor, root)
    return tensor.cpu()


def reduce_scatter(op, counts):
    """Buffers with a length for each rank."""
    own = numbers(dist.get_rank(), sum(counts))
    output = empty(counts[dist.get_rank()])
    dist.reduce_scatter(output, [on_device(part) for part in own.split(counts)], op)
    return output.cpu()


def broadcast(root, count):
    tensor = on_device(numbers(dist.get_rank(), count))
    dist.broadcast(tensor, root)
    return tensor.cpu()


def all_gather(counts):
    outputs = [empty(count) for count in counts]
    dist.all_gather(outputs, on_device(numbers(dist.get_rank(), counts[dist.get_rank()])))
    return torch.cat(outputs).cpu()


def gather(root, count):
    size, is_root = dist.get_world_size(), dist.get_rank() == root
    outputs = [empty(count) for _ in range(size)] if is_root else None
    dist.gather(on_device(numbers(dist.get_rank(), count)), outputs, root)
    return torch.cat(outputs).cpu() if is_root else None


def scatter(root, count):
    parts = [on_device(part) for part in all_numbers(count)] if dist.get_rank() == root else None
    output = empty(count)
    dist.scatter(output, parts, root)
    return output.cpu()


def all_to_all(counts):
    """Rank i sends counts[i] elements to each other rank."""
    size, rank = dist.get_world_size(), dist.get_rank()
    output = empty(sum(counts))
    given = on_device(numbers(rank, counts[rank] * size))
    dist.all_to_all_single(output, given, list(counts), [counts[rank]] * size)
    return output.cpu()


def pass_around(count):
    """Batched messages to the next rank and from the previous one."""
    size, rank = dist.get_world_size(), dist.get_rank()
    output, given = empty(count), on_device(numbers(rank, count))
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, given, (rank + 1) % size),
            dist.P2POp(dist.irecv, output, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    return output.cpu()


def pass_on(count):
    """Messages around the ring, one after the other: each rank waits for the previous one."""
    size, rank = dist.get_world_size(), dist.get_rank()
    output, given = empty(count), on_device(numbers(rank, count))
    if rank == 0:
        dist.send(given, 1)
    dist.recv(output, (rank - 1) % size)
    if rank != 0:
        dist.send(given, (rank + 1) % size)
    return output.cpu()


def send_both_ways(count):
    """Rank 0 and the last rank, which are on different hosts in all layouts but one."""
    size, rank = dist.get_world_size(), dist.get_rank()
    if rank not in (0, size - 1):
        return None
    peer = size - 1 - rank
    outputs = [empty(count) for _ in range(3)]
    works = [dist.irecv(output, peer) for output in outputs]
    works += [dist.isend(on_device(numbers(rank + each, count)), peer) for each in range(3)]
    for work in works:
        work.wait()
    return torch.stack(outputs).cpu()


def barrier():
    dist.barrier()


# ---- the tests -----------------------------------------------------------------------------------


def ranks_on(folder, places, prepare=be_on):
    size = len(places)
    return ranks_of(
        folder, size, devices=size, prepare=prepare, places=places, backend=BACKENDS[BACKEND]
    )


@pytest.fixture(scope="module", params=PLACES.values(), ids=PLACES)
def ranks(request, tmp_path_factory):
    with ranks_on(tmp_path_factory.mktemp("group"), request.param) as ranks:
        yield ranks


def expect_same_as(answers, expected):
    assert all(torch.equal(answer, expected) for answer in answers)


REDUCTIONS = {
    OP.SUM: lambda numbers: numbers.sum(0),
    OP.PRODUCT: lambda numbers: numbers.prod(0),
    OP.MIN: lambda numbers: numbers.amin(0),
    OP.MAX: lambda numbers: numbers.amax(0),
}


@pytest.mark.parametrize("count", [0, 1, 7, 100_000])
def test_all_reduce(ranks, count):
    for op, reference in REDUCTIONS.items():
        given = torch.stack([numbers(rank, count) for rank in range(len(ranks.peers))])
        expect_same_as(ranks.call(all_reduce, op, torch.float32, count), reference(given))


def test_averages_are_divided_once(ranks):
    for dtype in (torch.float32, torch.bfloat16):
        given = torch.stack([numbers(rank, 100, dtype) for rank in range(len(ranks.peers))])
        expected = (given.float().sum(0) / len(ranks.peers)).to(dtype)
        expect_same_as(ranks.call(all_reduce, OP.AVG, dtype, 100), expected)


def test_reduce(ranks):
    size = len(ranks.peers)
    for root in (0, size - 1):
        answers = ranks.call(reduce, root, 1000)
        expected = sum(numbers(rank, 1000) for rank in range(size))
        assert torch.equal(answers[root], expected)


def test_reduce_scatter(ranks):
    size = len(ranks.peers)
    for counts in ([50] * size, list(range(size))):
        total = sum(numbers(rank, sum(counts)) for rank in range(size))
        answers = ranks.call(reduce_scatter, OP.SUM, counts)
        assert all(map(torch.equal, answers, total.split(counts)))


def test_broadcast(ranks):
    for root in range(len(ranks.peers)):
        expect_same_as(ranks.call(broadcast, root, 1001), numbers(root, 1001))


def test_all_gather(ranks):
    size = len(ranks.peers)
    for counts in ([64] * size, [1 + 100 * rank for rank in range(size)]):
        expected = torch.cat([numbers(rank, count) for rank, count in enumerate(counts)])
        expect_same_as(ranks.call(all_gather, counts), expected)


def test_gather_and_scatter(ranks):
    size = len(ranks.peers)
    for root in range(size):
        expected = torch.cat([numbers(rank, 10) for rank in range(size)])
        assert torch.equal(ranks.call(gather, root, 10)[root], expected)
        answers = ranks.call(scatter, root, 10)
        assert all(map(torch.equal, answers, expected.split(10)))


def test_all_to_all(ranks):
    size = len(ranks.peers)
    counts = [3 + rank for rank in range(size)]
    sent = [numbers(rank, counts[rank] * size).split(counts[rank]) for rank in range(size)]
    for rank, answer in enumerate(ranks.call(all_to_all, counts)):
        assert torch.equal(answer, torch.cat([parts[rank] for parts in sent]))


@pytest.mark.parametrize("count", [1, 100_000])
def test_messages(ranks, count):
    answers = ranks.call(pass_around, count)
    for rank, answer in enumerate(answers):
        assert torch.equal(answer, numbers((rank - 1) % len(answers), count))


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_messages_that_are_not_batched(ranks, count):
    size = len(ranks.peers)
    for rank, answer in enumerate(ranks.call(pass_on, count)):
        assert torch.equal(answer, numbers((rank - 1) % size, count))
    first, *_, last = ranks.call(send_both_ways, count)
    assert torch.equal(first, torch.stack([numbers(size - 1 + each, count) for each in range(3)]))
    assert torch.equal(last, torch.stack([numbers(each, count) for each in range(3)]))


def test_barrier_waits_for_ranks_of_other_hosts(ranks):
    *early, last = ranks.peers
    for peer in early:
        peer.start(barrier)
    assert not any(peer.connection.poll(0.2) for peer in early)
    last.start(barrier)
    ranks.finish()


# ---- networks ------------------------------------------------------------------------------------


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def networks():
    """Two connected network namespaces; skips the test where they cannot be created."""
    names = [f"openreg-{os.getpid()}-{end}" for end in "ab"]
    if shutil.which("ip") is None:
        pytest.skip("no program `ip`, which makes networks")
    try:
        for name in names:
            run("ip", "netns", "add", name)
        run("ip", "-n", names[0], "link", "add", "veth0", "type", "veth",
            "peer", "name", "veth0", "netns", names[1])  # fmt: skip
        for number, name in enumerate(names):
            run("ip", "-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "veth0")
            for device in ("lo", "veth0"):
                run("ip", "-n", name, "link", "set", device, "up")
        yield names
    except subprocess.CalledProcessError as error:
        pytest.skip(f"networks cannot be made here: {error.stderr.decode().strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_hosts_with_networks_of_their_own(networks, tmp_path):
    one, other = networks
    with ranks_on(tmp_path, [one, one, other, other], enter_network) as ranks:
        expected = sum(numbers(rank, 100_000) for rank in range(4))
        expect_same_as(ranks.call(all_reduce, OP.SUM, torch.float32, 100_000), expected)
        for rank, answer in enumerate(ranks.call(pass_around, 1000)):
            assert torch.equal(answer, numbers((rank - 1) % 4, 1000))


# ---- failure -------------------------------------------------------------------------------------


def expect_failure(count):
    with pytest.raises(dist.DistBackendError) as raised:
        all_reduce(OP.SUM, torch.float32, count)
    return str(raised.value)


def test_all_hear_of_a_rank_that_was_killed(tmp_path):
    with ranks_on(tmp_path, "aabb") as ranks:
        ranks.call(all_reduce, OP.SUM, torch.float32, 10)
        ranks.peers.pop().kill()
        sentences = ranks.call(expect_failure, 10)
        assert "rank 3" in sentences[2]
        assert "between hosts" in sentences[0] + sentences[1]
        ranks.has_failed = True
