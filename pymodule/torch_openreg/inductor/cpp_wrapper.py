"""``torch._inductor.config.cpp_wrapper``: graphs that run without Python, as one launch each.

A graph that can be one kernel (`graph_kernel`) is compiled for the CPU, for which Inductor
generates a wrapper in C++. Other graphs get a wrapper in Python, as without the option.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
from torch._prims_common import compute_required_storage_length
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _pytree as pytree

from . import graph_kernel

_NAMESPACES = ("aten", "prims")


def compile_for_host(device_type: str, compile_fx: Any) -> None:
    """Compile graphs of a device for the CPU if they need a wrapper in C++."""
    compile_inner: Callable[..., Any] = compile_fx._compile_fx_inner

    def _compile_fx_inner(
        gm: GraphModule, example_inputs: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        devices = {each.device for each in _tensors_of(gm)}
        if (
            not kwargs.get("cpp_wrapper")
            or V.aot_compilation
            or all(device.type != device_type for device in devices)
        ):
            return compile_inner(gm, example_inputs, *args, **kwargs)
        if len(devices) == 1 and all(map(_can_run_on_cpu, gm.graph.nodes)):
            kwargs["cudagraphs"] = BoxedBool(False)
            host_gm, host_inputs = _to_cpu(gm, example_inputs)
            compiled = compile_inner(host_gm, host_inputs, *args, **kwargs)
            return _as_launch(compiled, gm, devices.pop())
        kwargs["cpp_wrapper"] = False
        with config.patch(cpp_wrapper=False):
            return compile_inner(gm, example_inputs, *args, **kwargs)

    compile_fx._compile_fx_inner = _compile_fx_inner


def _tensors_of(gm: GraphModule) -> list[torch.Tensor]:
    values = pytree.tree_leaves([node.meta.get("val") for node in gm.graph.nodes])
    return [each for each in values if isinstance(each, torch.Tensor)]


def _can_run_on_cpu(node: Node) -> bool:
    """Return whether a node of a graph gives the same result in a CPU program."""
    value = node.meta.get("val")
    if free_unbacked_symbols(value):  # the size of the result depends on data
        return False
    if node.op == "placeholder":
        return isinstance(value, torch.Tensor | int | torch.SymInt)
    if node.op == "output":
        return all(map(_is_tensor_or_input, node.args[0]))  # type: ignore[arg-type]
    if node.op == "get_attr":
        return isinstance(value, torch.Tensor)
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        is_pytorchs = target.namespace in _NAMESPACES
        has_kernel = is_pytorchs and graph_kernel.has_cpu_kernel(target)
        return has_kernel and not graph_kernel.uses_rng(node)
    return getattr(target, "__module__", None) in ("operator", "_operator")


def _is_tensor_or_input(result: Any) -> bool:
    """Return whether a result of a graph is a tensor, an input of the graph, or a constant."""
    if isinstance(result, Node) and result.op != "placeholder":
        return isinstance(result.meta.get("val"), torch.Tensor)
    return True


def _to_cpu(gm: GraphModule, inputs: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    host_gm = graph_kernel.to_cpu(gm)
    mode: Any = next(each.fake_mode for each in _tensors_of(gm))  # type: ignore[attr-defined]
    with mode:
        host_inputs = [
            _cpu_like(each) if isinstance(each, torch.Tensor) else each for each in inputs
        ]
    _Layouts(host_gm, mode).propagate_dont_convert_inputs(*host_inputs)
    return host_gm, host_inputs


class _Layouts(FakeTensorProp):
    """Computes the fake results of the CPU graph with the strides that they had on the device,
    because the views of the graph were made for these strides."""

    def run_node(self, n: Node) -> Any:
        before = n.meta.get("val")
        result = super().run_node(n)
        if n.op == "call_function":
            with self._mode:
                result = n.meta["val"] = pytree.tree_map(_with_strides, result, before)
        return result


def _with_strides(tensor: Any, like: Any) -> Any:
    if not isinstance(tensor, torch.Tensor) or tensor.stride() == like.stride():
        return tensor
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)


def _cpu_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor with the layout of another tensor in its storage."""
    offset: Any = tensor.storage_offset()
    size = compute_required_storage_length(tensor.shape, tensor.stride(), offset)
    storage = torch.empty(size, dtype=tensor.dtype)
    return storage.as_strided(tensor.shape, tensor.stride(), offset)


def _as_launch(
    compiled: Any, gm: GraphModule, device: torch.device
) -> Callable[[list[Any]], list[Any]]:
    """Return a function that launches compiled CPU code on a device, in Inductor's convention."""
    nodes = list(gm.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    tensors = [i for i, node in enumerate(inputs) if isinstance(node.meta["val"], torch.Tensor)]
    mutated = getattr(compiled, "mutated_input_idxs", ())  # absent if the graph calls nothing
    written = [i for i in tensors if i in mutated]
    read = [i for i in tensors if i not in written]
    numbers = [i for i in range(len(inputs)) if i not in tensors]

    def program(*values: list[Any]) -> list[torch.Tensor]:
        arguments = [None] * len(inputs)
        for place, value in zip(read + written + numbers, sum(values, []), strict=True):
            arguments[place] = value
        return [each for each in compiled(arguments) if isinstance(each, torch.Tensor)]

    kernel = graph_kernel.GraphKernel(program, device)
    sources = [_source_of(each, inputs) for each in nodes[-1].args[0]]

    def call(arguments: list[Any]) -> list[Any]:
        parts = [[arguments[i] for i in part] for part in (read, written, numbers)]
        computed = iter(kernel(*parts))
        results = [source(arguments, computed) for source in sources]
        arguments.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _source_of(
    result: Any, inputs: list[Node]
) -> Callable[[list[Any], Iterator[torch.Tensor]], Any]:
    """Return a function that gets a result of a graph: computed, an argument, or a constant."""
    if not isinstance(result, Node):
        return lambda arguments, computed: result
    if isinstance(result.meta["val"], torch.Tensor):
        return lambda arguments, computed: next(computed)
    place = inputs.index(result)
    return lambda arguments, computed: arguments[place]
