"""The part of the GPU driver that Triton's interpreter needs: the properties of a device.

Triton creates its driver object, which compiles a file against ``libcuda.so``, when autotuning or
``triton.testing.do_bench`` needs it, even if kernels are interpreted.
"""

from typing import Any, NoReturn

import torch


class CudaUtils:
    """Replaces ``triton.backends.nvidia.driver.CudaUtils``."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the properties of a device; clock rates in kHz, the bus width in bits."""
        properties: Any = torch.cuda.get_device_properties(device)
        return {
            "max_shared_mem": properties.shared_memory_per_block_optin,
            "max_num_regs": properties.regs_per_multiprocessor,
            "multiprocessor_count": properties.multi_processor_count,
            "warpSize": properties.warp_size,
            "sm_clock_rate": properties.clock_rate,
            "mem_clock_rate": properties.memory_clock_rate,
            "mem_bus_width": properties.memory_bus_width,
        }

    def __getattr__(self, name: str) -> NoReturn:
        raise NotImplementedError(
            f"triton: openreg has no {name}, because its devices cannot run compiled kernels: set "
            "TRITON_INTERPRET=1 to interpret kernels"
        )
