"""Runs the programs of test/sanitizer, and compares the findings with what each program expects.

The first line of a program names the kind of its bug, or "nothing". If it has a bug, comments mark
the lines that the finding must name:

``# first``, ``# second``
    the two accesses; for a backward, the line of its forward, which is marked ``# first-forward``
``# allocated``, ``# freed``
    where the memory was allocated, and freed before the access that was found
``# recorded``, ``# waited``
    where the event that does not order them was recorded and waited for

A program also runs by itself: ``PYTHONPATH=test/pymodule:test/sanitizer python PROGRAM``.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import torch_openreg._C as C

from device import module

FOLDER = Path(__file__).parents[2] / "sanitizer"
KINDS = (
    "race",
    "use after free",
    "host access",
    "uninitialised read",
    "unordered event",
    "never waited",
    "out of bounds",
)
_MARK = re.compile(r"# (first|first-forward|second|allocated|freed|recorded|waited)$")


@dataclass
class Program:
    """A program and the finding that it expects."""

    path: Path
    kind: str | None
    marks: dict[str, int]  # line numbers


def read(path):
    """Read a program from its file."""
    path = Path(path)
    text = path.read_text()
    kind = ast.get_docstring(ast.parse(text)).partition(":")[0]
    assert kind in (*KINDS, "nothing"), f"{path}: unknown kind {kind!r}"
    marks = {}
    for number, line in enumerate(text.splitlines(), 1):
        if found := _MARK.search(line):
            assert found[1] not in marks, f"{path}: two lines are marked {found[1]}"
            marks[found[1]] = number
    assert bool(marks) == (kind != "nothing"), f"{path}: only programs with a bug have marks"
    return Program(path, None if kind == "nothing" else kind, marks)


def programs(folder):
    """Return the files of a folder of programs."""
    found = sorted((FOLDER / folder).glob("*.py"))
    assert found
    return found


def run(program):
    """Run a program in this process, and return the findings."""
    text = compile(program.path.read_text(), str(program.path), "exec")
    sys.path.insert(0, str(FOLDER))
    names = {"__name__": "__main__", "__file__": str(program.path)}
    C.sanitizer_start(lambda finding: None, list(KINDS), False)
    try:
        exec(text, names)
        for index in range(module.device_count()):
            module.synchronize(index)
        return C.sanitizer_findings()
    finally:
        C.sanitizer_stop()
        names.clear()  # breaks cycles between tensors and their hooks
        sys.path.remove(str(FOLDER))


# ---- what a finding names ------------------------------------------------------------------------


def _line(program, stack):
    """Return the innermost line of a stack if it belongs to the program, else None."""
    if not stack or stack[0][0] != str(program.path):
        return None
    return stack[0][1]


def _places(program, finding):
    """Return the lines that a finding names, by the mark that each should have."""
    first, second, event = finding["first"], finding["second"], finding["event"]
    places = {"second": _line(program, second["stack"] or second["forward"])}
    block = (first and first["block"]) or second["block"]
    if block is not None:
        places["allocated"] = _line(program, block["stack"])
        places["freed"] = _line(program, block["freed"])
    if first is not None:
        places["first"] = _line(program, first["stack"] or first["forward"])
        # The forward itself may have read a weight, too.
        places["first-forward"] = _line(program, first["forward"] or first["stack"])
    if event is not None:
        places["recorded"] = _line(program, event["recorded"])
        places["waited"] = _line(program, event["waited"])
    return places


def describe(program, finding):
    """Describe a finding in one line, for the message of a test."""
    lines = ", ".join(f"{mark} {line}" for mark, line in _places(program, finding).items())
    sides = [side for side in (finding["first"], finding["second"]) if side is not None]
    accesses = " / ".join(f"{side['operator']}({side['argument']})" for side in sides)
    return f"{finding['kind']}: {accesses}: {lines}"


def mistakes(program, findings):
    """Return what is wrong with the findings: unexpected and missing ones, as sentences."""
    if program.kind is None:
        return [f"found {describe(program, finding)}" for finding in findings]
    if not findings:
        return [f"did not find {program.kind}: {program.marks}"]
    wrong = []
    for finding in findings:
        places = _places(program, finding)
        others = [mark for mark, line in program.marks.items() if places.get(mark) != line]
        if finding["kind"] != program.kind or others:
            expected = f"expected {program.kind}: {program.marks}"
            wrong.append(f"found {describe(program, finding)}; {expected}")
    return wrong
