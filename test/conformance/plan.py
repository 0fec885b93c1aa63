"""What is to be done, in order, and what came of it: the words between the runner and its workers.

Plain data throughout, so that it travels between processes and into a JSON file.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass, field

import torch

from .catalogue import Subject, subjects
from .checks import CHECKS

# A row remembers this many differences word by word; the others it counts.
KEPT_DIFFERENCES = 20


@dataclass(frozen=True)
class Task:
    """One check of one subject with one dtype."""

    check: str
    subject: str
    dtype: str


@dataclass
class Row:
    """What came of a task: how many cases there were, how many failed, how many were expected to.

    ``crash`` is what the process said that died on it; such a task counts as one failed case.
    ``unmet`` numbers the expected differences (by place in ``expected.EXPECTED``) that showed up.
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
    """The tasks of each dtype, in order: all checks of one dtype want the same samples."""
    tasks = defaultdict(list)
    for check in CHECKS.values():
        if check.kind == subject.kind and check.name in checks:
            for dtype in check.dtypes(subject.info):
                name = str(dtype).removeprefix("torch.")
                if not dtypes or name in dtypes:
                    tasks[name].append(Task(check.name, subject.name, name))
    return [tasks[name] for name in sorted(tasks)]


def part_of(items, part, parts):
    """What the part-th of so many parts is made of; parts count from 1."""
    return items[part - 1 :: parts]


def plan(*, checks=(), only=(), dtypes=(), part=1, parts=1):
    """The tasks of each subject, by its name, in the order of the databases.

    A part has one in so many of the pairs of subject and dtype, and so some dtypes of each subject.
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
