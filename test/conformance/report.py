"""The table of results: how many cases of each check match the CPU, and the differences."""

import json
from collections import defaultdict

from .checks import CHECKS
from .expected import EXPECTED


def stale_entries(rows, *, complete):
    """Return expected differences that did not occur although all of their cases were run.

    Parameters
    ----------
    rows : list of Row
    complete : bool
        Whether each subject was run with every dtype and every sample. Otherwise none is stale.
    """
    if not complete:
        return []
    met = {place for row in rows for place in row.met}
    return [
        entry
        for place, entry in enumerate(EXPECTED)
        if place not in met and any(entry.covers(row) for row in rows)
    ]


def is_clean(rows, stale):
    return not stale and not any(row.failed for row in rows)


def _by_check(rows):
    grouped = defaultdict(list)
    for row in rows:
        grouped[row.check].append(row)
    return {name: grouped[name] for name in CHECKS if name in grouped}


def _percent(passed, cases):
    """Return a percentage, rounded down, so that 100 means all."""
    return f"{passed * 10000 // cases / 100:.2f}" if cases else "-"


def _summary(rows):
    lines = [
        "| check | subjects | cases | as on the CPU | expected | failed | percent |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    grouped = _by_check(rows) | {"**all**": rows}
    for name, of_check in grouped.items():
        cases = sum(row.cases for row in of_check)
        expected = sum(row.expected for row in of_check)
        failed = sum(row.failed for row in of_check)
        subjects = len({row.subject for row in of_check if row.cases})
        lines.append(
            f"| {name} | {subjects} | {cases} | {cases - failed - expected} | {expected} "
            f"| {failed} | {_percent(cases - failed, cases)} |"
        )
    return lines


def _first_difference(rows):
    for row in rows:
        if row.crash:
            return f"**crashed** ({row.dtype}): {row.crash}"
        if row.differences:
            label, difference = row.differences[0]
            return f"`{label}` ({row.dtype}): {difference}"
    return ""


def _cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def _failures(name, rows):
    """Return one line for each subject, with its first difference."""
    failed = defaultdict(list)
    for row in rows:
        if row.failed:
            failed[row.subject].append(row)
    if not failed:
        return []
    lines = ["", f"### {name}", "", "| subject | failed | first difference |", "|---|---:|---|"]
    for subject, of_subject in failed.items():
        crashed = [row for row in of_subject if row.crash] or of_subject
        count = sum(row.failed for row in of_subject)
        lines.append(f"| {subject} | {count} | {_cell(_first_difference(crashed))} |")
    return lines


def markdown(rows, stale):
    """Return the whole report as a Markdown page."""
    lines = ["# Conformance with the CPU", "", *_summary(rows)]
    if stale:
        lines += ["", "## Expected, but no longer so", ""]
        lines += [f"- `{e.check}` of `{e.subject}`: {e.difference}" for e in stale]
    failures = [line for name, group in _by_check(rows).items() for line in _failures(name, group)]
    if failures:
        lines += ["", "## Failed", *failures]
    met = sorted({place for row in rows for place in row.met})
    if met:
        lines += ["", "## Expected differences", ""]
        lines += [
            f"- `{EXPECTED[place].check}` of `{EXPECTED[place].subject}`: {EXPECTED[place].reason}"
            for place in met
        ]
    return "\n".join(lines) + "\n"


def write_json(path, rows):
    with open(path, "w") as file:
        json.dump([row.as_dict() for row in rows], file, indent=1)
