"""Asynchronous operators that are not plain launches: random numbers, composed operators, resizing.

As in test_asynchrony.py, gates control which work has finished, and an operator may wait the first
time.
"""

import threading

import pytest
import torch
from torch.nn import functional as F

from device import DEVICE, module

# ---- random operators ----------------------------------------------------------------------------

SIZE = 1000


def new(dtype=torch.float32):
    """Return a tensor of ones on the device."""
    return torch.ones(SIZE, dtype=dtype, device=DEVICE)


RANDOM = {
    "uniform_": lambda x: x.uniform_(-1, 3),
    "normal_": lambda x: x.normal_(2, 0.5),
    "normal_ of a view": lambda x: x.view(10, 100).t()[::2].normal_(),
    "normal_ of complex": lambda x: torch.view_as_real(x.view(torch.complex64).normal_()),
    "exponential_": lambda x: x.exponential_(2),
    "log_normal_": lambda x: x.log_normal_(),
    "cauchy_": lambda x: x.cauchy_(),
    "geometric_": lambda x: x.geometric_(0.3),
    "bernoulli_": lambda x: x.bernoulli_(0.25),
    "bernoulli": lambda x: torch.bernoulli(x * 0.5),
    "random_": lambda x: x.random_(3, 500),
    "poisson": lambda x: torch.poisson(x * 4),
    "gamma": lambda x: torch._standard_gamma(x * 3),
    "binomial": lambda x: torch.binomial(x * 10, x * 0.5),
    "dropout": lambda x: F.dropout(x, 0.4),
    "rrelu": lambda x: F.rrelu(-x, training=True),
    "rand": lambda x: torch.rand(SIZE, device=x.device),
    "randn_like": lambda x: torch.randn_like(x),
    "randint": lambda x: torch.randint(9, (SIZE,), device=x.device),
    "randperm": lambda x: torch.randperm(SIZE, device=x.device),
}


def drawn(draw):
    """Return the first and second result of `draw` after seeding."""
    module.manual_seed(7)
    return draw(new()), torch.rand(4, device=DEVICE)


@pytest.mark.parametrize("operator", RANDOM)
def test_random_operator_is_asynchronous_and_draws_the_same(close_gate, operator):
    expected, expected_next = drawn(RANDOM[operator])
    module.synchronize()
    gate = close_gate()
    result, following = drawn(RANDOM[operator])
    assert not module.current_stream().query()
    gate.open()
    assert torch.equal(result, expected)
    assert torch.equal(following, expected_next)


def test_philox_offset_is_reserved_at_the_call(close_gate):
    module.manual_seed(3)
    expected = [new().normal_(), new().uniform_()]
    module.synchronize()
    module.manual_seed(3)
    gate = close_gate()
    first = new().normal_()
    state = module.get_rng_state()
    module.manual_seed(99)
    new().normal_()
    module.set_rng_state(state)
    second = new().uniform_()
    gate.open()
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])


def test_memory_of_an_argument_is_not_reused_early(close_gate):
    module.manual_seed(5)
    expected = torch.poisson(new() * 6)
    new().mul_(100)
    module.synchronize()
    module.manual_seed(5)
    gate = close_gate()
    result = torch.poisson(new() * 6)  # the argument has no other reference
    others = [new().mul_(100) for _ in range(8)]
    gate.open()
    assert torch.equal(result, expected)
    assert all(other.unique().tolist() == [100] for other in others)


@pytest.mark.parametrize("operator", ["abs", "exp", "cumsum", "multinomial", "rand_like"])
def test_memory_of_a_dropped_result_is_free_at_once(close_gate, operator):
    arguments = {"cumsum": (0,), "multinomial": (5, True)}.get(operator, ())
    x = torch.rand(100_000, device=DEVICE)
    getattr(torch, operator)(x, *arguments)
    module.synchronize()
    gate = close_gate()
    before = module.memory_allocated()
    getattr(torch, operator)(x, *arguments)
    assert module.memory_allocated() == before
    assert not module.current_stream().query()
    gate.open()


# ---- operators that PyTorch composes from an empty tensor and a fill -----------------------------

COMPOSED = {
    "abs": lambda a, b: a.abs(),
    "abs of a view": lambda a, b: a.t()[::2].abs(),
    "abs of complex": lambda a, b: torch.view_as_complex(a.view(24, 12, 2)).abs(),
    "logical_not": lambda a, b: (a > 0).logical_not(),
    "logical_and": lambda a, b: torch.logical_and(a > 0, b > 0),
    "arange": lambda a, b: torch.arange(24, device=a.device),
    "arange of a start": lambda a, b: torch.arange(3, 24, device=a.device),
    "arange of numbers": lambda a, b: torch.arange(1.5, 4, 0.25, device=a.device),
    "arange of a dtype": lambda a, b: torch.arange(9, 1, -2, dtype=torch.int16, device=a.device),
    "pad": lambda a, b: F.pad(a, (1, 2, 3, 0), value=5),
    "logsumexp": lambda a, b: a.logsumexp(1),
    "stack": lambda a, b: torch.stack([a, b], 1),
    "repeat": lambda a, b: a.repeat(2, 3),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 2.0),
    "masked_fill by a tensor": lambda a, b: a.masked_fill(b > 0, b.sum()),
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()),
    # The kernel resizes the empty tensor. The first two launches wait.
    "complex": lambda a, b: torch.complex(a, b),
    "eye": lambda a, b: torch.eye(4, 6, device=a.device),
    "kthvalue": lambda a, b: a.kthvalue(3, 1).values,
    "logical_xor": lambda a, b: torch.logical_xor(a > 0, b > 0),
    "polar": lambda a, b: torch.polar(a.t(), b.t()),
    "soft_margin_loss": lambda a, b: F.soft_margin_loss(a, b),
}


@pytest.mark.parametrize("operator", COMPOSED)
def test_composed_operator_is_asynchronous(close_gate, operator):
    generator = torch.Generator().manual_seed(0)
    operands = [torch.randn(24, 24, generator=generator) for _ in range(2)]
    work = COMPOSED[operator]
    expected = work(*operands)
    on_device = [operand.to(DEVICE) for operand in operands]
    for _ in range(2):
        work(*on_device)
    module.synchronize()
    gate = close_gate()
    result = work(*on_device)
    assert not module.current_stream().query()
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    assert result.stride() == expected.stride()
    gate.open()
    torch.testing.assert_close(result.cpu(), expected)


# ---- resizing ------------------------------------------------------------------------------------


def test_resize_is_asynchronous_and_keeps_pending_writes(close_gate):
    tensor = torch.zeros(100, device=DEVICE)
    tensor.add_(0)
    tensor[:50].add_(0)
    torch.full((100,), 9.0, device=DEVICE)
    module.synchronize()
    gate = close_gate()
    tensor.add_(3)
    tensor.resize_(5000)
    tensor[:50].add_(4)
    assert not module.current_stream().query()
    others = [torch.full((100,), 9.0, device=DEVICE) for _ in range(4)]
    gate.open()
    assert tensor[:100].tolist() == [7] * 50 + [3] * 50
    assert all(other.unique().tolist() == [9] for other in others)


def test_resize_is_seen_by_views(close_gate):
    tensor = torch.arange(6.0, device=DEVICE)
    view = tensor[2:4]
    view.mul_(1)
    module.synchronize()
    gate = close_gate()
    tensor.untyped_storage().resize_(1000)
    view.mul_(10)
    gate.open()
    assert view.tolist() == [20, 30]
    assert tensor.tolist() == [0, 1, 20, 30, 4, 5]


def test_resize_on_another_stream_keeps_memory_until_it_is_read(close_gate):
    tensor = torch.ones(200, device=DEVICE)
    module.synchronize()
    stream = module.Stream()
    gate = close_gate(stream)
    with stream:
        tensor.resize_(4000)
    others = [torch.zeros(200, device=DEVICE) for _ in range(4)]
    module.current_stream().synchronize()
    gate.open()
    stream.synchronize()
    assert tensor[:200].unique().tolist() == [1]
    assert all(other.unique().tolist() == [0] for other in others)


# ---- the thread that launches --------------------------------------------------------------------


def test_interrupt_ends_the_wait_for_space_in_a_queue(python):
    code = """
        import os, signal, threading
        import torch, torch_openreg._C
        from pathlib import Path
        from device import DEVICE, module

        signal.signal(signal.SIGINT, signal.default_int_handler)
        torch_openreg._C.set_queues_everything(True)
        counter = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        counter.add_(1)
        module.synchronize()
        gate = torch_openreg._C._Gate(0, 0)
        main, launched = threading.main_thread().native_id, 0

        def interrupt_when_the_queue_is_full():
            # The main thread sleeps only for this reason once it has begun.
            while launched < 1000 or "S" not in Path(
                f"/proc/self/task/{main}/stat"
            ).read_text().rpartition(")")[2].split()[0]:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt_when_the_queue_is_full)
        thread.start()
        try:
            while True:
                counter.add_(1)
                launched += 1
        except KeyboardInterrupt:
            print("interrupted", module.current_stream().query())
        thread.join()
        gate.open()
        print(counter.item() == launched + 1)
    """
    assert python(code).stdout == "interrupted False\nTrue\n"


def test_worker_treats_denormals_as_the_launching_thread_does(python):
    code = """
        import torch, torch_openreg._C
        from device import DEVICE, module

        torch_openreg._C.set_queues_everything(True)
        torch.set_num_threads(1)
        tiny = torch.full((4,), 1e-39, device=DEVICE)

        def halves():
            gate = torch_openreg._C._Gate(0, 0)
            half = tiny * 0.5
            assert not module.current_stream().query()
            gate.open()
            return (half != 0).tolist()

        tiny * 0.5
        print(halves())
        assert torch.set_flush_denormal(True)
        print((tiny.cpu() * 0.5 != 0).tolist(), halves())
        assert torch.set_flush_denormal(False)
        print(halves())
    """
    kept, flushed = [True] * 4, [False] * 4
    assert python(code).stdout == f"{kept}\n{flushed} {flushed}\n{kept}\n"


def test_worker_uses_the_current_number_of_threads_for_matrix_products(python):
    """A worker that starts while PyTorch uses several threads must not keep their number.

    Another number of threads would sum in another order.
    """
    code = """
        import torch, torch_openreg._C
        from device import DEVICE, module
        from torch.nn import functional

        def product():
            for _ in range(2):
                result = functional.linear(x, weight, bias)
            return result.tolist()

        torch.set_num_threads(1)
        shapes = (10, 16), (48, 16), (48,)
        x, weight, bias = (torch.randn(shape, device=DEVICE) for shape in shapes)
        expected = product()
        torch_openreg._C.set_queues_everything(True)
        torch.set_num_threads(2)
        product()
        torch.set_num_threads(1)
        print(product() == expected)
    """
    assert python(code).stdout == "True\n"


def test_threads_release_what_they_cache_of_tensors(everything_queued):
    """One thread creates tensors and another one drops them; either may end first."""
    results = [torch.ones(3, device=DEVICE) for _ in range(200)]

    def take(part):
        sums = [tensor + 1 for tensor in part]
        part.clear()
        results.extend(sums)

    for _ in range(4):
        part, results[:] = results[:], []
        thread = threading.Thread(target=take, args=(part,))
        thread.start()
        thread.join()
    assert [result.tolist() for result in results] == [[5.0] * 3] * 200
