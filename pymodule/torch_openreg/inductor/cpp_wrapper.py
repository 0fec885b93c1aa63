"""``torch._inductor.config.cpp_wrapper``: graphs without Python, each of them one launch.

A graph that can be one kernel (`graph_kernel`) is compiled for the CPU, where Inductor writes a wrapper in
C++. Any other has its wrapper in Python, as without the option.
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
    """Have graphs of a device compiled for the CPU where they are to have a wrapper in C++."""
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
        if len(devices) == 1 and all(map(_is_the_same_on_host, gm.graph.nodes)):
            kwargs["cudagraphs"] = BoxedBool(False)
            host_gm, host_inputs = _on_host(gm, example_inputs)
            compiled = compile_inner(host_gm, host_inputs, *args, **kwargs)
            return _launched(compiled, gm, devices.pop())
        kwargs["cpp_wrapper"] = False
        with config.patch(cpp_wrapper=False):
            return compile_inner(gm, example_inputs, *args, **kwargs)

    compile_fx._compile_fx_inner = _compile_fx_inner


def _tensors_of(gm: GraphModule) -> list[torch.Tensor]:
    values = pytree.tree_leaves([node.meta.get("val") for node in gm.graph.nodes])
    return [each for each in values if isinstance(each, torch.Tensor)]


def _is_the_same_on_host(node: Node) -> bool:
    """Return whether a node of a graph does the same in a program of the CPU."""
    value = node.meta.get("val")
    if free_unbacked_symbols(value):  # how large results are, data will say
        return False
    if node.op == "placeholder":
        return isinstance(value, torch.Tensor | int | torch.SymInt)
    if node.op == "output":
        return all(map(_is_known, node.args[0]))  # type: ignore[arg-type]
    if node.op == "get_attr":
        return isinstance(value, torch.Tensor)
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        is_pytorchs = target.namespace in _NAMESPACES
        return is_pytorchs and graph_kernel.is_of_host(target) and not graph_kernel.draws(node)
    return getattr(target, "__module__", None) in ("operator", "_operator")


def _is_known(result: Any) -> bool:
    """Return whether a result of a graph is a tensor, or known before the graph runs."""
    if isinstance(result, Node) and result.op != "placeholder":
        return isinstance(result.meta.get("val"), torch.Tensor)
    return True


def _on_host(gm: GraphModule, inputs: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    host_gm = graph_kernel.on_host(gm)
    mode: Any = next(each.fake_mode for each in _tensors_of(gm))  # type: ignore[attr-defined]
    with mode:
        host_inputs = [_like(each) if isinstance(each, torch.Tensor) else each for each in inputs]
    _Layouts(host_gm, mode).propagate_dont_convert_inputs(*host_inputs)
    return host_gm, host_inputs


class _Layouts(FakeTensorProp):
    """Computes what results look like, and which share memory, with the strides that they had on
    the device: a graph's views are views of those."""

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


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the CPU that lies in its storage as another does."""
    offset: Any = tensor.storage_offset()
    size = compute_required_storage_length(tensor.shape, tensor.stride(), offset)
    storage = torch.empty(size, dtype=tensor.dtype)
    return storage.as_strided(tensor.shape, tensor.stride(), offset)


def _launched(
    compiled: Any, gm: GraphModule, device: torch.device
) -> Callable[[list[Any]], list[Any]]:
    """Return what calls compiled code of the CPU on a device, as Inductor's code is called."""
    nodes = list(gm.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    tensors = [i for i, node in enumerate(inputs) if isinstance(node.meta["val"], torch.Tensor)]
    mutated = getattr(compiled, "mutated_input_idxs", ())  # a graph without calls is no code
    written = [i for i in tensors if i in mutated]
    read = [i for i in tensors if i not in written]
    numbers = [i for i in range(len(inputs)) if i not in tensors]

    def program(*values: list[Any]) -> list[torch.Tensor]:
        arguments = [None] * len(inputs)
        for place, value in zip(read + written + numbers, sum(values, []), strict=True):
            arguments[place] = value
        return [each for each in compiled(arguments) if isinstance(each, torch.Tensor)]

    launched = graph_kernel.Launched(program, device)
    sources = [_source_of(each, inputs) for each in nodes[-1].args[0]]

    def call(arguments: list[Any]) -> list[Any]:
        parts = [[arguments[i] for i in part] for part in (read, written, numbers)]
        computed = iter(launched(*parts))
        results = [source(arguments, computed) for source in sources]
        arguments.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _source_of(
    result: Any, inputs: list[Node]
) -> Callable[[list[Any], Iterator[torch.Tensor]], Any]:
    """Return where a result of a graph comes from: the program, its arguments, or nowhere."""
    if not isinstance(result, Node):
        return lambda arguments, computed: result
    if isinstance(result.meta["val"], torch.Tensor):
        return lambda arguments, computed: next(computed)
    place = inputs.index(result)
    return lambda arguments, computed: arguments[place]
