"""The tasks of a run in order, and their results. The runner and its workers exchange them.

Both are plain data that can be sent between processes and written to a JSON file.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass, field

import torch

from .catalogue import Subject, subjects
from .checks import CHECKS

# A row keeps the text of this many differences, and counts the others.
KEPT_DIFFERENCES = 20


@dataclass(frozen=True)
class Task:
    """One check of one subject with one dtype."""

    check: str
    subject: str
    dtype: str


@dataclass
class Row:
    """The result of a task: its cases, how many failed, and how many were expected to fail.

    ``crash`` is the output of a process that died during the task, which counts as one failed case.
    ``met`` has the indices in ``expected.EXPECTED`` of the expected differences that occurred.
    """

    check: str
    subject: str
    dtype: str
    cases: int = 0
    failed: int = 0
    expected: int = 0
    differences: list[tuple[str, str]] = field(default_factory=list)
    met: list[int] = field(default_factory=list)
    crash: str = ""
    seconds: float = 0.0

    def as_dict(self):
        return asdict(self)


def dtype_of(name):
    return getattr(torch, name)


def _tasks_of(subject: Subject, checks, dtypes):
    """Return the tasks of each dtype in order: all checks of one dtype use the same samples."""
    tasks = defaultdict(list)
    for check in CHECKS.values():
        if check.kind == subject.kind and check.name in checks:
            for dtype in check.dtypes(subject.info):
                name = str(dtype).removeprefix("torch.")
                if not dtypes or name in dtypes:
                    tasks[name].append(Task(check.name, subject.name, name))
    return [tasks[name] for name in sorted(tasks)]


def part_of(items, part, parts):
    """Return the tasks of one of several parts. Parts count from 1."""
    return items[part - 1 :: parts]


def plan(*, checks=(), only=(), dtypes=(), part=1, parts=1):
    """Return the tasks of each subject by its name, in the order of the databases.

    A part has every ``parts``-th pair of subject and dtype, and so some dtypes of each subject.
    """
    named = subjects()
    missing = sorted(set(only) - {n for n in named} - {s.info.name for s in named.values()})
    if missing:
        raise ValueError(f"no operator, module or optimizer is called {', '.join(missing)}")
    pairs = [
        tasks
        for name, subject in named.items()
        if not only or {name, subject.info.name} & set(only)
        for tasks in _tasks_of(subject, checks or CHECKS, dtypes)
    ]
    planned = defaultdict(list)
    for tasks in part_of(pairs, part, parts):
        planned[tasks[0].subject] += tasks
    return dict(planned)
