"""What ``openreg doctor`` runs in a Python of its own: imports PyTorch, and uses every device.

Each step prints a line of JSON when it is done. Where the process dies, the last line tells how far
it came. It is run as text, not imported: nothing of the package may be loaded before PyTorch is.
"""

import ctypes
import json
import os
import sys
from typing import Any


def tell(step: str, **facts: Any) -> None:
    """Write what a step found."""
    print(json.dumps({"step": step, **facts}), file=sys.__stdout__, flush=True)


def compute(device: str) -> None:
    """Have a device multiply matrices, and compare with the CPU."""
    import torch

    numbers = torch.arange(1000.0)
    left, right = numbers.view(10, 100), numbers.view(100, 10)
    result = torch.mm(left.to(device), right.to(device)).cpu()
    if not torch.allclose(result, torch.mm(left, right)):
        raise RuntimeError(f"{device} computes something else than the CPU")


def main() -> None:
    """Do all steps; raises what goes wrong."""
    import torch

    tell("import", torch=torch.__version__, has_cuda=torch.version.cuda is not None)
    import torch_openreg  # noqa: F401 - which says why it cannot be
    from torch_openreg import _C

    device_type = torch._C._get_privateuse1_backend_name()
    if os.environ.get("OPENREG_DEVICE_TYPE") == "cuda":
        device_type = "cuda"
    module = torch.get_device_module(device_type)
    preview = _C.ledger_preview()
    tell("configuration", device_type=device_type, **preview)
    count = module.device_count()
    tell("count", visible=count)
    extension = ctypes.CDLL(_C.__file__)
    extension.openreg_simd_name.restype = ctypes.c_char_p
    chosen = extension.openreg_simd_chosen()  # ends the process for a name that is not allowed
    tell("instructions", instructions=extension.openreg_simd_name(chosen).decode())
    for index in range(count):
        compute(f"{device_type}:{index}")
    tell("compute")


try:
    main()
except BaseException as error:
    tell("failed", error=type(error).__name__, sentence=str(error))
