"""How every command of ``openreg`` takes its words and explains itself.

A mistake is a line of usage and a sentence on stderr, with exit status 2. ``--help`` ends with
examples and with the exit statuses, each on a line. Names of options are not guessed.
"""

import argparse
import textwrap
from collections.abc import Sequence

from .executable import WRONG_ARGUMENTS

# What is the same everywhere.
USAGE_STATUS = (WRONG_ARGUMENTS, "for words that are not allowed")


class _Formatter(argparse.HelpFormatter):
    """Breaks paragraphs as usual, and keeps the lines of lists."""

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
        The words that it is started by, such as ``openreg smi``.
    description
        What it does.
    statuses
        Exit statuses with their meanings, which ``--help`` lists.
    usage
        The line of usage, where argparse cannot make it.
    examples
        Lines to type.
    more
        A last paragraph.
    """
    return argparse.ArgumentParser(
        prog=command,
        usage=usage,
        description=description,
        epilog=_epilog(examples, statuses, more),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
