"""The device interface for Dynamo and Inductor: a thin layer over the device module.

Inductor imports the caller of this file while it is loading, so this file must not import Inductor.
"""

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

from torch_openreg import _C


def make_interface(device_type: str) -> type[DeviceInterface]:
    """Return the interface class of a device type, like PyTorch's `CudaInterface`."""
    module: Any = torch.get_device_module(device_type)

    def index_of(device: torch.types.Device) -> int:
        index = torch.device(device).index if isinstance(device, str) else device
        index = index.index if isinstance(index, torch.device) else index
        return module.current_device() if index is None else index

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            module.set_device(device)

        @staticmethod
        def current_device() -> int:
            return module.current_device()

        @staticmethod
        def get_device_properties(device: torch.types.Device = None) -> Any:
            return module.get_device_properties(index_of(device))

    class Interface(DeviceInterface):
        device = module.device
        Event = torch.Event
        Stream = torch.Stream
        current_device = staticmethod(module.current_device)
        set_device = staticmethod(module.set_device)
        device_count = staticmethod(module.device_count)
        is_available = staticmethod(module.is_available)
        stream = staticmethod(module.stream)
        current_stream = staticmethod(module.current_stream)
        set_stream = staticmethod(module.set_stream)
        synchronize = staticmethod(module.synchronize)
        exchange_device = staticmethod(module._exchange_device)
        maybe_exchange_device = staticmethod(module._maybe_exchange_device)
        memory_allocated = staticmethod(module.memory_allocated)
        get_compute_capability = staticmethod(module.get_device_capability)
        is_bf16_supported = staticmethod(module.is_bf16_supported)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            _C.set_current_stream(device_index, stream_id)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return _C.stream_handle(device_idx, _C.current_stream(device_idx))

    Interface.Worker = Worker  # type: ignore[assignment,misc]
    return Interface
