"""The command line: ``openreg``, which is also ``python -m torch_openreg``.

What a command needs is imported when it is asked for.
"""

import importlib
import sys
from collections.abc import Sequence

from ._version import __version__
from .commands.cli import USAGE_STATUS, make_parser

# Each is a module of `commands`, with `main(words)`.
COMMANDS = {
    "run": "run a program for which the devices are `cuda`",
    "sanitize": "run a program and tell where it races",
    "smi": "show devices, their memory, and the processes that use it",
    "doctor": "tell what works on this machine, and what would help",
    "completion": "print a script for bash or zsh, which then complete words",
}


def _take(words: list[str]) -> None:
    """Take words that begin with no command: answers --help and --version, or ends with 2."""
    parser = make_parser(
        "openreg",
        "GPUs for PyTorch on a machine that has none.",
        (
            (0, "for what was done"),
            (1, "when something could not be shown, or does not work"),
            USAGE_STATUS,
            ("others", "of `run` and `sanitize`: see their --help"),
        ),
        examples=("openreg run train.py", "openreg COMMAND --help"),
        more="Errors go to stderr. Colours are for terminals, and not there with NO_COLOR set.",
    )
    parser.add_argument("--version", action="version", version=f"openreg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, what in COMMANDS.items():
        commands.add_parser(name, help=what)
    parser.parse_args(words)
    parser.error("expected a COMMAND as the first word")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments
        The words behind the program's name; those of the process if not given.

    Returns
    -------
    int
        The exit status, as ``--help`` of each command lists them. `run` does not return when it
        can run its command, unless it watches it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] and words[0] in COMMANDS:
        module = importlib.import_module(f".commands.{words[0]}", __package__)
        return int(module.main(words[1:]))
    _take(words)
    return USAGE_STATUS[0]


if __name__ == "__main__":
    sys.exit(main())
