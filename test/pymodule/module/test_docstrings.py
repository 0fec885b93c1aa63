"""Every public function has a numpydoc docstring with its parameters, result and exceptions."""

import ast
import inspect
import re
import textwrap

import pytest
import torch_openreg
from torch_openreg import nvml, openreg, sanitizer

MODULES = (
    torch_openreg,
    openreg,
    openreg.amp,
    openreg.devices,
    openreg.memory,
    openreg.random,
    openreg.streams,
    sanitizer,
    nvml,
)


def is_ours(value):
    return getattr(value, "__module__", "").startswith("torch_openreg")


def public():
    """Yield the name and object of each public function, class and method, each once."""
    seen = set()
    for module in MODULES:
        for name in sorted(getattr(module, "__all__", vars(module))):
            value = getattr(module, name)
            if name.startswith("_") or not is_ours(value) or id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.isfunction(value):
                yield f"{value.__module__}.{name}", value
            elif inspect.isclass(value):
                yield f"{value.__module__}.{name}", value
                for method, function in vars(value).items():
                    if not method.startswith("_") and inspect.isfunction(function):
                        yield f"{value.__module__}.{name}.{method}", function


PUBLIC = dict(public())
FUNCTIONS = {name: each for name, each in PUBLIC.items() if inspect.isfunction(each)}


def section(text, heading):
    """Return the lines of a section of a docstring, or None."""
    found = re.search(rf"^{heading}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.M | re.S)
    return found and found[1]


def parameters(function):
    """Return the names of a function's parameters, without self and cls."""
    signature = inspect.signature(inspect.unwrap(function))
    return [name for name in signature.parameters if name not in ("self", "cls")]


def raised(function):
    """Return the names of the exceptions that a function raises directly."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            names.add(ast.unparse(node.exc.func).rsplit(".", 1)[-1])
    return names


def lacking(function):
    """Return the problems of a function's docstring."""
    text = inspect.getdoc(function) or ""
    if not text:
        return ["a docstring"]
    lacks = []
    reported = section(text, "Parameters") or ""
    for name in parameters(function):
        if not re.search(rf"^[\w*, ]*\b{name}\b[\w*, ]*(:|$)", reported, re.M):
            lacks.append(f"the parameter {name}")
    returns = inspect.signature(inspect.unwrap(function)).return_annotation
    says = re.match(r"(.*\b[Rr]eturn|Whether)", text.split("\n")[0])
    is_reported = says or section(text, "Returns") or section(text, "Yields")
    # For a context manager the summary is enough.
    gives = returns not in (None, "None", inspect.Signature.empty) and "Iter" not in str(returns)
    if gives and not is_reported:
        lacks.append("what is returned")
    for name in sorted(raised(function)):
        if name not in (section(text, "Raises") or ""):
            lacks.append(f"the error {name}")
    return lacks


def test_there_are_many():
    assert len(FUNCTIONS) > 80
    assert any(each is torch_openreg.openreg.manual_seed for each in FUNCTIONS.values())


@pytest.mark.parametrize("name", PUBLIC)
def test_it_is_documented(name):
    assert inspect.getdoc(PUBLIC[name]), f"{name} lacks a docstring"


def test_docstrings_are_complete():
    found = {name: lacking(function) for name, function in FUNCTIONS.items()}
    lines = [f"{name} lacks {', '.join(lacks)}" for name, lacks in found.items() if lacks]
    assert not lines, "\n".join(lines)


def documented(x):
    """Return a number.

    Parameters
    ----------
    x
        In bytes.
    """
    raise ValueError(x)


@pytest.mark.parametrize(
    "text, lacks",
    [
        ("", ["a docstring"]),
        ("Do it.", ["the parameter x", "the error ValueError"]),
        (inspect.getdoc(documented), ["the error ValueError"]),
        (inspect.getdoc(documented) + "\n\nRaises\n------\nValueError\n    Always.", []),
    ],
)
def test_problems_of_a_docstring_are_named(text, lacks, monkeypatch):
    monkeypatch.setattr(documented, "__doc__", text)
    assert lacking(documented) == lacks
