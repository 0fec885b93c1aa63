"""``openreg doctor``: check this machine, and say what does not work and how to fix it.

Another process imports PyTorch and uses the devices (`probe`), so a PyTorch that cannot be imported
is reported like any other problem.

``--json`` writes one JSON object. Its members keep their names and meanings; later versions may add
members::

    {"version": 1,
     "works": true if no check is a problem,
     "versions": {"openreg", "supported_torch", "torch": null if missing,
                  "torch_build": null or "CPU", "CUDA 13.0", ..., "python", "system"},
     "libraries": null if PyTorch cannot be imported, or
                  {"stand_ins", "nvidia", "pytorch": names of mapped libraries of openreg (in place
                   of the others), of NVIDIA, and of PyTorch's CUDA build},
     "missing_packages": [NVIDIA's packages that PyTorch requires],
     "gpus": [names of the GPUs of this machine],
     "cores": {"online", "allowed", "numa_nodes"},
     "memory": {"total_bytes", "available_bytes"},
     "control_group": {"memory_bytes", "cpus", "processes": null for no limit},
     "limits": {"address_space_bytes", "file_bytes", "locked_memory_bytes", "open_files",
                "processes": null for no limit},
     "shared_memory": null or {"total_bytes", "free_bytes", "is_writable"},
     "devices": null, or {"device_type", "group", "visible": number, "instructions",
                          "devices": as in `openreg smi --json`},
     "variables": {the variables that are set, with their values},
     "checks": [{"name", "state": "ok", "warning" or "problem", "text": a sentence,
                 "remedy": null, or what to do}]}
"""

import dataclasses
import io
import json
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .. import variables
from . import checks, installation, machine
from .checks import OK, PROBLEM, WARNING, Check, size
from .cli import USAGE_STATUS, make_parser
from .smi_table import Style

_NAME_WIDTH = 14
_STATE_WIDTH = 9
_COLOURS = {OK: "32", WARNING: "33", PROBLEM: "31"}
_NARROWEST, _WIDEST = 40, 100


def parser() -> Any:
    """Return the parser of the options."""
    made = make_parser(
        "openreg doctor",
        "Shows versions, cores, memory, limits and devices, and tests what programs need: PyTorch, "
        "every device, CUDA mode, exchange of memory between processes, a compiler. For each "
        "problem it says what to do.",
        (
            (0, "there is no problem; there may be warnings"),
            (1, "there is a problem"),
            USAGE_STATUS,
        ),
        examples=("openreg doctor", "openreg doctor --json"),
        more="Colours appear on terminals only. NO_COLOR disables them.",
    )
    made.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, sizes in bytes; torch_openreg.commands.doctor describes it",
    )
    return made


def examine() -> dict[str, Any]:
    """Examine the machine and run all checks.

    Returns
    -------
    dict
        The report, as described above.
    """
    versions, group, limits = machine.versions(), machine.control_group(), machine.limits()
    cores, shared_memory = machine.cores(), machine.shared_memory()
    environment = dict(os.environ)
    found = [checks.check_version(versions), *checks.check_variables(environment)]
    facts = checks.probe() if versions["torch"] is not None else {}
    libraries = installation.classify(facts["mapped"]) if "mapped" in facts else None
    missing, gpus = installation.missing_packages(), installation.gpus()
    if facts:
        found += checks.check_devices(facts, missing)
        found.append(checks.check_cuda_mode())
        found += checks.check_libraries(libraries, missing)
    found += checks.check_gpus(gpus)
    found += [
        *checks.check_capacity(facts, group),
        checks.check_shared_memory(shared_memory),
        checks.check_exchange(),
        checks.check_cores(cores, group),
        *checks.check_limits(limits, group),
        checks.check_compiler(environment),
        checks.check_memory_plans(),
    ]
    names = ("device_type", "group", "visible", "instructions", "devices")
    return {
        "version": 1,
        "works": all(check.state != PROBLEM for check in found),
        "versions": versions,
        "libraries": libraries,
        "missing_packages": missing,
        "gpus": gpus,
        "cores": cores,
        "memory": machine.memory(),
        "control_group": group,
        "limits": limits,
        "shared_memory": shared_memory,
        "devices": {name: facts.get(name) for name in names} if "devices" in facts else None,
        "variables": variables.select(environment),
        "checks": [dataclasses.asdict(check) for check in found],
    }


# ---- the page ------------------------------------------------------------------------------------


def _limited(value: float | None, unit: str = "") -> str:
    if value is None:
        return "unlimited"
    return size(value) if unit == "bytes" else f"{value:g}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _build(name: str | None) -> str:
    return "" if name is None else f" ({name} build)"


def _devices(devices: dict[str, Any] | None) -> str:
    if devices is None:
        return "unknown"
    alike = Counter((each["name"], each["total_bytes"]) for each in devices["devices"])
    kinds = [f"{count} x {name}, {size(total)}" for (name, total), count in alike.items()]
    kind = devices["device_type"]
    seen = devices["visible"]
    only = "" if seen in (None, len(devices["devices"])) else f"; {seen} visible"
    return f"as `{kind}`: {'; '.join(kinds)}{only}; group {devices['group']}"


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    versions, cores, memory = report["versions"], report["cores"], report["memory"]
    group, limits, shared = report["control_group"], report["limits"], report["shared_memory"]
    total, available = (memory[name] for name in ("total_bytes", "available_bytes"))
    devices = report["devices"]
    facts = [
        (
            "versions",
            f"openreg {versions['openreg']}, PyTorch {versions['torch'] or 'none'}"
            f"{_build(versions['torch_build'])}, "
            f"Python {versions['python']}, {versions['system']}",
        ),
        (
            "cores",
            f"{cores['allowed']} of {cores['online']}, on "
            f"{_plural(cores['numa_nodes'], 'NUMA node')}",
        ),
        (
            "memory",
            "unknown" if total is None else f"{size(total)}, {size(available or 0)} available",
        ),
        (
            "/dev/shm",
            "none"
            if shared is None
            else f"{size(shared['total_bytes'])}, {size(shared['free_bytes'])} free",
        ),
        (
            "limits",
            f"address space {_limited(limits['address_space_bytes'], 'bytes')}, "
            f"locked memory {_limited(limits['locked_memory_bytes'], 'bytes')}, "
            f"open files {_limited(limits['open_files'])}, "
            f"processes {_limited(limits['processes'])}",
        ),
        (
            "control group",
            f"memory {_limited(group['memory_bytes'], 'bytes')}, "
            f"cores {_limited(group['cpus'])}, processes {_limited(group['processes'])}",
        ),
        ("devices", _devices(devices)),
        ("instructions", (devices or {}).get("instructions") or "unknown"),
    ]
    texts = [f"{name}={value}" for name, value in report["variables"].items()]
    return [*facts, ("variables", ", ".join(texts) or "none is set")]


def _wrapped(text: str, indent: int, columns: int) -> list[str]:
    printable = "".join(each if each.isprintable() else "?" for each in text)
    return textwrap.wrap(printable, columns - indent, break_on_hyphens=False) or [""]


def _check_lines(check: Check, columns: int, style: Style) -> list[str]:
    indent = 2 + _STATE_WIDTH
    first, *others = _wrapped(f"{check.name}: {check.text}", indent, columns)
    lines = ["  " + style.paint(f"{check.state:{_STATE_WIDTH}}", _COLOURS[check.state]) + first]
    lines += [" " * indent + line for line in others]
    if check.remedy is not None:
        remedy, *others = _wrapped(check.remedy, indent + 2, columns)
        lines.append(" " * indent + "> " + style.paint(remedy, "1"))
        lines += [" " * (indent + 2) + style.paint(line, "1") for line in others]
    return lines


def draw(report: dict[str, Any], columns: int, style: Style) -> list[str]:
    """Draw a report as a page of text.

    Parameters
    ----------
    report
        The result of `examine`.
    columns
        The width of the page, in terminal cells.
    style
        What the terminal supports.

    Returns
    -------
    list of str
        The lines.
    """
    columns = min(max(columns, _NARROWEST), _WIDEST)
    lines = [style.paint("openreg doctor", "1"), ""]
    for name, text in _facts(report):
        first, *others = _wrapped(text, 2 + _NAME_WIDTH, columns)
        lines.append(f"  {name:{_NAME_WIDTH}}{first}")
        lines += [" " * (2 + _NAME_WIDTH) + line for line in others]
    lines.append("")
    found = [Check(**check) for check in report["checks"]]
    for check in found:
        lines += _check_lines(check, columns, style)
    counts = Counter(check.state for check in found)
    summary = _plural(counts[PROBLEM], "problem") if counts[PROBLEM] else "Everything works"
    if counts[WARNING]:
        summary += f", {_plural(counts[WARNING], 'warning')}"
    return [*lines, "", style.paint(f"{summary}.", "31" if counts[PROBLEM] else "32")]


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg doctor``.

    Returns
    -------
    int
        The exit status.
    """
    chosen = parser().parse_args(arguments)
    report = examine()
    if chosen.json:
        print(json.dumps(report, indent=2))
    else:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        columns = shutil.get_terminal_size().columns
        print("\n".join(draw(report, columns, Style.of(sys.stdout))))
    return 0 if report["works"] else 1
