"""Asks the planner, and starts it for the first question.

A question is ``(operator, arguments, keywords, settings, profile)``: the operator's name, such as
``aten::sort.stable``, and what ``signature.py`` describes. An answer is one of

- ``("plan", outputs, events, changed)``: see `Plan`;
- ``("error", type, text)``: what the operator raises on CUDA;
- ``("refused", cause, sentence)``.

The processes of a device group share a planner (``sharing.py``). A planner that dies is started
again, at most `MAX_DEATHS` times; the question that it died of is not asked again.

This module does not import PyTorch.
"""

import marshal
import os
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import builds
from .sharing import Died, Planner

MAX_DEATHS = 3

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
    True,
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


def _output(value: Any) -> Any:
    if isinstance(value, list):
        return [_output(each) for each in value]
    return PlannedOutput(*value[1:]) if isinstance(value, tuple) else value


class Client:
    """Asks a planner, which it starts with the first question. All methods are thread-safe."""

    def __init__(self, profiles: Sequence[str]) -> None:
        self.profiles = list(dict.fromkeys(profiles))
        self.counts: Counter[str] = Counter()
        self.sentences: dict[str, str] = {}  # the first one of each cause
        self._lock = threading.Lock()
        self._planner: Planner | None = None
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
        if self._planner is not None and self._planner.user != os.getpid():
            self._planner.leave()  # the parent, which forked this process, uses it
            self._planner = None
        while self._deaths < MAX_DEATHS and packed not in self._fatal:
            try:
                if self._planner is None:
                    self._planner = Planner(builds.find(), self.profiles)
            except (builds.NoBuild, Died, OSError) as error:
                self._deaths = MAX_DEATHS
                return ("refused", "planner", self._tell(str(error)))
            try:
                return self._planner.ask(packed)
            except Died as error:
                self._planner = None
                self._deaths += 1
                if error.worked_for_us:
                    self._fatal.add(packed)
                    name = marshal.loads(packed)[0]
                    return ("refused", "planner", self._tell(f"{error}, at {name}"))
                if self._deaths == MAX_DEATHS:
                    return ("refused", "planner", self._tell(str(error)))
        return ("refused", "planner", "")

    def _tell(self, sentence: str) -> str:
        if "planner" not in self.sentences:
            print(f"{sentence}. Memory plans are incomplete.", file=sys.stderr)
        return sentence

    def end(self) -> None:
        """Leave the planner. It ends if no other process uses it."""
        with self._lock:
            if self._planner is not None:
                self._planner.leave()
            self._planner = None
