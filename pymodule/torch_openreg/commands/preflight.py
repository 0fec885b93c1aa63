"""Whether a program would have the devices: asked of a Python that starts as the program's will."""

import os
import subprocess
import sys

from .executable import WRONG_ARGUMENTS, CannotRunError

# Its status is the one for wrong arguments.
_QUESTION = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in the working folder
mode = sys.modules.get("_openreg_cuda_mode")
problem = mode.problem() if mode else (
    "openreg: this Python does not read openreg-cuda-mode.pth when it starts, so its `cuda` would "
    "not be openreg's devices: install openreg where Python's `site` looks (pip install), not in a "
    "folder of PYTHONPATH"
)
if problem:
    print(problem, file=sys.stderr)
    sys.exit(2)
"""


def _is_needed(environment: os._Environ[str] | dict[str, str]) -> bool:
    """Tell whether a program might miss them and not know: one that says `openreg` would."""
    return environment.get("OPENREG_DEVICE_TYPE") == "cuda"


def require_devices(environment: dict[str, str]) -> None:
    """Raise what keeps the devices from being there in an environment."""
    if not _is_needed(environment):
        return
    asked = subprocess.run(
        [sys.executable, "-c", _QUESTION],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if asked.returncode == WRONG_ARGUMENTS:
        raise CannotRunError(WRONG_ARGUMENTS, asked.stderr.strip())
    if asked.returncode != 0:
        raise CannotRunError(
            1, f"{asked.stderr}openreg: {sys.executable} cannot load openreg's extension"
        )


def require_devices_of_forks() -> None:
    """Exit if something keeps the devices from being there in forks of this process.

    One of them is asked, so that the others still read their configuration themselves.
    """
    if not _is_needed(os.environ):
        return
    child = os.fork()
    if child == 0:
        try:
            exec(_QUESTION, {})
            os._exit(0)
        except SystemExit:
            os._exit(WRONG_ARGUMENTS)
        finally:
            os._exit(1)
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(status if status > 0 else 1)
