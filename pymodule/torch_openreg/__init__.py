"""openreg: accelerators simulated inside ordinary memory, plugged into PyTorch.

Importing this package, which ``import torch`` does by itself through the ``torch.backends`` entry
point, registers the device type ``openreg`` and the module ``torch.openreg``. It initializes no
device: that happens on first use. With ``OPENREG_DEVICE_TYPE=cuda`` the devices are PyTorch's
``cuda`` instead, and ``torch.cuda`` is their module: see ``torch_openreg.cuda``.

Order matters here. ``_autoload`` and what it calls must exist before ``import torch``, because a
program that imports this package first has PyTorch look for the entry point while this file is
still running. The version must be checked before the extension is loaded, because an extension
built for another PyTorch may crash instead of failing.

PYTEST_DONT_REWRITE: as in ``_openreg_cuda_mode``.
"""

import os
import sys


def _in_cuda_mode() -> bool:
    """Tell which device type was asked for; refuse what is none, or comes too late."""
    chosen = os.environ.get("OPENREG_DEVICE_TYPE", "")
    if chosen not in ("", "openreg", "cuda"):
        raise ImportError(f"openreg: OPENREG_DEVICE_TYPE={chosen}: expected openreg or cuda")
    if chosen == "cuda" and "_openreg_cuda_mode" not in sys.modules:
        raise ImportError(
            "openreg: OPENREG_DEVICE_TYPE=cuda must be set when Python starts, and Python must "
            "read openreg-cuda-mode.pth then, which it does in site-packages, but not in a folder "
            "of PYTHONPATH or with -S: start the program with `openreg run`"
        )
    return chosen == "cuda"


def _heed_variables() -> None:
    """Do what some variables say of the program as a whole, from here on."""
    if "OPENREG_AUTOGRAD_THREADS" in os.environ:
        from . import _autograd

        _autograd.heed_variable()
    if "OPENREG_SANITIZER" in os.environ:
        from . import sanitizer

        sanitizer.start_if_asked()


def _autoload() -> None:
    """Do what waits until PyTorch is whole, and says so by this call. Most the import has done."""
    if _in_cuda_mode():
        from . import cuda

        cuda.finish()
        _heed_variables()


import atexit  # noqa: E402

import _openreg_autoload  # noqa: E402
import torch  # noqa: E402

from ._version import __version__  # noqa: E402

__all__ = ["__version__"]


def _register() -> None:
    """Give PyTorch the name, the device module and the methods of the backend."""
    from torch.nn.parameter import UninitializedParameter
    from torch.utils import backend_registration

    from . import _dlpack, _gloo, _meta, _occl, _profiling, _symmetric_memory, inductor, openreg  # noqa: F401 - _meta registers kernels
    from .openreg import _memory_history, _reductions

    backend_registration.rename_privateuse1_backend("openreg")
    torch._register_device_module("openreg", openreg)
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    # A lazy module may move before its parameters have shapes, as with `Module.cuda`.
    UninitializedParameter._allowed_methods.append(  # type: ignore[attr-defined]
        vars(torch.Tensor)["openreg"]  # which type checkers see only where openreg is installed
    )

    _dlpack.register()
    _reductions.register()

    _memory_history.register()
    _gloo.install("openreg")
    _occl.install("openreg")
    _symmetric_memory.install("openreg")
    _profiling.install("openreg")
    inductor.when_compiling("openreg")

    # `import torch.openreg.memory` must find the module that exists, not load it a second time.
    for room in ("_utils", "amp", "devices", "memory", "random", "streams"):
        sys.modules[f"torch.openreg.{room}"] = sys.modules[f"{openreg.__name__}.{room}"]


def _end_in_order() -> None:
    """Have threads end before the interpreter does; what is registered last is done first."""
    from . import _C

    # When no launch runs any more there is nothing to find.
    if "OPENREG_SANITIZER" in os.environ:
        from . import sanitizer

        atexit.register(sanitizer.finish)

    # With OPENREG_DEBUG_MEMORY=1: what was never synchronized with is looked at all the same.
    atexit.register(_C.look_for_damage_at_exit)

    # No launch runs when what it needs is gone.
    atexit.register(_C.shut_down_streams)

    # No launch that runs waits for other processes. Gloo's threads take the GIL when work is done:
    # a finalized interpreter would make it an abort.
    if hasattr(_C, "abort_communicators"):
        atexit.register(_C.finish_gloo)
        atexit.register(_C.abort_communicators)

    # Their last act takes the GIL, too.
    atexit.register(_C.stop_autograd_threads)


if _openreg_autoload.failure is not None:
    raise ImportError(str(_openreg_autoload.failure)) from _openreg_autoload.failure
_openreg_autoload.check(os.path.dirname(__file__), torch.__version__)
if not _in_cuda_mode():
    _register()
_end_in_order()
if not _in_cuda_mode():
    _heed_variables()
