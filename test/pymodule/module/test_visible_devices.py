"""The visible devices: CUDA_VISIBLE_DEVICES in CUDA mode, else OPENREG_VISIBLE_DEVICES.

The expected results come from PyTorch's own parser of CUDA's variable.
"""

import os
import textwrap

import pytest
import torch

from device import DEVICE

pytestmark = pytest.mark.own_processes

VARIABLE, OTHER = "CUDA_VISIBLE_DEVICES", "OPENREG_VISIBLE_DEVICES"
if DEVICE != "cuda":
    VARIABLE, OTHER = OTHER, VARIABLE
NONE = f"No {'CUDA' if DEVICE == 'cuda' else 'openreg'} GPUs are available"

NAMES = ["Tesla T4", "NVIDIA L4", "NVIDIA A10G"]
THREE = {
    "OPENREG_DEVICE_COUNT": "3",
    "OPENREG_PROFILE": "t4,l4,a10g",
    "OPENREG_DEVICE_MEMORY": "64M,96M,128M",
}
BEGIN = f"""
import os, torch
DEVICE, VARIABLE = {DEVICE!r}, {VARIABLE!r}
module = torch.get_device_module(DEVICE)
names = lambda: [module.get_device_name(i) for i in range(module.device_count())]
"""


@pytest.fixture
def run(python):
    """Run code with a list of visible devices, of three devices; return what it printed."""

    def run(code, visible=None, **variables):
        chosen = {} if visible is None else {VARIABLE: visible}
        return python(BEGIN + textwrap.dedent(code), **THREE | chosen | variables).stdout

    return run


# ---- selection and order -------------------------------------------------------------------------

LISTS = (
    ["0", "1", "2", "2,0", "1,2,0", "0,1,2", "", " ", "-1", "3", "x"]
    + ["0,-1,2", "2,3,1", "1,x,2", "1,,2", "1,", " 2, +1", "1gpu,0x", "2;1", "0-2"]
    + ["0,0", "2,1,2", "1,01"]
)


def of_pytorch(monkeypatch, chosen):
    """Return the devices that PyTorch selects for a list, of three devices."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    numbers = torch.cuda._parse_visible_devices()
    end = next((place for place, number in enumerate(numbers) if number >= 3), len(numbers))
    return numbers[:end]


@pytest.mark.parametrize("chosen", LISTS)
def test_a_list_chooses_devices_and_their_order(run, monkeypatch, chosen):
    numbers = of_pytorch(monkeypatch, chosen)
    assert run("print(names())", chosen) == f"{[NAMES[number] for number in numbers]}\n"


def test_without_the_variable_all_devices_are_visible(run):
    assert run("print(names())") == f"{NAMES}\n"


def test_the_variable_of_the_other_mode_says_nothing(run):
    assert run("print(names())", **{OTHER: "1"}) == f"{NAMES}\n"
    assert run("print(names())", "2", **{OTHER: ""}) == f"{NAMES[2:]}\n"


def test_uuids_choose_devices(run):
    of_nvml = """
    from torch_openreg.nvml import _library
    with _library.opened() as nvml:
        print(*[nvml.device(i).uuid for i in range(nvml.count())])
    """
    uuids = run(of_nvml).split()
    assert len(uuids) == 3 and run(of_nvml, "1").split() == uuids
    for chosen, expected in (
        (uuids[1], [1]),
        (f"{uuids[2]},{uuids[0]}", [2, 0]),
        (f"{uuids[2][:16]},{uuids[0]}", [2, 0]),
        (f"{uuids[1]},GPU-ffffffff-ffff,{uuids[0]}", [1]),
        (f"{uuids[1]},{uuids[1]}", []),
        (f"{uuids[1]},0", [1]),
        ("MIG-1", []),
    ):
        printed = run("print(names())", chosen)
        assert printed == f"{[NAMES[number] for number in expected]}\n"


def test_visible_devices_keep_properties_and_random_numbers(run):
    code = """
    module.manual_seed_all(3)
    for i in range(module.device_count()):
        total = module.get_device_properties(i).total_memory
        numbers = torch.rand(300000, device=f"{DEVICE}:{i}").cpu()
        print(module.get_device_name(i), total, module.mem_get_info(i)[1], numbers.sum().item(),
              numbers[-1].item())
    """
    every = run(code).splitlines()
    assert len({line.split()[-1] for line in every}) == 3  # three different GPUs
    assert run(code, "2,0").splitlines() == [every[2], every[0]]


def test_copies_and_streams_are_among_visible_devices(run):
    printed = run(
        """
        first = torch.arange(4.0, device=f"{DEVICE}:0")
        with module.device(1), module.stream(module.Stream()):
            second = first.to(f"{DEVICE}:1") + 1
            module.current_stream().synchronize()
        print(second.device.index, second.tolist(), module.can_device_access_peer(0, 1))
        try:
            torch.ones(1, device=f"{DEVICE}:2")
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        """,
        "2,1",
    )
    name = "CUDA" if DEVICE == "cuda" else "openreg"
    assert printed == f"1 [1.0, 2.0, 3.0, 4.0] True\n{name} error: invalid device ordinal\n"


# ---- the time of reading -------------------------------------------------------------------------


def test_a_program_may_set_the_variable_before_first_use(run):
    code = """
    os.environ[VARIABLE] = "1,2"
    print(names())
    os.environ[VARIABLE] = "0"
    print(module.device_count(), names(), torch.ones(2, device=DEVICE).sum().item())
    del os.environ[VARIABLE]
    print(module.device_count())
    """
    assert run(code, "0") == f"{NAMES[1:]}\n2 {NAMES[1:]} 2.0\n2\n"


def test_a_fresh_interpreter_reads_it_as_late(python):
    code = BEGIN + "os.environ[VARIABLE] = '2'\nprint(names())"
    assert python(code, fresh=True, **THREE).stdout == f"{NAMES[2:]}\n"


def test_a_forked_child_keeps_what_its_parent_has_read(run):
    code = """
    {first}
    if os.fork() == 0:
        os.environ[VARIABLE] = "1"
        print(module.device_count(), flush=True)
        os._exit(0)
    os.wait()
    """
    # Until a program uses a device, torch.cuda reads the variable itself if it finds NVML, as it
    # does with `openreg run`.
    asks_nvml = DEVICE == "cuda" and torch.cuda._device_count_nvml() >= 0
    kept = "1\n" if asks_nvml else "2\n"
    assert run(code.format(first="module.device_count()"), "2,0") == kept
    assert run(code.format(first=""), "2,0") == "1\n"


def report_sizes(index, queue):
    """Run in a spawned process."""
    module = torch.get_device_module(DEVICE)
    queue.put([module.get_device_properties(i).total_memory for i in range(module.device_count())])


def test_a_spawned_child_reads_its_own(monkeypatch):
    monkeypatch.setenv("OPENREG_DEVICE_COUNT", "3")
    monkeypatch.setenv("OPENREG_DEVICE_MEMORY", THREE["OPENREG_DEVICE_MEMORY"])
    monkeypatch.setenv("OPENREG_GROUP", os.environ["OPENREG_GROUP"] + "-spawned")
    monkeypatch.setenv(VARIABLE, "2,0")
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    torch.multiprocessing.spawn(report_sizes, args=(queue,))
    assert queue.get() == [128 << 20, 64 << 20]


# ---- no devices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", ["", "-1", "7", "0,0"])
def test_a_process_without_visible_devices_gets_an_error(run, chosen):
    code = """
    torch.manual_seed(1)
    print(module.is_available(), module.device_count(), torch.accelerator.is_available(),
          torch.accelerator.device_count(), torch.ones(2).sum().item())
    for use in (module.init, module.current_device, lambda: module.set_device(0),
                lambda: torch.ones(1, device=DEVICE), lambda: torch.ones(1, device=f"{DEVICE}:1"),
                lambda: torch.ones(1).to(DEVICE), lambda: torch.nn.Linear(2, 2).to(DEVICE),
                lambda: torch.Generator(DEVICE), module.synchronize, module.mem_get_info,
                module.Stream, lambda: module.get_device_properties(0)):
        try:
            print("no error:", use())
        except RuntimeError as error:
            print(error)
    print(module.is_initialized())
    """
    lines = run(code, chosen).splitlines()
    assert lines[0] == "False 0 False 0 2.0"
    assert set(lines[1:-1]) == {NONE}
    assert lines[-1] == "False"


# ---- several processes ---------------------------------------------------------------------------

# A child that is forked before the first use of a device sees other devices. `say` and `hear`
# exchange one line of text.
TWO_PROCESSES = """
there, here = os.pipe(), os.pipe()

def hear():
    pipe = here if is_parent else there
    text = b""
    while not text.endswith(b"\\n"):
        text += os.read(pipe[0], 1)
    return text.decode().strip()

def say(text="go"):
    os.write((there if is_parent else here)[1], f"{text}\\n".encode())

is_parent = os.fork() != 0
os.environ[VARIABLE] = "2,1" if is_parent else "1"
"""


def test_memory_of_a_device_is_shared_whatever_its_index(run):
    printed = run(
        TWO_PROCESSES
        + textwrap.dedent(
            """
            if is_parent:
                print(module.mem_get_info(1)[0] >> 20)
                say()
                child = hear()
                print([module.mem_get_info(i)[0] >> 20 for i in range(2)])
                try:
                    torch.empty(40 << 20, dtype=torch.uint8, device=f"{DEVICE}:1")
                except torch.OutOfMemoryError as error:
                    print(f"Process {child} has 60.00 MiB memory in use" in str(error))
                kept = torch.empty(100 << 20, dtype=torch.uint8, device=f"{DEVICE}:0")
                say()
                os.wait()
                print([module.mem_get_info(i)[0] >> 20 for i in range(2)])
            else:
                hear()
                kept = torch.empty(60 << 20, dtype=torch.uint8, device=DEVICE)
                say(os.getpid())
                hear()
            """
        )
    )
    assert printed == "96\n[128, 36]\nTrue\n[28, 96]\n"


EXCHANGE = """
import torch.multiprocessing as mp

def serve(connection):
    os.environ[VARIABLE] = "2,1,0"
    tensor = connection.recv()
    print(tensor.device, module.get_device_name(tensor.device), tensor.tolist(), flush=True)
    tensor.add_(1)
    event = module.Event(interprocess=True)
    {wait}
    connection.send((event, torch.full((2,), 9.0, device=f"{{DEVICE}}:0")))
    connection.recv()

context = mp.get_context("fork")
mine, theirs = context.Pipe()
process = context.Process(target=serve, args=(theirs,))
process.start()
tensor = torch.arange(3.0, device=f"{{DEVICE}}:0")
mine.send(tensor)
event, answer = mine.recv()
event.synchronize()
print(answer.device, module.get_device_name(answer.device), answer.tolist(), tensor.tolist())
print(event.device)
mine.send(None)
process.join()
"""


def test_tensors_and_events_arrive_on_their_device(run):
    wait = "event.record(module.current_stream(tensor.device))"
    printed = run(EXCHANGE.format(wait=wait))
    assert printed == (
        f"{DEVICE}:2 {NAMES[0]} [0.0, 1.0, 2.0]\n"
        f"{DEVICE}:2 {NAMES[2]} [9.0, 9.0] [1.0, 2.0, 3.0]\n"
        f"{DEVICE}:0\n"
    )


def test_tensors_of_a_device_that_is_hidden_are_refused(run):
    code = """
    import torch.multiprocessing as mp

    def serve(connection):
        os.environ[VARIABLE] = "1"
        try:
            connection.recv()
        except RuntimeError as error:
            print(error, flush=True)
        connection.send(None)

    context = mp.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    process.start()
    mine.send(torch.ones(3, device=f"{DEVICE}:2"))
    mine.recv()
    process.join()
    """
    assert run(code).startswith(
        "openreg: the handle is rejected: it belongs to device 2 of the group, which "
        f"{VARIABLE} hides from this process"
    )
