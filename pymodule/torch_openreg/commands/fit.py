"""``openreg fit REPORT.json``: would the recorded run fit into other GPUs?

The report of a run has its requests for memory. For each GPU a process makes them again, of an
allocator with the memory of that GPU (`torch_openreg.dry.report.replay`). The program does not run.
"""

import argparse
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..dry.report import output
from ..dry.report.model import COMMUNICATOR, WORKSPACES, Device, Report, worst
from ..dry.report.words import main_device, size
from .cli import USAGE_STATUS, make_parser
from .executable import WRONG_ARGUMENTS

_GPUS = "t4,l4,rtx4090,a100,l40s,a100-80gb,h100,h200,b200"

_PROGRAM = """
import sys
del sys.path[0]
from torch_openreg.dry.report import replay
replay.main()
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = make_parser(
        "openreg fit",
        "Says which GPUs a recorded run would fit into. REPORT is a JSON file that `openreg run "
        "--report` wrote. The requests of its fullest device are made again with the memory of "
        "each GPU. The program does not run.",
        (
            (0, "the run fits into one of the GPUs"),
            (1, "it fits into none, or a GPU could not be tried"),
            USAGE_STATUS,
        ),
        examples=("openreg fit report.json", "openreg fit report.json --gpus a100,h100"),
        more="docs/dry-run.md explains what the answer does not cover.",
    )
    made.add_argument("report", metavar="REPORT", help="a JSON file of `openreg run --report`")
    made.add_argument(
        "--gpus", metavar="GPU[,GPU...]", default=_GPUS, help=f"profiles to try (default {_GPUS})"
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def _ask(profile: str, question: dict[str, Any]) -> dict[str, Any] | str:
    """Return the answer of a process with a GPU's profile, or its error."""
    own = {
        "OPENREG_DEVICE_TYPE": "cuda",  # PyTorch can be imported in this mode everywhere
        "OPENREG_PROFILE": profile,
        "OPENREG_DEVICE_MEMORY": "1T",  # the allocator's limit is the GPU's memory
        "OPENREG_DEVICE_COUNT": "1",
        "OPENREG_GROUP": f"fit-{uuid.uuid4().hex}",
    }
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OPENREG_") or name == "OPENREG_SIMD"
    }
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=kept | own,
        input=json.dumps(question),
        capture_output=True,
        text=True,
        errors="replace",
    )
    if ended.returncode == 0 and ended.stdout:
        answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return answer
    *_, last = ["the process ended", *filter(None, ended.stderr.splitlines())]
    return last.rpartition("openreg: ")[2]


def _question(device: Device) -> dict[str, Any]:
    """Return what the processes need to know, except for the GPU."""
    workspaces = [each for each in device.estimates if each.name == WORKSPACES]
    return {
        "requests": device.requests,
        "peak_allocated": device.peak_allocated.bytes,
        "estimated": sum(each.bytes for each in device.estimates if each.name == COMMUNICATOR),
        "workspaces": sum(each.count for each in workspaces if not each.is_counted),
        "smallest": False,
    }


def _row(profile: str, answer: dict[str, Any]) -> tuple[str, ...]:
    peak, capacity = answer["peak_reserved"], answer["capacity"]
    estimated = answer["estimated"]
    if peak is None:
        return profile, size(capacity), size(estimated), "does not fit", "", ""
    left = capacity - estimated - peak
    return profile, size(capacity), size(estimated), "fits", size(peak), size(left)


def _print(answers: dict[str, dict[str, Any] | str]) -> None:
    rows: list[tuple[str, ...]] = [("GPU", "memory", "estimates", "", "reserved", "left")]
    good = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
    rows += [_row(name, answer) for name, answer in good.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = row
        cells = [f"{first:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
    smallest = next((each["smallest"] for each in good.values() if "smallest" in each), None)
    if smallest is not None:
        print(f"The smallest limit of reserved memory with which it runs: {size(smallest)}.")


def _device(file: str) -> tuple[Report, Device]:
    """Return a report and its fullest device, with its requests."""
    report = Report.from_json(Path(file).read_text(encoding="utf-8"))
    rank = worst(report)
    device = main_device(rank) if rank else None
    if rank is None or device is None:
        raise ValueError("the report has no device")
    output.load_requests(file, rank, device)
    if not device.requests:
        raise ValueError("the report has no requests")
    return report, device


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg fit``.

    Returns
    -------
    int
        The exit status.
    """
    chosen = parser().parse_args(arguments)
    try:
        report, device = _device(chosen.report)
    except OSError as error:
        print(f"openreg: {chosen.report}: {error.strerror}", file=sys.stderr)
        return WRONG_ARGUMENTS
    except ValueError as error:
        print(f"openreg: {chosen.report}: {error}", file=sys.stderr)
        return WRONG_ARGUMENTS
    question = _question(device)
    answers: dict[str, dict[str, Any] | str] = {}
    for profile in dict.fromkeys(filter(None, chosen.gpus.split(","))):
        is_first = not any(isinstance(answer, dict) for answer in answers.values())
        answers[profile] = _ask(profile, question | {"smallest": is_first})
    if chosen.json:
        print(json.dumps({"version": 1, "gpus": answers}))
    else:
        _print(answers)
    for profile, answer in answers.items():
        if isinstance(answer, str):
            print(f"openreg: {profile}: {answer}", file=sys.stderr)
    incomplete = any(rank.error for rank in report.ranks) or device.events_lost > 0
    if incomplete:
        print(
            "openreg: the recorded run did not end normally, so it may need more than this",
            file=sys.stderr,
        )
    good = [answer for answer in answers.values() if isinstance(answer, dict)]
    fits = any(answer["peak_reserved"] is not None for answer in good)
    return 0 if fits and len(good) == len(answers) and not incomplete else 1
