"""Imports, once for all ranks, a module that PyTorch imports on first use.

The first optimizer of a process imports `torch._dynamo`, and with it as many modules as PyTorch
itself. On few cores the ranks do so one after the other: eight ranks on two cores take about 20 s
instead of 4 s. A program that creates no optimizer should not pay for the import, which adds half
of the start-up time. So this module looks at the text of the program. A wrong guess only costs
time.
"""

import ast
import contextlib
import importlib
import sys

# Modules that create no optimizer unless the program names it.
_WITHOUT_OPTIMIZER = sys.stdlib_module_names | {"numpy", "torch", "torch_openreg"}


def _source(arguments: list[str]) -> bytes | None:
    """Return the text of a program, or None for a module, whose file is not known.

    Finding the file of a module would import the package that contains it.
    """
    if arguments[0] == "-m":
        return None
    if arguments[0] == "-c":
        return arguments[1].encode(errors="replace")
    with open(arguments[0], "rb") as file:
        return file.read()


def may_train(arguments: list[str]) -> bool:
    """Return whether a program may create an optimizer, itself or in a module that it imports.

    Parameters
    ----------
    arguments
        The arguments of ``python``: a script, or ``-m`` or ``-c`` and what follows.
    """
    source = _source(arguments)
    if source is None or b"optim" in source:
        return True
    imported: set[str] = set()
    with contextlib.suppress(SyntaxError, ValueError):  # the ranks will report it
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    return not imported <= _WITHOUT_OPTIMIZER


def preload(arguments: list[str], ranks: int) -> None:
    """Import `torch._dynamo` if there are several ranks and they may need it."""
    if ranks > 1 and may_train(arguments):
        importlib.import_module("torch._dynamo")
