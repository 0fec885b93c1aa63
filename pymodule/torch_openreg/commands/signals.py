"""Signals of a process that stands over others: it gets them, and sends them on."""

import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from typing import NoReturn

FORWARDED = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_HANDLED = FORWARDED | {signal.SIGCHLD}

_PR_SET_PDEATHSIG = 1
_SI_KERNEL = 0x80  # whence a signal comes: not from a process, but from a key or a lost terminal
_SIGINFO_BYTES = 128  # struct signalfd_siginfo, which begins with number, errno and code
_SIGSET_BYTES = 128  # sigset_t

_libc = ctypes.CDLL(None, use_errno=True)


def block_signals() -> set[int]:
    """Have signals wait for `open_signals`, and return the mask that there was.

    It is the one for processes that are started. To be called before the process has other threads,
    to which a signal would go instead.
    """
    return signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


def open_signals() -> int:
    """Return a file from which the blocked signals can be read."""
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    _libc.sigemptyset(mask)
    for number in _HANDLED:
        _libc.sigaddset(mask, int(number))
    file = _libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return file


def read_signals(file: int) -> Iterator[tuple[int, bool]]:
    """Return those that have come, and of each whether a process sent it.

    One of the terminal, as by Ctrl-C, goes to the whole foreground group: to those that were
    started as well.
    """
    while True:
        try:
            info = os.read(file, _SIGINFO_BYTES)
        except BlockingIOError:
            return
        number, _, code = struct.unpack_from("=IiI", info)
        yield number, code != _SI_KERNEL


def die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies, if it has not already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def restore_signals(mask: set[int]) -> None:
    """Handle signals no longer, when those that they were for have ended."""
    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_by(number: int) -> NoReturn:
    """End as by a signal that nobody handles, or ignores."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    raise AssertionError
