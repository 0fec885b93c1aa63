"""Forward: every operator with every sample, by every name it has, and on every kind of memory."""

import torch
from torch.testing._internal.common_utils import noncontiguous_like

from .calls import calling, case
from .catalogue import samples


def forward(subject, dtype):
    """Call the operator as a function."""
    for sample in samples(subject, dtype):
        yield case(subject, subject.name, sample, calling(subject.info.op))


def variants(subject, dtype):
    """Call the operator as a method, as Python's operator, and by its other names."""
    info = subject.info
    named = {
        "method": info.method_variant,
        "operator": info.operator_variant,
        "in-place operator": info.inplace_operator_variant,
    }
    for alias in info.aliases:
        named[alias.name] = alias.op
        named[f"method {alias.name}"] = alias.method_variant
        named[f"in-place {alias.name}"] = alias.inplace_variant
    for name, function in named.items():
        if callable(function) and function is not info.op:
            for sample in samples(subject, dtype):
                yield case(subject, f"{subject.name} as {name}", sample, calling(function))


def _is_plain(tensor):
    return tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized


def _with_gaps(tensor):
    return noncontiguous_like(tensor)


def _one_element_later(tensor):
    """Call the operator with memory that is not aligned for vector instructions."""
    memory = tensor.new_empty(tensor.numel() + 1)
    return memory[1:].view(tensor.shape).copy_(tensor)


def _channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats:
        return tensor
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def _lazily_conjugated(tensor):
    return tensor.resolve_conj().conj_physical().conj() if tensor.is_complex() else tensor


def _lazily_negated(tensor):
    if tensor.is_floating_point() or tensor.is_complex():
        return torch._neg_view(tensor.resolve_neg().neg())
    return tensor


_LAYOUTS = {
    "with gaps": _with_gaps,
    "one element later": _one_element_later,
    "channels last": _channels_last,
    "lazily conjugated": _lazily_conjugated,
    "lazily negated": _lazily_negated,
}


def _layouts_for(info, dtype):
    """Return the layouts that the operator keeps on the CPU, according to the database."""
    layouts = dict(_LAYOUTS)
    if not info.test_conjugated_samples:
        del layouts["lazily conjugated"]
    # Dtypes of 8 bits have no lazy negation.
    if not info.test_neg_view or dtype.itemsize < 2:
        del layouts["lazily negated"]
    return layouts


def layouts(subject, dtype):
    """Call with the same values in other memory: a twin must equal its tensor for a kernel."""
    for name, transform in _layouts_for(subject.info, dtype).items():
        for sample in samples(subject, dtype):
            changed = False

            def change(value, transform=transform):
                nonlocal changed
                if not isinstance(value, torch.Tensor) or not _is_plain(value):
                    return value
                other = transform(value)
                changed = changed or other is not value
                return other

            other = sample.transform(change)
            if changed:
                yield case(subject, f"{subject.name}, {name}", other, calling(subject.info.op))
