"""Graphs: work that is captured once and replayed many times.

Names and semantics are those of ``torch.cuda``. Capturing executes nothing and changes no input. A
replay executes everything that was captured, as one piece of work of a stream, on the tensors that
were captured.
"""

import gc
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from torch_openreg import _C

from ._graph_inputs import InputTracker
from .devices import synchronize
from .memory import empty_cache, graph_pool_handle
from .streams import Stream, StreamContext

__all__ = ["CUDAGraph", "graph", "is_current_stream_capturing", "make_graphed_callables"]

PoolHandle = tuple[int, int]


def is_current_stream_capturing() -> bool:
    """Return whether the current stream of the current device is capturing a graph."""
    return _C.is_initialized() and _C.current_capture()[0] != 0


class CUDAGraph(_C.CUDAGraph):
    """A graph of captured work. See `graph`.

    Parameters
    ----------
    keep_graph : bool
        Whether to keep the captured graph in addition to the executable graph. Then `instantiate`
        or the first `replay` makes the executable graph, and `debug_dump` works without
        `enable_debug_mode`.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        self._tracker: InputTracker | None = None

    def __del__(self) -> None:
        self._stop_tracking()

    def _stop_tracking(self) -> None:
        tracker, self._tracker = getattr(self, "_tracker", None), None
        if tracker is not None:
            tracker.stop()

    def capture_begin(
        self,
        pool: PoolHandle | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begin to capture the work of the current stream, which must not be the default stream.

        Parameters
        ----------
        pool : tuple of int or None
            The memory pool for tensors created during the capture, from `graph_pool_handle` or
            another graph's `pool`; None means a new pool.
        capture_error_mode : str
            Which threads must not allocate memory from a device or query events during the
            capture: "global" for all threads, "thread_local" for this one, "relaxed" for none.
        check_input_liveness : bool
            Whether `replay` raises an error if memory that the graph reads has been freed.
        """
        self._stop_tracking()
        super().capture_begin(pool, capture_error_mode)
        if check_input_liveness:
            self._tracker = InputTracker()
            self._tracker.start()

    def capture_end(self) -> None:
        """End the capture. The current stream must be the one on which it began.

        Raises
        ------
        torch.AcceleratorError
            If something was done during the capture that cannot be captured. There is no graph
            then.
        """
        super().capture_end()
        if self._tracker is not None:
            self._tracker.stop()

    def replay(self) -> None:
        """Execute the captured work on the current stream."""
        if self._tracker is not None:
            self._tracker.check_alive()
        super().replay()

    def reset(self) -> None:
        """Discard the captured work and release the pool. A new capture may begin."""
        self._stop_tracking()
        super().reset()


class graph:  # noqa: N801 - torch.cuda's name
    """Context manager that captures the work of its block into a graph, on a separate stream.

    Parameters
    ----------
    cuda_graph : CUDAGraph
        The graph to capture into.
    pool, capture_error_mode, check_input_liveness
        See `CUDAGraph.capture_begin`.
    stream : torch.Stream or None
        The stream for the capture; None means a stream that all captures share.
    """

    default_capture_stream: torch.Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream
        self.stream_ctx = StreamContext(stream)
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        self.stream_ctx.__enter__()
        self.cuda_graph.capture_begin(self.pool, self.capture_error_mode, self.check_input_liveness)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.cuda_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(kind, error, traceback)


# ---- functions with a captured forward and backward ----------------------------------------------


def _require_graphable(function: Any) -> None:
    if not isinstance(function, torch.nn.Module):
        return
    if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
        raise RuntimeError(
            "Modules must not have hooks registered at the time they are passed. However, "
            "registering hooks on modules after passing them through make_graphed_callables is "
            "allowed."
        )
    if any(buffer.requires_grad for buffer in function.buffers()):
        raise RuntimeError(
            "In any module passed to make_graphed_callables, only parameters may be trainable. "
            "All buffers must have ``requires_grad=False``."
        )


def _differentiable(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.requires_grad)


class _Graphed:
    """A function with the graphs of its forward and backward, and the tensors of these graphs."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        _require_graphable(function)
        self.function = function
        self.arguments = arguments
        self.sample_leaves = tree_leaves(arguments)
        if not all(isinstance(each, torch.Tensor) for each in self.sample_leaves):
            raise TypeError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other "
                "types are not allowed."
            )
        is_module = isinstance(function, torch.nn.Module)
        self.parameters = tuple(function.parameters()) if is_module else ()
        self.inputs = (*self.sample_leaves, *self.parameters)
        self.forward, self.backward = CUDAGraph(), CUDAGraph()

    def _gradients(
        self, outputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], unused: bool
    ) -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad(
            outputs=_differentiable(outputs),
            inputs=_differentiable(self.inputs),
            grad_outputs=gradients,
            only_inputs=True,
            allow_unused=unused,
        )

    def warm_up(self, times: int, unused: bool) -> None:
        for _ in range(times):
            outputs = tree_leaves(self.function(*self.arguments))
            if _differentiable(outputs):
                self._gradients(
                    outputs, [torch.empty_like(each) for each in _differentiable(outputs)], unused
                )

    def capture_forward(self, pool: PoolHandle) -> None:
        with graph(self.forward, pool=pool):
            result = self.function(*self.arguments)
        leaves, self.shape = tree_flatten(result)
        self.outputs: tuple[torch.Tensor, ...] = tuple(leaves)

    def capture_backward(self, pool: PoolHandle, unused: bool) -> None:
        self.output_gradients = tuple(
            torch.empty_like(each) if each.requires_grad else None for each in self.outputs
        )
        found: tuple[torch.Tensor | None, ...] = ()
        if _differentiable(self.outputs):
            given = [each for each in self.output_gradients if each is not None]
            with graph(self.backward, pool=pool):
                found = self._gradients(self.outputs, given, unused)
        left = iter(found)
        self.input_gradients = tuple(
            next(left) if each.requires_grad and found else None for each in self.inputs
        )

    def as_function(self) -> Callable[..., Any]:
        """Return a function that replays the graphs, for arguments like the samples."""
        graphed = self

        class Replayed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
                for kept, given in zip(graphed.sample_leaves, inputs, strict=False):
                    if kept.data_ptr() != given.data_ptr():
                        kept.copy_(given)
                graphed.forward.replay()
                return tuple(each.detach() for each in graphed.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
                for kept, given in zip(graphed.output_gradients, gradients, strict=True):
                    if kept is not None and kept.data_ptr() != given.data_ptr():
                        kept.copy_(given)
                graphed.backward.replay()
                return tuple(
                    None if each is None else each.detach() for each in graphed.input_gradients
                )

        def replay(*arguments: Any) -> Any:
            results = Replayed.apply(*tree_leaves(arguments), *graphed.parameters)
            return tree_unflatten(results, graphed.shape)

        return replay

    def as_callable(self) -> Any:
        """Return the function that replays. For a module, replace its forward and return it."""
        replay = self.as_function()
        module = self.function
        if not isinstance(module, torch.nn.Module):
            return replay
        captured_mode, original = module.training, module.forward

        def forward(*arguments: Any) -> Any:
            if module.training == captured_mode:
                return replay(*arguments)
            return original(*arguments)

        module.forward = forward
        return module


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Return versions of functions or modules that replay graphs of their forward and backward.

    Parameters
    ----------
    callables : callable, torch.nn.Module, or tuple of these
        The functions or modules to capture. A module is modified and returned. It replays only in
        the mode, training or evaluation, in which it was captured.
    sample_args : tuple of torch.Tensor, or tuple of these
        Arguments for each function. Later calls must have the same shapes, dtypes and
        ``requires_grad``.
    num_warmup_iters : int
        The number of calls of each function before it is captured.
    allow_unused_input : bool
        Whether an argument may have no gradient.
    pool : tuple of int or None
        The memory pool of all graphs; None means a new pool.

    Returns
    -------
    callable, torch.nn.Module, or tuple of these
        The new functions or modules, in the structure of `callables`.

    Raises
    ------
    RuntimeError
        If autocast's cache of weights is on, because a graph would keep its entries.

    Notes
    -----
    Several functions share a pool. Call them in the order in which they are given here.
    """
    if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set "
            "`cache_enabled=False`."
        )
    is_one = not isinstance(callables, tuple)
    pairs = [(callables, sample_args)] if is_one else zip(callables, sample_args, strict=True)
    graphed = [_Graphed(function, arguments) for function, arguments in pairs]
    mempool = graph_pool_handle() if pool is None else pool
    synchronize()
    with StreamContext(Stream()):
        for each in graphed:
            each.warm_up(num_warmup_iters, allow_unused_input)
    synchronize()
    for each in graphed:
        each.capture_forward(mempool)
    for each in reversed(graphed):
        each.capture_backward(mempool, allow_unused_input)
    made = tuple(each.as_callable() for each in graphed)
    return made[0] if is_one else made
