"""The command line: `python -m conformance`."""

import argparse
import os
import sys

from . import report
from .checks import CHECKS
from .plan import plan
from .progress import Progress
from .runner import Runner


def _names(text):
    return tuple(name for name in text.split(",") if name)


def _checks(text):
    unknown = set(_names(text)) - set(CHECKS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: expected some of {', '.join(CHECKS)}"
        )
    return _names(text)


def _part(text):
    """Return the part and the number of parts: `2/5` is the second of five."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected K/N with 1 <= K <= N")
    return int(part), int(parts)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description="Compare every operator, module and optimizer with the CPU. Exits with 1 when "
        "anything differs that is not expected to.",
    )
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="one of N parts")
    parser.add_argument("--only", type=_names, default=(), metavar="NAMES", help="these subjects")
    parser.add_argument("--dtype", type=_names, default=(), metavar="DTYPES", help="float32,...")
    parser.add_argument("--checks", type=_checks, default=(), help=", ".join(CHECKS))
    parser.add_argument("--limit", type=int, metavar="N", help="N cases of each check at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--table", metavar="FILE", help="write the table to a Markdown file")
    parser.add_argument("--json", metavar="FILE", help="write every row to a JSON file")
    return parser


def main(arguments=None):
    options = _parser().parse_args(arguments)
    part, parts = options.part
    try:
        planned = plan(
            checks=options.checks,
            only=options.only,
            dtypes=options.dtype,
            part=part,
            parts=parts,
        )
    except ValueError as error:
        sys.exit(f"conformance: {error}")
    runner = Runner(
        jobs=options.jobs,
        limit=options.limit,
        report=Progress(sum(map(len, planned.values()))),
    )
    rows = runner.run(planned)
    complete = options.limit is None and parts == 1 and not (options.dtype or options.only)
    stale = report.stale_entries(rows, complete=complete)
    table = report.markdown(rows, stale)
    print(table)
    if options.table:
        with open(options.table, "w") as file:
            file.write(table)
    if options.json:
        report.write_json(options.json, rows)
    return 0 if report.is_clean(rows, stale) else 1


if __name__ == "__main__":
    sys.exit(main())
