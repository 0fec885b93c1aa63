"""Starts CUDA mode. Python imports this module at startup if OPENREG_DEVICE_TYPE is "cuda".

PyTorch looks for CUDA twice during its import, and never again: for its hooks when it loads
``torch._C``, and for names in ``torch._C`` when it loads ``torch.cuda``. This module waits for
these two imports and supplies what PyTorch looks for. Before, when ``torch`` itself is imported, it
loads the stand-in libraries if that PyTorch was built with CUDA. It loads nothing of openreg or
PyTorch earlier.

If the program imports Triton, this module sets TRITON_INTERPRET=1, because only Triton's
interpreter can run kernels here. Triton reads the variable when a kernel is defined, which includes
its own kernels. A program that only checks whether Triton exists is not affected.

`problem` checks in advance whether CUDA mode will start. ``openreg run`` calls it before it starts
a program.

PYTEST_DONT_REWRITE: a pytest plugin lies beside this module, so pytest would warn that it cannot
rewrite the module's assertions.
"""

import ctypes
import functools
import os
import re
import runpy
import sys

import _openreg_autoload
import _openreg_library
from _openreg_library import folder_of, torch_version

# The version of openreg's CUDA runtime, which a PyTorch without CUDA reports.
_RUNTIME_VERSION = "13.0"


def cuda_version(built: str | None) -> str | None:
    """Return the value of ``torch.version.cuda``.

    Many programs and libraries take None for a machine without CUDA, so a PyTorch that was built
    without CUDA reports the version of openreg's runtime.

    Parameters
    ----------
    built
        The version of CUDA that PyTorch was built with; None for its CPU build.
    """
    version = os.environ.get("OPENREG_CUDA_VERSION")
    if not version:
        return built or _RUNTIME_VERSION
    if version == "none":
        return built
    if not re.fullmatch(r"[1-9][0-9]?\.[0-9]", version, re.ASCII):
        raise ImportError(
            f"openreg: OPENREG_CUDA_VERSION={version[:100]}: expected a CUDA version such as 12.8, "
            "or `none`"
        )
    return version


# PyTorch's CUDA libraries and NVIDIA's, in the order in which they need each other.
_NVIDIA = ("cupti_{cuda}", "cufile", "cudnn", "nccl")
_PYTORCH = ("c10_cuda", "torch_cuda")

_loaded_stand_ins: list[str] = []


def _load_stand_ins(package: str, torch_folder: str) -> None:
    """Load the libraries of openreg that stand in for CUDA's, if this PyTorch was built with CUDA.

    They have the SONAMEs of the real ones. When PyTorch needs a library with such a name, the
    loader takes the one that is loaded, and maps none of NVIDIA's.
    """
    libraries = os.path.join(torch_folder, "lib")
    if not os.path.exists(os.path.join(libraries, "libtorch_cuda.so")):
        return
    version = str(runpy.run_path(os.path.join(torch_folder, "version.py"))["cuda"])
    cuda = version.partition(".")[0]
    nvidia, pytorch = (
        [_own_library(package, name.format(cuda=cuda)) for name in names]
        for names in ((f"cudart_{cuda}", *_NVIDIA), _PYTORCH)
    )
    for path in (*nvidia, *pytorch):
        if not os.path.exists(path):
            raise ImportError(
                f"openreg: CUDA mode has no library {os.path.basename(path)} for a PyTorch that "
                f"was built with CUDA {version}"
            )
    # The last ones need PyTorch's own.
    own_of_pytorch = [os.path.join(libraries, name) for name in ("libc10.so", "libtorch_cpu.so")]
    for path in (*nvidia, *own_of_pytorch, *pytorch):
        ctypes.CDLL(path)
        _loaded_stand_ins.append(path)


def _own_library(package: str, name: str) -> str:
    """Return the path of one of openreg's libraries."""
    return os.path.join(package, "lib", f"openreg_{name}.so")


def runtime_library() -> str:
    """Return the path of openreg's CUDA runtime, for the CUDA that this PyTorch was built with."""
    loaded = [path for path in _loaded_stand_ins if "openreg_cudart_" in path]
    package = folder_of("torch_openreg")
    assert package is not None
    return loaded[0] if loaded else _own_library(package, "cudart_13")


def load_runtime() -> None:
    """Load openreg's CUDA runtime, unless PyTorch's CUDA build has loaded it.

    Libraries of the program then find it by its SONAME, and not one of NVIDIA's.
    """
    if not any("openreg_cudart_" in path for path in _loaded_stand_ins):
        load_cuda_libraries()


def load_cuda_libraries() -> bool:
    """Load the libraries of CUDA that C++ extensions need, in a PyTorch that was built without.

    The extension then finds them by their SONAMEs.

    Returns
    -------
    bool
        Whether openreg has them.
    """
    package = folder_of("torch_openreg")
    assert package is not None
    names = ("cudart_12", "cudart_13", *_PYTORCH)
    found = [path for name in names if os.path.exists(path := _own_library(package, name))]
    for path in found:
        ctypes.CDLL(path)
    return len(found) == len(names)


@functools.cache
def _prepare(package: str, torch_folder: str) -> str:
    """Check openreg and PyTorch, load the stand-ins, and return the extension's path.

    Both are checked when ``torch`` is imported; the result also serves the import of ``torch._C``.
    """
    _openreg_autoload.check(package, torch_version(torch_folder))
    if os.path.exists(os.path.join(torch_folder, "lib", "libtorch_hip.so")):
        raise ImportError(
            "openreg: CUDA mode does not work with a PyTorch that was built for ROCm: install its "
            "CPU or CUDA build"
        )
    extension = _openreg_library.extension(package)  # checks the files of all libraries
    _load_stand_ins(package, torch_folder)
    return extension


def _load_extension(torch_folder: str) -> ctypes.CDLL:
    """Load openreg's extension; nothing is loaded if it does not fit this PyTorch."""
    extension = _prepare(_openreg_autoload.package_folder(), torch_folder)
    python = os.path.join(torch_folder, "lib", "libtorch_python.so")
    ctypes.CDLL(python, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(extension)


def problem() -> str | None:
    """Return the error with which CUDA mode would fail in this environment, or None."""
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return (
            "openreg: TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps PyTorch from loading openreg: unset it"
        )
    stop()
    torch = folder_of("torch")
    if torch is None:
        return f"openreg: {sys.executable} has no PyTorch: pip install torch"
    try:
        cuda_version(None)
    except ImportError as error:  # a wrong value, not a wrong installation
        return str(error)
    try:
        extension = _load_extension(torch)
    except Exception as error:
        return _openreg_autoload.sentence(error)
    count = ctypes.c_int()
    if extension.openreg_device_count(ctypes.byref(count)) != 0:
        extension.openreg_last_error.restype = ctypes.c_char_p
        return extension.openreg_last_error().decode(errors="replace")
    if count.value == 0:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")[:100]
        return (
            f"openreg: CUDA_VISIBLE_DEVICES={chosen} hides all devices: unset it, or list devices, "
            "such as 0,1"
        )
    return None


def _stand_in() -> None:
    """Check the installation, and load the stand-ins before PyTorch loads the real libraries."""
    torch = folder_of("torch")
    if torch is not None:
        cuda_version(None)  # raises an error for an invalid one
        _prepare(_openreg_autoload.package_folder(), torch)


def _stand_in_for_torchvision() -> None:
    """Load stand-ins for the copies of NVIDIA's libraries that torchvision's wheel brings."""
    from torch_openreg.cuda import bundled_libraries

    if folder := folder_of("torchvision"):
        bundled_libraries.load_stand_ins(f"{folder}.libs")


def _register_hooks() -> None:
    """Load openreg's extension before `torch._C`, and let it register the CUDA hooks."""
    torch = sys.modules["torch"].__file__ or ""
    _load_extension(os.path.dirname(torch)).openreg_register_cuda_hooks()


def _supply_names() -> None:
    """Add CUDA's names to `torch._C`."""
    from torch_openreg import cuda

    cuda.supply_names()


# The names that only a build with CUDA has in `torch._C`.
_CUDA_NAMES = re.compile("_cuda|_Cuda|_CUDA|_nvtx|_nccl_|_gds_|_MemPool")


def _hide_cuda() -> None:
    """Let PyTorch behave like its CPU build: stand-ins without openreg cannot compute."""
    names = vars(sys.modules["torch._C"])
    for name in [name for name in names if _CUDA_NAMES.match(name)]:
        del names[name]
    names["_has_cuda"] = names["_has_cudnn"] = False
    sys.modules["torch.version"].cuda = None  # type: ignore[attr-defined]


def _interpret_kernels() -> None:
    """Let Triton interpret kernels, unless TRITON_INTERPRET is set."""
    os.environ.setdefault("TRITON_INTERPRET", "1")


def _triton_utils() -> object:
    """Return the object that Triton's driver asks for the properties of a GPU."""
    from torch_openreg.cuda.triton_driver import CudaUtils

    return CudaUtils()


def _supply_driver() -> None:
    """Prevent Triton's driver, which is loaded by now, from looking for the CUDA driver."""
    driver = sys.modules.get("triton.backends.nvidia.driver")
    if driver is not None:
        driver.CudaUtils = _triton_utils  # type: ignore[attr-defined]


class _Finder:
    """An import hook that finds no modules but acts before some imports."""

    _steps = {
        "torch": _stand_in,
        "torch._C": _register_hooks,
        "torch.cuda": _supply_names,
        "torchvision": _stand_in_for_torchvision,
        "triton.runtime": _interpret_kernels,
        "triton.testing": _supply_driver,
    }

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        step = cls._steps.pop(name, None)
        if step is not None and os.environ.get("OPENREG_DEVICE_TYPE") == "cuda":
            try:
                step()
            except Exception as error:  # must not stop `import torch`
                _openreg_autoload.report(error)
                cls._steps.clear()
                if _loaded_stand_ins:
                    cls._steps["torch.cuda"] = _hide_cuda
                    if name == "torch.cuda":
                        cls._steps.pop(name)()
            if not cls._steps:
                sys.meta_path.remove(cls)


def stop() -> None:
    """Do nothing when PyTorch is found. A process may look for it without importing it."""
    if _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)


sys.meta_path.insert(0, _Finder)
