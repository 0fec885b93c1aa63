"""A worker: runs the tasks of a subject in a process of its own, which may die of one of them.

It receives lists of tasks and sends a row for each. The first task it has not sent a row for when
it dies is what it died of.
"""

import faulthandler
import itertools
import os
import sys
import time
import warnings

from .plan import KEPT_DIFFERENCES, Row, dtype_of


def run_task(task, limit):
    """All cases of a task, or the first `limit` of them, in a row of the table."""
    from .catalogue import subjects
    from .checks import CHECKS
    from .comparison import first_line
    from .expected import EXPECTED, expectation

    row = Row(task.check, task.subject, task.dtype)
    started = time.monotonic()
    cases = CHECKS[task.check].cases(subjects()[task.subject], dtype_of(task.dtype))
    try:
        for label, difference in itertools.islice(cases, limit):
            row.cases += 1
            if difference is None:
                continue
            entry = expectation(task, label, difference)
            if entry is not None:
                row.expected += 1
                row.met = sorted({*row.met, EXPECTED.index(entry)})
                continue
            row.failed += 1
            if len(row.differences) < KEPT_DIFFERENCES:
                row.differences.append((label, difference))
    except Exception as error:  # of the runner or of a database: a failure, never silence
        row.cases += 1
        row.failed += 1
        row.differences.append(("making the cases", first_line(error)))
    row.seconds = time.monotonic() - started
    return row


def serve(connection, limit, said):
    """Run lists of tasks until None comes. `said` is the file for what the process says."""
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    faulthandler.enable()

    import torch
    from torch_openreg import _C

    from .comparison import QUEUE_EVERYTHING

    if QUEUE_EVERYTHING:
        _C.set_queues_everything(True)
    # One thread, so that both runs add up in the same order; and the same warnings every time.
    torch.set_num_threads(1)
    torch.set_warn_always(True)
    warnings.simplefilter("ignore")
    while (tasks := connection.recv()) is not None:
        for task in tasks:
            os.ftruncate(output, 0)
            connection.send(run_task(task, limit))
