"""Suppressions: findings that the sanitizer does not report, read from a file of sections.

::

    [statistics of the library]            # a name, shown when nothing matches the suppression
    kind = race, unordered event           # default: all kinds
    file = */site-packages/library/*.py    # of either access
    function = update
    operator = aten::add_
    reason = reported as library#123; both add the same number

A suppression matches a finding if all its patterns match one of the two accesses. `file` and
`function` must match the same line of its stack. Patterns have the wildcards of a shell. A file
without a folder matches in every folder.

This module does not need PyTorch.
"""

import configparser
import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from .finding import KINDS, Access, Finding, Frame

_PATTERNS = ("file", "function", "operator")


def parse_kind(text: str) -> str:
    """Return the kind of finding that a text names: ``use-after-free`` is "use after free"."""
    kind = " ".join(text.replace("-", " ").replace("_", " ").split())
    if kind not in KINDS:
        known = ", ".join(name.replace(" ", "-") for name in KINDS)
        raise ValueError(f"{text.strip()[:100]}: expected {known}")
    return kind


@dataclass(frozen=True)
class Suppression:
    """A section of the file: kinds and patterns of findings, and the reason."""

    name: str
    kinds: tuple[str, ...]  # empty: all kinds
    patterns: dict[str, str]
    reason: str

    def matches(self, finding: Finding) -> bool:
        """Return whether this suppresses a finding.

        Parameters
        ----------
        finding
            A finding of any process.
        """
        if self.kinds and finding.kind not in self.kinds:
            return False
        sides = [side for side in (finding.first, finding.second) if side is not None]
        return not self.patterns or any(self._matches_access(side) for side in sides)

    def _matches_access(self, access: Access) -> bool:
        operator = self.patterns.get("operator")
        if operator is not None and not fnmatch.fnmatchcase(access.operator, operator):
            return False
        if not self.patterns.keys() & {"file", "function"}:
            return True
        frames = [*access.stack, *(access.forward or ())]
        if not frames and access.block is not None:  # a leak
            frames = [*access.block.stack]
        return any(self._matches_frame(frame) for frame in frames)

    def _matches_frame(self, frame: Frame) -> bool:
        file, function = self.patterns.get("file"), self.patterns.get("function")
        if function is not None and not fnmatch.fnmatchcase(frame.function, function):
            return False
        if file is None or fnmatch.fnmatchcase(frame.file, file):
            return True
        return not file.startswith("/") and fnmatch.fnmatchcase(frame.file, f"*/{file}")


def _read_section(name: str, section: configparser.SectionProxy) -> Suppression:
    if unknown := set(section) - {*_PATTERNS, "kind", "reason"}:
        raise ValueError(f"{min(unknown)}: expected kind, file, function, operator or reason")
    if not section.get("reason"):
        raise ValueError("expected a reason")
    patterns = {key: section[key] for key in _PATTERNS if key in section}
    if not all(patterns.values()):
        raise ValueError("expected a pattern after each =")
    kinds = tuple(map(parse_kind, section["kind"].split(","))) if "kind" in section else ()
    if not kinds and not patterns:
        raise ValueError("expected a kind or a pattern: this would suppress everything")
    return Suppression(name, kinds, patterns, section["reason"])


def read(path: str) -> list[Suppression]:
    """Read a file of suppressions.

    Parameters
    ----------
    path
        The path of the file.

    Returns
    -------
    list of Suppression
        The suppressions, in the order of the file.

    Raises
    ------
    ValueError
        If the file cannot be read or has an error. The message names the file and the section.
    """
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), inline_comment_prefixes=("#",), default_section=""
    )
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (configparser.Error, UnicodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    suppressions = []
    for name in parser.sections():
        try:
            suppressions.append(_read_section(name, parser[name]))
        except ValueError as error:
            raise ValueError(f"{path}: [{name}]: {error}") from None
    return suppressions


def unused_sentence(names: Iterable[str]) -> str:
    """Return a line about suppressions that matched no finding; "" if there are none."""
    names = ", ".join(f"[{name}]" for name in names)
    return f"openreg sanitizer: suppressions that matched no finding: {names}\n" if names else ""
