"""Run a call on the CPU and on the device, and describe the first difference in a sentence.

Both runs start from equal memory and call the same kernels. By default everything must therefore be
equal: results, written arguments, and even the bytes between the elements of a strided tensor. The
rules in ``expected.py`` name the subjects with weaker requirements.
"""

import contextlib
import os
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten_with_path, tree_leaves

from .inputs import DEVICE, HOST, components, move

SEED = 2024

# Set to 1 to queue every launch that can be queued. Everything must pass in this way too.
QUEUE_EVERYTHING = os.environ.get("QUEUE_EVERYTHING") == "1"


@dataclass(frozen=True)
class Rules:
    """The requirements of a comparison, besides equal shapes and dtypes.

    ``values``: "equal" to the last bit, "close" within PyTorch's tolerances, or "any". Values are
    not compared if the CPU run drew random numbers. ``strides``: whether the strides of results
    must be those on the CPU. ``host_results``: whether results may be CPU tensors.
    """

    values: str = "equal"
    strides: bool = True
    host_results: bool = False


@dataclass(frozen=True)
class Run:
    """The outcome of one call: its result or error, and its arguments afterwards."""

    result: Any
    error: Exception | None
    arguments: Any
    drew: bool


def run(function, arguments, device):
    """Call ``function(arguments, device)`` with a copy of the arguments on the device."""
    torch.manual_seed(SEED)
    generator_state = torch.get_rng_state()
    result = error = None
    try:
        arguments = move(arguments, device)
        with contextlib.nullcontext() if names_a_device(arguments) else device:
            result = function(arguments, device)
        torch.accelerator.synchronize()
    except Exception as raised:
        error = raised
        error.__traceback__ = None  # its frames would keep tensors alive
    drew = not torch.equal(generator_state, torch.get_rng_state())
    return Run(result, error, arguments, drew)


def names_a_device(arguments):
    """Return whether a call names a device or has tensors; otherwise it uses the default device."""
    return any(
        isinstance(each, (torch.Tensor, torch.device))
        or (isinstance(each, str) and each in ("cpu", str(DEVICE)))
        for each in tree_leaves(arguments)
    )


def compare(function, arguments, rules):
    """Run on both and return the first difference as a sentence; None if there is no difference."""
    host = run(function, arguments, HOST)
    if QUEUE_EVERYTHING:  # the first launch of its kind is not queued
        run(function, arguments, DEVICE)
    device = run(function, arguments, DEVICE)
    return difference(host, device, rules)


def difference(host, device, rules):
    if host.drew:
        rules = replace(rules, values="any")
    try:
        _compare_errors(host.error, device.error)
        if host.error is None:
            _compare_trees("result", host.result, device.result, rules)
        rules = replace(rules, strides=True, host_results=True)
        if host.error is not None:  # nobody says what a call that failed has written
            rules = replace(rules, values="any")
        _compare_trees("argument", host.arguments, device.arguments, rules)
        _compare_memory(host.arguments, device.arguments, rules)
    except _Different as found:
        return str(found)
    except Exception as error:  # a result that cannot even be looked at
        return f"comparing raises {first_line(error)}"
    return None


class _Different(Exception):
    pass


def _expect_same(what, host, device):
    if host != device:
        raise _Different(f"{what} {host} on the CPU, {device} on the device")


def first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _compare_errors(host, device):
    if type(host) is not type(device):
        said = [first_line(each) if each is not None else "no error" for each in (host, device)]
        raise _Different(f"the CPU raises {said[0]}; the device {said[1]}")


def _compare_trees(what, host, device, rules):
    host_leaves, host_tree = tree_flatten_with_path(host)
    device_leaves, device_tree = tree_flatten_with_path(device)
    _expect_same(f"{what}: structure", host_tree, device_tree)
    for (path, expected), (_, actual) in zip(host_leaves, device_leaves, strict=True):
        name = what + "".join(map(str, path))
        if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
            _compare_tensors(name, expected, actual, rules)
        else:
            _compare_objects(name, expected, actual, rules.values)


def _compare_objects(name, host, device, values):
    _expect_same(f"{name}: type", type(host), type(device))
    if isinstance(host, torch.device):
        _expect_same(f"{name}:", DEVICE if host.type == "cpu" else host, device)
    elif isinstance(host, str):
        _expect_same(f"{name}:", host, "cpu" if device == str(DEVICE) else device)
    elif isinstance(host, (float, complex)):
        if values == "equal":
            _expect_same(f"{name}:", repr(host), repr(device))  # NaN is NaN, and -0.0 not 0.0
        elif values == "close":
            _expect_close(name, torch.tensor(host), torch.tensor(device))
    elif isinstance(host, int) and not isinstance(host, bool) and values == "any":
        pass
    elif not isinstance(host, torch.Generator):
        _expect_same(f"{name}:", host, device)


def _compare_tensors(name, host, device, rules):
    _expect_same(f"{name}: class", type(host), type(device))
    if host.device.type != "cpu":
        _expect_same(f"{name}: device", host.device, device.device)
    elif not (rules.host_results and device.device == HOST):
        _expect_same(f"{name}: device", DEVICE, device.device)
    _expect_same(f"{name}: dtype", host.dtype, device.dtype)
    _expect_same(f"{name}: layout", host.layout, device.layout)
    _expect_same(f"{name}: requires_grad", host.requires_grad, device.requires_grad)
    _expect_same(f"{name}: is nested", host.is_nested, device.is_nested)
    if not (host.is_nested and host.layout == torch.strided):
        _compare_shapes(name, host, device, rules.strides)
    if host.is_nested or host.layout not in (torch.strided, torch._mkldnn):
        if host.layout == torch.sparse_coo:
            _expect_same(f"{name}: is coalesced", host.is_coalesced(), device.is_coalesced())
        expected, actual = components(host), components(device)
        _expect_same(f"{name}: parts", list(expected), list(actual))
        for part in expected:
            _compare_tensors(f"{name}.{part}", expected[part], actual[part], rules)
    elif rules.values != "any" and host.device.type == "cpu":
        _compare_values(name, host, device, rules.values)


def _sizes(numbers):
    """Return sizes with a word for the ragged one, whose number differs for every tensor."""
    return tuple(each if isinstance(each, int) else "ragged" for each in numbers)


def _compare_shapes(name, host, device, strides):
    _expect_same(f"{name}: shape", _sizes(host.shape), _sizes(device.shape))
    if host.layout == torch.strided and strides:
        _expect_same(f"{name}: strides", host.stride(), device.stride())
        _expect_same(f"{name}: offset", host.storage_offset(), device.storage_offset())
    _expect_same(f"{name}: conjugate bit", host.is_conj(), device.is_conj())
    _expect_same(f"{name}: negative bit", host.is_neg(), device.is_neg())
    _expect_same(f"{name}: zero without memory", host._is_zerotensor(), device._is_zerotensor())


def _plain(tensor):
    """Return the values as a contiguous CPU tensor without lazy conjugation or negation."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    plain = tensor.detach().cpu()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.is_quantized:
        plain = plain.dequantize()
    return plain.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _compare_values(name, host, device, values):
    expected, actual = _plain(host), _plain(device)
    if _bytes(expected).equal(_bytes(actual)):
        return
    if values == "close":
        _expect_close(name, expected, actual)
        return
    wrong = ~_same_elements(expected, actual)
    if wrong.any():
        where = tuple(wrong.nonzero()[0].tolist())
        raise _Different(
            f"{name}: {int(wrong.sum())} of {wrong.numel()} values differ, first at {where}: "
            f"{expected[where].item()!r} on the CPU, {actual[where].item()!r} on the device"
        )


def _expect_close(name, host, device):
    try:
        assert_close(device, host, equal_nan=True)
    except AssertionError as found:
        lines = [line for line in str(found).splitlines() if line.strip()]
        raise _Different(f"{name}: {' '.join(lines[:3])[:300]}") from None


def _bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def _same_elements(expected, actual):
    """Return where two tensors have the same bits, or both have a NaN of any bits."""
    if expected.is_complex():
        return _same_elements(torch.view_as_real(expected), torch.view_as_real(actual)).all(-1)
    size = expected.element_size()
    bits = [_bytes(each).view(*expected.shape, size) for each in (expected, actual)]
    same = (bits[0] == bits[1]).all(-1)
    if expected.is_floating_point():
        same |= expected.float().isnan() & actual.float().isnan()
    return same


def _compare_memory(host, device, rules):
    """Compare the whole memory of the arguments, to find writes outside of a tensor."""
    if rules.values != "equal":
        return
    seen = set()
    for i, (expected, actual) in enumerate(
        zip(tree_leaves(host), tree_leaves(device), strict=True)
    ):
        if not isinstance(expected, torch.Tensor) or expected.layout != torch.strided:
            continue
        if expected.is_nested or expected.device.type != "cpu" or expected.is_quantized:
            continue
        storage = expected.untyped_storage()
        if storage._cdata in seen or storage.nbytes() % expected.element_size() != 0:
            continue
        seen.add(storage._cdata)
        dtype = torch.uint8 if expected.dtype == torch.bool else expected.dtype
        whole = [
            torch.empty(0, dtype=dtype, device=each.device).set_(each.untyped_storage())
            for each in (expected, actual)
        ]
        name = f"memory of tensor {i} of the arguments"
        _expect_same(f"{name}: length", whole[0].numel(), whole[1].numel())
        _compare_values(name, whole[0], whole[1], rules.values)
