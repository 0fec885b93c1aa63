"""The zygote: a process that imports PyTorch once. Every rank of a program is a fork of it.

A fork is in the state of a new Python that has just imported PyTorch: no device is initialized, no
thread pool has started, and each rank reads its variables on first use. A fork takes milliseconds
and shares the memory of everything that was imported.

The zygote also serves the ranks' store, as torchrun does. Its socket exists before the ranks do, so
no rank waits for another, and the port cannot be taken by another process.

`start` in ``__init__.py`` runs this file. Its arguments are the four fields of the job, then the
arguments of ``python``.
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
    """Import the modules of the package that are needed before PyTorch, without the package.

    The package itself would import PyTorch. The modules are removed from `sys.modules`, so that the
    ranks find there only what ``import torch`` leaves.
    """
    package = types.ModuleType("torch_openreg")
    package.__path__ = [str(Path(__file__).parents[2])]
    sys.modules["torch_openreg"] = package
    from torch_openreg.commands import preflight, signals
    from torch_openreg.commands.ranks import launcher, preload, program
    from torch_openreg.dry.report import output

    for name in [name for name in sys.modules if name.split(".")[0] == "torch_openreg"]:
        del sys.modules[name]
    return preflight, signals, launcher, preload, program, output


if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # the folder of this file
preflight, signals, launcher, preload, program, report = _import_before_pytorch()


def _end_by_signals() -> None:
    """End by a pending signal, as a process does that does not handle it."""
    for number in signal.sigpending() - {signal.SIGCHLD}:
        signals.end_by(number)


def _import_pytorch(arguments: list[str], count: int) -> None:
    """Import PyTorch and what the program will need of it; exit if there would be no devices."""
    try:
        import torch  # noqa: F401

        preload.preload(arguments, count)
    finally:
        # If the import fails, this may know the reason.
        preflight.require_devices_of_forks()


def _serve_store(listener: socket.socket) -> object:
    """Serve the store of the ranks for as long as the result lives."""
    from torch import distributed

    if not distributed.is_available():
        return None
    host, port = listener.getsockname()
    return distributed.TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def main() -> None:
    """Start the ranks; in one of them, run the program."""
    count, prefix, grace, represented, *arguments = sys.argv[1:]
    mask = signals.block_signals()
    _import_pytorch(arguments, int(count))
    _end_by_signals()
    gc.collect()
    gc.freeze()  # the ranks' collections then skip the shared objects
    report.open_folder(os.environ)
    job = launcher.Job(int(count), prefix == "True", float(grace), represented)
    ranks = launcher.Ranks(job, mask, lambda: report.collect(job.size, os.environ))
    with warnings.catch_warnings():
        # Python warns about threads: numpy's pool, with OMP_NUM_THREADS. numpy restarts it in a
        # fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        rank = ranks.start(serves_store=True)
    if rank is not None:
        program.run(arguments, ranks.variables, ranks.report)
        return
    store = _serve_store(ranks.listener)
    status = ranks.wait()
    del store
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
