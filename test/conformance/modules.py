"""Every module of `torch.nn`: forward, backward, moved, built on the device, and its errors."""

import copy
import inspect

import torch
from torch.testing._internal.common_modules import ModuleErrorEnum
from torch.utils._pytree import tree_leaves

from .calls import Case
from .catalogue import none_if_skipped
from .comparison import compare
from .errors import compare_error
from .expected import rules
from .inputs import HOST, move, random_like

SEED = 11


def _modes(info):
    return (True, False) if info.train_and_eval_differ else (True,)


def _inputs(info, dtype):
    """Yield (description, module input, training) for each input of the database."""
    for training in _modes(info):
        make = lambda training=training: info.module_inputs_func(  # noqa: E731
            info, device="cpu", dtype=dtype, requires_grad=True, training=training
        )
        for each in none_if_skipped(make):
            words = f"{info.name}({each.desc}), {'training' if training else 'evaluating'}"
            yield words, each, training


def _takes_a_device(info):
    return "device" in inspect.signature(info.module_cls).parameters


def _build(info, constructor_input, dtype, training, forward_input=None, device=HOST):
    torch.manual_seed(SEED)
    constructor = constructor_input
    given, named = move((constructor.args, constructor.kwargs), device)
    if device.type != "cpu" and _takes_a_device(info):
        named = named | {"device": device, "dtype": dtype}
    module = info.module_cls(*given, **named).to(device).to(dtype).train(training)
    if info.is_lazy and forward_input is not None:
        with torch.no_grad():
            given, named = move((forward_input.args, forward_input.kwargs), device)
            module(*given, **named)
    return module


def _forward_arguments(each):
    return each.forward_input.args, each.forward_input.kwargs


def _cases(info, dtype, function):
    """Compare `function(module on the CPU, arguments, device)` over all inputs."""
    for words, each, training in _inputs(info, dtype):
        if each.forward_input is None:
            continue
        module = _build(info, each.constructor_input, dtype, training, each.forward_input)

        def call(arguments, device, module=module):
            return function(module, arguments, device)

        yield Case(words, compare(call, _forward_arguments(each), rules(info.name)))


def module_forward(subject, dtype):
    """Return the output, and the state of the module afterwards."""

    def forward(module, arguments, device):
        module = copy.deepcopy(module).to(device)
        args, kwargs = arguments
        with torch.no_grad():
            return module(*args, **kwargs), dict(module.state_dict())

    yield from _cases(subject.info, dtype, forward)


def module_gradients(subject, dtype):
    """Return the gradients of the inputs and of every parameter, accumulated twice."""

    def backward(module, arguments, device):
        module = copy.deepcopy(module).to(device)
        args, kwargs = arguments
        generator = torch.Generator().manual_seed(SEED)
        for _ in range(2):
            outputs = [
                each
                for each in tree_leaves(module(*args, **kwargs))
                if isinstance(each, torch.Tensor) and each.requires_grad
            ]
            cotangents = [random_like(each, generator) for each in outputs]
            with torch.autograd.set_multithreading_enabled(False):
                torch.autograd.backward(outputs, cotangents)
        inputs = [each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]
        return (
            {name: parameter.grad for name, parameter in module.named_parameters()},
            [each.grad for each in inputs],
        )

    yield from _cases(subject.info, dtype, backward)


def module_moving(subject, dtype):
    """Move to the device and back, and copy. Parameters keep their identity, as on CUDA."""

    def moved(module, arguments, device):
        module = copy.deepcopy(module)
        before = list(module.parameters())
        there = module.to(device)
        same = [a is b for a, b in zip(before, there.parameters(), strict=True)]
        states = [dict(there.state_dict()), dict(copy.deepcopy(there).state_dict())]
        shared = [p.data_ptr() for p in there.parameters()]
        back = there.to(HOST).to(device)
        states.append(dict(back.state_dict()))
        return same, states, [type(p) for p in back.parameters()], len(set(shared))

    yield from _cases(subject.info, dtype, moved)


def module_building(subject, dtype):
    """A module built with `device=` equals the CPU's module after it gets its parameters."""
    info = subject.info
    if not _takes_a_device(info):
        return
    for words, each, training in _inputs(info, dtype):
        if each.forward_input is None:
            continue
        module = _build(info, each.constructor_input, dtype, training, each.forward_input)

        def call(arguments, device, each=each, training=training, module=module):
            built = _build(
                info, each.constructor_input, dtype, training, each.forward_input, device
            )
            described = {k: (v.shape, v.dtype, v.device) for k, v in built.state_dict().items()}
            built.load_state_dict(module.state_dict())
            args, kwargs = arguments
            with torch.no_grad():
                return described, built(*args, **kwargs)

        yield Case(words, compare(call, _forward_arguments(each), rules(info.name)))


def module_errors(subject, dtype):
    info = subject.info
    if info.module_error_inputs_func is None:
        return
    for training in _modes(info):
        make = lambda training=training: info.module_error_inputs_func(  # noqa: E731
            info, device="cpu", dtype=dtype, requires_grad=False, training=training
        )
        for error in none_if_skipped(make):
            each = error.module_error_input

            def call(arguments, device, each=each, error=error, training=training):
                module = _build(info, each.constructor_input, dtype, training, device=device)
                if error.error_on == ModuleErrorEnum.FORWARD_ERROR:
                    args, kwargs = arguments
                    module(*args, **kwargs)

            forward = each.forward_input
            arguments = (forward.args, forward.kwargs) if forward is not None else ((), {})
            found = compare_error(call, arguments, error.error_regex, rules(info.name))
            yield Case(f"{info.name}: {error.error_regex[:60]}", found)
