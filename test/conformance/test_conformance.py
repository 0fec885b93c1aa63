"""A part of the conformance run, for continuous integration: the first cases of each check.

``CONFORMANCE_PART`` says which pairs of subject and dtype, as in ``2/16``. See `tools/choose-part`.
"""

import os

from .__main__ import main

CASES = 3


def test_a_part_of_all_operators_modules_and_optimizers_is_as_on_the_cpu():
    part = os.environ["CONFORMANCE_PART"]
    assert main(["--part", part, "--limit", str(CASES)]) == 0
