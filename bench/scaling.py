"""The instructions of a launch, compared with a CPU call, and whether a launch's time grows with
the number of devices or live tensors.

Instruction counts are not affected by noise. Valgrind's callgrind counts them in two runs of
different length. Without valgrind this part is skipped.
"""

import os
import re
import shutil
import subprocess
import sys

from harness import Ratio, Table, absolute, run

CALLS = """
import sys
import torch
device, calls = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
a, b = torch.ones(1, device=device), torch.ones(1, device=device)
with torch.no_grad():
    for _ in range(calls):
        a + b
"""

RATIO = """
import sys
import torch
from harness import one_thread, time_ratio
one_thread()
index, live = int(sys.argv[1]), int(sys.argv[2])
kept = [torch.empty(16, device=f"openreg:{index}") for _ in range(live)]
a = torch.ones(64, device=f"openreg:{index}")
c = torch.ones(64)
ratio = time_ratio(lambda: a + a, lambda: c + c)
print(*ratio)
"""


def _instructions(device: str, calls: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [sys.executable, "-c", CALLS, device, str(calls)]
    # Valgrind limits the address space.
    environment = os.environ | {"OPENREG_DEVICE_MEMORY": "256M"}
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stderr
    found = re.search(r"Collected : (\d+)", said)
    assert found is not None, said
    return int(found[1])


def _instructions_of_one_call(device: str) -> float:
    return (_instructions(device, 3000) - _instructions(device, 1000)) / 2000


def _ratio(devices: int, live: int) -> Ratio:
    environment = os.environ | {
        "OPENREG_DEVICE_COUNT": str(devices),
        "OPENREG_DEVICE_MEMORY": "256M",
        "PYTHONPATH": os.path.dirname(__file__),
    }
    command = [sys.executable, "-c", RATIO, str(devices - 1), str(live)]
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    return Ratio(*map(float, said.split()))


def main() -> None:
    """Print both tables."""
    if shutil.which("valgrind") is not None:
        table = Table("Instructions of a call from Python: openreg / CPU", "call", "instructions")
        counts = (_instructions_of_one_call("openreg"), _instructions_of_one_call("cpu"))
        table.row("a + b, one element", absolute(*counts))
    table = Table(
        "a + b of 64 elements on the last device: time / time of CPU eager", "process with"
    )
    for devices, live in ((1, 0), (8, 0), (64, 0), (8, 100_000)):
        table.row(f"{devices} devices, {live} tensors alive", _ratio(devices, live))


if __name__ == "__main__":
    run(main)
