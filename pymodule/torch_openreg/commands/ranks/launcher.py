"""The launcher: it starts the ranks of a job and waits until the last one has ended.

- The first rank that fails (`failures`) ends the job: the launcher sends the others SIGTERM, and
  SIGKILL after the grace period.
- The launcher forwards the signals that other processes send it (`signals`).
- If the launcher is killed, the system kills the ranks.

This module does not need PyTorch. One thread waits in one place: for signals (a signalfd), reports
of exceptions (a socket) and, with prefixes, output (`output`).
"""

import os
import selectors
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from typing import NamedTuple

from ..signals import die_with, end_by, open_signals, read_signals, restore_signals
from .failures import Failures
from .output import Output

_REPORT_BYTES = 64 << 10  # the largest report; it fits the buffer of the socket


class Job(NamedTuple):
    """The options of a job."""

    size: int  # number of ranks
    prefix: bool  # whether lines of output start with the rank
    grace: float  # seconds from SIGTERM to SIGKILL
    represented: str  # ranks to run, such as "0,7", which stand for the others; "": all ranks run

    @property
    def running(self) -> list[int]:
        """The ranks that run."""
        return [int(rank) for rank in self.represented.split(",") if rank] or list(range(self.size))


class Ranks:
    """The ranks of a job, forks of this process.

    Parameters
    ----------
    job
        The options of the job.
    mask
        The signal mask of the ranks.
    at_end
        Called in the launcher when the last rank has ended and its failure was printed.
    """

    def __init__(
        self, job: Job, mask: set[int], at_end: Callable[[], object] = lambda: None
    ) -> None:
        self._job, self._mask, self._at_end = job, mask, at_end
        self._run = uuid.uuid4().hex
        self._processes: dict[int, int] = {}  # running processes, with their ranks
        self._failures = Failures(job.size)
        self._signals: set[int] = set()  # signals that this process received
        self.variables: dict[str, str] = {}  # in a rank: the variables that torchrun sets
        self._deadline: float | None = None
        # Unlike epoll, poll accepts regular files, which may be the output.
        self._selector = selectors.PollSelector()
        self._signal_file = open_signals()
        self._reports, self._report = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reports.setblocking(False)
        self._output = Output(self._selector) if job.prefix else None
        # The address of the ranks' store. Ranks that connect before it is served wait.
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)

    # ---- a rank ------------------------------------------------------------------------------

    def start(self, *, serves_store: bool) -> int | None:
        """Fork the ranks.

        Parameters
        ----------
        serves_store
            Whether this process will serve the store of the ranks. Otherwise rank 0 does, and the
            port is left free for it.

        Returns
        -------
        int or None
            The rank in each rank; None in the launcher, which then calls `wait`.
        """
        self._port = self.listener.getsockname()[1]
        self._serves_store = serves_store
        if not serves_store:
            self.listener.close()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        for rank in self._job.running:
            pipes = self._output.open() if self._output else None
            process = os.fork()
            if process == 0:
                die_with(parent)
                if self._output and pipes:
                    self._output.redirect(pipes)
                self._become_rank(rank)
                return rank
            self._processes[process] = rank
            if self._output and pipes:
                self._output.add(rank, pipes)
        self._report.close()
        return None

    def _become_rank(self, rank: int) -> None:
        """Turn this process, a fork of the launcher, into a rank. Only the report socket stays."""
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
        """Return the variables that torchrun sets."""
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
        """In a rank: send the traceback of an uncaught exception to the launcher.

        Returns
        -------
        bool
            Whether it was sent. If so, the launcher prints it.
        """
        message = text.encode(errors="replace")
        half = _REPORT_BYTES // 2
        if len(message) > _REPORT_BYTES:
            message = b"%b\n...\n%b" % (message[:half], message[-half:])
        try:
            self._report.send(b"%d %b" % (self._number, message))
        except OSError:  # the program closed the socket
            return False
        return True

    # ---- the launcher ------------------------------------------------------------------------

    def wait(self) -> int:
        """Wait for all ranks, report a failure, and return the exit status.

        If a forwarded signal ended the ranks, this process ends by the same signal instead.
        """
        for file in (self._signal_file, self._reports):
            self._selector.register(file, selectors.EVENT_READ, self._handle_events)
        while self._processes:
            left = None if self._deadline is None else max(0, self._deadline - time.monotonic())
            for key, _ in self._selector.select(left):
                key.data()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._deadline = None
                self._send(signal.SIGKILL, self._processes)
        self._handle_events()
        restore_signals(self._mask)
        if self._output:
            self._output.finish()
        return self._end()

    def _handle_events(self) -> None:
        """Handle everything that has arrived; events that arrive together are judged together."""
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
            # After one of these signals the ranks are ending already.
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
            if not message:  # all ranks have closed the socket
                if self._reports in self._selector.get_map():
                    self._selector.unregister(self._reports)
                return
            rank, _, text = message.partition(b" ")
            self._failures.raised(int(rank), text.decode(errors="replace"))

    def _send(self, number: int, processes: dict[int, int]) -> None:
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._failures.terminated(processes.values())
        for process in processes:
            os.kill(process, number)

    def _end(self) -> int:
        status = self._failures.status()
        was_requested = -status in self._signals
        if not was_requested or self._failures.first_has_report:
            sys.stderr.write(self._failures.sentences())
            sys.stderr.flush()
        self._at_end()
        # SIGQUIT would leave a core dump of this process.
        if was_requested and -status != signal.SIGQUIT:
            end_by(-status)
        return status if status >= 0 else 128 - status
