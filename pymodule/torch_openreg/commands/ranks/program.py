"""A rank, a fork of the template, becomes a program: as if `python` were started with its words.

Two things are otherwise. An exception that nobody catches is printed by the launcher, which knows
whether it was the first. And at the end the system takes back as it is what was loaded before the
fork: destructors of PyTorch's libraries would copy memory that all ranks share, and take longer
than many a test. Python itself ends as ever, and so do openreg and what the program has loaded.
"""

import builtins
import contextlib
import ctypes
import io
import itertools
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


class _LinkMap(ctypes.Structure):
    """How the dynamic linker describes a library: the public beginning of struct link_map."""

    _fields_ = [
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dynamic", ctypes.POINTER(ctypes.c_size_t * 2)),  # pairs of tag and value
    ]


_RTLD_DI_LINKMAP = 2
_DT_NULL, _DT_FINI_ARRAY, _DT_FINI_ARRAYSZ = 0, 26, 28


def _destructors(library: ctypes.CDLL) -> list[int]:
    """Return the addresses of a library's destructors, of which the system calls the last first."""
    found = ctypes.POINTER(_LinkMap)()
    handle = ctypes.c_void_p(library._handle)
    if ctypes.CDLL(None).dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(found)) != 0:
        raise OSError(f"openreg: dlinfo does not know {library._name}")
    entries: dict[int, int] = {}
    for index in itertools.count():
        tag, value = found.contents.dynamic[index]
        if tag == _DT_NULL:
            break
        entries[tag] = value
    count = entries.get(_DT_FINI_ARRAYSZ, 0) // ctypes.sizeof(ctypes.c_size_t)
    start = found.contents.base + entries.get(_DT_FINI_ARRAY, 0)
    return list((ctypes.c_size_t * count).from_address(start)) if count else []


def _end_without_destructors() -> None:
    """Have what `exit` would do for the libraries that are loaded now not be done, but for ours.

    By that a process leaves those with which it shares devices.
    """
    libc = ctypes.CDLL(None)
    # They are called in the reverse order. The first and so the last one ends the process, with
    # the status that is handed to it; the last one flushes files of C.
    libc.on_exit(libc._exit, None)
    if extension := sys.modules.get("torch_openreg._C"):
        for address in _destructors(ctypes.CDLL(extension.__file__)):
            libc.on_exit(ctypes.c_void_p(address), None)
    libc.on_exit(libc.fcloseall, None)


def _show_words(words: list[str]) -> None:
    """Let the system show other words for this process: no more bytes than it was started with."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(text) <= end - start:
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _draw_other_random_numbers() -> None:
    """Seed what was seeded by chance when it was imported; `random` does so in a fork itself."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


def _main_module(**attributes: Any) -> dict[str, Any]:
    """Replace ``__main__``, and return what is in it."""
    main = types.ModuleType("__main__")
    main.__dict__.update({"__builtins__": builtins, **attributes})
    if sys.version_info < (3, 14):
        main.__dict__["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main.__dict__


def _put_first(folder: str) -> None:
    if not _SAFE_PATH:
        sys.path.insert(0, folder)


def _module(words: list[str]) -> Callable[[], object]:
    _main_module(__loader__=BuiltinImporter)
    sys.argv[:] = ["-m", *words[2:]]
    _put_first(os.getcwd())
    # What Python itself calls for -m; it replaces the first argument.
    return lambda: runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]


def _text(words: list[str]) -> Callable[[], object]:
    main = _main_module(__loader__=BuiltinImporter)
    sys.argv[:] = ["-c", *words[2:]]
    _put_first("")
    return lambda: exec(compile(words[1], "<string>", "exec", dont_inherit=True), main)


def _script(words: list[str]) -> Callable[[], object]:
    file = os.path.join(os.getcwd(), words[0])
    loader = SourceFileLoader("__main__", file)
    main = _main_module(__loader__=loader, __file__=file, __cached__=None)
    sys.argv[:] = words
    _put_first(os.path.dirname(os.path.realpath(file)))

    def run() -> None:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec", dont_inherit=True)
        exec(code, main)

    return run


def _nobody_hears(report: str) -> bool:
    return False


def _printed(error: BaseException) -> str:
    """Return what the program's hook prints about an exception."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except Exception:
            traceback.print_exc()
            print("\nOriginal exception was:")
            sys.__excepthook__(type(error), error, error.__traceback__)
    return printed.getvalue()


def _end_by(error: BaseException, report: Callable[[str], bool]) -> NoReturn:
    """Tell of an exception, and end as Python does."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    error.__traceback__ = frames
    printed = _printed(error)
    if not report(printed):
        sys.stderr.write(printed)
    if isinstance(error, KeyboardInterrupt):
        # Python ends itself by the signal, when it has put everything away.
        sys.excepthook = lambda *_: None
        raise error
    sys.exit(1)


def become(words: list[str], variables: Mapping[str, str], report: Callable[[str], bool]) -> None:
    """Run a program in place of what this process, a fork, was.

    Parameters
    ----------
    words
        Those behind ``python``: a script, or ``-m`` or ``-c`` and what follows, and arguments.
    variables
        What is set in its environment.
    report
        Says what is printed about an exception that nobody caught; returns whether it was heard.
    """
    _end_without_destructors()
    process = os.getpid()
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined] # else the parent's
    os.environ.update(variables)
    _draw_other_random_numbers()
    sys.orig_argv[:] = [sys.executable, *words]
    _show_words(sys.orig_argv)
    prepare = {"-m": _module, "-c": _text}.get(words[0], _script)
    try:
        prepare(words)()
    except SystemExit:
        raise
    except BaseException as error:
        if os.getpid() != process:  # a fork of the program's own
            report = _nobody_hears
        _end_by(error, report)
