"""The sanitizer's variables, which ``openreg sanitize`` sets for the program and its children.

Nothing here needs PyTorch.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from . import suppressions
from .finding import KINDS
from .suppressions import Suppression, kind_named

ENABLED = "OPENREG_SANITIZER"
ONLY = "OPENREG_SANITIZER_ONLY"
STACKS = "OPENREG_SANITIZER_STACKS"
LEAKS = "OPENREG_SANITIZER_LEAKS"
SUPPRESSIONS = "OPENREG_SANITIZER_SUPPRESSIONS"
EXITCODE = "OPENREG_SANITIZER_EXITCODE"
# Where `openreg sanitize` listens: a socket. Others have no use for it.
SOCKET = "OPENREG_SANITIZER_SOCKET"

_T = TypeVar("_T")

DEFAULT_EXITCODE = 86
# Leaks are asked for: what a program has at its end is no bug of most.
DEFAULT_KINDS = tuple(kind for kind in KINDS if kind != "leak")


@dataclass(frozen=True)
class Settings:
    """What is looked for, and what becomes of it."""

    kinds: tuple[str, ...] = DEFAULT_KINDS
    stacks: bool = False
    suppressions: tuple[Suppression, ...] = ()
    exitcode: int = DEFAULT_EXITCODE
    socket: str | None = None


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"openreg: {name}={value[:100]}: expected 0 or 1")
    return value == "1"


def kinds_named(text: str, leaks: bool = False) -> tuple[str, ...]:
    """Return the kinds of a list of words with commas; without any, the usual ones."""
    named = {kind_named(word) for word in text.split(",")} if text else set(DEFAULT_KINDS)
    if leaks:
        named.add("leak")
    return tuple(kind for kind in KINDS if kind in named)


def exitcode_named(text: str) -> int:
    """Return the exit status that a word means."""
    if not text.isascii() or not text.isdecimal() or int(text) > 255:
        raise ValueError(f"{text[:100]}: expected 0 to 255")
    return int(text)


def _named(name: str, parse: Callable[[str], _T], text: str) -> _T:
    """Parse the value of a variable; a mistake is told with its name."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"openreg: {name}={error}") from None


def is_asked_for(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the variables say that programs are watched."""
    return _is_set(environment, ENABLED)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return what the variables say.

    Raises
    ------
    ValueError
        A sentence with the variable, its value and what is allowed.
    """

    def of(name: str, parse: Callable[[str], _T]) -> _T:
        return _named(name, parse, environment.get(name, ""))

    leaks = _is_set(environment, LEAKS)
    return Settings(
        kinds=of(ONLY, lambda text: kinds_named(text, leaks)),
        stacks=_is_set(environment, STACKS),
        suppressions=of(SUPPRESSIONS, lambda file: tuple(suppressions.read(file) if file else ())),
        exitcode=of(EXITCODE, lambda text: exitcode_named(text) if text else DEFAULT_EXITCODE),
        socket=environment.get(SOCKET) or None,
    )
