"""openreg: simulated GPUs for PyTorch.

Importing this package registers the device type ``openreg`` and the module ``torch.openreg``.
``import torch`` imports it through the ``torch.backends`` entry point. The import initializes no
device; the first use does. With ``OPENREG_DEVICE_TYPE=cuda`` the devices are PyTorch's ``cuda``
instead, and their module is ``torch.cuda``. See ``torch_openreg.cuda``.

The order of this file matters:

- ``_autoload`` and the functions that it calls must be defined before ``import torch``. If a
  program
  imports this package first, PyTorch calls the entry point while this file is still running.
- The version must be checked before the extension is loaded. An extension that was built for
  another release of PyTorch may crash.

PYTEST_DONT_REWRITE: see ``_openreg_cuda_mode``.
"""

import os
import sys


def _in_cuda_mode() -> bool:
    """Return whether CUDA mode is on; raise ImportError for an invalid or late device type."""
    chosen = os.environ.get("OPENREG_DEVICE_TYPE", "")
    if chosen not in ("", "openreg", "cuda"):
        raise ImportError(f"openreg: OPENREG_DEVICE_TYPE={chosen}: expected openreg or cuda")
    if chosen == "cuda" and "_openreg_cuda_mode" not in sys.modules:
        raise ImportError(
            "openreg: OPENREG_DEVICE_TYPE=cuda must be set when Python starts, and Python must "
            "then read torch_openreg.pth, which it does in site-packages but not in a folder "
            "of PYTHONPATH or with -S: start the program with `openreg run`"
        )
    return chosen == "cuda"


def _apply_variables() -> None:
    """Apply the variables that affect the whole program."""
    from . import _autograd

    _autograd.apply_variable()
    if "OPENREG_DRY_RUN" in os.environ:
        from .dry import start

        start.apply_variables()
    if "OPENREG_MEMORY_PLANS" in os.environ:
        from .plans import launches

        launches.apply_variable()
    if "OPENREG_REPORT" in os.environ:
        from .dry import report

        report.start_if_requested()
    if "OPENREG_SANITIZER" in os.environ:
        from . import sanitizer

        sanitizer.start_if_requested()


def _autoload() -> None:
    """Finish CUDA mode. PyTorch calls this at the end of its import, which has done the rest."""
    if _in_cuda_mode():
        from . import cuda

        cuda.finish()
        _apply_variables()


import atexit  # noqa: E402

import _openreg_autoload  # noqa: E402
import _openreg_library  # noqa: E402
import torch  # noqa: E402

from ._version import __version__  # noqa: E402

__all__ = ["__version__"]


def _register() -> None:
    """Register the name, the device module and the methods of the backend with PyTorch."""
    from torch.nn.parameter import UninitializedParameter
    from torch.utils import backend_registration

    from . import (
        _dlpack,
        _gloo,
        _meta,  # noqa: F401 - registers kernels
        _occl,
        _profiling,
        _semi_structured,
        _symmetric_memory,
        inductor,
        openreg,
    )
    from .openreg import _memory_history, _reductions

    backend_registration.rename_privateuse1_backend("openreg")
    torch._register_device_module("openreg", openreg)
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    # A lazy module may be moved before its parameters have shapes, as with `Module.cuda`.
    UninitializedParameter._allowed_methods.append(  # type: ignore[attr-defined]
        vars(torch.Tensor)["openreg"]  # type checkers know it only if openreg is installed
    )

    _dlpack.register()
    _reductions.register()

    _memory_history.register()
    _gloo.install("openreg")
    _occl.install("openreg")
    _semi_structured.install("PrivateUse1")
    _symmetric_memory.install("openreg")
    _profiling.install("openreg")
    inductor.when_compiling("openreg")

    # `import torch.openreg.memory` must find the existing module instead of loading it again.
    for room in ("_utils", "amp", "devices", "memory", "random", "streams"):
        sys.modules[f"torch.openreg.{room}"] = sys.modules[f"{openreg.__name__}.{room}"]


def _end_in_order() -> None:
    """Make threads end before the interpreter does. The last registered function runs first."""
    from . import _C

    # The sanitizer finishes after the last launch.
    if "OPENREG_SANITIZER" in os.environ:
        from . import sanitizer

        atexit.register(sanitizer.finish)

    # With OPENREG_DEBUG_MEMORY=1: check memory that the program never synchronized with.
    atexit.register(_C.check_memory_damage_at_exit)

    # No launch may run after the objects that it needs are gone.
    atexit.register(_C.shut_down_streams)

    # No running launch may wait for other processes. Gloo's threads take the GIL when work is done,
    # which would abort the process after the interpreter is finalized.
    if hasattr(_C, "abort_communicators"):
        atexit.register(_C.finish_gloo)
        atexit.register(_C.abort_communicators)

    # The autograd threads take the GIL when they end, too.
    atexit.register(_C.stop_autograd_threads)


if _openreg_autoload.failure is not None:
    raise ImportError(str(_openreg_autoload.failure)) from _openreg_autoload.failure
_openreg_autoload.check(os.path.dirname(__file__), torch.__version__)
_openreg_library.extension(os.path.dirname(__file__))
if not _in_cuda_mode():
    _register()
_end_in_order()
if not _in_cuda_mode():
    _apply_variables()
