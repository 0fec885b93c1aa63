"""A part of the conformance run, for continuous integration.

Three cases of each check of half of all subjects. ``CONFORMANCE_PART`` is the part, as in ``2/4``;
unset, the sources of the bridge choose one of two, so that changes of them are checked against
another part. ``CONFORMANCE_SECONDS`` is the time in which subjects are begun.
"""

import hashlib
import os
import pathlib

from .__main__ import main

PARTS = 2
CASES = 3
BRIDGE = pathlib.Path(__file__).parents[2] / "pymodule" / "bridge"


def part_of_sources():
    digest = hashlib.sha256()
    for path in sorted(BRIDGE.rglob("*.[ch]*")):
        digest.update(path.read_bytes())
    return f"{int(digest.hexdigest(), 16) % PARTS + 1}/{PARTS}"


def test_a_part_of_all_operators_modules_and_optimizers_is_as_on_the_cpu():
    part = os.environ.get("CONFORMANCE_PART") or part_of_sources()
    seconds = os.environ.get("CONFORMANCE_SECONDS", "540")
    assert main(["--part", part, "--limit", str(CASES), "--seconds", seconds]) == 0
