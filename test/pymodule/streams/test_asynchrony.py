"""Asynchronous launches: programs that order work wrongly on a GPU do so here too.

Gates control which work has finished, so no test depends on speed. A launch can be queued only
after a similar one has run, so every test runs its operators once before it closes a gate.
"""

import threading
import time
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from device import DEVICE, module


def run_once(work):
    """Run work for the first time, wait for it, and return it."""
    work()
    module.synchronize()
    return work


def is_asleep(thread_id):
    """Return whether a thread of this process waits for something.

    It cannot wait for the GIL, which nobody holds while the file is read.
    """
    try:
        status = Path(f"/proc/self/task/{thread_id}/stat").read_text()
    except OSError:  # it has ended
        return False
    return status.rpartition(")")[2].split()[0] == "S"


def result_of_waiting(work, gate):
    """Return the result of work, after asserting that it waits for a gate."""
    results = []
    started = threading.Event()

    def run():
        started.set()
        results.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    while thread.is_alive() and not is_asleep(thread.native_id):
        time.sleep(0.001)  # otherwise this thread releases the GIL too briefly
    assert not results
    gate.open()
    thread.join()
    return results[0]


def operands(device):
    """Return three tensors with known values on a device."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(24, 24, generator=generator).to(device) for _ in range(3)]


LAUNCHES = {
    "pointwise": lambda a, b, c: a + b,
    "with_a_number": lambda a, b, c: a * 3,
    "of_another_dtype": lambda a, b, c: a > b,
    "matmul": lambda a, b, c: a @ b,
    "strided": lambda a, b, c: a.t().mul(b.t()),
    "reduction": lambda a, b, c: a.sum(),
    "reduction_of_a_dimension": lambda a, b, c: a.mean(1, keepdim=True),
    "multi_output": lambda a, b, c: a.max(0),
    "sort": lambda a, b, c: a.sort(dim=1, descending=True),
    "layer_norm": lambda a, b, c: torch.native_layer_norm(a, [24], b[0], c[0], 1e-5),
    "batch_norm": lambda a, b, c: F.batch_norm(a, b[0], c[0].square(), training=True),
    "convolution": lambda a, b, c: F.conv2d(a.view(1, 1, 24, 24), b[:3, :3].reshape(1, 1, 3, 3)),
    "softmax": lambda a, b, c: F.log_softmax(a, 1),
    "cat": lambda a, b, c: torch.cat([a, b, c], 1),
    "factory": lambda a, b, c: torch.full_like(a, 7),
    "cast": lambda a, b, c: a.to(torch.float16),
    "in_place": lambda a, b, c: a.add_(b, alpha=2),
    "in_place_of_a_view": lambda a, b, c: a[::2].mul_(b[::2]),
    "out": lambda a, b, c: torch.addmm(a, b, c, out=c.new_empty(24, 24)),
    "list": lambda a, b, c: torch._foreach_add([a, b], [b, c]),
    "list_in_place": lambda a, b, c: torch._foreach_add_([a, b], [c, c]) or (a, b),
    "list_of_norms": lambda a, b, c: torch._foreach_norm([a, b, c]),
    "indexing": lambda a, b, c: a[(b[0] > 0).long()],
    "setitem": lambda a, b, c: a.__setitem__((slice(2, 5), 3), 1.5) or a,
}


def as_list(results):
    """Return a tensor, or a tuple or list of tensors, as a list."""
    return [results] if isinstance(results, torch.Tensor) else list(results)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_launch_returns_before_it_has_run(close_gate, launch):
    work = LAUNCHES[launch]
    expected = as_list(work(*operands("cpu")))
    run_once(lambda: work(*operands(DEVICE)))
    tensors = operands(DEVICE)
    gate = close_gate()
    results = as_list(work(*tensors))
    event = module.current_stream().record_event()
    assert not module.current_stream().query()
    assert not event.query()
    for result, reference in zip(results, expected, strict=True):
        assert result.device == torch.device(f"{DEVICE}:0")
        assert result.shape == reference.shape
        assert result.stride() == reference.stride()
        assert result.dtype == reference.dtype
    gate.open()
    module.synchronize()
    assert event.query()
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result.cpu(), reference)


def test_results_can_be_arguments_of_later_launches(close_gate):
    a, b, c = operands("cpu")
    expected = ((a + b).relu() @ c).sum(0)
    tensors = operands(DEVICE)
    work = run_once(lambda: ((tensors[0] + tensors[1]).relu() @ tensors[2]).sum(0))
    gate = close_gate()
    result = work()
    gate.open()
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_later_changes_of_host_memory_have_no_effect(close_gate, dtype):
    tensor, number = torch.zeros(8, dtype=dtype, device=DEVICE), torch.tensor(3, dtype=dtype)
    work = run_once(lambda: tensor + number)
    gate = close_gate()
    result = work()
    number.fill_(5)
    gate.open()
    assert result.tolist() == [3] * 8


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(-1),
        lambda x: x[1:, ::2],
        lambda x: x.t(),
        lambda x: x.expand(2, 24, 24),
        lambda x: x.unsqueeze(0).permute(2, 0, 1),
        lambda x: x.as_strided((3,), (2,)),
        lambda x: x.diagonal(),
        lambda x: x.split(5)[1],
        lambda x: x.detach(),
        lambda x: x.view(torch.int32),
    ],
)
def test_views_do_not_wait(close_gate, view):
    host = operands("cpu")[0]
    tensor = host.to(DEVICE)
    gate = close_gate()
    result = view(tensor)  # not even for the first one
    assert not module.current_stream().query()
    gate.open()
    assert torch.equal(result.cpu(), view(host))


def test_metadata_does_not_wait(close_gate):
    tensor = operands(DEVICE)[0]
    gate = close_gate()
    assert tensor.shape == (24, 24)
    assert tensor.stride() == (24, 1)
    assert tensor.is_contiguous() and not tensor.is_pinned()
    assert tensor.data_ptr() != 0
    assert tensor.untyped_storage().nbytes() == 24 * 24 * 4
    assert torch.empty_like(tensor).device == tensor.device
    assert not module.current_stream().query()
    gate.open()


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda x: x.sum().item(), 3),
        (lambda x: x.tolist(), [0, 1, 2]),
        (lambda x: x.nonzero().flatten().tolist(), [1, 2]),
        (lambda x: x.unique().tolist(), [0, 1, 2]),
        (lambda x: x[x > 0].tolist(), [1, 2]),
        (lambda x: x.cpu().tolist(), [0, 1, 2]),
        (lambda x: bool((x == 2).any()), True),
        (lambda x: str(x), f"tensor([0, 1, 2], device='{DEVICE}:0')"),
    ],
    ids=["item", "tolist", "nonzero", "unique", "mask", "cpu", "bool", "str"],
)
def test_data_dependent_operators_wait(close_gate, work, expected):
    tensor, increments = (torch.tensor(values, device=DEVICE) for values in ([0, 0, 0], range(3)))
    run_once(lambda: tensor.add_(increments))
    run_once(lambda: work(tensor))
    tensor.zero_()
    gate = close_gate()
    tensor.add_(increments)
    assert result_of_waiting(lambda: work(tensor), gate) == expected


NUMBERS = {
    "scalar": lambda a, number: a * number,
    "scaled": lambda a, number: torch.add(a, a, alpha=number),
    "in_place": lambda a, number: a.addcdiv_(a, a, value=number),
    "list": lambda a, number: torch._foreach_mul([a], number)[0],
}


@pytest.mark.parametrize("launch", NUMBERS)
def test_launch_with_another_number_does_not_wait(close_gate, launch):
    work = NUMBERS[launch]
    run_once(lambda: work(torch.ones(24, device=DEVICE), 3.5))
    tensor = torch.ones(24, device=DEVICE)
    gate = close_gate()
    result = work(tensor, 4.25)
    gate.open()
    assert result.tolist() == work(torch.ones(24), 4.25).tolist()


def test_launch_with_another_result_size_waits(close_gate):
    run_once(lambda: torch.arange(0.0, 3.5, device=DEVICE))
    gate = close_gate()
    result = result_of_waiting(lambda: torch.arange(0.0, 5.5, device=DEVICE), gate)
    assert result.tolist() == [0, 1, 2, 3, 4, 5]


def test_first_run_and_first_run_of_a_shape_wait(close_gate):
    for size in (401, 403):
        tensor = torch.arange(size, device=DEVICE)
        # No other test uses these sizes.
        result = result_of_waiting(lambda tensor=tensor: tensor.bitwise_xor(77), close_gate())
        assert result.tolist() == [number ^ 77 for number in range(size)]


def test_reader_that_does_not_wait_reads_the_old_value(close_gate):
    stream, tensor = module.Stream(), torch.zeros(8, device=DEVICE)
    run_once(lambda: tensor.add_(1))
    gate = close_gate()
    tensor.add_(1)
    with stream:
        assert tensor.tolist() == [1] * 8
    gate.open()
    module.synchronize()
    with stream:
        assert tensor.tolist() == [2] * 8


@pytest.mark.parametrize("how", ["wait_stream", "wait_event", "event.wait"])
def test_reader_that_waits_reads_the_new_value(close_gate, how):
    stream, tensor = module.Stream(), torch.zeros(8, device=DEVICE)
    run_once(lambda: (tensor.add_(1), tensor.clone()))
    gate = close_gate()
    tensor.add_(1)
    writer = module.current_stream()
    if how == "wait_stream":
        stream.wait_stream(writer)
    elif how == "wait_event":
        stream.wait_event(writer.record_event())
    else:
        writer.record_event().wait(stream)
    with stream:
        copy = tensor.clone()
    assert not stream.query()
    gate.open()
    with stream:
        assert copy.tolist() == [2] * 8


def test_work_after_the_record_is_not_waited_for(close_gate):
    stream, tensor = module.Stream(), torch.zeros(8, device=DEVICE)
    run_once(lambda: tensor.add_(1))
    event = module.current_stream().record_event()
    gate = close_gate()
    tensor.add_(1)
    stream.wait_event(event)
    with stream:
        assert tensor.tolist() == [1] * 8
    gate.open()


def test_devices_work_side_by_side(close_gate):
    gate = close_gate(module.default_stream(0))
    with module.device(1):
        tensor = torch.ones(8, device=DEVICE)
        run_once(lambda: tensor.add_(1))
        assert tensor.add_(1).tolist() == [3] * 8
    module.synchronize(1)
    assert module.default_stream(1).query()
    assert not module.default_stream(0).query()
    gate.open()


def test_run_ahead_needs_no_memory(close_gate):
    tensor, one = torch.zeros(1 << 16, device=DEVICE), torch.ones((), device=DEVICE)

    def work(times):
        result = tensor
        for _ in range(times):
            result = result + one  # with a number, the CPU kernel would allocate memory
        return result

    run_once(lambda: work(3))
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    gate = close_gate()
    result = work(500)
    assert not module.current_stream().query()
    assert module.max_memory_allocated() == before + 2 * tensor.nbytes
    gate.open()
    assert result.unique().tolist() == [500]


def read_on_a_stream_and_reuse(close_gate, record):
    """Free a tensor that queued work of another stream reads, and allocate a similar one."""
    stream = module.Stream()
    with stream:
        run_once(lambda: torch.zeros(1000, device=DEVICE).clone())
    tensor = torch.ones(1000, device=DEVICE)
    address = tensor.data_ptr()
    gate = close_gate(stream)
    with stream:
        result = tensor.clone()
    if record:
        tensor.record_stream(stream)
    del tensor
    other = torch.full((1000,), 9.0, device=DEVICE)
    module.current_stream().synchronize()
    is_reused = other.data_ptr() == address
    gate.open()
    with stream:
        return is_reused, result.unique().tolist()


def test_memory_that_another_stream_still_reads_is_reused(close_gate):
    assert read_on_a_stream_and_reuse(close_gate, record=False) == (True, [9])


def test_memory_recorded_on_another_stream_is_not_reused_early(close_gate):
    assert read_on_a_stream_and_reuse(close_gate, record=True) == (False, [1])


VIEWS = {
    "conjugated": lambda t: t.conj(),
    "negated": lambda t: t.conj().imag,
    "conjugated and expanded": lambda t: t[:1].conj().expand(4),
    "negated and expanded": lambda t: t.conj().imag[:1].expand(4),
    "expanded": lambda t: t[:1].expand(4),
    "part": lambda t: t[3:5],
    "transposed": lambda t: t.view(2, -1).t(),
    "of another dtype": lambda t: torch.view_as_real(t),
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("kind", VIEWS)
def test_memory_recorded_by_a_view_is_not_reused_early(close_gate, kind):
    """Uses a pool, so that no free block of this size from an earlier test is preferred."""

    def allocate():
        with module.use_mem_pool(pool):
            return torch.ones(1000, dtype=torch.complex64, device=DEVICE)

    pool, stream = module.MemPool(), module.Stream()
    tensor = allocate()
    view, address = VIEWS[kind](tensor), tensor.data_ptr()
    assert view.is_conj() == ("conjugated" in kind)
    assert view.is_neg() == ("negated" in kind)
    gate = close_gate(stream)
    view.record_stream(stream)
    del tensor, view
    others = [allocate() for _ in range(2)]
    assert address not in [other.data_ptr() for other in others]
    gate.open()
    stream.synchronize()
    others.append(allocate())
    assert others[2].data_ptr() == address


@pytest.mark.parametrize("kind", VIEWS)
def test_recording_a_stream_allocates_nothing(close_gate, kind):
    stream = module.Stream()
    view = VIEWS[kind](torch.ones(1000, dtype=torch.complex64, device=DEVICE))
    gate = close_gate(stream)
    before = module.memory_stats()
    for _ in range(3):
        view.record_stream(stream)
    assert module.memory_stats() == before
    gate.open()


def test_memory_of_a_stream_is_reused_in_stream_order(close_gate):
    tensor = torch.ones(1000, device=DEVICE)
    run_once(lambda: torch.full_like(torch.ones(1000, device=DEVICE), 9).clone())
    gate = close_gate()
    copy = tensor.clone()
    address = tensor.data_ptr()
    del tensor
    other = torch.full_like(copy, 9)
    assert other.data_ptr() == address
    gate.open()
    assert (copy.unique().tolist(), other.unique().tolist()) == ([1], [9])


class StreamOfBackward(torch.autograd.Function):
    """Identity function that records the stream of its backward."""

    seen: list[torch.Stream] = []

    @staticmethod
    def forward(ctx, tensor):
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        StreamOfBackward.seen.append(module.current_stream())
        return gradient


def test_backward_runs_on_the_stream_of_forward_and_is_waited_for(close_gate):
    stream, caller = module.Stream(), module.current_stream()
    host = operands("cpu")[0].requires_grad_()
    (host * host).sum().backward()
    leaf = host.detach().to(DEVICE).requires_grad_()
    caller.synchronize()

    def forward_and_backward(between):
        leaf.grad = None
        with stream:
            loss = (StreamOfBackward.apply(leaf) * leaf).sum()
        return between(), loss.backward()

    forward_and_backward(module.synchronize)
    module.synchronize()
    StreamOfBackward.seen.clear()
    gate, _ = forward_and_backward(lambda: close_gate(stream))
    assert StreamOfBackward.seen == [stream]
    assert not caller.query()  # it waits for the gradient, as the caller expects
    gate.open()
    torch.testing.assert_close(leaf.grad.cpu(), host.grad)


def in_threads(count, work):
    """Run work(index) in several threads concurrently, and return their results."""
    results = [None] * count
    barrier = threading.Barrier(count)

    def run(index):
        barrier.wait()
        results[index] = work(index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_share_a_stream(everything_queued):
    total = torch.zeros(100, dtype=torch.int64, device=DEVICE)

    def work(index):
        mine = torch.zeros(100, device=DEVICE)
        for _ in range(50):
            mine = mine + index
            total.add_(1)
        return mine.unique().tolist()

    assert in_threads(6, work) == [[50 * index] for index in range(6)]
    assert total.unique().tolist() == [300]


def test_threads_have_streams_of_their_own(everything_queued):
    def work(index):
        with module.Stream(index % 2):
            tensor = torch.eye(32, device=DEVICE)
            for _ in range(20):
                tensor = (tensor @ tensor).mul_(index)
                tensor = tensor / index
            return tensor.sum().item()

    assert in_threads(6, lambda index: work(index + 1)) == [32] * 6


def test_more_launches_than_the_queue_holds_go_through(close_gate):
    counter = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    run_once(lambda: counter.add_(1))

    def launch():
        for _ in range(2000):
            counter.add_(1)
        return counter.item()

    assert result_of_waiting(launch, close_gate()) == 2001


TRAINING = """
import os, torch, torch_openreg._C
from torch import nn

torch.set_num_threads(1)
torch_openreg._C.set_queues_everything(True)

def losses(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    data = [(torch.randn(48, 32), torch.randint(0, 10, (48,))) for _ in range(8)]
    losses = []
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item().hex() for loss in losses]

print(losses(DEVICE))
"""


def test_training_is_bit_for_bit_that_of_the_cpu(python):
    def train(device, **environment):
        return python(TRAINING.replace("DEVICE", repr(device)), **environment).stdout

    reference = train("cpu")
    assert train(DEVICE) == reference
    assert train(DEVICE, OPENREG_LAUNCH_BLOCKING="1") == reference
