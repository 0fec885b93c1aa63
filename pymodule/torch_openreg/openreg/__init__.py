"""``torch.openreg``: the counterpart of ``torch.cuda`` for the simulated devices.

Names, signatures and errors are those of ``torch.cuda``. This file collects the contents of the
modules `devices`, `memory`, `random`, `streams`, `graphs` and `amp`.
"""

from typing import TYPE_CHECKING, Any

import torch

from . import amp, devices, graphs, memory, random, streams
from .amp import get_amp_supported_dtype, is_bf16_supported, is_tf32_supported
from .devices import (
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_sync_debug_mode,
    init,
    is_available,
    is_initialized,
    operators,
    set_device,
    set_sync_debug_mode,
    synchronize,
)
from .graphs import CUDAGraph, graph, is_current_stream_capturing, make_graphed_callables
from .memory import (
    CUDAPluggableAllocator,
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    graph_pool_handle,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    ipc_collect,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from .random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError

__all__ = [
    "AcceleratorError",
    "CUDAGraph",
    "CUDAPluggableAllocator",
    "Event",
    "ExternalStream",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "change_current_allocator",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "devices",
    "empty_cache",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "graphs",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "operators",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "streams",
    "synchronize",
    "use_mem_pool",
]

# PyTorch looks for these private names in a device module.
_exchange_device = devices._exchange_device
_is_in_bad_fork = devices._is_in_bad_fork
_lazy_init = devices._lazy_init
_maybe_exchange_device = devices._maybe_exchange_device
_get_generator = random._get_generator
_get_rng_state_offset = random._get_rng_state_offset
_set_rng_state_offset = random._set_rng_state_offset


if TYPE_CHECKING:  # a module __getattr__ would hide misspelled names from type checkers
    from torch_openreg import sanitizer as sanitizer

    _initialized: bool
else:

    def __getattr__(name: str) -> Any:
        # torch.utils.checkpoint reads it to decide whether to save the device state.
        if name == "_initialized":
            return is_initialized()
        if name == "sanitizer":  # imported on first use: most programs do not need it
            from torch_openreg import sanitizer

            return sanitizer
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
