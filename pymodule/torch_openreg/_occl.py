"""The backend "occl" of ``torch.distributed``, which communicates between devices.

In CUDA mode its name is "nccl" and its class is ``ProcessGroupNCCL``, which a PyTorch without CUDA
lacks. `install` only registers the backend and initializes no device.

Two behaviors of PyTorch are changed for the device type ``openreg``. In CUDA mode PyTorch already
does the same for NCCL.

- If a program names no backend, PyTorch would only support tensors on the devices of the plugin.
  Here groups get "gloo" for CPU tensors and "occl" for the devices.
- If a program names several backends, PyTorch would not choose the plugin's as the default backend
  of a group, which ``DistributedDataParallel`` uses. Here it is the default.
"""

import functools
from typing import Any

import torch
from torch import distributed

from . import _C

NAME = "occl"


def install(device_type: str) -> None:
    """Register the backend.

    Does nothing in a PyTorch without ``torch.distributed``, or when called again.
    """
    if not hasattr(_C, "define_occl") or hasattr(_C, "ProcessGroupOCCL"):
        return
    if not distributed.is_available() or hasattr(_C, "ProcessGroupNCCL"):
        return
    _C.define_occl()
    _publish_flight_recorder(device_type)
    if device_type == "cuda":
        _register_as_nccl()
    else:
        _register_plugin(device_type)


def _publish(group_class: type) -> None:
    """Add the class to the modules in which PyTorch has its backends."""
    from torch.distributed import distributed_c10d

    for module in (torch._C._distributed_c10d, distributed_c10d, distributed):
        setattr(module, group_class.__name__, group_class)
    group_class.__module__ = distributed_c10d.__name__
    distributed_c10d.__all__.append(group_class.__name__)


def _publish_flight_recorder(device_type: str) -> None:
    """Add the functions of the flight recorder to PyTorch, as in a PyTorch with NCCL."""
    recorder = _C._flight_recorder
    for name in ("_dump_nccl_trace", "_dump_nccl_trace_json", "_reset_fr_recording_nccl"):
        setattr(torch._C._distributed_c10d, name, getattr(recorder, name))
    if device_type == "cuda":
        from .cuda import nccl

        recorder.set_library_version(".".join(map(str, nccl.VERSION)))


def _register_as_nccl() -> None:
    from torch.distributed import constants, distributed_c10d

    from .cuda import nccl

    for name in ("get_build_nccl_version", "get_runtime_nccl_version"):
        setattr(_C.ProcessGroupNCCL, name, staticmethod(lambda: nccl.VERSION))
    _publish(_C.ProcessGroupNCCL)
    timeout = _C.ProcessGroupNCCL.Options()._timeout
    torch._C._distributed_c10d._DEFAULT_PG_NCCL_TIMEOUT = timeout
    constants.default_pg_nccl_timeout = timeout
    distributed_c10d.default_pg_nccl_timeout = timeout
    distributed_c10d._NCCL_AVAILABLE = True


def _create(arguments: Any, options: Any) -> Any:
    """Create a process group. PyTorch calls this for a plugin."""
    group_class = _C.ProcessGroupOCCL
    if options is None:
        options = group_class.Options()
    elif not isinstance(options, group_class.Options):
        raise TypeError(
            "Expected backend_options argument to be of type ProcessGroupOCCL.Options, "
            f"got {type(options).__name__}"
        )
    options._timeout = arguments.timeout
    options.group_name = arguments.group_id
    options.global_ranks_in_group = arguments.global_ranks_in_group
    return group_class(arguments.store, arguments.group_rank, arguments.group_size, options)


def _register_plugin(device_type: str) -> None:
    from torch.distributed import distributed_c10d

    _publish(_C.ProcessGroupOCCL)
    distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=[device_type])
    _use_both_backends_by_default(device_type)
    _choose_default_backend(distributed_c10d)
    _set_timeouts(distributed_c10d, device_type)


def _use_both_backends_by_default(device_type: str) -> None:
    config = distributed.distributed_c10d.BackendConfig
    initialize = config.__init__

    @functools.wraps(initialize)
    def initialize_config(self: Any, backend: Any) -> None:
        is_named = backend != distributed.Backend.UNDEFINED
        if not is_named and torch._C._get_accelerator().type == device_type:
            backend = f"cpu:{distributed.Backend.GLOO},{device_type}:{NAME}"
        initialize(self, backend)

    config.__init__ = initialize_config  # type: ignore[method-assign]


def _choose_default_backend(module: Any) -> None:
    create = module._new_process_group_helper

    @functools.wraps(create)
    def create_group(*arguments: Any, **options: Any) -> Any:
        group, store = create(*arguments, **options)
        if isinstance(group, distributed.ProcessGroup):
            for device in group._device_types:
                backend = group._get_backend(device)
                if isinstance(getattr(backend, "wrapped_pg", backend), _C.ProcessGroupOCCL):
                    group._set_default_backend(distributed.ProcessGroup.BackendType.CUSTOM)
        return group, store

    module._new_process_group_helper = create_group


def _set_timeouts(module: Any, device_type: str) -> None:
    """Make `_set_pg_timeout` set the timeout of this backend, too: PyTorch only knows its own."""
    set_others = module._set_pg_timeout

    @functools.wraps(set_others)
    def set_all(timeout: Any, group: Any = None) -> None:
        chosen = module._get_default_group() if group is None else group
        types = {device.type for device in getattr(chosen, "_device_types", ())}
        if device_type in types:
            backend = chosen._get_backend(torch.device(device_type))
            if isinstance(backend, _C.ProcessGroupOCCL):
                backend._set_default_timeout(timeout)
                types.remove(device_type)
        if types:
            set_others(timeout, group)

    module._set_pg_timeout = set_all
