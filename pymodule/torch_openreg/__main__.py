"""The program ``openreg``, also started by ``python -m torch_openreg``.

Each command is a module that is imported when the command runs.
"""

import importlib
import sys
from collections.abc import Sequence

from ._version import __version__
from .commands.cli import USAGE_STATUS, make_parser

# Each command is a module of `commands` with a function `main(arguments)`.
COMMANDS = {
    "run": "run a program that sees the simulated devices as `cuda`",
    "sanitize": "run a program and report races and other invalid memory accesses",
    "smi": "show the devices, their memory, and the processes that use it",
    "doctor": "check this machine and say how to fix problems",
    "fit": "say which GPUs a recorded run fits into",
    "plans": "memory plans: show or install what they need, ask for one",
    "completion": "print a completion script for bash or zsh",
}


def _parse(arguments: list[str]) -> None:
    """Handle arguments that start with no command: --help, --version, or an error (status 2)."""
    parser = make_parser(
        "openreg",
        "Simulated GPUs for PyTorch, on a machine without GPUs.",
        (
            (0, "success"),
            (1, "something could not be shown, or does not work"),
            USAGE_STATUS,
            ("others", "`run` and `sanitize` only: see their --help"),
        ),
        examples=("openreg run train.py", "openreg COMMAND --help"),
        more="Errors go to stderr. Colours appear on terminals only. NO_COLOR disables them.",
    )
    parser.add_argument("--version", action="version", version=f"openreg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, what in COMMANDS.items():
        commands.add_parser(name, help=what)
    parser.parse_args(arguments)
    parser.error("expected a COMMAND as the first argument")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments
        The arguments after the name of the program. The default is those of the process.

    Returns
    -------
    int
        The exit status; ``--help`` of each command lists them. `run` usually replaces this process
        with the command and does not return.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] and given[0] in COMMANDS:
        module = importlib.import_module(f".commands.{given[0]}", __package__)
        return int(module.main(given[1:]))
    _parse(given)
    return USAGE_STATUS[0]


if __name__ == "__main__":
    sys.exit(main())
