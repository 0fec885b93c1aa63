"""Where Inductor asks whether a device is "cpu", and means whether its code is C++.

Inductor's questions have no extension point of their own: this is the one place that changes
functions of it. All of them answer for other devices as before. Each entry says what would be
generated otherwise.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config, graph, ir, lowering, scheduler, utils
from torch._inductor.kernel.flex import flex_cpu
from torch._inductor.virtualized import V, ops


def install(device_type: str) -> None:
    """Have a device answer as the CPU."""

    def is_ours(device: torch.device | None) -> bool:
        return device is not None and device.type == device_type

    # The order of loops, and which nodes become one: a GPU's kernels have a grid.
    is_cpu = scheduler.BaseSchedulerNode.is_cpu

    def node_is_cpu(self: scheduler.BaseSchedulerNode) -> bool:
        return is_cpu(self) or is_ours(self.get_device())

    scheduler.BaseSchedulerNode.is_cpu = node_is_cpu  # type: ignore[method-assign]

    # Indices of transposed maxima, what is computed once and read often, whether Triton is needed.
    type_of = ir.get_device_type

    def get_device_type(x: Any) -> str | None:
        device = type_of(x)
        return "cpu" if device == device_type else device

    ir.get_device_type = get_device_type

    # Which language bounds are checked in, and what a kernel may call.
    backend_of = utils.get_current_backend

    def get_current_backend(device: str | None = None) -> str:
        device = device or V.graph.get_current_device_or_throw().type
        return backend_of("cpu" if device == device_type else device)

    _replace_everywhere(backend_of, get_current_backend)

    # Sums into places that threads share.
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

    # Convolutions with their channels last: the kernels are those of MKL-DNN.
    graph.SUPPORTED_MKLDNN_DEVICES += (device_type,)  # type: ignore[assignment]

    # Division, which is not by a multiplication with the reciprocal.
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

    # Variances in two passes, whose numbers are those of the CPU.
    two_steps = lowering.use_two_step_variance

    def use_two_step_variance(x: Any, axis: Any, keepdim: bool, input_dtype: torch.dtype) -> bool:
        if not is_ours(x.get_device()):
            return two_steps(x, axis, keepdim, input_dtype)
        threshold = config.cpp.use_two_step_variance_threshold
        with config.patch(unroll_reductions_threshold=threshold):
            return two_steps(x, axis, keepdim, input_dtype)

    lowering.use_two_step_variance = use_two_step_variance

    # Attention with a function of scores, which PyTorch has in C++ for the CPU, without gradients.
    flex_attention = torch.ops.higher_order.flex_attention
    lower = lowering.lowerings[flex_attention]

    def lower_flex_attention(query: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ours(query.get_device()):
            return flex_cpu.lower_cpu(query, *args, **kwargs)
        return lower(query, *args, **kwargs)

    lowering.lowerings[flex_attention] = lower_flex_attention

    # The other way round, for the CPU has no streams: a graph of several streams keeps their names
    # where it makes a device the current one. Kernels find the device by their tensors.
    needs_guard = utils.device_need_guard

    def device_need_guard(device: str) -> bool:
        if device != device_type:
            return needs_guard(device)
        return V.graph.scheduler._has_multi_stream_nodes()

    _replace_everywhere(needs_guard, device_need_guard)

    # Again so: a device's nodes can be captured, and those of a GPU are asked about.
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

    # CUDA mode: of GPUs it is known that Triton compiles their kernels.
    if device_type == "cuda":
        utils.GPU_TYPES.remove(device_type)
        config.cuda_backend = "cpp"  # type: ignore[assignment] # which no other has


def _replace_everywhere(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Put a function in the place of another in all modules of Inductor that imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._inductor") and vars(module).get(old.__name__) is old:
            setattr(module, old.__name__, new)
