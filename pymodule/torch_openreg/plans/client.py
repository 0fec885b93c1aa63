"""Starts the planner and asks it.

A question is ``(operator, arguments, keywords, settings, profile)``: the operator's name, such as
``aten::sort.stable``, and what ``signature.py`` describes. An answer is one of

- ``("plan", outputs, events, changed)``: see `Plan`;
- ``("error", type, text)``: what the operator raises on CUDA;
- ``("refused", cause, sentence)``.

Both travel through pipes as a length of four bytes and bytes of ``marshal``. The configuration is
a JSON object: `path` (folders to import from), `libraries` (the runtime first), `release`,
`profiles`, `parent` (a process id).

The planner ends when this process ends. A planner that dies is started again, at most `MAX_DEATHS`
times; the question that it died of is not asked again.

This module does not import PyTorch.
"""

import contextlib
import json
import marshal
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import builds
from .planner import LENGTH

MAX_DEATHS = 3
START_SECONDS = 120.0
ANSWER_SECONDS = 120.0

Question = tuple[str, Sequence[Any], Mapping[str, Any], tuple[Any, ...], str]

# What `signature.current_settings` returns before a program changes anything.
DEFAULT_SETTINGS = (
    True,
    False,
    False,
    "float32",
    (True, True, True, True, False),
    (),
    "default",
)

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


class PlannedOutput(NamedTuple):
    """A tensor that an operator returns.

    `where` says which memory it has: ``block`` (the block number `number`, from 1), ``alias`` (the
    memory number `number` of the signature), ``empty``, ``host``, or ``argument``: it is the tensor
    number `number` of the arguments, from 0, and the other members have no meaning.
    """

    where: str
    number: int
    dtype: str = ""
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    storage_bytes: int = 0
    flags: str = ""


class Plan(NamedTuple):
    """What CUDA does with a signature.

    Parameters
    ----------
    outputs
        For each return value a `PlannedOutput`, a list of them, or a number, a text or None.
    events
        The blocks of device memory that the call takes and frees, in order. A positive number is
        the size in bytes of a block that it takes, as requested. The blocks are numbered from 1. A
        negative number is the number of a block that it frees.
    changed
        Tensor arguments with other sizes after the call: their number, sizes and strides.
    error
        If the call raises: the name of the exception's class and its text. Then the rest is empty.
    source
        Who answered: ``planner`` or ``builtin``. `ask.plan` sets it.
    """

    outputs: tuple[Any, ...] = ()
    events: tuple[int, ...] = ()
    changed: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()
    error: tuple[str, str] | None = None
    source: str = ""

    @property
    def transient(self) -> tuple[int, ...]:
        """The sizes of the blocks that are freed within the call."""
        taken = [size for size in self.events if size > 0]
        freed = {-number for number in self.events if number < 0}
        return tuple(size for number, size in enumerate(taken, 1) if number in freed)


class Died(Exception):
    """The planner ended or does not answer. The argument is a sentence."""


def _output(value: Any) -> Any:
    if isinstance(value, list):
        return [_output(each) for each in value]
    return PlannedOutput(*value[1:]) if isinstance(value, tuple) else value


def _libraries() -> list[str]:
    folder = Path(__file__).resolve().parent.parent / "lib"
    runtime = folder / f"openreg_cudart_{builds.CUDA_MAJOR}.so"
    others = [folder / f"openreg_cupti_{builds.CUDA_MAJOR}.so", folder / "openreg_cufile.so"]
    return [str(each) for each in (runtime, *others, *sorted((folder / "planner").glob("*.so")))]


def _environment(profiles: Sequence[str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_REMOVED)}
    return kept | {
        "OPENREG_GROUP": f"planner-{os.getpid()}-{time.monotonic_ns()}",
        "OPENREG_PROFILE": ",".join(profiles),
        "OPENREG_DEVICE_COUNT": str(len(profiles)),
        "OPENREG_DEVICE_MEMORY": "80G",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "USE_PYTORCH_KERNEL_CACHE": "0",
        # openreg counts the workspaces of cuBLAS itself.
        "CUBLAS_WORKSPACE_CONFIG": ":0:0",
        "CUBLASLT_WORKSPACE_SIZE": "0",
        "OMP_NUM_THREADS": "1",
    }


class _Process:
    """A running planner."""

    def __init__(self, build: builds.Build, profiles: Sequence[str]) -> None:
        installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        configuration = {
            "path": list(dict.fromkeys([str(build.folder), str(builds.own_folder()), *installed])),
            "libraries": _libraries(),
            "release": build.release,
            "profiles": list(profiles),
            "parent": os.getpid(),
        }
        program = Path(__file__).with_name("planner.py")
        self.messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - for later
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), json.dumps(configuration)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
            env=_environment(profiles),
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.questions, self.answers = self.process.stdin, self.process.stdout
        answer = self._receive(START_SECONDS)
        if answer[0] != "ready":
            self.end()
            raise Died(f"openreg: the planner could not start: {answer[1]}")

    def ask(self, question: bytes) -> Any:
        try:
            self.questions.write(LENGTH.pack(len(question)) + question)
            self.questions.flush()
        except OSError:
            raise self._died() from None
        return self._receive(ANSWER_SECONDS)

    def _receive(self, seconds: float) -> Any:
        length = LENGTH.unpack(self._read(LENGTH.size, seconds))[0]
        return marshal.loads(self._read(length, seconds))

    def _read(self, count: int, seconds: float) -> bytes:
        descriptor, parts = self.answers.fileno(), b""
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        while len(parts) < count:
            if not waiting.poll(1000 * seconds):
                self.end()
                raise Died(f"openreg: the planner did not answer within {seconds:.0f} s")
            part = os.read(descriptor, count - len(parts))
            if not part:
                raise self._died()
            parts += part
        return parts

    def _died(self) -> Died:
        status = self.end()
        self.messages.seek(0)
        last = (self.messages.read().splitlines() or ["it printed nothing"])[-1]
        return Died(f"openreg: the planner ended with status {status}: {last}")

    def end(self) -> int:
        """End the process; return its exit status."""
        for pipe in (self.questions, self.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            return self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Client:
    """Asks a planner, which it starts with the first question. All methods are thread-safe."""

    def __init__(self, profiles: Sequence[str]) -> None:
        self.profiles = list(dict.fromkeys(profiles))
        self.counts: Counter[str] = Counter()
        self.sentences: dict[str, str] = {}  # the first one of each cause
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._deaths = 0
        self._fatal: set[bytes] = set()

    def ask(self, question: Question) -> Plan | None:
        """Ask for a plan; return None if there is none.

        `counts` counts the answers: ``plan``, ``error``, and the cause of each refusal.
        """
        packed: bytes = marshal.dumps(question)  # type: ignore[arg-type]
        with self._lock:
            answer = self._ask(packed)
            kind = answer[1] if answer[0] == "refused" else answer[0]
            self.counts[kind] += 1
            if answer[0] == "refused":
                self.sentences.setdefault(kind, answer[2])
        if answer[0] == "plan":
            outputs, events, changed = answer[1:]
            return Plan(tuple(map(_output, outputs)), tuple(events), tuple(changed))
        return Plan(error=answer[1:]) if answer[0] == "error" else None

    def refuse(self, cause: str, sentence: str) -> None:
        """Count a question that is not asked."""
        with self._lock:
            self.counts[cause] += 1
            self.sentences.setdefault(cause, sentence)

    def _ask(self, packed: bytes) -> Any:
        if self._process is not None and self._process.owner != os.getpid():
            self._process = None  # it belongs to the parent, which forked this process
        if self._deaths >= MAX_DEATHS or packed in self._fatal:
            return ("refused", "planner", "")
        try:
            if self._process is None:
                self._process = _Process(builds.find(), self.profiles)
        except (builds.NoBuild, Died, OSError) as error:
            self._deaths = MAX_DEATHS
            return ("refused", "planner", self._tell(str(error)))
        try:
            return self._process.ask(packed)
        except Died as error:
            self._process = None
            self._deaths += 1
            self._fatal.add(packed)
            name = marshal.loads(packed)[0]
            return ("refused", "planner", self._tell(f"{error}, at {name}"))

    def _tell(self, sentence: str) -> str:
        if "planner" not in self.sentences:
            print(f"{sentence}. Memory plans are incomplete.", file=sys.stderr)
        return sentence

    def end(self) -> None:
        """End the planner. The next question starts another."""
        with self._lock:
            if self._process is not None and self._process.owner == os.getpid():
                self._process.end()
            self._process = None
