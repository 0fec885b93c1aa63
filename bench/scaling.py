"""What a launch costs beside a CPU call, in numbers that noise does not move: instructions; and
whether it grows with the number of devices or of live tensors.

The instructions are those that callgrind, of valgrind, counts between two runs of different length;
without valgrind that part is left out.
"""

import os
import re
import shutil
import subprocess
import sys

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
print(ratio.median, ratio.low, ratio.high)
"""


def _instructions(device: str, calls: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [sys.executable, "-c", CALLS, device, str(calls)]
    # valgrind has few addresses to give.
    environment = os.environ | {"OPENREG_DEVICE_MEMORY": "256M"}
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stderr
    found = re.search(r"Collected : (\d+)", said)
    assert found is not None, said
    return int(found[1])


def _instructions_of_one_call(device: str) -> float:
    return (_instructions(device, 3000) - _instructions(device, 1000)) / 2000


def _ratio(devices: int, live: int) -> str:
    environment = os.environ | {
        "OPENREG_DEVICE_COUNT": str(devices),
        "OPENREG_DEVICE_MEMORY": "256M",
        "PYTHONPATH": os.path.dirname(__file__),
    }
    command = [sys.executable, "-c", RATIO, str(devices - 1), str(live)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    median, low, high = map(float, run.stdout.split())
    return f"{median:6.3f}  middle half {low:.3f}-{high:.3f}"


def main() -> None:
    """Print both tables."""
    if shutil.which("valgrind") is not None:
        counts = {device: _instructions_of_one_call(device) for device in ("cpu", "openreg")}
        print("Instructions of a + b, one element, from Python")
        for device, count in counts.items():
            print(f"{device:<10} {count:8.0f}   {count / counts['cpu']:.3f} of the CPU's")
    print("\na + b of 64 elements on the last device: time / time of CPU eager")
    for devices, live in ((1, 0), (8, 0), (64, 0), (8, 100_000)):
        print(f"{devices:>2} devices, {live:>6} tensors alive  {_ratio(devices, live)}", flush=True)


if __name__ == "__main__":
    main()
