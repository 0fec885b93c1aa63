"""Running out of memory: the order of observers, and the message."""

import os
import re
import subprocess
import sys

import pytest
import torch
from modes import openreg_only

from device import DEVICE, NAME, attach_out_of_memory_observer

SMALL = {"OPENREG_DEVICE_MEMORY": "64M"}


def test_observer_is_called_before_the_error_is_raised(python):
    result = python(
        """
        import torch
        from device import DEVICE, attach_out_of_memory_observer
        def observe(*arguments):
            print("observed", [each >> 20 for each in arguments[1:]], arguments[0])
        attach_out_of_memory_observer(observe)
        held = torch.empty(30 << 20, dtype=torch.uint8, device=f"{DEVICE}:1")
        try:
            torch.empty(40 << 20, dtype=torch.uint8, device=f"{DEVICE}:1")
        except torch.OutOfMemoryError:
            print("raised")
        """,
        **SMALL,
    )
    assert result.stdout == "observed [40, 64, 34] 1\nraised\n"


def test_what_no_machine_has_is_refused_in_the_words_of_cuda():
    sentence = rf"^{NAME} out of memory. Tried to allocate more than 1EB memory\.$"
    with pytest.raises(torch.OutOfMemoryError, match=sentence):
        torch.empty(2**60, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 1073741822.00 GiB"):
        torch.empty(2**60 - 2**31, dtype=torch.uint8, device=DEVICE)


@openreg_only("PyTorch with CUDA takes anything")
def test_observer_must_be_callable():
    with pytest.raises(TypeError, match="^openreg: observer=5: expected a callable$"):
        attach_out_of_memory_observer(5)


def test_observer_is_not_called_when_the_cache_could_be_given_back(python):
    result = python(
        """
        import torch
        from device import DEVICE, attach_out_of_memory_observer, module
        attach_out_of_memory_observer(lambda *arguments: print("observed"))
        with module.stream(module.Stream()):
            torch.empty(40 << 20, dtype=torch.uint8, device=DEVICE)
        torch.empty(60 << 20, dtype=torch.uint8, device=DEVICE)
        print(module.memory_stats()["num_alloc_retries"])
        """,
        **SMALL,
    )
    assert result.stdout == "1\n"


def test_observers_are_called_in_their_order_with_the_limit_of_the_process(python):
    result = python(
        """
        import torch
        from device import DEVICE, attach_out_of_memory_observer, module
        observe = attach_out_of_memory_observer
        observe(lambda device, asked, most, free: print("first", most >> 20))
        observe(lambda device, asked, most, free: print("second", free >> 20))
        module.set_per_process_memory_fraction(0.25)
        try:
            torch.empty(20 << 20, dtype=torch.uint8, device=DEVICE)
        except torch.OutOfMemoryError as error:
            print("16.00 MiB allowed" in str(error))
        """,
        **SMALL,
    )
    assert result.stdout == "first 16\nsecond 64\nTrue\n"


def test_observer_can_take_a_snapshot_and_compute_while_an_operator_runs_out(python, tmp_path):
    result = python(
        f"""
        import torch, pickle
        from device import DEVICE, attach_out_of_memory_observer, memory
        memory = torch.{DEVICE}.memory
        memory._record_memory_history(stacks="python")
        def observe(device, asked, most, free):
            memory._dump_snapshot({str(tmp_path / "oom")!r})
            on_host = torch.ones(1000)
            on_device = torch.ones(3, device="{DEVICE}")
            print(on_host.device, on_host.sum().item(), on_device.sum().item())
        attach_out_of_memory_observer(observe)
        held = torch.ones(30 << 18, device="{DEVICE}")
        def double():
            return torch.cat([held, held])
        try:
            double()
        except torch.OutOfMemoryError:
            pass
        snapshot = pickle.load(open({str(tmp_path / "oom")!r}, "rb"))
        last = snapshot["device_traces"][0][-1]
        print(last["action"], last["frames"][0]["name"])
        """,
        **SMALL,
    )
    assert result.stdout == "cpu 1000.0 3.0\noom double\n"


def test_what_an_observer_raises_is_raised(python):
    result = python(
        """
        import torch
        from device import DEVICE, attach_out_of_memory_observer
        def refuse(*arguments):
            raise KeyError("a mistake of the observer")
        attach_out_of_memory_observer(refuse)
        for operator in (
            lambda: torch.empty(80 << 20, dtype=torch.uint8, device=DEVICE),
            lambda: torch.ones(40 << 18, device=DEVICE) + torch.ones(1, device=DEVICE),
        ):
            try:
                operator()
            except KeyError as error:
                print(error)
        """,
        **SMALL,
    )
    assert result.stdout == "'a mistake of the observer'\n" * 2


def test_size_that_did_not_fit_is_that_of_the_segment(python):
    result = python(
        """
        import torch
        from device import DEVICE
        held = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
        for nbytes in (100, (3 << 20) + 1):
            try:
                torch.empty(nbytes, dtype=torch.uint8, device=DEVICE)
            except torch.OutOfMemoryError as error:
                print(str(error).partition("memory.")[2][:26])
        """,
        **SMALL,
    )
    assert result.stdout == " Tried to allocate 2.00 Mi\n Tried to allocate 20.00 M\n"


HOLDER = """
import torch
from device import DEVICE
held = torch.empty(20 << 20, dtype=torch.uint8, device=DEVICE)
print("holding", flush=True)
input()
"""

LOOKER = """
import os, torch
from device import DEVICE, module
held = torch.empty(10 << 20, dtype=torch.uint8, device=DEVICE)
print(os.getpid())
print(module.list_gpu_processes())
print(module.list_gpu_processes(1))
try:
    torch.empty(50 << 20, dtype=torch.uint8, device=DEVICE)
except torch.OutOfMemoryError as error:
    print(error)
"""


@openreg_only("torch.cuda.list_gpu_processes asks NVML")
def test_other_processes_are_named_with_what_they_have(own_group):
    environment = own_group() | SMALL
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "holding\n"
        looker = subprocess.run(
            [sys.executable, "-c", LOOKER],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        holder.communicate("\n")
    own_pid, *lines = looker.stdout.splitlines()
    assert lines[0] == "GPU:0"
    assert sorted(lines[1:3]) == sorted(
        [
            f"process {holder.pid:>10d} uses {20:>12.3f} MB GPU memory",
            f"process {int(own_pid):>10d} uses {10:>12.3f} MB GPU memory",
        ]
    )
    assert lines[3:5] == ["GPU:1", "no processes are running"]
    assert (
        f"of which 34.00 MiB is free. Process {holder.pid} has 20.00 MiB memory in use. "
        "Including non-PyTorch memory, this process has 10.00 MiB memory in use. "
        "Of the allocated memory 10.00 MiB"
    ) in lines[5]
    assert int(own_pid) != os.getpid() and re.fullmatch(r"\d+", own_pid)
