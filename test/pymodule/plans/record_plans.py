"""Record the planner's answers for ``recorded.txt``, whose first three columns it reads.

    python record_plans.py

A line has a profile, an operator, its arguments, the events, and the blocks of the fresh results.
The settings are PyTorch's, without gradients.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_openreg.plans.builtin import Device
from torch_openreg.plans.client import DEFAULT_SETTINGS, Client, Plan, PlannedOutput
from torch_openreg.plans.text import parse_call

FILE = Path(__file__).with_name("recorded.txt")
TEXT = FILE.read_text().splitlines() if FILE.exists() else []
LINES = [[part.strip() for part in line.split("|")] for line in TEXT if line and line[0] not in "#"]

# Multiprocessors, threads of each, and the compute capability.
DEVICES = {
    "h100": Device(132, 2048, 90),
    "b200": Device(148, 2048, 100),
    "a100": Device(108, 2048, 80),
    "l40s": Device(142, 1536, 89),
    "t4": Device(40, 1024, 75),
}


def fresh_blocks(outputs: Sequence[Any]) -> list[int]:
    """Return the blocks of the fresh results."""
    blocks: list[int] = []
    for output in outputs:
        if isinstance(output, list):
            blocks += fresh_blocks(output)
        elif isinstance(output, PlannedOutput) and output.where == "block":
            blocks.append(output.number)
    return blocks


def answer_of(plan: Plan) -> tuple[tuple[int, ...], list[int]]:
    """Return what a launch uses of a plan."""
    return plan.events, fresh_blocks(plan.outputs)


def main() -> None:
    client = Client(list(DEVICES))
    lines = []
    for line in TEXT:
        if line and line[0] != "#":
            profile, operator, arguments = (part.strip() for part in line.split("|")[:3])
            given, named = parse_call(arguments.split())
            settings = (False, *DEFAULT_SETTINGS[1:])
            plan = client.ask((operator, given, named, settings, profile))
            if plan is None or plan.error is not None:
                raise SystemExit(f"no plan: {line}")
            events, results = answer_of(plan)
            numbers = [" ".join(map(str, each)) for each in (events, results)]
            line = " | ".join([profile, operator, arguments, *numbers])
        lines.append(line)
    client.end()
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
