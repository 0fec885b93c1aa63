"""What PyTorch imports no sooner than somebody needs it, imported once for all ranks.

The first optimizer of a process imports `torch._dynamo`, and with it as many modules as PyTorch
has: a second or so in each rank, one after the other on few cores. A program that has none should
not wait for it. Whether it has is guessed from its text; a wrong guess costs time and no more.
"""

import ast
import contextlib
import importlib
import sys

_SMALL = sys.stdlib_module_names | {"numpy", "torch", "torch_openreg"}


def _source(words: list[str]) -> bytes | None:
    """Return the text of a program, of which the words behind ``python`` are given; None: unread.

    A module of a package would have to be looked for, which imports the package.
    """
    if words[0] == "-m":
        return None
    if words[0] == "-c":
        return words[1].encode(errors="replace")
    with open(words[0], "rb") as file:
        return file.read()


def probably_trains(words: list[str]) -> bool:
    """Guess whether a program makes an optimizer, or what it imports does."""
    source = _source(words)
    if source is None or b"optim" in source:
        return True
    imported: set[str] = set()
    with contextlib.suppress(SyntaxError, ValueError):  # the ranks will say so
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    return not imported <= _SMALL


def preload(words: list[str], ranks: int) -> None:
    """Import it, if it is worth it."""
    if ranks > 1 and probably_trains(words):
        importlib.import_module("torch._dynamo")
