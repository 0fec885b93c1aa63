"""Expected errors: device and CPU raise the same type, with a message that the database expects."""

import re

import torch
from torch.utils._pytree import tree_leaves

from .calls import Case, arguments_of, calling
from .catalogue import describe, none_if_skipped
from .comparison import difference, first_line, run
from .expected import rules
from .inputs import DEVICE, HOST


def _differs_in_words(pattern, host, device):
    """The message of the host matches the pattern of the database, but the device's does not."""
    if host is None or device is None or not re.search(pattern, str(host)):
        return None
    if re.search(pattern, str(device)):
        return None
    return f"error: expected words like {pattern[:80]!r}, found {first_line(device)}"


def compare_error(function, arguments, pattern, asked):
    """Run on both. Types must be equal, and both messages or none must match the pattern."""
    host, device = run(function, arguments, HOST), run(function, arguments, DEVICE)
    return difference(host, device, asked) or _differs_in_words(pattern, host.error, device.error)


def error_inputs(info, device):
    if info.error_inputs_func is None:
        return []
    return none_if_skipped(lambda: info.error_inputs(device))


def _sparse_errors(info):
    """Yield the error inputs of every layout that the operator supports."""
    layouts = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
    for layout in (getattr(torch, name) for name in layouts):
        if info.supports_sparse_layout(layout) and info.error_inputs_sparse_func is not None:
            yield from none_if_skipped(
                lambda layout=layout: info.error_inputs_sparse("cpu", layout)
            )


def errors(subject, dtype):
    """Check the CPU's error inputs, moved to the device, and those that need two devices."""
    info = subject.info
    function = calling(info.op)
    for each in [*error_inputs(info, "cpu"), *_sparse_errors(info)]:
        arguments = arguments_of(subject, each.sample_input)
        found = compare_error(function, arguments, each.error_regex, rules(info.name))
        yield Case(f"{subject.name}({describe(each.sample_input)})", found)
    yield from _errors_of_a_device(subject)


def _errors_of_a_device(subject):
    """Check error inputs for a device, some with tensors on the host."""
    for each in error_inputs(subject.info, str(DEVICE)):
        sample = each.sample_input
        given = tree_leaves((sample.input, sample.args, sample.kwargs))
        places = {part.device for part in given if isinstance(part, torch.Tensor)}
        if len(places) < 2:
            continue
        try:
            subject.info.op(sample.input, *sample.args, **sample.kwargs)
            found = "no error"
        except Exception as raised:
            matches = re.search(each.error_regex, str(raised))
            found = None
            if not (isinstance(raised, each.error_type) and matches):
                found = first_line(raised)
        if found is not None:
            found = f"expected {each.error_type.__name__} {each.error_regex[:80]!r}, found {found}"
        yield Case(f"{subject.name}({describe(sample)}) on two devices", found)
