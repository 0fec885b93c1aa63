"""Operators that write: in place, and to `out=` of valid and invalid shapes."""

import warnings

import torch
from torch.testing._internal.opinfo.core import ForeachFuncInfo
from torch.utils._pytree import tree_leaves, tree_map_only

from .calls import Case, arguments_of, calling, case, invoke
from .catalogue import describe, samples
from .comparison import compare, first_line, run
from .expected import rules
from .inputs import DEVICE, HOST, Stay


def _recording_warnings(function):
    """Return the result of a function and its warnings, without the one about complex32."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = function()
    said = [f"{each.category.__name__}: {str(each.message)[:60]}" for each in raised]
    return result, "; ".join(each for each in said if "ComplexHalf support" not in each)


def in_place(subject, dtype):
    function = subject.info.inplace_variant
    if not callable(function):
        return

    def call(arguments, device):
        first = arguments[0]
        result = invoke(function, arguments)
        written = [each for each in tree_leaves(first) if isinstance(each, torch.Tensor)]
        return {
            "result": result,
            "is the input": result is first,
            "versions": [each._version for each in written],
        }

    for sample in samples(subject, dtype):
        yield case(subject, f"in-place {subject.name}", sample, call)


def _filled(tensor, shape, dtype=None):
    """Return memory with a pattern, to find elements that are not written."""
    dtype = dtype or tensor.dtype
    return torch.full(shape, dtype == torch.bool or 7, dtype=dtype)


def _strided(tensor):
    """Return a transposed tensor of every second element."""
    twice = _filled(tensor, [2 * size for size in reversed(tensor.shape)] or [2])
    if tensor.dim() == 0:
        return twice[1]
    return twice[tuple(slice(None, None, 2) for _ in tensor.shape)].permute(
        *reversed(range(tensor.dim()))
    )


def _narrower(tensor):
    narrower = torch.int64 if tensor.dtype.is_floating_point or tensor.is_complex() else torch.bool
    return _filled(tensor, tensor.shape, narrower)


def _wider(tensor):
    wider = torch.complex128 if tensor.is_complex() else torch.float64
    return _filled(tensor, tensor.shape, wider)


def _overlapping(tensor):
    """Return one element expanded to all, in memory that has room for all of them."""
    return _filled(tensor, tensor.shape).as_strided(tensor.shape, (0,) * tensor.dim())


def _requiring_gradients(tensor):
    out = _filled(tensor, tensor.shape)
    return out.requires_grad_() if out.is_floating_point() or out.is_complex() else out


OUT = {
    "of the right size": lambda t: _filled(t, t.shape),
    "with other strides": _strided,
    "empty": lambda t: _filled(t, (0,)),
    "of another size": lambda t: _filled(t, [size + 1 for size in t.shape] or [2]),
    "of a narrower dtype": _narrower,
    "of a wider dtype": _wider,
    "overlapping itself": _overlapping,
    "requiring gradients": _requiring_gradients,
}


def _is_outputs(value):
    """Return whether a value can be `out=`: a tensor, or a flat sequence of tensors."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, torch.Tensor) for each in value)
    return isinstance(value, torch.Tensor)


def _write(function):
    def call(arguments, device):
        given, out = arguments
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        addresses = [each.data_ptr() for each in outs]
        result, warned = _recording_warnings(lambda: invoke(function, given, out=out))
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        return {
            "result": result,
            "is out": [a is b for a, b in zip(results, outs, strict=True)],
            "kept its memory": [
                each.data_ptr() == address for each, address in zip(outs, addresses, strict=True)
            ],
            "warnings": warned,
        }

    return call


def out(subject, dtype):
    """Call with `out=` in every form, and on the host, which a device must reject."""
    if not subject.info.supports_out or isinstance(subject.info, ForeachFuncInfo):
        return
    function = subject.info.op
    for sample in samples(subject, dtype):
        given = arguments_of(subject, sample)
        plain = run(calling(function), given, HOST)
        if plain.error is not None or not _is_outputs(plain.result):
            continue
        for form, make in OUT.items():
            outs = tree_map_only(torch.Tensor, make, plain.result)
            if isinstance(outs, tuple):
                outs = tuple(outs)
            found = compare(_write(function), (given, outs), rules(subject.info.name))
            yield Case(f"{subject.name}(out= {form}; {describe(sample)})", found)
        if any(isinstance(each, torch.Tensor) for each in tree_leaves((sample.input, sample.args))):
            outs = tree_map_only(torch.Tensor, OUT["of the right size"], plain.result)
            if run(_write(function), (given, outs), HOST).error is None:
                refused = run(_write(function), (given, Stay(outs)), DEVICE).error
                label = f"{subject.name}(out= on the host; {describe(sample)})"
                yield Case(label, _unless_refused(refused))


def _unless_refused(error):
    if isinstance(error, RuntimeError):
        return None
    return f"expected a RuntimeError, found {first_line(error) if error else 'no error'}"
