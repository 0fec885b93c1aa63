"""Signal handling for a process that forwards its signals to its children."""

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
_SI_KERNEL = 0x80  # si_code of a signal from a key or a closed terminal, not from a process
_SIGINFO_BYTES = 128  # struct signalfd_siginfo, which begins with number, errno and code
_SIGSET_BYTES = 128  # sigset_t

_libc = ctypes.CDLL(None, use_errno=True)


def block_signals() -> set[int]:
    """Block the signals that `open_signals` reads, and return the previous mask.

    Child processes must restore that mask. Call this before the process has other threads: the
    system would deliver signals to them instead.
    """
    return signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)


def open_signals() -> int:
    """Return a file descriptor from which the blocked signals can be read."""
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    _libc.sigemptyset(mask)
    for number in _HANDLED:
        _libc.sigaddset(mask, int(number))
    file = _libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return file


def read_signals(file: int) -> Iterator[tuple[int, bool]]:
    """Yield the pending signals, and for each whether a process sent it.

    A signal of the terminal, such as Ctrl-C, needs no forwarding: it reaches the whole foreground
    process group, which includes the children.
    """
    while True:
        try:
            info = os.read(file, _SIGINFO_BYTES)
        except BlockingIOError:
            return
        number, _, code = struct.unpack_from("=IiI", info)
        yield number, code != _SI_KERNEL


def die_with(parent: int) -> None:
    """Ask the system to kill this process when its parent dies, or end now if it has died."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def restore_signals(mask: set[int]) -> None:
    """Restore the default handling of signals, after the children have ended."""
    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_by(number: int) -> NoReturn:
    """End this process by a signal, as if it were neither handled nor ignored."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    raise AssertionError
