"""Plays random traces on a player and on the model side by side, and stops at a difference.

    python compare.py --player CMD... --seeds A-B --steps N --jobs J
    python compare.py --player CMD... --replay FILE

Quote a command as one word if its words begin with dashes. With --numbers the player gets settings
as numbers (settings_numbers.py).

The model takes the addresses of segments from the player's answers, and predicts everything else.
Answers are compared completely. The exit status is 1 if something differs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from invariants import invariants
from policy_session import Session
from policy_stats import NAMES
from settings_numbers import with_numbers
from traces import Trace, generate

LAST_COMMANDS = 20
SNAPSHOT_EVERY = 500
OOM_FIGURES = ("TRIED", "FREE", "ALLOWED", "ALLOCATED", "PRIVATE", "UNALLOCATED")


class UnexpectedSegment(Exception):
    """The model asks the driver for something that the player did not report."""


class ReportedPlacement:
    """Takes the addresses that the player reported for the current command."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.taken: list[tuple[int, int]] = []  # (start, end) in order

    def set(self, segments: str) -> None:
        self.reported = segments.split(",") if segments else []
        self.reported.reverse()

    def place(self, size: int, reservation: bool) -> int:
        asked = f"{'an address range' if reservation else 'a segment'} of {size} bytes"
        if not self.reported:
            raise UnexpectedSegment(f"the model asks for {asked}, the player for nothing more")
        entry = self.reported.pop()
        address, _, length = entry.removeprefix("r").partition(":")
        if entry.startswith("r") != reservation or length != str(size):
            raise UnexpectedSegment(f"the model asks for {asked}, the player for {entry}")
        self._take(int(address), size)
        return int(address)

    def give_back(self, address: int, size: int) -> None:
        del self.taken[bisect_left(self.taken, (address, address + size))]

    def _take(self, start: int, size: int) -> None:
        end = start + size
        index = bisect_left(self.taken, (start, end))
        for other in self.taken[max(0, index - 1) : index + 1]:
            if other[0] < end and start < other[1]:
                raise UnexpectedSegment(f"{start}:{size} overlaps {other[0]}:{other[1] - other[0]}")
        self.taken.insert(index, (start, end))


@dataclass
class Player:
    """A program that plays traces; with `numbers` it gets settings as numbers."""

    command: list[str]
    numbers: bool = False

    def start(self, trace: Trace, errors: IO[str]) -> tuple[subprocess.Popen[str], Trace]:
        """Return the running program, and the trace in the form that it needs."""
        if self.numbers:
            trace = with_numbers(trace)
        process = subprocess.Popen(
            [*self.command, str(trace.capacity), trace.settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        return process, trace


@dataclass
class Difference:
    step: int
    values: list[str]


def compare_answers(player: str, model: str, known: bool) -> list[str]:
    """Return the values that differ, one line each; `known`: the command's block is held."""
    ours, theirs = model.split(";"), player.split(";")
    if len(theirs) != 3:
        return [f"answer: player {player[:200]!r} is not RESULT;SEGMENTS;STATS"]
    found = []
    if known and not (theirs[0].startswith("error") and ours[0].startswith("error")):
        found += _compare_results(theirs[0], ours[0])
    if theirs[1] != ours[1]:
        found.append(f"segments: player {theirs[1]!r}, model {ours[1]!r}")
    if theirs[2] != ours[2]:
        found += _compare_figures(theirs[2].split(), ours[2].split())
    return found


def _compare_figures(player: list[str], model: list[str]) -> list[str]:
    if len(player) != len(model):
        return [f"statistics: player {len(player)} numbers, model {len(model)}"]
    rows = zip(NAMES, player, model, strict=True)
    return [f"{name}: player {p}, model {m}" for name, p, m in rows if p != m]


def _compare_results(player: str, model: str) -> list[str]:
    if player == model:
        return []
    if player.startswith("snapshot ") and model.startswith("snapshot "):
        return _compare_snapshots(player[9:].split("|"), model[9:].split("|"))
    ours, theirs = model.split(), player.split()
    if ours[0] == theirs[0] == "oom" and len(ours) == len(theirs):
        rows = zip(OOM_FIGURES, theirs[1:], ours[1:], strict=True)
        return [f"oom {name}: player {p}, model {m}" for name, p, m in rows if p != m]
    return [f"result: player {player!r}, model {model!r}"]


def _compare_snapshots(player: list[str], model: list[str]) -> list[str]:
    missing = [f"snapshot: only the model has {s}" for s in model if s not in set(player)]
    extra = [f"snapshot: only the player has {s}" for s in player if s not in set(model)]
    return (missing + extra)[:6] or ["snapshot: the segments come in another order"]


def with_snapshots(trace: Trace, every: int = SNAPSHOT_EVERY) -> Trace:
    commands = []
    for step, command in enumerate(trace.commands, 1):
        commands.append(command)
        if step % every == 0:
            commands.append("snapshot")
    return Trace(trace.capacity, trace.settings, commands)


def _feed(process: subprocess.Popen[str], commands: list[str]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write("\n".join(commands) + "\n")
        process.stdin.close()
    except (BrokenPipeError, ValueError):
        pass  # the player has ended; the reader notices the missing answers


def play(player: Player, trace: Trace, timeout: float, check: int) -> Difference | None:
    """Compare one trace; `check` is the number of steps between checks of the model, 0 for none.

    A separate thread sends the whole trace to the player ahead of its answers, so neither side
    waits for a full pipe.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process, printed = player.start(trace, errors)
        feeder = threading.Thread(target=_feed, args=(process, printed.commands), daemon=True)
        feeder.start()
        limit = threading.Timer(timeout, process.kill)
        limit.start()
        try:
            difference = _follow(process, trace, check)
        finally:
            limit.cancel()
            process.kill()
            process.wait()
            feeder.join()
            assert process.stdout is not None
            process.stdout.close()
        if difference is not None:
            errors.seek(0)
            text = errors.read()[-2000:]
            if text:
                difference.values.append(f"the player's standard error: {text}")
        return difference


def _exit_status(process: subprocess.Popen[str]) -> int | None:
    try:
        return process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return None


def _follow(process: subprocess.Popen[str], trace: Trace, check: int) -> Difference | None:
    assert process.stdout is not None
    placement = ReportedPlacement()
    session = Session(trace.capacity, trace.settings, placement)
    for step, command in enumerate(trace.commands, 1):
        answer = process.stdout.readline().rstrip("\n")
        if not answer:
            status = _exit_status(process)
            return Difference(
                step, [f"the player gave no answer (exit status {status}, None while it runs)"]
            )
        known = True
        if command.startswith(("free", "record")):
            known = command.split()[1] in session.blocks
        parts = answer.split(";", 2)
        placement.set(parts[1] if len(parts) > 1 else "")
        try:
            expected = session.answer(command)
        except UnexpectedSegment as error:
            return Difference(step, [f"segments: {error}", f"the player's answer: {answer[:300]}"])
        except (AssertionError, LookupError):
            return Difference(step, [f"the model itself failed: {traceback.format_exc()}"])
        if answer != expected:
            values = compare_answers(answer, expected, known)
            if values:
                return Difference(step, values)
        if check and step % check == 0:
            invariants(session.allocator)  # raises if the model itself is wrong
    return None


def follows_protocol(commands: list[str]) -> bool:
    """Return whether no stream is held twice, and pools exist and are not nested."""
    held: set[str] = set()
    pools: set[str] = set()  # not yet destroyed
    destroyed: set[str] = set()
    begun = ""
    for command in commands:
        name, _, rest = command.partition(" ")
        if name == "hold":
            if rest in held:
                return False
            held.add(rest)
        elif name == "go":
            held.discard(rest)
        elif name == "pool_create":
            pools.add(rest.partition(" ")[0])
        elif name == "pool_begin":
            if begun or rest not in pools:
                return False
            begun = rest
        elif name == "pool_end":
            if begun != rest:
                return False
            begun = ""
        elif name == "pool_destroy":
            if begun == rest or rest not in pools:
                return False
            pools.remove(rest)
            destroyed.add(rest)
        elif name == "pool_empty" and rest not in destroyed:
            return False
    return True


def shrink(player: Player, trace: Trace, difference: Difference, timeout: float) -> Trace:
    """Remove commands, in ever smaller runs, as long as some difference remains."""
    deadline = time.monotonic() + timeout
    commands = trace.commands[: difference.step]
    run = len(commands) // 2
    while run > 0 and time.monotonic() < deadline:
        start = 0
        while start < len(commands) and time.monotonic() < deadline:
            fewer = commands[:start] + commands[start + run :]
            candidate = Trace(trace.capacity, trace.settings, fewer)
            found = None
            if fewer and follows_protocol(fewer):
                found = play(player, candidate, timeout, 0)
            if found is None:
                start += run
            else:
                commands = fewer[: found.step]
        run //= 2
    return Trace(trace.capacity, trace.settings, commands)


def write_trace(path: Path, trace: Trace) -> None:
    header = f"# {trace.capacity} {trace.settings}".rstrip()
    path.write_text("\n".join([header, *trace.commands]) + "\n")


def read_trace(path: Path) -> Trace:
    header, *commands = path.read_text().splitlines()
    capacity, _, settings = header.removeprefix("# ").partition(" ")
    return Trace(int(capacity), settings, commands)


def report(name: str, trace: Trace, difference: Difference, arguments: argparse.Namespace) -> None:
    step = difference.step
    print(f"{name}: capacity {trace.capacity}, settings {trace.settings!r}")
    print(f"step {step}: {trace.commands[step - 1]}")
    for value in difference.values:
        print(f"  {value}")
    print(f"the last {LAST_COMMANDS} commands:")
    for number in range(max(0, step - LAST_COMMANDS), step):
        print(f"  {number + 1}: {trace.commands[number]}")
    failing = Trace(trace.capacity, trace.settings, trace.commands[:step])
    path = arguments.output / f"{name.replace(' ', '-')}.trace"
    write_trace(path, failing)
    print(f"replay: --replay {path}")
    if arguments.shrink:
        small = shrink(arguments.player, failing, difference, arguments.shrink)
        path = path.with_suffix(".small.trace")
        write_trace(path, small)
        print(f"shrunk to {len(small.commands)} commands: --replay {path}")
    sys.stdout.flush()


def run_seed(seed: int, arguments: argparse.Namespace) -> tuple[int, Trace, Difference | None]:
    trace = with_snapshots(generate(seed, arguments.steps))
    return seed, trace, play(arguments.player, trace, arguments.timeout, arguments.check)


def run_seeds(arguments: argparse.Namespace) -> int:
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    steps = failures = 0
    start = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as executor:
        pending = [executor.submit(run_seed, seed, arguments) for seed in seeds]
        for future in concurrent.futures.as_completed(pending):
            seed, trace, difference = future.result()
            steps += len(trace.commands) if difference is None else difference.step
            if difference is None:
                continue
            failures += 1
            report(f"seed {seed}", trace, difference, arguments)
            if not arguments.keep_going:
                executor.shutdown(wait=False, cancel_futures=True)
                break
    elapsed = time.monotonic() - start
    print(f"{steps} steps in {elapsed:.1f} s, {failures} differences")
    return 1 if failures else 0


def run_file(arguments: argparse.Namespace) -> int:
    trace = read_trace(arguments.replay)
    difference = play(arguments.player, trace, arguments.timeout, arguments.check)
    if difference is None:
        print(f"{len(trace.commands)} steps, no difference")
        return 0
    arguments.shrink = 0
    report(f"replay {arguments.replay.stem}", trace, difference, arguments)
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--player", nargs="+", required=True, help="command of the player")
    parser.add_argument("--numbers", action="store_true", help="the player takes numbers")
    parser.add_argument("--seeds", default="1-100", help="A-B, both included")
    parser.add_argument("--steps", type=int, default=3000, help="commands of a trace")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--check", type=int, default=500, help="steps between model checks, 0: none"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one trace")
    parser.add_argument("--shrink", type=float, default=0.0, help="seconds to shorten a trace")
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of traces that differ")
    parser.add_argument("--replay", type=Path, help="play this file instead of random traces")
    arguments = parser.parse_args()
    command = [word for part in arguments.player for word in shlex.split(part)]
    arguments.player = Player(command, arguments.numbers)
    return arguments


def main() -> int:
    arguments = parse_arguments()
    return run_file(arguments) if arguments.replay else run_seeds(arguments)


if __name__ == "__main__":
    sys.exit(main())
