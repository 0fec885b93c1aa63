"""The command line: ``openreg``, which is also ``python -m torch_openreg``."""

import argparse
import sys
from collections.abc import Sequence

from ._version import __version__
from .commands import run, sanitize, smi


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="openreg", description="Simulated accelerators for PyTorch."
    )
    parser.add_argument("--version", action="version", version=f"openreg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run.add_command(commands)
    sanitize.add_command(commands)
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
        The exit status: 0, 1 when something could not be shown, 2 for arguments that are wrong. Of
        ``run``, which does not return when it can run its command, and ``sanitize`` what `main` of
        their modules says.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["run"]:  # whose words are for the most part another program's
        return run.main(words[1:])
    if words[:1] == ["sanitize"]:
        return sanitize.main(words[1:])
    chosen = _parser().parse_args(words)
    return chosen.run(chosen)


if __name__ == "__main__":
    sys.exit(main())
