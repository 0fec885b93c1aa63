"""The program that ``openreg doctor`` runs to test PyTorch and every device.

Each step prints a line of JSON when it is done. If the process dies, the last line shows how far it
came. Doctor passes this file to ``python -c`` instead of importing it: nothing of the package may
be loaded before PyTorch.
"""

import ctypes
import json
import os
import sys
from typing import Any


def report(step: str, **facts: Any) -> None:
    """Print the results of a step."""
    print(json.dumps({"step": step, **facts}), file=sys.__stdout__, flush=True)


def mapped_libraries() -> list[str]:
    """Return the paths of all shared libraries in this process."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
    return sorted(path for path in paths if ".so" in path)


def compute(device: str) -> None:
    """Multiply matrices on a device and compare the result with the CPU's."""
    import torch

    numbers = torch.arange(1000.0)
    left, right = numbers.view(10, 100), numbers.view(100, 10)
    result = torch.mm(left.to(device), right.to(device)).cpu()
    if not torch.allclose(result, torch.mm(left, right)):
        raise RuntimeError(f"{device} and the CPU compute different results")


def main() -> None:
    """Run all steps; a failure raises an exception."""
    import torch

    report("import", torch=torch.__version__, mapped=mapped_libraries())
    import torch_openreg  # noqa: F401 - raises why it cannot be imported
    from torch_openreg import _C

    device_type = torch._C._get_privateuse1_backend_name()
    if os.environ.get("OPENREG_DEVICE_TYPE") == "cuda":
        device_type = "cuda"
    module = torch.get_device_module(device_type)
    preview = _C.ledger_preview()
    report("configuration", device_type=device_type, **preview)
    count = module.device_count()
    report("count", visible=count)
    extension = ctypes.CDLL(_C.__file__)
    extension.openreg_simd_name.restype = ctypes.c_char_p
    chosen = extension.openreg_simd_chosen()  # aborts for an invalid OPENREG_SIMD
    report("instructions", instructions=extension.openreg_simd_name(chosen).decode())
    for index in range(count):
        compute(f"{device_type}:{index}")
    report("compute")


try:
    main()
except BaseException as error:
    report("failed", error=type(error).__name__, sentence=str(error))
