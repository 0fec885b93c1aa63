"""The argument parser that all commands of ``openreg`` share.

An invalid command line prints a line of usage and a sentence on stderr and exits with status 2.
``--help`` ends with examples and the exit statuses. Option names cannot be abbreviated.
"""

import argparse
import textwrap
from collections.abc import Sequence

from .executable import WRONG_ARGUMENTS

# An exit status of every command.
USAGE_STATUS = (WRONG_ARGUMENTS, "invalid arguments")


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs, and keeps the line breaks of paragraphs that have them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = [
            block if "\n" in block else textwrap.fill(block, width) for block in text.split("\n\n")
        ]
        return textwrap.indent("\n\n".join(blocks), indent)


def _epilog(
    examples: Sequence[str], statuses: Sequence[tuple[int | str, str]], more: str | None
) -> str:
    blocks = []
    if examples:
        blocks.append("\n".join(["examples:", *(f"  {example}" for example in examples)]))
    width = max(len(str(status)) for status, _ in statuses)
    lines = []
    for status, meaning in statuses:
        first, *others = textwrap.wrap(meaning, 76 - width)
        lines.append(f"  {status!s:{width}}  {first}")
        lines += [f"  {'':{width}}  {line}" for line in others]
    blocks.append("\n".join(["exit status:", *lines]))
    if more:
        blocks.append(more)
    return "\n\n".join(blocks)


def make_parser(
    command: str,
    description: str,
    statuses: Sequence[tuple[int | str, str]],
    *,
    usage: str | None = None,
    examples: Sequence[str] = (),
    more: str | None = None,
) -> argparse.ArgumentParser:
    """Make the parser of a command.

    Parameters
    ----------
    command
        The name of the command, such as ``openreg smi``.
    description
        What the command does.
    statuses
        The exit statuses and their meanings.
    usage
        The usage line; by default argparse makes it.
    examples
        Command lines to show as examples.
    more
        The last paragraph of the help text.
    """
    return argparse.ArgumentParser(
        prog=command,
        usage=usage,
        description=description,
        epilog=_epilog(examples, statuses, more),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
