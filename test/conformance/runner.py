"""The runner: gives subjects to worker processes, collects rows, and survives crashes of workers.

If a worker dies, or sends nothing for too long, only its current task fails. The row of that task
has the last output of the process, and a new worker continues with the next task.
"""

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections import deque
from multiprocessing.connection import wait

from .plan import Row
from .worker import serve

# The longest task of a run without crashes takes about a minute.
SILENCE = 600


class _Worker:
    """A worker process, its tasks and its output."""

    def __init__(self, serve, limit, said):
        self._said = said
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, limit, said), daemon=True)
        self.process.start()
        theirs.close()
        self.tasks = deque()
        self.heard = time.monotonic()

    def give(self, tasks):
        self.tasks = deque(tasks)
        self.heard = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it is dead, and the next receive fails
            self.connection.send(list(tasks))

    def last_words(self):
        """Return how the process died, and the first lines that it printed during its last task."""
        self.process.join(timeout=60)
        code = self.process.exitcode
        died = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        with open(self._said, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return f"{died}: {' | '.join(lines[:6])[:600]}"

    def stop(self):
        self.process.kill()
        self.process.join()
        self.connection.close()


class Runner:
    """Runs the tasks of a plan.

    Parameters
    ----------
    jobs : int
        Number of worker processes.
    limit : int or None
        Number of cases of each task; None for all.
    report : callable
        Called with each row as soon as it is complete.
    silence : float
        Seconds after which a worker that sends nothing is stopped.
    serve : callable
        The main function of a worker.
    """

    def __init__(
        self,
        *,
        jobs,
        limit=None,
        report=lambda row: None,
        silence=SILENCE,
        serve=serve,
    ):
        self._jobs = jobs
        self._limit = limit
        self._silence = silence
        self._serve = serve
        self._report = report
        self._started = 0

    def run(self, plan):
        """Run all tasks of a plan and return their rows, in the order of the plan."""
        waiting = deque(plan.values())
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            workers = [self._start(folder) for _ in range(min(self._jobs, len(waiting)))]
            try:
                for worker in workers:
                    self._feed(worker, waiting)
                while any(worker.tasks for worker in workers):
                    self._step(workers, waiting, rows, folder)
            finally:
                for worker in workers:
                    worker.stop()
        order = {name: i for i, name in enumerate(plan)}
        rows.sort(key=lambda row: order[row.subject])
        return rows

    def _start(self, folder):
        self._started += 1
        return _Worker(self._serve, self._limit, os.path.join(folder, str(self._started)))

    def _feed(self, worker, waiting):
        if waiting:
            worker.give(waiting.popleft())

    def _step(self, workers, waiting, rows, folder):
        busy = {worker.connection: worker for worker in workers if worker.tasks}
        for connection in wait(list(busy), timeout=min(10, self._silence)):
            worker = busy[connection]
            try:
                row = connection.recv()
            except (EOFError, ConnectionResetError):
                self._replace(worker, workers, waiting, rows, folder, worker.last_words())
                continue
            worker.heard = time.monotonic()
            worker.tasks.popleft()
            self._add(rows, row)
            if not worker.tasks:
                self._feed(worker, waiting)
        for worker in list(busy.values()):
            if worker.tasks and time.monotonic() - worker.heard > self._silence:
                words = f"sent nothing for {self._silence} s"
                self._replace(worker, workers, waiting, rows, folder, words)

    def _replace(self, worker, workers, waiting, rows, folder, words):
        worker.stop()
        task, *others = worker.tasks
        row = Row(task.check, task.subject, task.dtype, cases=1, failed=1, crash=words)
        self._add(rows, row)
        fresh = self._start(folder)
        workers[workers.index(worker)] = fresh
        if others:
            fresh.give(others)
        else:
            self._feed(fresh, waiting)

    def _add(self, rows, row):
        rows.append(row)
        self._report(row)
