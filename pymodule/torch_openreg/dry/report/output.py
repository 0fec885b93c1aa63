"""Prints the report of a run and writes its files, or one rank's part of them.

OPENREG_REPORT lists the files. If `openreg run --ranks` started the process, OPENREG_REPORT_PARTS
is a folder. Each rank writes its part there, and the launcher prints one report of all. This module
does not import PyTorch, because the launcher uses it.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from ...variables import REPORT_PARTS
from .model import Device, Rank, Report

FILES, PARTS = "OPENREG_REPORT", REPORT_PARTS
ONLY_TEXT = "text"  # a value of OPENREG_REPORT for no files
_SUFFIXES = (".json", ".html")
_MOST_IN_REPORT = 1 << 20  # characters of requests; more go to a side file


def files_of(value: str) -> list[str]:
    """Return the files that a value of OPENREG_REPORT lists.

    Raises
    ------
    ValueError
        If one of them ends in neither .json nor .html.
    """
    files = [each for each in value.split(os.pathsep) if each and each != ONLY_TEXT]
    for file in files:
        if not file.endswith(_SUFFIXES):
            raise ValueError(f"{file}: expected a file that ends in .json or .html")
    return files


def is_requested(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment asks for a report."""
    return bool(environment.get(FILES))


def _write(file: str, text: str) -> None:
    """Write a file; nobody sees it incomplete."""
    folder = os.path.dirname(os.path.abspath(file))
    handle, name = tempfile.mkstemp(dir=folder, prefix=os.path.basename(file) + ".")
    with os.fdopen(handle, "w", encoding="utf-8") as sink:
        sink.write(text)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
    os.replace(name, file)


def _entry(rank: Rank, device: Device) -> str:
    return f"rank{rank.rank}-device{device.index}"


def _side_file(file: str) -> str:
    return f"{os.path.splitext(file)[0]}.requests.zip"


def _write_json(file: str, report: Report) -> None:
    """Write a report as JSON. Requests go to a side file if there are many."""
    devices = [(rank, device) for rank in report.ranks for device in rank.devices]
    requests = [device.requests for _, device in devices]
    if sum(map(len, requests)) <= _MOST_IN_REPORT:
        _write(file, report.to_json())
        return
    with zipfile.ZipFile(_side_file(file), "w", zipfile.ZIP_DEFLATED) as archive:
        for rank, device in devices:
            archive.writestr(_entry(rank, device), device.requests)
            device.requests = ""
    try:
        _write(file, report.to_json())
    finally:
        for (_, device), text in zip(devices, requests, strict=True):
            device.requests = text


def load_requests(file: str, rank: Rank, device: Device) -> None:
    """Read the requests of a device from the side file of a report, if it has them there.

    Raises
    ------
    ValueError
        If the side file is damaged.
    OSError
        If the side file cannot be read.
    """
    if device.requests:
        return
    try:
        with zipfile.ZipFile(_side_file(file)) as archive:
            device.requests = archive.read(_entry(rank, device)).decode()
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{_side_file(file)}: {error}") from None


def _of_rank(file: str, rank: int) -> str:
    stem, suffix = os.path.splitext(file)
    return f"{stem}.rank{rank}{suffix}"


def publish(
    report: Report, environment: Mapping[str, str] = os.environ, *, is_whole: bool = True
) -> None:
    """Print a report on stderr and write its files.

    Parameters
    ----------
    report
        The report.
    environment
        The environment, which lists the files.
    is_whole
        Whether no other process reports for the same run. Otherwise the files have the rank in
        their names, and only rank 0 and ranks that failed print.
    """
    alone = report.world > 1 and not is_whole
    rank = report.ranks[0].rank if report.ranks else 0
    text = report.text()
    with contextlib.suppress(OSError):  # the reader is gone
        if not alone or rank == 0 or report.ranks[0].error:
            sys.stderr.write(text)
            sys.stderr.flush()
    for file in files_of(environment.get(FILES, "")):
        target = _of_rank(file, rank) if alone else file
        try:
            if file.endswith(".json"):
                _write_json(target, report)
            else:
                _write(target, report.to_html())
        except OSError as error:
            print(f"openreg: cannot write {target}: {error.strerror}", file=sys.stderr)


def hand_over(report: Report, environment: Mapping[str, str] = os.environ) -> None:
    """Give the report of this process to the launcher, or publish it if there is none."""
    folder = environment.get(PARTS)
    if not folder:
        publish(report, environment, is_whole=False)
        return
    with contextlib.suppress(OSError):  # the launcher is gone
        _write(os.path.join(folder, f"{report.ranks[0].rank}.part"), report.to_json())


def open_folder(environment: MutableMapping[str, str]) -> None:
    """In the launcher: make the folder for the ranks' parts, if a report is requested."""
    if is_requested(environment):
        environment[PARTS] = tempfile.mkdtemp(prefix="openreg-report-")


def collect(world: int, environment: MutableMapping[str, str]) -> None:
    """In the launcher: publish the report of all ranks and delete their parts."""
    folder = environment.pop(PARTS, None)
    if not folder:
        return
    parts = []
    for rank in range(world):
        with contextlib.suppress(OSError, ValueError):
            text = Path(folder, f"{rank}.part").read_text(encoding="utf-8")
            parts.append(Report.from_json(text))
    shutil.rmtree(folder, ignore_errors=True)
    if parts:
        merged = parts[0]
        merged.world = world
        merged.ranks = [rank for part in parts for rank in part.ranks]
        publish(merged, environment)
