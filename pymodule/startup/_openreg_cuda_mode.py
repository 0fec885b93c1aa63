"""Makes CUDA mode begin: imported when Python starts, if OPENREG_DEVICE_TYPE is "cuda".

PyTorch looks for CUDA twice while it is imported, and never again: for its hooks when ``torch._C``
is loaded, for names in ``torch._C`` when ``torch.cuda`` is. So this waits for these two imports,
and puts there what is looked for. Nothing of openreg or PyTorch is loaded before.
"""

import ctypes
import glob
import importlib.util
import os
import sys


def _register_hooks() -> None:
    """Load openreg's extension before `torch._C`, and have it register CUDA's hooks."""
    package = importlib.util.find_spec("torch_openreg")
    torch = sys.modules["torch"]
    if package is None or package.origin is None:
        return
    libraries = os.path.join(os.path.dirname(torch.__file__ or ""), "lib")
    ctypes.CDLL(os.path.join(libraries, "libtorch_python.so"), mode=ctypes.RTLD_GLOBAL)
    (extension,) = glob.glob(os.path.join(os.path.dirname(package.origin), "_C.*.so"))
    ctypes.CDLL(extension).openreg_register_cuda_hooks()


def _supply_names() -> None:
    """Put CUDA's names into `torch._C`, if it was built without them."""
    import torch._C

    if hasattr(torch._C, "_cuda_getDeviceCount"):
        raise ImportError(
            "openreg: OPENREG_DEVICE_TYPE=cuda is for a PyTorch without CUDA, and this one was "
            "built with it: unset the variable, or install the CPU build of PyTorch"
        )
    from torch_openreg import cuda

    cuda.supply_names()


class _Finder:
    """Finds nothing: it is asked for every import, and acts before two of them."""

    _steps = {"torch._C": _register_hooks, "torch.cuda": _supply_names}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        step = cls._steps.pop(name, None)
        if step is not None and os.environ.get("OPENREG_DEVICE_TYPE") == "cuda":
            step()
        if not cls._steps and cls in sys.meta_path:
            sys.meta_path.remove(cls)
        return None


sys.meta_path.insert(0, _Finder)
