"""Which CUDA PyTorch says that it was built with: none, unless ``OPENREG_CUDA_VERSION`` names one.

Programs that see a version of CUDA expect what comes with it: compilers, kernels for certain GPUs.
So none is the default, and whoever needs one asks for it.
"""

import os
import re

# What `torch._C._cuda_getCompiledVersion` says if none was asked for.
_DEFAULT = "13.0"


def chosen() -> str | None:
    """Return the version that was asked for.

    Raises
    ------
    ImportError
        If it is none.
    """
    version = os.environ.get("OPENREG_CUDA_VERSION") or None
    if version is not None and re.fullmatch(r"[0-9]{1,2}\.[0-9]", version) is None:
        raise ImportError(
            f"openreg: OPENREG_CUDA_VERSION={version}: expected major and minor version, as in 12.8"
        )
    return version


def compiled() -> int:
    """Return it as CUDA writes it: 12080 is 12.8."""
    major, minor = (chosen() or _DEFAULT).split(".")
    return 1000 * int(major) + 10 * int(minor)


def install() -> None:
    """Have PyTorch say which version was asked for."""
    import torch

    torch.version.cuda = chosen()
