"""Contexts: the memory that a process uses on each device, with OPENREG_GPU_OVERHEAD=1."""

import re

import pytest
from gpu_memory import DOCUMENTED

MIB = 1 << 20


def test_without_it_devices_hold_what_is_allocated(python):
    result = python(
        """
        import torch
        from device import DEVICE, module
        print(*module.mem_get_info(0))
        a = torch.ones(8, 8, device=DEVICE, requires_grad=True)
        (a @ a).sum().backward()
        b = torch.nn.functional.linear(a, a, a[0])
        print(module.memory_allocated(), module.mem_get_info(1))
        """,
        OPENREG_DEVICE_MEMORY="64M",
        CUBLAS_WORKSPACE_CONFIG="nonsense",
    )
    assert result.stdout == "67108864 67108864\n1536 (67108864, 67108864)\n"
    assert result.stderr == ""


def test_values_of_profiles_are_those_of_the_document(python):
    profiles = list(DOCUMENTED)
    result = python(
        """
        import torch
        from device import module
        for index in range(module.device_count()):
            free, total = module.mem_get_info(index)
            print(module.get_device_properties(index).profile, (total - free) >> 20)
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_DEVICE_COUNT=str(len(profiles)),
        OPENREG_PROFILE=",".join(profiles),
        OPENREG_DEVICE_MEMORY="1G",
    )
    contexts = dict(line.split() for line in result.stdout.splitlines())
    assert contexts == {profile: str(context) for profile, (context, _) in DOCUMENTED.items()}


def test_every_profile_is_in_the_document(python):
    sentence = python(
        """
        import torch
        from device import module
        try:
            module.init()
        except RuntimeError as error:
            print(error)
        """,
        OPENREG_PROFILE="none",
    ).stdout
    known = re.search(r"known names: (.*?); or numbers", sentence)
    assert known[1].split(", ") == list(DOCUMENTED)


def test_a_context_is_taken_at_the_first_use_of_a_device(python):
    result = python(
        """
        import os, torch
        import torch_openreg._C as _C
        from device import DEVICE, module

        def mine():
            groups, _ = _C.ledger_list()
            processes = [each for group in groups for each in group["processes"]]
            return [each["bytes"] for each in processes if each["pid"] == os.getpid()]

        print(mine(), module.device_count(), module.get_device_name(1))
        module.init()
        module.memory_allocated(1), module.current_device()
        print(mine())
        torch.empty(1, device=f"{DEVICE}:1")
        print(mine())
        module.mem_get_info(0)
        print(mine())
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_PROFILE="4x1024,6x1024",
    )
    assert result.stdout.splitlines() == [
        "[] 2 openreg 6x1024",
        "[[0, 0]]",
        f"[[0, {14 * MIB}]]",
        f"[[{8 * MIB}, {14 * MIB}]]",
    ]


@pytest.mark.parametrize(
    ("use", "taken"),
    [
        ("module.set_device(1)", True),
        ("module.synchronize(1)", True),
        ("module.device(1).__enter__()", True),
        ("module._exchange_device(1)", True),
        ("module._maybe_exchange_device(1)", False),
        ("module.memory_stats(1)", False),
        ("module.get_device_properties(1)", False),
    ],
)
def test_making_a_device_current_creates_a_context(python, use, taken):
    result = python(
        f"""
        import os, torch
        import torch_openreg._C as _C
        from device import module
        module.init()
        {use}
        processes = [each for group in _C.ledger_list()[0] for each in group["processes"]]
        print(*(each["bytes"] for each in processes if each["pid"] == os.getpid()))
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_PROFILE="6x1024",
    )
    assert result.stdout == f"[0, {12 * MIB if taken else 0}]\n"


def test_memory_runs_out_earlier_and_the_message_counts_the_context(python):
    result = python(
        """
        import torch
        from device import DEVICE
        held = torch.empty(480 << 20, dtype=torch.uint8, device=DEVICE)
        try:
            torch.empty(30 << 20, dtype=torch.uint8, device=DEVICE)
        except torch.OutOfMemoryError as error:
            print(error)
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_DEVICE_MEMORY="1G",
    )
    assert (
        "Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which 17.00 MiB "
        "is free. Including non-PyTorch memory, this process has 1007.00 MiB memory in use. Of the "
        "allocated memory 480.00 MiB is allocated by PyTorch" in result.stdout
    )


def test_a_device_that_is_too_small_says_why(python):
    result = python(
        """
        import torch
        from device import DEVICE, module
        for use in (lambda: torch.ones(2, device=DEVICE), module.mem_get_info,
                    lambda: module.set_device(0), module.synchronize):
            try:
                use()
            except torch.OutOfMemoryError as error:
                print(error)
        print(torch.ones(2, device=f"{DEVICE}:1").sum().item())
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_DEVICE_MEMORY="64M,1G",
        OPENREG_PROFILE="t4",
    )
    sentence = (
        "openreg: device 0 is out of memory: with OPENREG_GPU_OVERHEAD=1 each process needs a "
        "context of 80 MiB on a device like Tesla T4, but only 64 of 64 MiB are free"
    )
    assert result.stdout.splitlines() == [sentence] * 4 + ["2.0"]


def test_workspaces_and_contexts_of_a_killed_process_are_free_again(python):
    settings = {
        "OPENREG_GPU_OVERHEAD": "1",
        "OPENREG_PROFILE": "4x1024",
        "OPENREG_DEVICE_MEMORY": "64M",
    }
    python(
        """
        import os, signal, torch
        from device import DEVICE
        a = torch.ones(8, 8, device=DEVICE)
        b = a @ a
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        expect=-9,
        **settings,
    )
    result = python("from device import module; print(module.mem_get_info()[0] >> 20)", **settings)
    assert result.stdout == "56\n"
