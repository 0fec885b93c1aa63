"""Records the answers of a player to a fixed set of traces, for test_recorded.py.

    python record.py --player CMD... --output DIR [--traces DIR]

The set contains the minimal traces, random ones, and those of training.py that lie in a folder. No
answer depends on where the driver places memory. Together they contain every command, and every
settings key whose effect this model knows.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
from pathlib import Path

from compare import read_trace, with_snapshots
from minimal_traces import minimal_traces
from policy_device import GapPlacement
from policy_session import Session
from recorded import RECORDED_TORCH, Recording, relative_answers, write_recording
from traces import Trace, generate

ORIGIN = f"{RECORDED_TORCH}, libc10_cuda.so over a stub driver"
SNAPSHOT_EVERY = 50
PLACES = ("lowest", "highest", "random")

# Of the first 3000 seeds, taken one after the other, these added most to rare events: each kind of
# outcome (a retry that succeeds, a block of a pool with use_on_oom, ...) under each kind of
# settings.
SEEDS = [
    108, 157, 197, 217, 218, 277, 302, 388, 404, 406, 466, 524, 693, 788, 800, 813, 829, 897, 912,
    934, 1037, 1080, 1116, 1216, 1218, 1232, 1244, 1340, 1364, 1492, 1493, 1522, 1551, 1616, 1665,
    1675, 1819, 1852, 1929, 2044, 2073, 2095, 2097, 2161, 2185, 2193, 2197, 2217, 2222, 2236,
    2362, 2366, 2379, 2457, 2467, 2723, 2746, 2773, 2932, 2996,
]  # fmt: skip

COMMANDS = """
    alloc free record hold go empty fraction settings pool_create pool_begin pool_end pool_destroy
    pool_empty reset_peak reset_accumulated snapshot
"""
KEYS = """
    max_split_size_mb max_non_split_rounding_mb large_segment_size_mb roundup_power2_divisions
    garbage_collection_threshold per_process_memory_fraction expandable_segments
    throw_on_cudamalloc_oom
"""


def random_trace(seed: int) -> Trace:
    """Return 150 to 300 steps, some of them snapshots, the last one too."""
    steps = 150 + seed % 140
    whole = generate(seed, steps)
    commands = [*whole.commands[:steps], "snapshot"]
    return with_snapshots(Trace(whole.capacity, whole.settings, commands), SNAPSHOT_EVERY)


def traces() -> dict[str, Trace]:
    """Return all of them by name."""
    random = {f"random-{seed:04}": random_trace(seed) for seed in SEEDS}
    return {**minimal_traces(), **random}


def traces_in(folder: Path) -> dict[str, Trace]:
    return {path.stem: read_trace(path) for path in sorted(folder.glob("*.trace"))}


def model_answers(trace: Trace, place: str = "lowest") -> list[str]:
    session = Session(trace.capacity, trace.settings, GapPlacement(place))
    return relative_answers([session.answer(command) for command in trace.commands])


def is_placement_free(trace: Trace) -> bool:
    """Return whether the answers are the same wherever the driver puts segments."""
    first, *others = (model_answers(trace, place) for place in PLACES)
    return all(answers == first for answers in others)


def player_answers(command: list[str], trace: Trace) -> list[str]:
    done = subprocess.run(
        [*command, str(trace.capacity), trace.settings],
        input="\n".join(trace.commands) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return relative_answers(done.stdout.splitlines())


def check_coverage(chosen: dict[str, Trace]) -> None:
    """Raise ValueError for a command or key that no trace has, or a trace that is not suitable."""
    commands = {c.partition(" ")[0] for trace in chosen.values() for c in trace.commands}
    if commands != set(COMMANDS.split()):
        raise ValueError(f"the traces do not have all commands and no other, but {commands}")
    settings = " ".join(" ".join([t.settings, *t.commands]) for t in chosen.values())
    missing = [key for key in KEYS.split() if f"{key}:" not in settings]
    if missing:
        raise ValueError(f"no trace has the keys {missing}")
    for name, trace in chosen.items():
        if not is_placement_free(trace):
            raise ValueError(f"{name} hangs on where the driver puts segments")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--player", nargs="+", required=True, help="command of the player")
    parser.add_argument("--output", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--traces", type=Path, help="folder of traces that are recorded, too")
    arguments = parser.parse_args()
    command = [word for part in arguments.player for word in shlex.split(part)]
    chosen = {**traces(), **(traces_in(arguments.traces) if arguments.traces else {})}
    check_coverage(chosen)
    arguments.output.mkdir(parents=True, exist_ok=True)
    size = 0
    for name, trace in chosen.items():
        path = arguments.output / f"{name}.txt.gz"
        write_recording(path, Recording(ORIGIN, trace, player_answers(command, trace)))
        size += path.stat().st_size
    print(f"{len(chosen)} traces, {size} bytes")


if __name__ == "__main__":
    main()
