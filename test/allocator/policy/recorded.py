"""Reads and writes traces with recorded answers: one gzip'd text file each.

A file begins with the lines `# ORIGIN`, `# capacity BYTES` and `# settings STRING`. One line for
each step follows:

    COMMAND -> RESULT;SEGMENTS;CHANGES

An address depends on the driver. So it is written N+OFFSET, the offset in the N-th segment or range
that the driver returned, which is the last one that contains it. SEGMENTS are the sizes that the
driver returned during the step, with r before that of a range. CHANGES are the statistics that the
step changed: INDEX+AMOUNT or INDEX-AMOUNT. An error is only its word.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from policy_stats import MAX_SPLIT_SIZE, NAMES
from traces import Trace

CHANGE = re.compile(r"(\d+)([+-]\d+)")
PROJECT = Path(__file__).parents[3] / "pyproject.toml"
TORCH_VERSION = re.search(r'^torch = "([\d.]+)"', PROJECT.read_text(), re.M)[1]
RECORDED_TORCH = f"PyTorch {TORCH_VERSION}+cu130"


@dataclass
class Recording:
    origin: str
    trace: Trace
    answers: list[str]  # one for each command


class RelativeAnswers:
    """Turns the answers of one trace, in order, into their recorded form."""

    def __init__(self) -> None:
        self.placed: list[tuple[int, int]] = []  # (address, size) in order
        self.values = [0] * len(NAMES)
        self.values[MAX_SPLIT_SIZE] = -1

    def take(self, answer: str) -> str:
        result, segments, values = answer.split(";")[-3:]
        sizes = [self._place(segment) for segment in segments.split(",") if segment]
        return f"{self._result(result)};{','.join(sizes)};{self._changes(values)}"

    def _place(self, segment: str) -> str:
        address, _, size = segment.removeprefix("r").partition(":")
        self.placed.append((int(address), int(size)))
        return f"r{size}" if segment.startswith("r") else size

    def _changes(self, text: str) -> str:
        before, self.values = self.values, [int(value) for value in text.split()]
        rows = enumerate(zip(before, self.values, strict=True))
        return " ".join(f"{index}{new - old:+}" for index, (old, new) in rows if new != old)

    def _result(self, result: str) -> str:
        word, _, rest = result.partition(" ")
        if word == "error":
            return "error"
        if word == "block":
            address, size = rest.split()
            return f"block {self._relative(address)} {size}"
        if word == "snapshot":
            segments = [self._segment(segment) for segment in rest.split("|") if segment]
            return f"snapshot {'|'.join(text for _, text in sorted(segments))}"
        return result

    def _segment(self, text: str) -> tuple[tuple[int, int], str]:
        """Return a segment of a snapshot, and its sort key."""
        address, size, stream, kind, expandable, pool, *blocks = text.split()
        number, offset = self._place_of(int(address))
        words = [f"{number}+{offset}", size, stream, kind, expandable, pool]
        for block in blocks:
            start, _, state = block.partition(",")
            words.append(f"{self._relative(start)},{state}")
        return (number, offset), " ".join(words)

    def _relative(self, address: str) -> str:
        if address == "0":
            return "0"
        number, offset = self._place_of(int(address))
        return f"{number}+{offset}"

    def _place_of(self, address: int) -> tuple[int, int]:
        for number in range(len(self.placed), 0, -1):
            start, size = self.placed[number - 1]
            if start <= address < start + size:
                return number, address - start
        raise ValueError(f"address {address} is in no segment")


def relative_answers(answers: list[str]) -> list[str]:
    relative = RelativeAnswers()
    return [relative.take(answer) for answer in answers]


def name_changes(answer: str) -> str:
    """Return the answer with the names of the statistics, for people."""
    result, segments, changes = answer.split(";")
    named = CHANGE.sub(lambda found: f"{NAMES[int(found[1])]}{found[2]}", changes)
    return f"{result};{segments};{named}"


def write_recording(path: Path, recording: Recording) -> None:
    trace = recording.trace
    lines = [
        f"# {recording.origin}",
        f"# capacity {trace.capacity}",
        f"# settings {trace.settings}".rstrip(),
    ]
    for command, answer in zip(trace.commands, recording.answers, strict=True):
        lines.append(f"{command} -> {answer}")
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same bytes every time


def read_recording(path: Path) -> Recording:
    origin, capacity, settings, *steps = gzip.decompress(path.read_bytes()).decode().splitlines()
    commands, answers = [], []
    for step in steps:
        command, _, answer = step.partition(" -> ")
        commands.append(command)
        answers.append(answer)
    trace = Trace(
        int(capacity.removeprefix("# capacity ")),
        settings.removeprefix("# settings").strip(),
        commands,
    )
    return Recording(origin.removeprefix("# "), trace, answers)
