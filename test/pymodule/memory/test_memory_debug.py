"""OPENREG_DEBUG_MEMORY=1: memory errors are reported with the Python stack of the allocation."""

import textwrap

import pytest

DEBUG = {"OPENREG_DEBUG_MEMORY": "1", "OPENREG_HOST_ACCESS": "1"}

# Makes device memory readable from the host, so that a test can write to wrong addresses.
PREAMBLE = """
import ctypes, torch
from device import DEVICE, module
def make_a_tensor(count):
    return torch.ones(count, dtype=torch.uint8, device=DEVICE)
def write(address):
    ctypes.memset(address, 0x11, 4)
"""


@pytest.fixture
def debugged(python):
    """Run code after the preamble, in its own process."""
    return lambda code: python(PREAMBLE + textwrap.dedent(code), **DEBUG)


def synchronized(by, code):
    """Return a program that prints what its synchronization raises."""
    return textwrap.dedent(code) + textwrap.dedent(
        f"""
        try:
            {by}.synchronize()
        except torch.AcceleratorError as error:
            print("raised", error)
        """
    )


WRITE_BEHIND = """
    tensor = make_a_tensor(512)
    write(tensor.data_ptr() + 512)
"""


@pytest.mark.parametrize("by", ["module", "torch.accelerator"])
def test_write_behind_a_block_is_found_by_synchronizing(debugged, by):
    result = debugged(synchronized(by, WRITE_BEHIND))
    assert result.stdout.startswith("raised")
    assert "512" in result.stdout
    assert "in make_a_tensor" in result.stderr


def test_write_to_freed_memory_is_found_by_synchronizing(debugged):
    result = debugged(
        synchronized(
            "module",
            """
            tensor = make_a_tensor(5 << 20)
            address = tensor.data_ptr()
            del tensor
            write(address + 4096)
            """,
        )
    )
    assert result.stdout.startswith("raised")


def test_unchecked_damage_is_reported_at_exit(debugged):
    result = debugged(WRITE_BEHIND)
    assert result.stderr.count("in make_a_tensor") == 1


def test_correct_program_causes_no_report(debugged):
    result = debugged(
        """
        model = torch.nn.Linear(64, 64).to(DEVICE)
        model(torch.ones(8, 64, device=DEVICE)).sum().backward()
        module.synchronize()
        print(torch.empty(3, device=DEVICE).isnan().all().item())
        """
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_each_block_is_longer_by_its_red_zone(python):
    program = """
        import torch
        from device import DEVICE, module
        sizes = (1, 512, 1000, 3 << 20)
        held = [torch.empty(n, dtype=torch.uint8, device=DEVICE) for n in sizes]
        stats = module.memory_stats()
        names = ("allocated_bytes", "requested_bytes", "active")
        print(*(stats[f"{name}.all.current"] for name in names))
        """
    plain, debugged = (
        [int(figure) for figure in python(program, **variables).stdout.split()]
        for variables in ({}, DEBUG)
    )
    assert [d - p for d, p in zip(debugged, plain, strict=True)] == [4 * 512, 0, 0]
