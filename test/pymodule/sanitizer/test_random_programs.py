"""In random programs of several streams it is found what is there, and nothing else."""

from collections import Counter

import pytest
import random_programs


def judged(seeds, launches, **limits):
    counts = Counter()
    for seed in seeds:
        counts.update(random_programs.counts_of(random_programs.check(seed, launches, **limits)))
    return counts


@pytest.mark.parametrize("launches", [8, 16, 30])
def test_a_finding_is_there_when_and_only_when_there_is_a_conflict(launches):
    counts = judged(range(60), launches, most_variants=3)
    assert counts["right programs"] == 60
    # Else nothing was judged.
    assert counts["of which have a conflict"] > 20
    assert counts["findings: race"] > 20


def test_results_differ_over_all_orders_only_where_there_is_a_conflict():
    counts = judged(range(1000, 1120), 4, most_variants=4, most_extensions=400)
    # Two writes that are both overwritten conflict without a difference.
    differ = counts["with a conflict, results differ"]
    assert differ > 50
    assert differ > 3 * counts["with a conflict, results do not differ"]
    assert counts["with no conflict, results differ"] == 0
