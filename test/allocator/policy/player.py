"""The model as a player of the trace protocol: `python player.py CAPACITY SETTINGS`."""

from __future__ import annotations

import argparse
import sys

from policy_device import GapPlacement
from policy_session import Session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", choices=("lowest", "highest", "random"), default="lowest")
    parser.add_argument("capacity", type=int)
    parser.add_argument("settings", nargs="?", default="")
    arguments = parser.parse_args()
    placement = GapPlacement(arguments.place)
    session = Session(arguments.capacity, arguments.settings, placement)
    for command in sys.stdin:
        sys.stdout.write(session.answer(command) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
