"""What need not be as on the CPU, by name and with the reason.

``RULES`` lessen what a comparison asks of an operator. ``EXPECTED`` lists the differences that
cannot be otherwise: such a case is counted as expected, not as failed, and an entry whose
difference no longer shows up is reported as stale, which is a failure too.
"""

import fnmatch
import re
from dataclasses import dataclass

from .comparison import Rules

# The memory of these results is never written, on no device.
_UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
)

_CLOSE: dict[str, str] = {}

# Results that are CPU tensors on CUDA too.
_HOST_RESULTS: tuple[str, ...] = ()

# Arguments that are CPU tensors on CUDA too: they stay where the sample has them.
HOST_ARGUMENTS = frozenset({"tensor_split"})


def rules(operator):
    """The rules for an operator, by its name in the database without the variant."""
    values = "equal"
    if operator in _UNINITIALISED:
        values = "any"
    elif operator in _CLOSE:
        values = "close"
    return Rules(values, host_results=operator in _HOST_RESULTS)


@dataclass(frozen=True)
class Expected:
    """A difference that is impossible to avoid, or that CUDA has as well.

    ``subject`` and ``check`` are patterns as in a shell; ``difference`` is searched for in the
    sentence that describes the difference.
    """

    subject: str
    check: str
    difference: str
    reason: str

    def covers(self, check, subject):
        return fnmatch.fnmatchcase(check, self.check) and fnmatch.fnmatchcase(subject, self.subject)

    def matches(self, check, subject, difference):
        return self.covers(check, subject) and re.search(self.difference, difference) is not None


EXPECTED: tuple[Expected, ...] = ()


def expectation(check, subject, difference):
    """The entry that expects a difference, or None."""
    for entry in EXPECTED:
        if entry.matches(check, subject, difference):
            return entry
    return None
