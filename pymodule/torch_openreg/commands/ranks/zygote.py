"""The process that imports PyTorch once, and of which every rank of a program is a fork.

A fork is what a fresh Python would be that has imported PyTorch: no device is used, no pool of
threads has started, and each rank reads its variables on first use. A fork takes milliseconds, and
shares the memory of all that was imported.

The template also serves the ranks' store, as torchrun does. Its socket is there before the ranks
are: none has to wait for another, and the port is no guess.

Run as a file, with three words for itself, which `start` in ``__init__.py`` gives it, and those of
the program.
"""

import gc
import os
import signal
import socket
import sys
import types
import warnings
from pathlib import Path


def _import_before_pytorch() -> tuple[types.ModuleType, ...]:
    """Import modules of the package that are needed before PyTorch is, which the package imports.

    They are not found in `sys.modules` afterwards: the ranks have what `import torch` leaves there.
    """
    package = types.ModuleType("torch_openreg")
    package.__path__ = [str(Path(__file__).parents[2])]
    sys.modules["torch_openreg"] = package
    from torch_openreg.commands import preflight, signals
    from torch_openreg.commands.ranks import launcher, preload, program

    for name in [name for name in sys.modules if name.split(".")[0] == "torch_openreg"]:
        del sys.modules[name]
    return preflight, signals, launcher, preload, program


if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # the folder of this file
preflight, signals, launcher, preload, program = _import_before_pytorch()


def _end_by_signals() -> None:
    """End by a signal that came until now, as a process does that does not handle it."""
    for number in signal.sigpending() - {signal.SIGCHLD}:
        signals.end_by(number)


def _import_pytorch(words: list[str], count: int) -> None:
    """Import it, and what the program will need of it; exit if the devices would not be there."""
    try:
        import torch  # noqa: F401

        preload.preload(words, count)
    finally:
        preflight.require_devices_of_forks()  # who knows why, if it cannot be imported


def _serve_store(listener: socket.socket) -> object:
    """Serve the store that ranks look for; it is served as long as the result lives."""
    from torch import distributed

    if not distributed.is_available():
        return None
    host, port = listener.getsockname()
    return distributed.TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def main() -> None:
    """Start the ranks; in one of them, run the program."""
    count, prefix, grace, *words = sys.argv[1:]
    mask = signals.block_signals()
    _import_pytorch(words, int(count))
    _end_by_signals()
    gc.collect()
    gc.freeze()  # what is garbage in a rank is looked for among its own objects
    ranks = launcher.Ranks(launcher.Job(int(count), prefix == "True", float(grace)), mask)
    with warnings.catch_warnings():
        # A library's pool of threads, which it restarts in a fork: numpy's, with OMP_NUM_THREADS.
        warnings.simplefilter("ignore", DeprecationWarning)
        rank = ranks.start(serves_store=True)
    if rank is not None:
        program.become(words, ranks.variables, ranks.report)
        return
    store = _serve_store(ranks.listener)
    status = ranks.wait()
    del store
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
