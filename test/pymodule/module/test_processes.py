"""Other processes: after initialization, a forked child has no devices; a spawned one does."""

import pytest
import torch
from modes import openreg_only

from device import DEVICE, NAME, module

SENTENCE = (
    f"Cannot re-initialize {NAME} in forked subprocess. To use {NAME} with multiprocessing, "
    "you must use the 'spawn' start method"
)

FORK = """
import os, torch
from device import DEVICE, module
parent = torch.ones(4, device=DEVICE)
module.manual_seed_all(1)
child = os.fork()
if child == 0:
    try:
        {code}
    except BaseException as error:
        print(type(error).__name__, str(error).splitlines()[0], sep=": ", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(parent.sum().item())
"""


@pytest.mark.parametrize(
    "code",
    [
        "module.init()",
        "module.current_device()",
        "module.set_device(0)",
        "module.device(1).__enter__()",
        "module.synchronize()",
        "module.mem_get_info()",
        pytest.param(
            "module.memory_stats()['num_ooms']",
            marks=openreg_only("torch.cuda.memory_stats is empty before the first use"),
        ),
        "module.get_rng_state()",
        "torch.ones(1, device=DEVICE)",
        "torch.ones(1).to(DEVICE)",
        "parent + 1",
        "parent.cpu()",
        "parent.tolist()",
        "parent.zero_()",
        "torch.accelerator.synchronize()",
    ],
)
def test_forked_child_that_uses_a_device_gets_an_error(python, code):
    assert python(FORK.format(code=code)).stdout == f"RuntimeError: {SENTENCE}\n4.0\n"


def test_forked_child_may_seed_and_use_the_cpu(python):
    code = "torch.manual_seed(3); print(torch.ones(2).sum().item(), flush=True)"
    assert python(FORK.format(code=code)).stdout == "2.0\n4.0\n"


def test_forked_child_knows_that_it_is_one(python):
    code = "print(module._is_in_bad_fork(), module.is_initialized(), flush=True)"
    assert python(FORK.format(code=code)).stdout == "True False\n4.0\n"


def test_forked_child_holds_no_memory(python):
    code = "print(module.memory_allocated(), module.max_memory_reserved(), flush=True)"
    assert python(FORK.format(code=code)).stdout == "0 0\n4.0\n"


def test_forked_child_may_drop_tensors_of_its_parent(python):
    code = "del parent; print('dropped', flush=True)"
    assert python(FORK.format(code=code)).stdout == "dropped\n4.0\n"


def test_child_forked_before_first_use_has_devices(python):
    result = python(
        """
        import os, torch
        from device import DEVICE
        if os.fork() == 0:
            print(torch.ones(4, device=DEVICE).sum().item(), flush=True)
            os._exit(0)
        os.wait()
        print(torch.ones(2, device=f"{DEVICE}:1").sum().item())
        """
    )
    assert result.stdout == "4.0\n2.0\n"


def add_on_a_device(index, queue):
    """In a spawned process: send a sum and the state of the generator as Python objects."""
    module.set_device(index)
    tensor = torch.arange(10.0, device=DEVICE)
    queue.put((tensor.get_device(), tensor.sum().item()))


def test_spawned_processes_have_devices_of_their_own():
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    torch.ones(1, device=DEVICE)
    torch.multiprocessing.spawn(add_on_a_device, args=(queue,), nprocs=2)
    assert sorted([queue.get(), queue.get()]) == [(0, 45.0), (1, 45.0)]


class Squares(torch.utils.data.Dataset):
    """A dataset of CPU tensors, as workers of a DataLoader require."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(float(index * index))


def test_forked_loader_workers_feed_a_device():
    module.init()
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    total = sum(batch.to(DEVICE).sum() for batch in loader)
    assert total.item() == 140


def test_program_that_ends_right_after_backward_ends_well(python):
    code = """
        import torch
        from device import DEVICE

        weight = torch.ones(4, device=DEVICE, requires_grad=True)
        weight.sum().backward()
    """
    for _ in range(8):  # repeated, because two threads race
        python(code)


FORK_WITH_WORK = """
import os, sys, torch, torch_openreg._C as C
from device import DEVICE, module
C.set_queues_everything(True)
stream, tensor = module.Stream(), torch.ones(4, device=DEVICE)
stream.wait_stream(module.current_stream())
with stream:
    for _ in range(2):
        tensor.add_(1)
        stream.synchronize()
    gate = C._Gate(0, stream.stream_id)
    tensor.add_(1)
child = os.fork()
if child == 0:
    try:
        {code}
    except RuntimeError as error:
        print(str(error).splitlines()[0], flush=True)
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
gate.open()
with stream:
    print(tensor.sum().item())
"""


@pytest.mark.parametrize(
    "code",
    [
        "tensor.add_(1)",
        "stream.synchronize()",
        "stream.query()",
        "stream.record_event()",
        "module.synchronize()",
        "tensor.to('cpu', non_blocking=True)",
    ],
)
def test_child_forked_with_pending_work_gets_an_error(python, code):
    assert python(FORK_WITH_WORK.format(code=code)).stdout == f"{SENTENCE}\n0\n16.0\n"


def test_child_forked_from_a_process_with_work_pending_ends(python):
    assert python(FORK_WITH_WORK.format(code="pass")).stdout == "0\n16.0\n"


def test_sixty_four_devices_work_side_by_side(python):
    result = python(
        """
        import torch, torch_openreg._C as C
        from device import DEVICE, module
        C.set_queues_everything(True)
        tensors = [torch.full((8,), index, device=f"{DEVICE}:{index}") for index in range(64)]
        for tensor in tensors:
            tensor.add_(1)
        gates = [C._Gate(index, 0) for index in range(64)]
        for tensor in tensors:
            tensor.add_(1)
        print(any(module.default_stream(index).query() for index in range(64)))
        for gate in reversed(gates):
            gate.open()
        print([tensor.sum().item() for tensor in tensors] == [8 * (i + 2) for i in range(64)])
        """,
        OPENREG_DEVICE_COUNT="64",
        OPENREG_DEVICE_MEMORY="64M",
    )
    assert result.stdout == "False\nTrue\n"
