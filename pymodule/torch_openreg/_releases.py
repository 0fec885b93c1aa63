"""What differs in Python between the releases of PyTorch that openreg supports.

This is the only module that asks for the release. Where one definition fits all releases, for
example because it passes all arguments on, it stays where it belongs. The bridge has such
differences in ``compat/``. docs/porting.md explains how to support another release.

The module imports nothing of PyTorch but ``torch._C``: CUDA mode uses it during PyTorch's import.
"""

import weakref
from typing import Any

import torch._C

from . import _C
from ._version import TORCH_VERSION

RELEASE = tuple(int(number) for number in TORCH_VERSION.split(".")[:2])

# ---- memory that CUDA's kernels take -------------------------------------------------------------
# The functions of plans/builtin import these when they run: commands list them without PyTorch.

# Since 2.13 a group norm in 16 bits has statistics in float32 meanwhile.
WIDENS_STATISTICS = RELEASE >= (2, 13)

# Since 2.14 memory-efficient attention returns seed and offset on the device without dropout, too.
KEEPS_UNUSED_POSITION = RELEASE >= (2, 14)
# Since 2.14 the gradient of a group norm needs no sums of channels that have one element.
SUMS_SINGLE_ELEMENTS = RELEASE < (2, 14)

# ---- CUDA graphs since 2.14: the class of Python ends a capture in three steps -------------------

_PoolId = tuple[int, int]

# The graphs that are being captured, by the id of the capture.
_capturing: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class _StepwiseGraph(_C.CUDAGraph):
    """The base of ``torch.cuda.CUDAGraph`` since 2.14.

    ``capture_end`` is ``capture_end_pre``, hooks of the program, ``instantiate`` unless the graph
    is kept, and ``capture_end_post``. The attributes have mangled names, because the class of
    Python adds many private ones.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        self.__keeps_graph = keep_graph
        self._has_graph_exec = False
        self.__capture = 0  # the id of the capture that is going on
        self.__retained: list[_PoolId] = []

    def __del__(self) -> None:
        self._release_pools()

    def _release_pools(self) -> None:
        for pool in self.__dict__.get("_StepwiseGraph__retained", ()):
            _C.release_pool(0, pool)
        self.__retained = []

    def capture_begin(
        self, pool: _PoolId | None = None, capture_error_mode: str = "global"
    ) -> None:
        super().capture_begin(pool, capture_error_mode)
        self.__capture, _ = _C.current_capture()
        _capturing[self.__capture] = self

    def capture_end_pre(self) -> None:
        _capturing.pop(self.__capture, None)
        super().capture_end()

    def capture_end_post(self) -> None:
        """Do nothing: there is one graph, before and after it is instantiated."""

    def instantiate(self) -> None:
        # Without keep_graph, the end of the capture has instantiated the graph.
        if self.__keeps_graph:
            super().instantiate()
        self._has_graph_exec = True

    def reset(self) -> None:
        super().reset()
        self._has_graph_exec = False
        self._release_pools()

    def pools(self) -> list[_PoolId]:
        return [self.pool(), *self.__retained]

    def _retain_pool(self, pool: _PoolId) -> None:
        pool = (pool[0], pool[1])
        if pool not in self.__retained:
            _C.retain_pool(pool)
            self.__retained.append(pool)

    @staticmethod
    def get_currently_capturing_graph() -> Any:
        capture, _ = _C.current_capture()
        if (graph := _capturing.get(capture)) is None:
            raise RuntimeError("The current stream is not capturing a CUDAGraph.")
        return graph


# ---- names of torch._C with CUDA -----------------------------------------------------------------


def _set_requested_algorithms(count: int) -> None:
    _tunable["cublaslt_requested_algo_count"] = max(int(count), 1)


_tunable = {"cublaslt_requested_algo_count": 8}  # PyTorch's default

_SINCE_2_14 = {
    "_CUDAGraph": _StepwiseGraph,
    "_cuda_annotateMemory": _C.annotate_memory,
    "_cuda_memoryMetadataSupported": lambda: _C.get_allocator() is None,
    "_cuda_tunableop_get_cublaslt_requested_algo_count": lambda: _tunable[
        "cublaslt_requested_algo_count"
    ],
    "_cuda_tunableop_set_cublaslt_requested_algo_count": _set_requested_algorithms,
}

# Also in a build with CUDA, where they have another value.
_SINCE_2_14_WITHOUT_CUDA = {"_has_gds": False}


def supply_cuda_names() -> None:
    """Add the names to ``torch._C`` that ``torch.cuda`` needs only in some releases."""
    if RELEASE >= (2, 14):
        for name, value in _SINCE_2_14.items():
            setattr(torch._C, name, value)
        for name, value in _SINCE_2_14_WITHOUT_CUDA.items():
            if not hasattr(torch._C, name):
                setattr(torch._C, name, value)


def _write_graph(graph: _StepwiseGraph, path: str, *, verbose: bool = True) -> None:
    _C.CUDAGraph.debug_dump(graph, path)


def _refuse_green_context() -> None:
    vars(torch._C)["_CUDAGreenContext"].create()


def finish_cuda_mode() -> None:
    """Replace what some releases implement in Python, after the import of PyTorch."""
    if RELEASE >= (2, 13):
        from torch._native import registry

        # PyTorch's own kernels in Triton and other languages would replace those of openreg.
        registry.deregister_op_overrides(disable_dispatch_keys="CUDA")
    if RELEASE >= (2, 14):
        from torch.cuda import graphs, green_contexts

        # Both would call NVIDIA's libraries, if the package cuda.bindings is installed.
        graphs._dump_graph_dot = _write_graph  # type: ignore[attr-defined]
        green_contexts._ensure_supported = _refuse_green_context  # type: ignore[attr-defined]
