"""A part of the conformance run, for continuous integration.

The first cases of each check, of one in so many pairs of subject and dtype. Which ones follows from
the sources of all layers and from the device type: a change of any of them looks at other pairs,
and the same sources are always looked at in the same places, however fast the machine is.
``CONFORMANCE_PART`` names a part instead, as in ``2/16``.
"""

import hashlib
import os
import pathlib

from .__main__ import main
from .inputs import DEVICE

PARTS = 8
CASES = 3
ROOT = pathlib.Path(__file__).parents[2]
LAYERS = ("base", "device", "allocator", "generator", "amp", "pymodule")
SUFFIXES = (".c", ".h", ".cpp", ".py", ".build")


def part_of_sources():
    digest = hashlib.sha256(DEVICE.type.encode())
    sources = [path for layer in LAYERS for path in (ROOT / layer).rglob("*")]
    for path in sorted(path for path in sources if path.suffix in SUFFIXES):
        digest.update(path.read_bytes())
    return f"{int(digest.hexdigest(), 16) % PARTS + 1}/{PARTS}"


def test_a_part_of_all_operators_modules_and_optimizers_is_as_on_the_cpu():
    part = os.environ.get("CONFORMANCE_PART") or part_of_sources()
    assert main(["--part", part, "--limit", str(CASES)]) == 0
