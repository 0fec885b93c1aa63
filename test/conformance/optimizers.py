"""Every optimizer in every implementation: parameters and state after each step, and its errors."""

import copy
import warnings

import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum
from torch.utils._pytree import tree_map_only

from .calls import Case
from .comparison import Rules, compare
from .errors import compare_error
from .inputs import DEVICE

SEED = 13
STEPS = 4


def optimizer_dtypes(info):
    dtypes = [torch.float32, torch.float64]
    return dtypes + [torch.complex64] if info.supports_complex else dtypes


def _problem(info, dtype):
    """Parameters, and the values that they move towards."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = [(4, 5), (7, 3)] if info.name == "Muon" else [(4, 5), (7,), (2, 3, 2), ()]

    def draw():
        return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]

    return [each.requires_grad_() for each in draw()], draw()


def _closure(optimizer, parameters, targets, *, sparse):
    def closure():
        optimizer.zero_grad()
        loss = sum(
            ((p - t).abs() ** 2 + (p - t).abs()).sum()
            for p, t in zip(parameters, targets, strict=True)
        )
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()
        if sparse:
            for parameter in parameters:
                parameter.grad = parameter.grad.to_sparse()
        return loss.detach()

    return closure


def _state(optimizer):
    """Return a copy of the state, with numbers for tensors that are usually on the host."""
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"] = tree_map_only(torch.Tensor, torch.Tensor.tolist, state["param_groups"])
    for each in state["state"].values():
        for name in ("step", "mu_product", "eta", "mu", "t"):
            if isinstance(each.get(name), torch.Tensor):
                each[name] = each[name].item()
    return state


def _train(info, kwargs, *, sparse=False, schedulers=(), reload=False):
    """Run a few steps, and return the parameters and the state of the optimizer after each."""

    def call(arguments, device):
        parameters, targets = arguments
        optimizer = info.optim_cls(parameters, **copy.deepcopy(kwargs))
        scheduled = [make(optimizer) for make in schedulers]
        history = []
        for step in range(STEPS):
            if reload and step == STEPS // 2:
                state = tree_map_only(torch.Tensor, torch.Tensor.cpu, optimizer.state_dict())
                optimizer = info.optim_cls(parameters, **copy.deepcopy(kwargs))
                optimizer.load_state_dict(state)
            loss = optimizer.step(_closure(optimizer, parameters, targets, sparse=sparse))
            for each in scheduled:
                if isinstance(each, torch.optim.lr_scheduler.ReduceLROnPlateau):
                    each.step(loss)
                else:
                    each.step()
            history.append(([p.detach().clone() for p in parameters], _state(optimizer), loss))
        return history

    return call


def _implementations(info):
    """Yield (description, keyword arguments, rules) for each implementation of the optimizer."""
    # By default a device uses `foreach`, and the CPU processes tensor by tensor.
    yield "default", {}, Rules("close")
    if "foreach" in info.supported_impls:
        yield "for-loop", {"foreach": False}, Rules()
        yield "foreach", {"foreach": True}, Rules()
    if "fused" in info.supported_impls and "cpu" in info.supports_fused_on:
        yield "fused", {"fused": True}, Rules()
    if "differentiable" in info.supported_impls:
        yield "differentiable", {"differentiable": True}, Rules()


def optimizers(subject, dtype):
    info = subject.info
    if info.only_supports_sparse_grads:
        return
    for each in info.optim_inputs_func(device="cpu"):
        for words, more, asked in _implementations(info):
            call = _train(info, each.kwargs | more)
            label = f"{info.name}({each.desc}), {words}"
            yield Case(label, compare(call, _problem(info, dtype), asked))
    for words, more, asked in _implementations(info):
        call = _train(info, more, reload=True)
        yield Case(f"{info.name}, {words}, reloaded", compare(call, _problem(info, dtype), asked))


def optimizers_of_sparse_gradients(subject, dtype):
    info = subject.info
    if not (info.supports_sparse or info.only_supports_sparse_grads):
        return
    kwargs, _ = info.metadata_for_sparse
    found = compare(_train(info, kwargs, sparse=True), _problem(info, dtype), Rules())
    yield Case(f"{info.name}, sparse gradients", found)


def optimizers_with_schedulers(subject, dtype):
    info = subject.info
    if info.only_supports_sparse_grads:
        return
    for schedulers in info.scheduler_inputs:
        kwargs = {"lr": 0.01}
        call = _train(info, kwargs, schedulers=schedulers)
        found = compare(call, _problem(info, dtype), Rules("close"))
        yield Case(f"{info.name}, {len(schedulers)} schedulers", found)


def capturable_optimizers(subject, dtype):
    """`capturable=True` gives the CPU's result. The CPU does not support the argument."""
    info = subject.info
    if not info.has_capturable_arg:
        return
    for more in ({"foreach": False}, {"foreach": True}):

        def call(arguments, device, more=more):
            capturable = {"capturable": True} if device == DEVICE else {}
            history = _train(info, more | capturable)(arguments, device)
            return [parameters for parameters, _, _ in history]

        found = compare(call, _problem(info, dtype), Rules("close"))
        yield Case(f"{info.name}, capturable, {more}", found)


def optimizer_errors(subject, dtype):
    info = subject.info
    for error in info.optim_error_inputs_func(device="cpu", dtype=dtype):
        each = error.optimizer_error_input

        def call(arguments, device, each=each, error=error):
            parameters = arguments if each.params is not None else [torch.ones(1, 1, device=device)]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer = info.optim_cls(parameters, **each.kwargs)
                if error.error_on == OptimizerErrorEnum.STEP_ERROR:
                    optimizer.step()

        found = compare_error(call, each.params, error.error_regex, Rules())
        yield Case(f"{info.name}: {each.desc}", found)
