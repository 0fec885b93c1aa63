"""RPC: rejects device maps, because a PyTorch without CUDA cannot send tensors of devices.

Without a device map, PyTorch raises an error for such a tensor. With one, it ends the process. So
the initialization of RPC rejects device maps here.
"""

import functools
from typing import Any

from torch import distributed


def _has_devices(device_map: dict[Any, Any]) -> bool:
    return any(device.type != "cpu" for pair in device_map.items() for device in pair)


def install() -> None:
    """Make the initialization of RPC check the device maps."""
    if not distributed.is_available() or not distributed.rpc.is_available():
        return
    agent = distributed.rpc.TensorPipeAgent
    initialize = agent.__init__

    @functools.wraps(initialize)
    def checked(
        self: Any, store: Any, name: str, rank: int, size: Any, options: Any, *rest: Any
    ) -> None:
        refused = sorted(to for to, each in options.device_maps.items() if _has_devices(each))
        if refused:
            raise RuntimeError(
                f"openreg: RPC from '{name}' has a device map for {', '.join(map(repr, refused))}, "
                "but PyTorch without CUDA sends CPU tensors only: leave device_maps empty, and "
                "send tensor.cpu()"
            )
        initialize(self, store, name, rank, size, options, *rest)

    agent.__init__ = checked  # type: ignore[assignment,method-assign]
