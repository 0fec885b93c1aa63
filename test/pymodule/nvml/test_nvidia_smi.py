"""`nvidia-smi` for the simulated devices, found in PATH as scripts do."""

import contextlib
import os
import re
import subprocess
import sys

import peers
import pytest
import torch
from torch_openreg.nvml import LIBRARY, library_folder, programs_folder

from device import DEVICE

DEVICES = {
    "OPENREG_DEVICE_COUNT": "2",
    "OPENREG_DEVICE_MEMORY": "1G,2G",
    "OPENREG_PROFILE": "a100,t4",
}


def take_device(variables, index, mebibytes):
    """Runs in a peer: join the group and allocate memory on one device."""
    os.environ.update(variables)
    peers.keep(
        "tensor", torch.empty(mebibytes << 20, dtype=torch.uint8, device=f"{DEVICE}:{index}")
    )
    return os.getpid()


@pytest.fixture
def environment(own_group):
    path = f"{programs_folder()}:{os.path.dirname(sys.executable)}:/usr/bin:/bin"
    return own_group() | DEVICES | {"PATH": path, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def hold(environment):
    """Start processes that allocate memory on one device; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(index, mebibytes):
            variables = DEVICES | {"OPENREG_GROUP": environment["OPENREG_GROUP"]}
            holder = stack.enter_context(peers.Peer())
            holder.pid = holder.call(take_device, variables, index, mebibytes)
            return holder

        yield start


@pytest.fixture
def nvidia_smi(environment):
    """Run nvidia-smi and return the lines that it prints."""

    def run(*arguments, expect=0, **variables):
        result = subprocess.run(
            ["nvidia-smi", *arguments],
            env=environment | variables,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return (result.stdout if expect in (0, 6, 9) else result.stdout + result.stderr).split("\n")

    return run


def test_library_and_program_are_in_the_expected_folders():
    assert (library_folder() / LIBRARY).is_file()
    assert os.listdir(programs_folder()) == ["nvidia-smi"]
    assert os.access(programs_folder() / "nvidia-smi", os.X_OK)


def test_it_does_not_import_pytorch(environment):
    code = """
import runpy, sys
program, sys.argv = sys.argv[1], ["nvidia-smi", "-L"]
try:
    runpy.run_path(program)
except SystemExit:
    print("torch" in sys.modules)
"""
    program = programs_folder() / "nvidia-smi"
    printed = subprocess.check_output([sys.executable, "-c", code, program], env=environment)
    assert printed.endswith(b"\nFalse\n")


def test_devices_are_listed(nvidia_smi):
    lines = nvidia_smi("-L")
    uuid = r"GPU(-[0-9a-f]+){5}"
    assert re.fullmatch(rf"GPU 0: NVIDIA A100-SXM4-40GB \(UUID: {uuid}\)", lines[0])
    assert re.fullmatch(rf"GPU 1: Tesla T4 \(UUID: {uuid}\)", lines[1])
    assert lines[2:] == [""]
    assert nvidia_smi("--list-gpus") == lines


def test_fields_of_devices_are_csv(nvidia_smi, hold):
    hold(1, 300)
    asked = "--query-gpu=index,gpu_name,memory.total,memory.used,utilization.gpu,temperature.gpu"
    assert nvidia_smi(asked, "--format=csv") == [
        "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], temperature.gpu",
        "0, NVIDIA A100-SXM4-40GB, 1024 MiB, 0 MiB, 0 %, [N/A]",
        "1, Tesla T4, 2048 MiB, 300 MiB, 0 %, [N/A]",
        "",
    ]
    assert (
        nvidia_smi(asked, "--format=csv,noheader,nounits")[1] == "1, Tesla T4, 2048, 300, 0, [N/A]"
    )
    assert nvidia_smi(asked, "--format=csv,nounits")[0].startswith("index, name, memory.total, ")
    asked = "--query-gpu=memory.free,pci.bus_id,compute_cap,driver_version,count"
    row = nvidia_smi(asked, "--format=csv,noheader", "-i", "1")
    assert row == ["1748 MiB, 00000000:02:00.0, 7.5, 580.00, 2", ""]


def test_fields_of_processes_are_csv(nvidia_smi, hold):
    first, second = hold(0, 100), hold(1, 300)
    asked = "--query-compute-apps=pid,used_memory,gpu_uuid"
    uuids = nvidia_smi("--query-gpu=uuid", "--format=csv,noheader")
    assert nvidia_smi(asked, "--format=csv") == [
        "pid, used_gpu_memory [MiB], gpu_uuid",
        f"{first.pid}, 100 MiB, {uuids[0]}",
        f"{second.pid}, 300 MiB, {uuids[1]}",
        "",
    ]
    first.kill()
    rows = nvidia_smi("--query-compute-apps=pid,name", "--format=csv,noheader")
    assert rows[0].startswith(f"{second.pid}, ") and "python" in rows[0] and rows[1:] == [""]


def test_devices_are_selected_by_index_uuid_and_bus(nvidia_smi):
    for name in ("1", nvidia_smi("--query-gpu=uuid", "--format=csv,noheader")[1], "0000:02:00.0"):
        rows = nvidia_smi("--query-gpu=index", "--format=csv,noheader", "-i", name)
        assert rows == ["1", ""]
    assert nvidia_smi("--query-gpu=index", "--format=csv,noheader", "--id=0,1") == ["0", "1", ""]


def test_table_shows_versions_devices_and_processes(nvidia_smi, hold):
    text = "\n".join(nvidia_smi())
    assert "Driver Version: 580.00 " in text and re.search(r"CUDA Version: 13\.0$", text, re.M)
    assert "No running processes found" in text
    holder = hold(1, 512)
    text = "\n".join(nvidia_smi())
    assert re.search(r"^ +1 +Tesla T4 .* 0\.5 / 2\.0 GiB +25% +0%$", text, re.M)
    assert re.search(rf"^ +1 +{holder.pid} +512\.0 MiB +\S*python", text, re.M)


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (
            ["--query-gpu=colour", "--format=csv"],
            2,
            'Field "colour" is not a valid field to query.',
        ),
        (["--query-compute-apps=uuid", "--format=csv"], 2, 'Field "uuid" is not a valid field'),
        (["--query-gpu=name"], 2, "csv[,noheader][,nounits]"),
        (["--query-gpu=name", "--format=xml"], 2, '"xml" is not a valid format'),
        (["-pl", "100"], 2, "unrecognized arguments"),
        (["topo", "-m"], 2, "unrecognized arguments"),
        (["-i", "2"], 6, "No devices were found"),
        (["-L", "-i", "GPU-0"], 6, "No devices were found"),
    ],
)
def test_unknown_arguments_are_rejected(nvidia_smi, arguments, status, sentence):
    assert sentence in "\n".join(nvidia_smi(*arguments, expect=status))


def test_with_a_bad_configuration_there_is_no_driver(nvidia_smi):
    lines = nvidia_smi(expect=9, OPENREG_DEVICE_COUNT="0")
    assert lines[0].startswith("NVIDIA-SMI has failed: ") and "OPENREG_" in lines[0]


def test_help_names_the_fields(nvidia_smi):
    assert any("--query-gpu" in line for line in nvidia_smi("--help"))
    assert any("memory.total" in line for line in nvidia_smi("--help-query-gpu"))
