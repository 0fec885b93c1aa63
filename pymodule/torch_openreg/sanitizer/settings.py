"""The environment variables of the sanitizer. ``openreg sanitize`` sets them for the program.

This module does not need PyTorch.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .. import variables
from . import suppressions
from .finding import KINDS
from .suppressions import Suppression, parse_kind

ENABLED = "OPENREG_SANITIZER"
ONLY = "OPENREG_SANITIZER_ONLY"
STACKS = "OPENREG_SANITIZER_STACKS"
LEAKS = "OPENREG_SANITIZER_LEAKS"
SUPPRESSIONS = "OPENREG_SANITIZER_SUPPRESSIONS"
EXITCODE = "OPENREG_SANITIZER_EXITCODE"
# The path of the socket on which `openreg sanitize` listens. Only `openreg sanitize` sets it.
SOCKET = variables.SANITIZER_SOCKET

_T = TypeVar("_T")

DEFAULT_EXITCODE = 86
# Most programs still own memory when they end, and that is not an error.
DEFAULT_KINDS = tuple(kind for kind in KINDS if kind != "leak")


@dataclass(frozen=True)
class Settings:
    """What the sanitizer looks for, and what it does with the findings."""

    kinds: tuple[str, ...] = DEFAULT_KINDS
    stacks: bool = False
    suppressions: tuple[Suppression, ...] = ()
    exitcode: int = DEFAULT_EXITCODE
    socket: str | None = None


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "")
    if value not in ("", "0", "1"):
        raise ValueError(variables.rejection(name, value))
    return value == "1"


def parse_kinds(text: str, leaks: bool = False) -> tuple[str, ...]:
    """Return the kinds of findings in a comma-separated list; for "", the default kinds."""
    named = {parse_kind(name) for name in text.split(",")} if text else set(DEFAULT_KINDS)
    if leaks:
        named.add("leak")
    return tuple(kind for kind in KINDS if kind in named)


def parse_exitcode(text: str) -> int:
    """Return an exit status that is given as text."""
    if not text.isascii() or not text.isdecimal() or int(text) > 255:
        raise ValueError(f"{text[:100]}: expected {variables.get(EXITCODE).allowed}")
    return int(text)


def _parse(name: str, parse: Callable[[str], _T], text: str) -> _T:
    """Parse the value of a variable; put its name in front of the error."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"openreg: {name}={error}") from None


def is_requested(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether OPENREG_SANITIZER enables the sanitizer."""
    return _is_set(environment, ENABLED)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in an environment.

    Raises
    ------
    ValueError
        For a value that is not allowed. The message names the variable and the allowed values.
    """

    def of(name: str, parse: Callable[[str], _T]) -> _T:
        return _parse(name, parse, environment.get(name, ""))

    leaks = _is_set(environment, LEAKS)
    return Settings(
        kinds=of(ONLY, lambda text: parse_kinds(text, leaks)),
        stacks=_is_set(environment, STACKS),
        suppressions=of(SUPPRESSIONS, lambda file: tuple(suppressions.read(file) if file else ())),
        exitcode=of(EXITCODE, lambda text: parse_exitcode(text) if text else DEFAULT_EXITCODE),
        socket=environment.get(SOCKET) or None,
    )
