"""Runs a program in a rank, a fork of the zygote, as if ``python`` had been started with it.

There are two differences. The launcher prints an uncaught exception, because it knows whether the
exception was the first failure. And at exit the destructors of the libraries that the zygote loaded
do not run: they would copy memory that all ranks share, which takes longer than many tests. Python
itself shuts down as usual, and so do openreg and the libraries that the program loads.
"""

import builtins
import contextlib
import ctypes
import io
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from importlib.machinery import BuiltinImporter, SourceFileLoader
from typing import Any, NoReturn

_SAFE_PATH = getattr(sys.flags, "safe_path", False)


def _skip_destructors() -> None:
    """Skip what `exit` would do for the libraries that are loaded now, except for openreg's part.

    openreg must still leave the device group and its communicators, which other processes share.
    """
    libc = ctypes.CDLL(None)
    # `exit` calls these functions in reverse order: it flushes the files of C, openreg leaves, and
    # `_exit` ends the process with the status that `exit` passes to it.
    libc.on_exit(libc._exit, None)
    if extension := sys.modules.get("torch_openreg._C"):
        library = ctypes.CDLL(extension.__file__)
        libc.on_exit(library.openreg_leave_group, None)
        if hasattr(library, "openreg_comm_leave"):  # not in a PyTorch without torch.distributed
            libc.on_exit(library.openreg_comm_leave, None)
    libc.on_exit(libc.fcloseall, None)


def _show_arguments(arguments: list[str]) -> None:
    """Change the command line that `ps` shows, if it fits into the space of the original one."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    text = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
    if len(text) <= end - start:
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _reseed() -> None:
    """Seed the generators that the zygote seeded at random. `random` does so itself in a fork."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


def _forget_queries() -> None:
    """Let the rank use the devices, although a module of the zygote may have counted them."""
    if devices := sys.modules.get("torch_openreg.cuda.devices"):
        devices.forget_queries()


def _main_module(**attributes: Any) -> dict[str, Any]:
    """Replace the module ``__main__`` and return its namespace."""
    main = types.ModuleType("__main__")
    main.__dict__.update({"__builtins__": builtins, **attributes})
    if sys.version_info < (3, 14):
        main.__dict__["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main.__dict__


def _put_first(folder: str) -> None:
    if not _SAFE_PATH:
        sys.path.insert(0, folder)


def _module(arguments: list[str]) -> Callable[[], object]:
    _main_module(__loader__=BuiltinImporter)
    sys.argv[:] = ["-m", *arguments[2:]]
    _put_first(os.getcwd())
    # Python itself calls this function for -m. It replaces the first argument.
    return lambda: runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]


def _text(arguments: list[str]) -> Callable[[], object]:
    main = _main_module(__loader__=BuiltinImporter)
    sys.argv[:] = ["-c", *arguments[2:]]
    _put_first("")
    return lambda: exec(compile(arguments[1], "<string>", "exec", dont_inherit=True), main)


def _script(arguments: list[str]) -> Callable[[], object]:
    file = os.path.join(os.getcwd(), arguments[0])
    loader = SourceFileLoader("__main__", file)
    main = _main_module(__loader__=loader, __file__=file, __cached__=None)
    sys.argv[:] = arguments
    _put_first(os.path.dirname(os.path.realpath(file)))

    def execute() -> None:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec", dont_inherit=True)
        exec(code, main)

    return execute


def _launcher_gone(report: str) -> bool:
    return False


def _printed(error: BaseException) -> str:
    """Return what the program's `sys.excepthook` prints about an exception."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except Exception:
            traceback.print_exc()
            print("\nOriginal exception was:")
            sys.__excepthook__(type(error), error, error.__traceback__)
    return printed.getvalue()


def _end_with(error: BaseException, report: Callable[[str], bool]) -> NoReturn:
    """Report an exception and end the process as Python does."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    error.__traceback__ = frames
    printed = _printed(error)
    if not report(printed):
        sys.stderr.write(printed)
    if isinstance(error, KeyboardInterrupt):
        # Python ends by SIGINT after its shutdown.
        sys.excepthook = lambda *_: None
        raise error
    sys.exit(1)


def run(arguments: list[str], variables: Mapping[str, str], report: Callable[[str], bool]) -> None:
    """Run a program in this process, a fork of the zygote.

    Parameters
    ----------
    arguments
        The arguments of ``python``: a script, ``-m MODULE`` or ``-c TEXT``, and the arguments of
        the program.
    variables
        Environment variables to set.
    report
        Sends the text of an uncaught exception to the launcher; returns whether it was sent.
    """
    _skip_destructors()
    process = os.getpid()
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined] # otherwise the parent's
    os.environ.update(variables)
    _reseed()
    _forget_queries()
    sys.orig_argv[:] = [sys.executable, *arguments]
    _show_arguments(sys.orig_argv)
    prepare = {"-m": _module, "-c": _text}.get(arguments[0], _script)
    try:
        prepare(arguments)()
    except SystemExit:
        raise
    except BaseException as error:
        if os.getpid() != process:  # a fork that the program made
            report = _launcher_gone
        _end_with(error, report)
