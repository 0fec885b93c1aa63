"""Memory: the functions of the caching allocator, as named in ``torch._C``."""

from typing import Any

import torch._C

from torch_openreg import _C, _history

__all__ = [
    "_MemPool",
    "_cuda_CUDAAllocator",
    "_cuda_CUDAAllocator_AllocatorState",
    "_cuda_allocationTraceback",
    "_cuda_attach_out_of_memory_observer",
    "_cuda_beginAllocateCurrentStreamToPool",
    "_cuda_beginAllocateCurrentThreadToPool",
    "_cuda_beginAllocateToPool",
    "_cuda_changeCurrentAllocator",
    "_cuda_checkPoolLiveAllocations",
    "_cuda_clearCublasWorkspaces",
    "_cuda_cudaCachingAllocator_enable",
    "_cuda_cudaCachingAllocator_is_enabled",
    "_cuda_cudaCachingAllocator_raw_alloc",
    "_cuda_cudaCachingAllocator_raw_delete",
    "_cuda_cudaCachingAllocator_set_allocator_settings",
    "_cuda_customAllocator",
    "_cuda_emptyCache",
    "_cuda_endAllocateToPool",
    "_cuda_getAllocator",
    "_cuda_getAllocatorBackend",
    "_cuda_getCheckpointState",
    "_cuda_getMemoryFraction",
    "_cuda_getMemoryMetadata",
    "_cuda_getCublasLtWorkspaceSize",
    "_cuda_getCublasWorkspaceSize",
    "_cuda_hostMemoryStats",
    "_cuda_isHistoryEnabled",
    "_cuda_memorySnapshot",
    "_cuda_memoryStats",
    "_cuda_record_memory_history",
    "_cuda_record_memory_history_legacy",
    "_cuda_releasePool",
    "_cuda_resetAccumulatedHostMemoryStats",
    "_cuda_resetAccumulatedMemoryStats",
    "_cuda_resetPeakHostMemoryStats",
    "_cuda_resetPeakMemoryStats",
    "_cuda_resetCublasLtWorkspaceSize",
    "_cuda_resetCublasWorkspaceSize",
    "_cuda_setCheckpointPoolState",
    "_cuda_setCublasLtWorkspaceSize",
    "_cuda_setCublasWorkspaceSize",
    "_cuda_setMemoryFraction",
    "_cuda_setMemoryMetadata",
    "_clear_storage_data_ptr_access_error_msg",
    "_construct_CUDA_Tensor_From_Storage_And_Metadata",
    "_free_And_Remove_DeleterFn",
    "_graph_pool_handle",
    "_has_Standard_Deleter",
    "_host_emptyCache",
    "_set_storage_access_error_msg",
    "_set_storage_data_ptr_access_error_msg",
    "_tensors_data_ptrs_at_indices_equal",
]

# ---- statistics ----------------------------------------------------------------------------------

_cuda_memoryStats = _C.memory_stats
_cuda_resetPeakMemoryStats = _C.reset_peak_memory_stats
_cuda_resetAccumulatedMemoryStats = _C.reset_accumulated_memory_stats
_cuda_hostMemoryStats = _C.host_memory_stats
_cuda_resetPeakHostMemoryStats = _C.reset_peak_host_memory_stats
_cuda_resetAccumulatedHostMemoryStats = _C.reset_accumulated_host_memory_stats

# ---- the cache -----------------------------------------------------------------------------------

_cuda_emptyCache = _C.empty_cache
_cuda_getMemoryFraction = _C.get_memory_fraction
_cuda_cudaCachingAllocator_enable = _C.enable_cache
_cuda_cudaCachingAllocator_is_enabled = _C.cache_is_enabled
_cuda_cudaCachingAllocator_set_allocator_settings = _C.set_allocator_settings
_cuda_cudaCachingAllocator_raw_delete = _C.raw_delete
_host_emptyCache = torch._C._accelerator_emptyHostCache
_cuda_clearCublasWorkspaces = _C.clear_cublas_workspaces
_cuda_getCublasWorkspaceSize = _C.cublas_workspace_size
_cuda_setCublasWorkspaceSize = _C.set_cublas_workspace_size
_cuda_resetCublasWorkspaceSize = _C.reset_cublas_workspace_size
_cuda_getCublasLtWorkspaceSize = _C.cublaslt_workspace_size
_cuda_setCublasLtWorkspaceSize = _C.set_cublaslt_workspace_size
_cuda_resetCublasLtWorkspaceSize = _C.reset_cublaslt_workspace_size


def _cuda_setMemoryFraction(fraction: float, device: int) -> None:
    _C.set_memory_fraction(device, fraction)


def _cuda_cudaCachingAllocator_raw_alloc(size: int, cuda_stream: int) -> int:
    if size < 0:
        raise ValueError(
            f"Invalid memory size: {size}. caching_allocator_alloc requires a non-negative size."
        )
    return _C.raw_alloc(_C.current_device(), _C.stream_of_handle(cuda_stream), size)


def _cuda_getAllocatorBackend() -> str:
    return "native" if _C.get_allocator() is None else "pluggable"


# ---- custom allocators and pools -----------------------------------------------------------------

_cuda_CUDAAllocator = _C._CUDAAllocator
_cuda_CUDAAllocator_AllocatorState = _C._PoolCheckpoint
_cuda_customAllocator = _C.custom_allocator
_cuda_changeCurrentAllocator = _C.change_current_allocator
_cuda_getAllocator = _C.get_allocator
_cuda_beginAllocateCurrentThreadToPool = _C.begin_allocate_current_thread_to_pool
_cuda_endAllocateToPool = _C.end_allocate_to_pool
_cuda_releasePool = _C.release_pool
_cuda_getCheckpointState = _C.get_checkpoint_state
_cuda_setCheckpointPoolState = _C.set_checkpoint_pool_state
_cuda_checkPoolLiveAllocations = _C.check_pool_live_allocations
_graph_pool_handle = _C.graph_pool_handle

# ---- storages of the results of compiled graphs --------------------------------------------------

_clear_storage_data_ptr_access_error_msg = _C.validate_memory
_construct_CUDA_Tensor_From_Storage_And_Metadata = _C.tensor_of_storage
_free_And_Remove_DeleterFn = _C.release_memory
_has_Standard_Deleter = _C.has_standard_deleter
_set_storage_access_error_msg = _C.invalidate_storage
_set_storage_data_ptr_access_error_msg = _C.invalidate_memory
_tensors_data_ptrs_at_indices_equal = _C.have_addresses


def _cuda_beginAllocateToPool(device: int, mempool_id: tuple[int, int]) -> None:
    raise NotImplementedError(
        "openreg cannot route the allocations of all threads to a pool: call "
        "_cuda_beginAllocateCurrentThreadToPool in each thread"
    )


_cuda_beginAllocateCurrentStreamToPool = _cuda_beginAllocateToPool


class _MemPool(_C._MemPool):
    def __init__(
        self,
        allocator: Any = None,
        is_user_created: bool = True,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        _C.initialize()
        super().__init__(allocator, use_on_oom, no_split)
        self.device = _C.current_device()


# ---- history and snapshots -----------------------------------------------------------------------

_cuda_allocationTraceback = _C.allocation_traceback
_cuda_attach_out_of_memory_observer = _C.attach_out_of_memory_observer
_cuda_setMemoryMetadata = _C.set_memory_metadata
_cuda_getMemoryMetadata = _C.memory_metadata
_cuda_isHistoryEnabled = _C.memory_history_is_on
_cuda_record_memory_history = _history.record


def _cuda_memorySnapshot(mempool_id: tuple[Any, ...] | None) -> dict[str, Any]:
    """Return a snapshot of all pools, or of one pool: (id, id) or (id, id, include_traces)."""
    if mempool_id is None:
        return _C.memory_snapshot(0, True)
    include_traces = bool(mempool_id[2]) if len(mempool_id) > 2 else True
    return _C.memory_snapshot(mempool_id[1], include_traces)


def _cuda_record_memory_history_legacy(
    enabled: bool,
    record_context: bool,
    trace_alloc_max_entries: int,
    trace_alloc_record_context: bool,
    record_context_cpp: bool,
    clear_history: bool,
    compile_context: bool,
    global_record_annotations: bool,
    skip_actions: list[str],
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    _history.require_device_history(record_pinned_host_memory, record_cuda)
    context = "alloc" if trace_alloc_record_context else "state" if record_context else None
    _C.record_memory_history(
        enabled,
        context,
        record_context_cpp,
        trace_alloc_max_entries,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
    )
