"""The backend of ``torch.distributed`` that computes among devices, without the host.

It is called "occl". In CUDA mode it is "nccl", and its class ``ProcessGroupNCCL``, which a PyTorch
without CUDA lacks. `install` registers it, and does nothing else: no device is initialized.

PyTorch has no word for a program that names no backend and has both CPU tensors and tensors on
devices of a plugin: it would serve the latter alone. Here they have "gloo" and "occl". Nor does it
choose the plugin as a group's default backend when several are named, which
``DistributedDataParallel`` asks for. Both is mended where groups are made. In CUDA mode neither
is needed: what PyTorch does for NCCL is done.
"""

import functools
from typing import Any

import torch
from torch import distributed

from . import _C

NAME = "occl"


def install(device_type: str) -> None:
    """Register the backend; do nothing in a PyTorch without ``torch.distributed``.

    Once is enough: called again, it does nothing.
    """
    if not hasattr(_C, "define_occl") or hasattr(_C, "ProcessGroupOCCL"):
        return
    if not distributed.is_available() or hasattr(_C, "ProcessGroupNCCL"):
        return
    _C.define_occl()
    _publish_flight_recorder(device_type)
    if device_type == "cuda":
        _stand_in_for_nccl()
    else:
        _register_plugin(device_type)


def _publish(group_class: type) -> None:
    """Put the class where PyTorch has those of its backends."""
    from torch.distributed import distributed_c10d

    for module in (torch._C._distributed_c10d, distributed_c10d, distributed):
        setattr(module, group_class.__name__, group_class)
    group_class.__module__ = distributed_c10d.__name__
    distributed_c10d.__all__.append(group_class.__name__)


def _publish_flight_recorder(device_type: str) -> None:
    """Put its functions where a PyTorch with NCCL has them."""
    recorder = _C._flight_recorder
    for name in ("_dump_nccl_trace", "_dump_nccl_trace_json", "_reset_fr_recording_nccl"):
        setattr(torch._C._distributed_c10d, name, getattr(recorder, name))
    if device_type == "cuda":
        from .cuda import nccl

        recorder.set_library_version(".".join(map(str, nccl.VERSION)))


def _stand_in_for_nccl() -> None:
    from torch.distributed import constants, distributed_c10d

    _publish(_C.ProcessGroupNCCL)
    timeout = _C.ProcessGroupNCCL.Options()._timeout
    torch._C._distributed_c10d._DEFAULT_PG_NCCL_TIMEOUT = timeout
    constants.default_pg_nccl_timeout = timeout
    distributed_c10d.default_pg_nccl_timeout = timeout
    distributed_c10d._NCCL_AVAILABLE = True


def _create(facts: Any, options: Any) -> Any:
    """Make a group, as PyTorch asks a plugin to."""
    group_class = _C.ProcessGroupOCCL
    if options is None:
        options = group_class.Options()
    elif not isinstance(options, group_class.Options):
        raise TypeError(
            "Expected backend_options argument to be of type ProcessGroupOCCL.Options, "
            f"got {type(options).__name__}"
        )
    options._timeout = facts.timeout
    options.group_name = facts.group_id
    options.global_ranks_in_group = facts.global_ranks_in_group
    return group_class(facts.store, facts.group_rank, facts.group_size, options)


def _register_plugin(device_type: str) -> None:
    from torch.distributed import distributed_c10d

    _publish(_C.ProcessGroupOCCL)
    distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=[device_type])
    _serve_all_when_none_is_named(device_type)
    _choose_default_backend(distributed_c10d)
    _set_timeouts(distributed_c10d, device_type)


def _serve_all_when_none_is_named(device_type: str) -> None:
    config = distributed.distributed_c10d.BackendConfig
    initialize = config.__init__

    @functools.wraps(initialize)
    def named(self: Any, backend: Any) -> None:
        is_named = backend != distributed.Backend.UNDEFINED
        if not is_named and torch._C._get_accelerator().type == device_type:
            backend = f"cpu:{distributed.Backend.GLOO},{device_type}:{NAME}"
        initialize(self, backend)

    config.__init__ = named  # type: ignore[method-assign]


def _choose_default_backend(module: Any) -> None:
    make = module._new_process_group_helper

    @functools.wraps(make)
    def made(*arguments: Any, **options: Any) -> Any:
        group, store = make(*arguments, **options)
        if isinstance(group, distributed.ProcessGroup):
            for device in group._device_types:
                backend = group._get_backend(device)
                if isinstance(getattr(backend, "wrapped_pg", backend), _C.ProcessGroupOCCL):
                    group._set_default_backend(distributed.ProcessGroup.BackendType.CUSTOM)
        return group, store

    module._new_process_group_helper = made


def _set_timeouts(module: Any, device_type: str) -> None:
    """Have a group's timeout set for devices, too: PyTorch sets it for backends that it knows."""
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
