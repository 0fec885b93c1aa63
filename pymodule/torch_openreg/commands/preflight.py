"""Checks, before a program starts, that it will find the simulated devices.

Without the check, a program that finds no device would silently run on the CPU. The check runs in a
Python that starts the way the program's Python will.
"""

import os
import subprocess
import sys

import _openreg_autoload

from .executable import WRONG_ARGUMENTS, CannotRunError

# Exits with WRONG_ARGUMENTS if it finds a problem.
_CHECK = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # without the working folder
mode = sys.modules.get("_openreg_cuda_mode")
problem = mode.problem() if mode else (
    "openreg: this Python does not read torch_openreg.pth when it starts, so programs would "
    "not find the simulated devices: install openreg with pip into site-packages, not into a "
    "folder of PYTHONPATH"
)
if problem:
    print(problem, file=sys.stderr)
    sys.exit(2)
"""

# The same for openreg mode. It loads nothing, because a program that uses the device type `openreg`
# fails by itself if its devices are missing.
_CHECK_FILES = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import _openreg_autoload
problem = _openreg_autoload.problem_with_files()
if problem:
    print(problem, file=sys.stderr)
    sys.exit(2)
"""


def _in_cuda_mode(environment: os._Environ[str] | dict[str, str]) -> bool:
    return environment.get("OPENREG_DEVICE_TYPE") == "cuda"


def require_devices(environment: dict[str, str]) -> None:
    """Check that programs with this environment find the devices.

    Raises
    ------
    CannotRunError
        If they would not, with the reason.
    """
    checked = subprocess.run(
        [sys.executable, "-c", _CHECK if _in_cuda_mode(environment) else _CHECK_FILES],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if checked.returncode == WRONG_ARGUMENTS:
        raise CannotRunError(WRONG_ARGUMENTS, checked.stderr.strip())
    if checked.returncode != 0:
        raise CannotRunError(
            1, f"{checked.stderr}openreg: {sys.executable} cannot load openreg's extension"
        )


def require_devices_of_forks() -> None:
    """Exit if forks of this process would not find the devices.

    The check runs in a fork, so that each rank still reads its configuration itself.
    """
    if _openreg_autoload.failure is not None:  # `import torch` has reported it
        sys.exit(WRONG_ARGUMENTS)
    if not _in_cuda_mode(os.environ):
        return
    child = os.fork()
    if child == 0:
        try:
            exec(_CHECK, {})
            os._exit(0)
        except SystemExit:
            os._exit(WRONG_ARGUMENTS)
        finally:
            os._exit(1)
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(status if status > 0 else 1)
