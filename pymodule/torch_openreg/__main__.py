"""The command line: ``openreg``, which is also ``python -m torch_openreg``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from . import smi


def _version() -> str:
    try:
        return version("torch_openreg")
    except PackageNotFoundError:  # run from a source tree
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="openreg", description="Simulated accelerators for PyTorch."
    )
    parser.add_argument("--version", action="version", version=f"openreg {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    smi.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments
        The words behind the program's name; those of the process if not given.

    Returns
    -------
    int
        The exit status: 0, 1 when something could not be shown, 2 for arguments that are wrong.
    """
    chosen = _parser().parse_args(arguments)
    return chosen.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
