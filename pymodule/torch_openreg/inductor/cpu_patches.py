"""Patches Inductor where it compares a device with "cpu" to find out whether its code is C++.

Inductor has no extension point for these decisions, so this file replaces functions of it; no other
file does. The replacements do not change the results for other devices. The comment of each patch
names the decision.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import generic_associative_scan
from torch._inductor import config, graph, ir, lowering, scheduler, utils
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.kernel.flex import flex_cpu
from torch._inductor.virtualized import V, ops
from torch.fx.experimental.proxy_tensor import make_fx


def install(device_type: str) -> None:
    """Make Inductor treat a device like the CPU."""

    def is_ours(device: torch.device | None) -> bool:
        return device is not None and device.type == device_type

    # The order of loops and the fusion of nodes: GPU kernels have a grid.
    is_cpu = scheduler.BaseSchedulerNode.is_cpu

    def node_is_cpu(self: scheduler.BaseSchedulerNode) -> bool:
        return is_cpu(self) or is_ours(self.get_device())

    scheduler.BaseSchedulerNode.is_cpu = node_is_cpu  # type: ignore[method-assign]

    # Indices of transposed maxima, which values are realized, and whether Triton is needed.
    type_of = ir.get_device_type

    def get_device_type(x: Any) -> str | None:
        device = type_of(x)
        return "cpu" if device == device_type else device

    ir.get_device_type = get_device_type

    # The language of bounds checks, and the functions that a kernel may call.
    backend_of = utils.get_current_backend

    def get_current_backend(device: str | None = None) -> str:
        device = device or V.graph.get_current_device_or_throw().type
        return backend_of("cpu" if device == device_type else device)

    _replace_everywhere(backend_of, get_current_backend)

    # Scatter reductions into memory that threads share.
    falls_back = utils.use_scatter_fallback

    def use_scatter_fallback(
        op_overload: Any,
        reduction_type: str | None,
        self_dtype: torch.dtype,
        src_dtype: torch.dtype,
        src_device_type: str,
        src_is_tensor: bool,
    ) -> bool:
        device = "cpu" if src_device_type == device_type else src_device_type
        return falls_back(op_overload, reduction_type, self_dtype, src_dtype, device, src_is_tensor)

    _replace_everywhere(falls_back, use_scatter_fallback)

    # Convolutions in the channels-last format: the kernels are those of MKL-DNN.
    graph.SUPPORTED_MKLDNN_DEVICES += (device_type,)  # type: ignore[assignment]

    # Division: on a GPU, Inductor multiplies by the reciprocal.
    divide = lowering.div_prim

    def div_prim(a: Any, b: Any) -> Any:
        device = a.get_device() if hasattr(a, "get_device") else None
        is_integral = all(
            lowering.is_boolean_type(each) or lowering.is_integer_type(each) for each in (a, b)
        )
        if is_integral or not is_ours(device):
            return divide(a, b)
        return lowering.make_pointwise(ops.truediv)(a, b)

    lowering.div_prim = lowering.register_lowering([torch.ops.prims.div], broadcast=True)(div_prim)

    # Variances: two passes, for the same results as on the CPU.
    two_steps = lowering.use_two_step_variance

    def use_two_step_variance(x: Any, *args: Any, **kwargs: Any) -> bool:
        if not is_ours(x.get_device()):
            return two_steps(x, *args, **kwargs)
        threshold = config.cpp.use_two_step_variance_threshold
        with config.patch(unroll_reductions_threshold=threshold):
            return two_steps(x, *args, **kwargs)

    lowering.use_two_step_variance = use_two_step_variance

    # flex_attention: PyTorch has a C++ implementation for the CPU, without gradients.
    flex_attention = torch.ops.higher_order.flex_attention
    lower = lowering.lowerings[flex_attention]

    def lower_flex_attention(query: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ours(query.get_device()):
            return flex_cpu.lower_cpu(query, *args, **kwargs)
        return lower(query, *args, **kwargs)

    lowering.lowerings[flex_attention] = lower_flex_attention

    # Associative scans, which only Triton has as one kernel.
    scan_op = torch.ops.higher_order.associative_scan
    lower_scan = lowering.lowerings[scan_op]

    def lower_associative_scan(combine: ir.Subgraph, elements: Any, others: Any) -> Any:
        if is_ours(elements[0].get_device()):
            return _scan_in_steps(combine, elements, others)
        return lower_scan(combine, elements, others)

    lowering.lowerings[scan_op] = lower_associative_scan

    # Here a device differs from the CPU, which has no streams: a graph with several streams needs
    # the device guard, which defines their names. Kernels find their device by their tensors.
    needs_guard = utils.device_need_guard

    def device_need_guard(device: str) -> bool:
        if device != device_type:
            return needs_guard(device)
        return V.graph.scheduler._has_multi_stream_nodes()

    _replace_everywhere(needs_guard, device_need_guard)

    # Here, too: the nodes of a device can be captured, and Inductor only considers those of a GPU.
    reason_to_partition = scheduler.Scheduler.should_partition

    def should_partition(
        self: scheduler.Scheduler, node: scheduler.BaseSchedulerNode
    ) -> str | None:
        if not is_ours(node.get_device()):
            return reason_to_partition(self, node)
        node.is_gpu = lambda: True  # type: ignore[method-assign]
        try:
            return reason_to_partition(self, node)
        finally:
            del node.is_gpu

    scheduler.Scheduler.should_partition = should_partition  # type: ignore[method-assign]

    # CUDA mode: Inductor assumes that Triton compiles the kernels of device type "cuda".
    if device_type == "cuda":
        utils.GPU_TYPES.remove(device_type)
        config.cuda_backend = "cpp"  # type: ignore[assignment] # a name of our own
        # For "cuda" Inductor searches offsets with an operation that its C++ lacks.
        for jagged in (
            torch.ops.aten._jagged_to_padded_dense_forward.default,
            torch.ops.aten._padded_dense_to_jagged_forward.default,
        ):
            lowering.lowerings[jagged] = lowering.fallback_handler(
                jagged, add_to_fallback_set=False
            )


def _scan_in_steps(combine: ir.Subgraph, elements: Any, others: Any) -> Any:
    """Lower an associative scan as the operators of PyTorch's generic scan."""
    arguments: Any = V.graph.current_node.args
    nodes = [*arguments[1], *arguments[2]]
    count = len(elements)
    in_dims = (0,) * (2 * count) + (None,) * len(others)
    batched = torch.vmap(combine.graph_module, in_dims=in_dims)

    def scan(*values: torch.Tensor) -> Any:
        return generic_associative_scan(batched, list(values[:count]), 0, values[count:])

    values = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in nodes]
    with V.fake_mode:
        steps = make_fx(scan, select_decomp_table())(*values)
    return lowering.process_subgraph_nodes(steps, [*elements, *others])


def _replace_everywhere(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Replace a function in all modules of Inductor that imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._inductor") and vars(module).get(old.__name__) is old:
            setattr(module, old.__name__, new)
