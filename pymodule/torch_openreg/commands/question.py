"""Whether a program in some environment would have the devices: asked of a Python that starts so.

The one who asks may do something else until the answer is there, and become another program.
"""

import os
import sys
from typing import NamedTuple

from .executable import WRONG_ARGUMENTS, CannotRunError

# Asks a Python that starts as the program's will. Its status is the one for wrong arguments.
_ASK = """
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


class Question(NamedTuple):
    """A child that was asked, and what it says; no more than two numbers, which survive an exec."""

    process: int
    answer: int  # a file to read from


def ask(environment: dict[str, str]) -> Question | None:
    """Begin to ask; None where nobody needs to: a program that says `openreg` hears it anyway."""
    if environment["OPENREG_DEVICE_TYPE"] != "cuda":
        return None
    answer, told = os.pipe()
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", _ASK],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, told, 2),
        ],
    )
    os.close(told)
    return Question(process, answer)


def require_devices(question: Question | None) -> None:
    """Wait for the answer, and raise it if it is a problem."""
    if question is None:
        return
    with open(question.answer, errors="replace") as file:
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(question.process, 0)[1])
    if status == WRONG_ARGUMENTS:
        raise CannotRunError(WRONG_ARGUMENTS, answer.strip())
    if status != 0:
        raise CannotRunError(
            1, f"{answer}openreg: {sys.executable} cannot load openreg's extension"
        )
