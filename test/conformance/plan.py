"""What is to be done, in order, and what came of it: the words between the runner and its workers.

Plain data throughout, so that it travels between processes and into a JSON file.
"""

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
    """Sorted by dtype, since all checks of one dtype want the same samples."""
    tasks = []
    for check in CHECKS.values():
        if check.kind == subject.kind and check.name in checks:
            names = [str(dtype).removeprefix("torch.") for dtype in check.dtypes(subject.info)]
            tasks += [
                Task(check.name, subject.name, name)
                for name in names
                if not dtypes or name in dtypes
            ]
    return sorted(tasks, key=lambda task: task.dtype)


def part_of(names, part, parts):
    """The names that the part-th of so many parts is made of; parts count from 1."""
    return [name for i, name in enumerate(names) if i % parts == part - 1]


def plan(*, checks=(), only=(), dtypes=(), part=1, parts=1):
    """The tasks of each subject, by its name, in the order of the databases."""
    named = subjects()
    missing = sorted(set(only) - {n for n in named} - {s.info.name for s in named.values()})
    if missing:
        raise ValueError(f"no operator, module or optimizer is called {', '.join(missing)}")
    chosen = [
        name for name, subject in named.items() if not only or {name, subject.info.name} & set(only)
    ]
    tasks = {
        name: _tasks_of(named[name], checks or CHECKS, dtypes)
        for name in part_of(chosen, part, parts)
    }
    return {name: listed for name, listed in tasks.items() if listed}
