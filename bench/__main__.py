"""Run all benchmarks or the named ones, each in its own process: `python bench launch`.

At the end it lists the goals that the benchmarks missed. The exit status is 0 if they missed none
and every benchmark ran to its end.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import MISSED_FILE, MISSED_STATUS

FOLDER = Path(__file__).parent
BENCHMARKS = sorted({path.stem for path in FOLDER.glob("*.py")} - {"__main__", "harness"})


def missed_by(name: str) -> list[str]:
    """Run a benchmark and return the goals that it missed."""
    print(f"==== {name}", flush=True)
    with tempfile.NamedTemporaryFile("r") as file:
        status = subprocess.run(
            [sys.executable, FOLDER / f"{name}.py"], env=os.environ | {MISSED_FILE: file.name}
        ).returncode
        missed = file.read().splitlines()
    return missed if status in (0, MISSED_STATUS) else [*missed, f"exited with status {status}"]


def main(names: list[str]) -> int:
    """Run the benchmarks and return the exit status."""
    if unknown := set(names) - set(BENCHMARKS):
        known = ", ".join(BENCHMARKS)
        sys.exit(f"unknown benchmarks: {', '.join(sorted(unknown))}; expected some of {known}")
    missed = [f"{name}: {line}" for name in names or BENCHMARKS for line in missed_by(name)]
    print("\n==== " + (f"{len(missed)} goals missed:" if missed else "all goals met"))
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
