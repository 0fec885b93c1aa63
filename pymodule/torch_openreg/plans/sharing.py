"""Starts a planner, or connects to the one that another process of the device group has started.

A planner (``planner.py``, ``server.py``) listens at an abstract socket. The address is a hash of
the user, the device group and the configuration: `path` (folders to import from), `libraries` (the
runtime first), `release`, `profiles`, `workspaces` (as in ``libraries.py``). The system gives an
address to one process only, and frees it when that process ends. So there is never a second planner
at an address, and nothing is left on the disk.

Messages are a length of four bytes and bytes of ``marshal``. The planner sends

- ``("ready", its process number)`` or ``("failed", sentence)`` to each process that connects;
- ``("working",)`` when it begins with a question, and later the answer.

The planner ends when the last process that is connected to it has ended or has left.

This module does not import PyTorch.
"""

import errno
import hashlib
import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import builds
from .libraries import VARIABLE, as_text, workspaces
from .server import CREDENTIALS, LENGTH

START_SECONDS = 120.0
ANSWER_SECONDS = 120.0
END_SECONDS = 1.0
_MOST_WAITING = 1024  # processes that connect at once

# Variables that would change what the planner's PyTorch does.
_REMOVED = (
    "OPENREG_",
    "TORCH",
    "PYTORCH_",
    "CUDA_",
    "CUBLAS",
    "CUDNN_",
    "NCCL_",
    "PYTHON",
    "LD_PRELOAD",
)


class Died(Exception):
    """The planner ended or does not answer. The argument is a sentence.

    `worked_for_us` says whether it was working on a question of this process.
    """

    worked_for_us = False


def libraries() -> list[str]:
    """Return the stand-ins for NVIDIA's libraries, the runtime first."""
    folder = Path(__file__).resolve().parent.parent / "lib"
    runtime = folder / f"openreg_cudart_{builds.CUDA_MAJOR}.so"
    others = [folder / f"openreg_cupti_{builds.CUDA_MAJOR}.so", folder / "openreg_cufile.so"]
    return [str(each) for each in (runtime, *others, *sorted((folder / "planner").glob("*.so")))]


def environment(profiles: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a planner."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_REMOVED)}
    return kept | {
        "OPENREG_GROUP": f"planner-{os.getpid()}-{time.monotonic_ns()}",
        "OPENREG_PROFILE": ",".join(profiles),
        "OPENREG_DEVICE_COUNT": str(len(profiles)),
        "OPENREG_DEVICE_MEMORY": "80G",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "USE_PYTORCH_KERNEL_CACHE": "0",
        "TORCH_DISABLE_NATIVE_JIT": "1",  # kernels of Triton, which needs a driver
        VARIABLE: as_text(workspaces()),
        # openreg counts the workspaces of cuBLAS itself.
        "CUBLAS_WORKSPACE_CONFIG": ":0:0",
        "CUBLASLT_WORKSPACE_SIZE": "0",
        "OMP_NUM_THREADS": "1",
    }


# The planners that this process has started. Python warns if a running one is not referenced.
_started: list[subprocess.Popen[bytes]] = []


def _address_of(configuration: str) -> str:
    group = os.environ.get("OPENREG_GROUP", "")
    told = f"{os.getuid()}\n{group}\n{sys.executable}\n{configuration}"
    return f"\0openreg-planner-{hashlib.sha256(told.encode()).hexdigest()}"


class Planner:
    """A connection of this process to a planner.

    Parameters
    ----------
    build
        The CUDA build that the planner runs.
    profiles
        The GPUs of its devices.

    Raises
    ------
    Died
        If the planner cannot start.
    OSError
        If the system has no process or no socket left.
    """

    def __init__(self, build: builds.Build, profiles: Sequence[str]) -> None:
        installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        configuration = json.dumps(
            {
                "path": list(
                    dict.fromkeys([str(build.folder), str(builds.own_folder()), *installed])
                ),
                "libraries": libraries(),
                "release": build.release,
                "profiles": list(profiles),
                "workspaces": workspaces(),
            }
        )
        self.user = os.getpid()
        self._started: subprocess.Popen[bytes] | None = None
        self.process: int | None = None  # the planner's process number, once it is ready
        greeting = self._greeting(configuration, profiles)
        if greeting[0] != "ready":
            self.leave()
            raise Died(f"openreg: the planner could not start: {greeting[1]}")
        self.process = greeting[1]

    def _greeting(self, configuration: str, profiles: Sequence[str]) -> Any:
        """Connect, and return the first message of the planner."""
        end = time.monotonic() + START_SECONDS
        while True:
            self._socket = self._connect(configuration, profiles, end)
            try:
                return self._receive(START_SECONDS)
            except Died:
                # The planner of another process has ended, because nobody was connected to it yet.
                if self._started is not None or time.monotonic() > end:
                    raise

    def _connect(self, configuration: str, profiles: Sequence[str], end: float) -> socket.socket:
        """Connect to the planner. Start it if there is none."""
        address = _address_of(configuration)
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(address)
            except ConnectionRefusedError:
                # A process that starts the planner connects first. So the planner sees whether
                # that process still lives.
                if self._listen(address, connection, configuration, profiles):
                    return connection
                connection.close()
                if time.monotonic() > end:
                    raise Died("openreg: another process does not start the planner") from None
                time.sleep(0.001)  # until that process listens
                continue
            self._check_owner(connection)
            return connection

    def _listen(
        self,
        address: str,
        connection: socket.socket,
        configuration: str,
        profiles: Sequence[str],
    ) -> bool:
        """Start a planner and connect to it; return false if another process is just doing so."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                raise
            listener.listen(_MOST_WAITING)
            connection.connect(address)
            program = Path(__file__).with_name("planner.py")
            self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
            self._started = subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), configuration],
                stdin=listener.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                env=environment(profiles),
                cwd="/",
            )
            _started.append(self._started)
            return True

    def _check_owner(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        if CREDENTIALS.unpack(credentials)[1] != os.getuid():
            connection.close()
            raise Died("openreg: a process of another user has the address of the planner")

    def ask(self, question: bytes) -> Any:
        """Return the answer to a question, both as ``client.py`` says.

        Raises
        ------
        Died
            If the planner ended or does not answer.
        """
        works_for_us = False
        try:
            try:
                self._socket.sendall(LENGTH.pack(len(question)) + question)
            except OSError:
                raise self._died() from None
            answer = self._receive(ANSWER_SECONDS)
            if answer[0] == "working":
                works_for_us = True
                answer = self._receive(ANSWER_SECONDS)
        except Died as error:
            error.worked_for_us = works_for_us
            raise
        return answer

    def _receive(self, seconds: float) -> Any:
        length = LENGTH.unpack(self._read(LENGTH.size, seconds))[0]
        return marshal.loads(self._read(length, seconds))

    def _read(self, count: int, seconds: float) -> bytes:
        parts = b""
        self._socket.settimeout(seconds)
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except TimeoutError:
                self._kill()
                self.leave()
                raise Died(f"openreg: the planner did not answer within {seconds:.0f} s") from None
            except OSError:
                part = b""
            if not part:
                raise self._died()
            parts += part
        return parts

    def _kill(self) -> None:
        """Kill the planner. Its end of the socket is open, so its number is still its own."""
        number = self.process or (self._started.pid if self._started is not None else None)
        if number is not None:
            os.kill(number, signal.SIGKILL)

    def _died(self) -> Died:
        status = self.leave()
        if status is None:
            return Died("openreg: the planner ended, which another process has started")
        self._messages.seek(0)
        last = (self._messages.read().splitlines() or ["it printed nothing"])[-1]
        return Died(f"openreg: the planner ended with status {status}: {last}")

    def leave(self) -> int | None:
        """Close the connection.

        Returns the planner's exit status, if this process has started it and it ends now.
        """
        self._socket.close()
        if self._started is None or self.user != os.getpid():
            return None
        try:
            return self._started.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return None
