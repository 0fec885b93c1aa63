"""The process that stands over the ranks of a job: it starts them, and waits for the last to end.

- The first rank that fails (`failures`) ends the job: the others get SIGTERM, and SIGKILL when the
  grace is over.
- A signal that is sent to this process is sent on to the ranks (`signals`).
- If it is killed, the system kills the ranks.

Nothing here needs PyTorch. There is one thread and one wait: for signals (a signalfd), reports of
exceptions (a socket) and, with prefixes, output (`output`).
"""

import os
import selectors
import signal
import socket
import sys
import time
import uuid
from typing import NamedTuple

from ..signals import die_with, end_by, open_signals, read_signals, restore_signals
from .failures import Failures
from .output import Output

_REPORT_BYTES = 64 << 10  # a message that the socket's buffer has room for


class Job(NamedTuple):
    """What is asked for."""

    size: int  # how many ranks
    prefix: bool  # lines of output say which rank they are from
    grace: float  # seconds from SIGTERM to SIGKILL


class Ranks:
    """The ranks of a job, forks of this process.

    Parameters
    ----------
    job
        What is asked for.
    mask
        The signals that are blocked in the ranks.
    """

    def __init__(self, job: Job, mask: set[int]) -> None:
        self._job, self._mask = job, mask
        self._run = uuid.uuid4().hex
        self._processes: dict[int, int] = {}  # those that run, and their ranks
        self._failures = Failures(job.size)
        self._signals: set[int] = set()  # those that came for this process
        self.variables: dict[str, str] = {}  # in a rank: what torchrun sets
        self._deadline: float | None = None
        self._selector = selectors.PollSelector()  # regular files, too, may be output
        self._signal_file = open_signals()
        self._reports, self._report = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reports.setblocking(False)
        self._output = Output(self._selector) if job.prefix else None
        # Where the ranks find their store. Who connects before it is served, waits.
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)

    # ---- a rank ------------------------------------------------------------------------------

    def start(self, *, serves_store: bool) -> int | None:
        """Fork; returns its number in each rank, and None in the one that is to `wait`.

        If this process is not the one that serves the store, rank 0 will be: it finds the port
        free.
        """
        self._port = self.listener.getsockname()[1]
        self._serves_store = serves_store
        if not serves_store:
            self.listener.close()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        for rank in range(self._job.size):
            pipes = self._output.open() if self._output else None
            process = os.fork()
            if process == 0:
                die_with(parent)
                if self._output and pipes:
                    self._output.become(pipes)
                self._become(rank)
                return rank
            self._processes[process] = rank
            if self._output and pipes:
                self._output.add(rank, pipes)
        self._report.close()
        return None

    def _become(self, rank: int) -> None:
        """Let this process, a fork, be a rank; nothing of the other remains but the report."""
        self._selector.close()
        self._reports.close()
        self.listener.close()
        os.close(self._signal_file)
        if rank != 0:
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            if null != 0:
                os.close(null)
        self.variables = self._variables(rank)
        self._number = rank
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _variables(self, rank: int) -> dict[str, str]:
        """Return what torchrun sets."""
        count = str(self._job.size)
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "ROLE_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": count,
            "LOCAL_WORLD_SIZE": count,
            "ROLE_WORLD_SIZE": count,
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._port),
            "TORCHELASTIC_RUN_ID": self._run,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": str(self._serves_store),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }

    def report(self, text: str) -> bool:
        """In a rank: say what is printed about an exception that nobody caught.

        Returns whether it was said, so that the launcher will print it.
        """
        message = text.encode(errors="replace")
        half = _REPORT_BYTES // 2
        if len(message) > _REPORT_BYTES:
            message = b"%b\n...\n%b" % (message[:half], message[-half:])
        try:
            self._report.send(b"%d %b" % (self._number, message))
        except OSError:  # the program closed it
            return False
        return True

    # ---- the launcher ------------------------------------------------------------------------

    def wait(self) -> int:
        """Wait for all ranks, tell of a failure, and return the exit status.

        Does not return, but ends as the ranks did, if they were ended by a signal that was sent on.
        """
        for file in (self._signal_file, self._reports):
            self._selector.register(file, selectors.EVENT_READ, self._look)
        while self._processes:
            left = None if self._deadline is None else max(0, self._deadline - time.monotonic())
            for key, _ in self._selector.select(left):
                key.data()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._deadline = None
                self._send(signal.SIGKILL, self._processes)
        self._look()
        restore_signals(self._mask)
        if self._output:
            self._output.finish()
        return self._end()

    def _look(self) -> None:
        """Handle all that is there: what came at once is judged together."""
        for number, is_sent in read_signals(self._signal_file):
            if number == signal.SIGCHLD:
                continue
            self._signals.add(number)
            if is_sent:
                self._send(number, self._processes)
        self._reap()
        self._read_reports()
        if self._failures.judge():
            self._deadline = time.monotonic() + self._job.grace
            others = {
                process: rank
                for process, rank in self._processes.items()
                if rank != self._failures.first
            }
            # Whoever was told to end is doing so already.
            if not self._signals & {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}:
                self._send(signal.SIGTERM, others)

    def _reap(self) -> None:
        for process, rank in list(self._processes.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._failures.exited(rank, os.waitstatus_to_exitcode(status))
                del self._processes[process]

    def _read_reports(self) -> None:
        while True:
            try:
                message = self._reports.recv(2 * _REPORT_BYTES)
            except BlockingIOError:
                return
            if not message:  # all ranks have closed it
                if self._reports in self._selector.get_map():
                    self._selector.unregister(self._reports)
                return
            rank, _, text = message.partition(b" ")
            self._failures.raised(int(rank), text.decode(errors="replace"))

    def _send(self, number: int, processes: dict[int, int]) -> None:
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._failures.told_to_end(processes.values())
        for process in processes:
            os.kill(process, number)

    def _end(self) -> int:
        status = self._failures.status()
        asked_for = -status in self._signals
        if not asked_for or self._failures.first_is_told:
            sys.stderr.write(self._failures.sentences())
            sys.stderr.flush()
        if asked_for and -status != signal.SIGQUIT:  # which would leave a core of this process
            end_by(-status)
        return status if status >= 0 else 128 - status
