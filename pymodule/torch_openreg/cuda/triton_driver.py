"""What Triton asks of a GPU's driver: its properties. Kernels are interpreted, none is loaded.

Triton makes such an object, by compiling a file against ``libcuda.so``, as soon as anything asks
for its driver: autotuning and ``triton.testing.do_bench`` do, in its interpreter too.
"""

from typing import Any, NoReturn

import torch


class CudaUtils:
    """Stands where ``triton.backends.nvidia.driver.CudaUtils`` stood."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the properties that PyTorch has too: not clocks, and not the bus's width."""
        properties: Any = torch.cuda.get_device_properties(device)
        return {
            "max_shared_mem": properties.shared_memory_per_block_optin,
            "max_num_regs": properties.regs_per_multiprocessor,
            "multiprocessor_count": properties.multi_processor_count,
            "warpSize": properties.warp_size,
        }

    def __getattr__(self, name: str) -> NoReturn:
        raise NotImplementedError(
            f"triton: openreg has no {name}, for its devices run no compiled kernels: Triton "
            "interprets kernels unless TRITON_INTERPRET is 0"
        )
