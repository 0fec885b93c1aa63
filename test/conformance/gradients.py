"""Derivatives: reverse mode once and twice, through in-place operators, and forward mode.

The outputs' cotangents and the inputs' tangents are random numbers drawn on the CPU, the same in
both runs. The backward pass of a device has a thread of its own, where gradients that meet may be
added up in another order than on the CPU. So that they can be compared to the last bit, all checks
but one ask for a backward pass in the calling thread.
"""

from dataclasses import replace

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map_only

from .calls import case, invoke
from .catalogue import samples
from .expected import rules
from .inputs import random_like

SEED = 7


def _tensors(value):
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def _differentiate(outputs, inputs, generator, *, create_graph=False):
    """Return gradients of the inputs that outputs depend on, None for the others."""
    outputs = [each for each in _tensors(outputs) if each.requires_grad]
    if not outputs:
        return []
    if any(each.layout != torch.strided for each in outputs):
        outputs = [each.to_dense() for each in outputs]
    cotangents = [random_like(each, generator) for each in outputs]
    return torch.autograd.grad(
        outputs, inputs, cotangents, allow_unused=True, create_graph=create_graph
    )


def gradients_of(function, process, *, twice=False, threads=False):
    """Return the result of a call, its gradients and, if requested, their gradients."""

    def call(arguments, device):
        inputs = [each for each in _tensors(arguments) if each.requires_grad]
        generator = torch.Generator().manual_seed(SEED)
        result = process(invoke(function, arguments))
        with torch.autograd.set_multithreading_enabled(threads):
            first = _differentiate(result, inputs, generator, create_graph=twice)
            second = _differentiate(first, inputs, generator) if twice else []
        return {"result": result, "gradient": first, "second gradient": second}

    return call


def gradients(subject, dtype):
    for sample in samples(subject, dtype, requires_grad=True):
        call = gradients_of(subject.info.op, sample.output_process_fn_grad)
        yield case(subject, f"gradients of {subject.name}", sample, call)


def second_gradients(subject, dtype):
    if not subject.info.supports_gradgrad:
        return
    for sample in samples(subject, dtype, requires_grad=True):
        call = gradients_of(subject.info.op, sample.output_process_fn_grad, twice=True)
        yield case(subject, f"second gradients of {subject.name}", sample, call)


def threaded_gradients(subject, dtype):
    """Compute second gradients again, on the thread of the device."""
    if not subject.info.supports_gradgrad:
        return
    asked = replace(rules(subject.info.name), values="close", strides=False)
    for sample in samples(subject, dtype, requires_grad=True):
        process = sample.output_process_fn_grad
        call = gradients_of(subject.info.op, process, twice=True, threads=True)
        yield case(subject, f"threaded gradients of {subject.name}", sample, call, asked)


def _clone(value):
    return tree_map_only(torch.Tensor, torch.clone, value)


def in_place_gradients(subject, dtype):
    function = subject.info.inplace_variant
    if not (callable(function) and subject.info.supports_inplace_autograd):
        return
    for sample in samples(subject, dtype, requires_grad=True):
        if sample.broadcasts_input:
            continue

        def on_clone(first, *args, **kwargs):
            clone = _clone(first)
            result = function(clone, *args, **kwargs)
            return clone if result is None else result

        call = gradients_of(on_clone, sample.output_process_fn_grad)
        yield case(subject, f"gradients of in-place {subject.name}", sample, call)


def forward_gradients(subject, dtype):
    """Forward mode: return the tangents of the results for tangents of the inputs."""
    if not subject.info.supports_forward_ad:
        return

    def call(arguments, device):
        generator = torch.Generator().manual_seed(SEED)

        def dual(tensor):
            if not tensor.requires_grad:
                return tensor
            return forward_ad.make_dual(tensor, random_like(tensor, generator))

        with forward_ad.dual_level():
            result = invoke(subject.info.op, tree_map_only(torch.Tensor, dual, arguments))
            return [tuple(forward_ad.unpack_dual(each)) for each in _tensors(result)]

    for sample in samples(subject, dtype, requires_grad=True):
        yield case(subject, f"forward gradients of {subject.name}", sample, call)
