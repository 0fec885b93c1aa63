"""Contexts: what a process has of each device that it uses, with OPENREG_GPU_OVERHEAD=1."""

import re

import pytest
from gpu_memory import DOCUMENTED

MIB = 1 << 20


def test_without_it_devices_hold_what_is_allocated(python):
    result = python(
        """
        import torch
        print(*torch.openreg.mem_get_info(0))
        a = torch.ones(8, 8, device="openreg", requires_grad=True)
        (a @ a).sum().backward()
        b = torch.nn.functional.linear(a, a, a[0])
        print(torch.openreg.memory_allocated(), torch.openreg.mem_get_info(1))
        """,
        OPENREG_DEVICE_MEMORY="64M",
        CUBLAS_WORKSPACE_CONFIG="nonsense",
    )
    assert result.stdout == "67108864 67108864\n1536 (67108864, 67108864)\n"
    assert result.stderr == ""


def test_figures_of_profiles_are_those_of_the_document(python):
    profiles = list(DOCUMENTED)
    result = python(
        """
        import torch
        for index in range(torch.openreg.device_count()):
            free, total = torch.openreg.mem_get_info(index)
            print(torch.openreg.get_device_properties(index).profile, (total - free) >> 20)
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
        try:
            torch.openreg.init()
        except RuntimeError as error:
            print(error)
        """,
        OPENREG_PROFILE="none",
    ).stdout
    known = re.search(r"known are (.*), and numbers", sentence)
    assert known[1].split(", ") == list(DOCUMENTED)


def test_a_context_is_taken_at_the_first_use_of_a_device(python):
    result = python(
        """
        import os, torch
        import torch_openreg._C as _C

        def mine():
            groups, _ = _C.ledger_list()
            processes = [each for group in groups for each in group["processes"]]
            return [each["bytes"] for each in processes if each["pid"] == os.getpid()]

        print(mine(), torch.openreg.device_count(), torch.openreg.get_device_name(1))
        torch.openreg.init()
        torch.openreg.memory_allocated(1), torch.openreg.current_device()
        print(mine())
        torch.empty(1, device="openreg:1")
        print(mine())
        torch.openreg.mem_get_info(0)
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
        ("torch.openreg.set_device(1)", True),
        ("torch.openreg.synchronize(1)", True),
        ("torch.openreg.device(1).__enter__()", True),
        ("torch.openreg._exchange_device(1)", True),
        ("torch.openreg._maybe_exchange_device(1)", False),
        ("torch.openreg.memory_stats(1)", False),
        ("torch.openreg.get_device_properties(1)", False),
    ],
)
def test_who_makes_a_device_current_has_a_context_there(python, use, taken):
    result = python(
        f"""
        import os, torch
        import torch_openreg._C as _C
        torch.openreg.init()
        {use}
        processes = [each for group in _C.ledger_list()[0] for each in group["processes"]]
        print(*(each["bytes"] for each in processes if each["pid"] == os.getpid()))
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_PROFILE="6x1024",
    )
    assert result.stdout == f"[0, {12 * MIB if taken else 0}]\n"


def test_memory_runs_out_earlier_and_the_sentence_counts_the_context(python):
    result = python(
        """
        import torch
        held = torch.empty(480 << 20, dtype=torch.uint8, device="openreg")
        try:
            torch.empty(30 << 20, dtype=torch.uint8, device="openreg")
        except torch.OutOfMemoryError as error:
            print(error)
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_DEVICE_MEMORY="1G",
    )
    assert (
        "Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which 24.00 MiB "
        "is free. Including non-PyTorch memory, this process has 1000.00 MiB memory in use. Of the "
        "allocated memory 480.00 MiB is allocated by PyTorch" in result.stdout
    )


def test_a_device_that_is_too_small_says_why(python):
    result = python(
        """
        import torch
        for use in (lambda: torch.ones(2, device="openreg"), torch.openreg.mem_get_info,
                    lambda: torch.openreg.set_device(0), torch.openreg.synchronize):
            try:
                use()
            except torch.OutOfMemoryError as error:
                print(error)
        print(torch.ones(2, device="openreg:1").sum().item())
        """,
        OPENREG_GPU_OVERHEAD="1",
        OPENREG_DEVICE_MEMORY="64M,1G",
        OPENREG_PROFILE="t4",
    )
    sentence = (
        "openreg: device 0 is out of memory: with OPENREG_GPU_OVERHEAD=1 each process that uses a "
        "device like Tesla T4 has a context of 80 MiB there, and 64 of 64 MiB are free"
    )
    assert result.stdout.splitlines() == [sentence] * 4 + ["2.0"]


def test_workspaces_and_contexts_of_who_is_killed_are_free_again(python):
    settings = {
        "OPENREG_GPU_OVERHEAD": "1",
        "OPENREG_PROFILE": "4x1024",
        "OPENREG_DEVICE_MEMORY": "64M",
    }
    python(
        """
        import os, signal, torch
        a = torch.ones(8, 8, device="openreg")
        b = a @ a
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        expect=-9,
        **settings,
    )
    result = python("import torch; print(torch.openreg.mem_get_info()[0] >> 20)", **settings)
    assert result.stdout == "56\n"
