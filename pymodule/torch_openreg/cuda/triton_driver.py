"""What Triton asks of a GPU's driver: its properties. Kernels are interpreted, none is loaded.

Triton makes such an object, by compiling a file against ``libcuda.so``, as soon as anything asks
for its driver: autotuning and ``triton.testing.do_bench`` do, in its interpreter too.
"""

from typing import Any, NoReturn

import torch


class CudaUtils:
    """Stands where ``triton.backends.nvidia.driver.CudaUtils`` stood."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return what Triton asks for; clocks in kHz, the width of the bus in bits."""
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
            f"triton: openreg has no {name}, for its devices run no compiled kernels: Triton "
            "interprets kernels unless TRITON_INTERPRET is 0"
        )
