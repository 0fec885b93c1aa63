"""The variables that openreg reads, by name: those of the README's table."""

import difflib
from collections.abc import Iterable, Mapping

VARIABLES = (
    "OPENREG_DEVICE_TYPE",
    "OPENREG_DEVICE_COUNT",
    "OPENREG_DEVICE_MEMORY",
    "OPENREG_PROFILE",
    "OPENREG_VISIBLE_DEVICES",
    "OPENREG_CUDA_VERSION",
    "OPENREG_GROUP",
    "OPENREG_SHARE_DEVICE",
    "OPENREG_HOST",
    "OPENREG_LAUNCH_BLOCKING",
    "OPENREG_AUTOGRAD_THREADS",
    "OPENREG_HOST_ACCESS",
    "OPENREG_DEBUG_MEMORY",
    "OPENREG_SANITIZER",
    "OPENREG_GPU_OVERHEAD",
    "OPENREG_BLOCK_OPERATORS",
    "OPENREG_UNSUPPORTED_DTYPES",
    "OPENREG_SIMD",
)

# Others that change what PyTorch does with the devices, or where they are placed.
OTHERS = (
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "HWLOC_SYNTHETIC",
    "HWLOC_XMLFILE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)


def that_are_set(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those of an environment that matter here, in the order of their names."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("OPENREG_") or name in OTHERS
    }


def unknown(names: Iterable[str]) -> dict[str, str | None]:
    """Return names that begin as ours do and are not read, each with the likeliest one meant."""
    strangers = {}
    for name in names:
        if not name.startswith("OPENREG_") or name.startswith("OPENREG_SANITIZER"):
            continue
        if name not in VARIABLES:
            strangers[name] = next(iter(difflib.get_close_matches(name, VARIABLES, 1)), None)
    return strangers
