"""A part of the conformance run, for continuous integration: the first cases of each check.

`part` chooses which pairs of subject and dtype. ``CONFORMANCE_PART`` names a part instead, as in
``2/16``.
"""

import os

from .__main__ import main
from .part import choose

CASES = 3


def test_a_part_of_all_operators_modules_and_optimizers_is_as_on_the_cpu():
    part = os.environ.get("CONFORMANCE_PART") or choose()[1]
    assert main(["--part", part, "--limit", str(CASES)]) == 0
