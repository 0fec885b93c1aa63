"""Finds PyTorch and the extension module, and checks the files before anything is loaded.

The loader checks little. A library that is shorter than its header says ends the process with
SIGBUS, and one for another processor is reported as missing. So `extension` checks both.

PYTEST_DONT_REWRITE: CUDA mode imports this module before pytest could rewrite its assertions.
"""

import glob
import importlib.machinery
import importlib.util
import os
import runpy
import struct
import sys

# ELF headers of 64 bits: elf(5).
_MAGIC = b"\x7fELF\x02"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB = 1, 5
# The number of a processor in the header, by its name in uname(2).
_MACHINES = {"x86_64": 62, "aarch64": 183}


def folder_of(package: str) -> str | None:
    """Return the folder of a package, or None if it is not installed."""
    if package in sys.modules:  # perhaps without a spec: see _openreg_command
        folders = list(sys.modules[package].__path__)
    else:
        found = importlib.util.find_spec(package)
        folders = list(found.submodule_search_locations or ()) if found is not None else []
    return folders[0] if folders else None


def torch_version(torch_folder: str) -> str:
    """Return the version of the PyTorch in a folder."""
    try:
        return str(runpy.run_path(os.path.join(torch_folder, "version.py"))["__version__"])
    except Exception as error:
        reason = getattr(error, "strerror", None) or repr(error)
        raise ImportError(
            f"openreg: the PyTorch in {torch_folder} is incomplete: version.py: {reason}: "
            "reinstall torch"
        ) from error


def damage(library: str) -> str | None:
    """Return why a shared library cannot be loaded here, or None if its header has no error."""
    size = os.path.getsize(library)
    with open(library, "rb") as file:
        start = file.read(_HEADER.size)
        if not start.startswith(_MAGIC) or len(start) < _HEADER.size:
            return f"is not a shared library of 64 bits ({size} bytes)"
        _, _, machine, _, _, segments, _, _, _, entry_size, count, _, _, _ = _HEADER.unpack(start)
        here = os.uname().machine
        if machine != _MACHINES.get(here, machine):
            names = {number: name for name, number in _MACHINES.items()}
            return f"is for the processor {names.get(machine, machine)}, and this machine is {here}"
        file.seek(segments)
        table = file.read(entry_size * count)
    needed = segments + entry_size * count
    if entry_size == _SEGMENT.size and len(table) == entry_size * count:
        for kind, _, offset, _, _, bytes_in_file, _, _ in _SEGMENT.iter_unpack(table):
            if kind == _PT_LOAD:
                needed = max(needed, offset + bytes_in_file)
    if needed > size:
        return f"is truncated: it has {size} bytes of at least {needed}"
    return None


def needed_libraries(path: str) -> list[str]:
    """Return the names of the libraries that a library needs; none for other files."""
    with open(path, "rb") as file:

        def read(offset: int, count: int) -> bytes:
            file.seek(offset)
            return file.read(count)

        header = read(0, _HEADER.size)
        if not header.startswith(_MAGIC) or len(header) < _HEADER.size:
            return []
        _, _, _, _, _, segments, _, _, _, entry_size, count, *_ = _HEADER.unpack(header)
        table = list(_SEGMENT.iter_unpack(read(segments, entry_size * count)))
        dynamic = [
            (offset, size) for kind, _, offset, _, _, size, _, _ in table if kind == _PT_DYNAMIC
        ]
        entries = [entry for part in dynamic for entry in _DYNAMIC.iter_unpack(read(*part))]
        strings = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
        for kind, _, offset, address, _, size, _, _ in table:
            if kind == _PT_LOAD and address <= strings < address + size:
                strings += offset - address
                break
        names = [read(strings + value, 256) for tag, value in entries if tag == _DT_NEEDED]
    return [name.partition(b"\0")[0].decode(errors="replace") for name in names]


def extension(package: str) -> str:
    """Return the file of the extension module of this Python.

    Parameters
    ----------
    package
        The folder of the package.

    Raises
    ------
    ImportError
        If there is no such file, or a library of the package cannot be loaded.
    """
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    found = [file for suffix in suffixes if os.path.exists(file := f"{package}/_C{suffix}")]
    if not found:
        others = sorted(
            os.path.basename(file) for file in glob.glob(f"{glob.escape(package)}/_C*.so")
        )
        there = f"only {', '.join(others)}" if others else "none"
        raise ImportError(
            f"openreg: {package} has no extension module for Python {sys.version.split()[0]} "
            f"(expected _C{suffixes[0]}, found {there}): install the wheel of this Python"
        )
    toolkit = os.path.join(package, "toolkit", "")  # has linker scripts of that name
    for library in glob.glob(f"{glob.escape(package)}/**/*.so*", recursive=True):
        if not library.startswith(toolkit) and (reason := damage(library)):
            raise ImportError(f"openreg: {library} {reason}: reinstall torch_openreg")
    return found[0]
