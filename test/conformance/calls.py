"""Calls of an operator with a sample, shared by all checks of operators."""

from typing import NamedTuple

from .catalogue import describe
from .comparison import compare
from .expected import HOST_ARGUMENTS, rules
from .inputs import Stay


class Case(NamedTuple):
    """One comparison: its name, and the difference that it found, if any."""

    label: str
    difference: str | None


def arguments_of(subject, sample):
    """Return (input, args, kwargs) of a sample, in the form for `compare`."""
    args = sample.args
    if subject.info.name in HOST_ARGUMENTS:
        args = tuple(map(Stay, args))
    return sample.input, args, sample.kwargs


def invoke(function, arguments, **more):
    first, args, kwargs = arguments
    return function(first, *args, **kwargs, **more)


def calling(function):
    """Return the function in the form for `compare`."""
    return lambda arguments, device: invoke(function, arguments)


def case(subject, what, sample, function, asked=None):
    """Compare a function of (arguments, device) with a sample's arguments."""
    asked = asked or rules(subject.info.name)
    found = compare(function, arguments_of(subject, sample), asked)
    return Case(f"{what}({describe(sample)})", found)
