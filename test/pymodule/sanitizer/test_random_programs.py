"""The sanitizer finds the conflicts in random programs of several streams, and nothing else."""

from collections import Counter

import pytest
import random_programs


def judged(seeds, launches, **limits):
    counts = Counter()
    for seed in seeds:
        counts.update(random_programs.counts_of(random_programs.check(seed, launches, **limits)))
    return counts


@pytest.mark.parametrize("launches", [8, 16, 30])
def test_findings_are_exactly_the_conflicts(launches):
    counts = judged(range(60), launches, max_variants=3)
    assert counts["right programs"] == 60
    # Otherwise the test would check nothing.
    assert counts["programs with a conflict"] > 20
    assert counts["findings: race"] > 20


def test_results_only_depend_on_the_order_if_there_is_a_conflict():
    counts = judged(range(1000, 1120), 4, max_variants=4, max_extensions=400)
    # Two writes that are both overwritten conflict, but the results are equal.
    differ = counts["with a conflict, results differ"]
    assert differ > 50
    assert differ > 3 * counts["with a conflict, results do not differ"]
    assert counts["with no conflict, results differ"] == 0
