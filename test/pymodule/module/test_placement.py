"""The placement of devices on NUMA nodes and cores, of this machine and of synthetic ones."""

import os

import pytest

from device import DEVICE

LARGE_MACHINE = "pack:2 numa:4 core:16 pu:1"  # 2 packages x 4 nodes x 16 cores

SHOW = """
import torch
from device import module
for index in range(module.device_count()):
    properties = module.get_device_properties(index)
    print(properties.numa_node, properties.cpuset)
"""

BAD_DESCRIPTIONS = [
    {"HWLOC_XMLFILE": "/nonexistent"},
    {"HWLOC_SYNTHETIC": "no machine"},
    {"HWLOC_COMPONENTS": "stop"},  # no component may describe the machine
]


def placements(result):
    """Return the node and the cores of each device, from the output of SHOW."""
    pairs = [line.split() for line in result.stdout.splitlines()]
    return [(int(node), cores_in(cores)) for node, cores in pairs]


def cores_in(text):
    """Return the numbers in a list such as "0-3,8"."""
    ranges = [part.split("-") for part in text.split(",")]
    return {core for ends in ranges for core in range(int(ends[0]), int(ends[-1]) + 1)}


def test_eight_devices_have_the_eight_nodes_of_a_large_machine(python):
    result = python(SHOW, HWLOC_SYNTHETIC=LARGE_MACHINE, OPENREG_DEVICE_COUNT="8")
    assert result.stdout == "".join(f"{i} {16 * i}-{16 * i + 15}\n" for i in range(8))


@pytest.mark.parametrize("count", [2, 3, 5, 64])
def test_shares_of_cores_are_equal_and_disjoint(python, count):
    result = python(
        SHOW,
        HWLOC_SYNTHETIC=LARGE_MACHINE,
        OPENREG_DEVICE_COUNT=str(count),
        OPENREG_DEVICE_MEMORY="64M",
    )
    shares = [cores for _, cores in placements(result)]
    sizes = [len(cores) for cores in shares]
    assert set().union(*shares) == set(range(128))
    assert sum(sizes) == 128
    assert max(sizes) - min(sizes) <= 1
    assert [node for node, _ in placements(result)] == [min(cores) // 16 for cores in shares]


def test_devices_never_split_a_core(python):
    result = python(SHOW, HWLOC_SYNTHETIC="pack:1 core:6 pu:2", OPENREG_DEVICE_COUNT="4")
    shares = [cores for _, cores in placements(result)]
    for cores in shares:
        assert {core // 2 for core in cores} == {core // 2 for core in cores if core % 2}
    assert sum(map(len, shares)) == 12


SHOW_WORKER = """
import os, torch, torch_openreg._C as C
from device import module
def show_worker(index):
    module.synchronize(index)
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as file:
            status = dict(line.rstrip().split(":", 1) for line in file)
        if status["Name"].strip() == f"openreg {index}.0":
            print(status["Cpus_allowed_list"].strip())
"""

WORKERS = f"""
{SHOW_WORKER}
for index in (0, 1):
    gate = C._Gate(index, 0)
    gate.open()
    show_worker(index)
"""

COPIER = f"""
{SHOW_WORKER}
source = torch.ones(4 << 20).pin_memory()
torch.empty_like(source, device="{DEVICE}").copy_(source, non_blocking=True)
show_worker(0)
"""


def test_workers_run_on_the_cores_of_their_device(python):
    allowed = os.sched_getaffinity(0)
    devices = [cores & allowed or allowed for _, cores in placements(python(SHOW))]
    workers = [cores_in(line) for line in python(WORKERS).stdout.splitlines()]
    assert workers == devices


def test_copies_run_on_any_core(python):
    (worker,) = python(COPIER).stdout.splitlines()
    assert cores_in(worker) == os.sched_getaffinity(0)


@pytest.mark.parametrize("description", BAD_DESCRIPTIONS)
def test_devices_work_on_a_machine_that_cannot_be_described(python, description):
    code = f"import torch; print(torch.ones(3, device='{DEVICE}:1').sum().item())"
    assert python(code, **description).stdout == "3.0\n"
