"""``nvidia-smi`` for the simulated devices: the options that scripts use, with the same output.

It shows the devices of this process's group, as reported by ``libnvidia-ml.so.1``. Fields that a
simulated device lacks are ``[N/A]``, as on a GPU that lacks them. Options that change settings and
subcommands such as ``topo`` and ``dmon`` are rejected.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..commands.smi_table import Style, devices_table, processes_table
from ._library import Device, Library, NvmlError, opened
from ._queries import Form, Refusal, list_fields, query_devices, query_processes

_LARGEST_WIDTH = 120


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nvidia-smi",
        description="Shows the simulated devices of this process's group as nvidia-smi shows GPUs.",
        epilog="Exit status: 0 for success, 2 for invalid arguments, 6 for a device that does not "
        "exist, 9 if there are no devices.",
        allow_abbrev=False,
    )
    parser.add_argument("-L", "--list-gpus", action="store_true", help="list devices and UUIDs")
    parser.add_argument(
        "-i",
        "--id",
        metavar="ID",
        help="show only these devices: indices, UUIDs or bus ids, separated by commas",
    )
    parser.add_argument("--query-gpu", metavar="FIELDS", help="print fields of devices as CSV")
    parser.add_argument(
        "--query-compute-apps", metavar="FIELDS", help="print fields of processes on devices as CSV"
    )
    parser.add_argument("--format", metavar="FORMAT", help="csv[,noheader][,nounits]")
    parser.add_argument("--help-query-gpu", action="store_true", help="list the fields of devices")
    parser.add_argument(
        "-l",
        "--loop",
        metavar="SECONDS",
        nargs="?",
        type=float,
        const=5.0,
        help="repeat every SECONDS (default 5)",
    )
    parser.add_argument("--version", action="store_true", help="show versions")
    return parser


def _is_meant(device: Device, name: str) -> bool:
    bus_ids = (device.bus_id, device.bus_id[4:], device.bus_id[9:])
    if name.isdigit():
        return int(name) == device.index
    return name == device.uuid or name.upper() in bus_ids


def _choose(devices: list[Device], ids: str | None) -> list[Device]:
    if ids is None:
        return devices
    names = [name.strip() for name in ids.split(",")]
    for name in names:
        if not any(_is_meant(device, name) for device in devices):
            raise Refusal(
                f"No devices were found: {name!r}: expected 0 to {len(devices) - 1}, a UUID or a "
                "bus id, as -L shows them",
                Refusal.NOT_FOUND,
            )
    return [device for device in devices if any(_is_meant(device, name) for name in names)]


def _snapshot(devices: list[Device]) -> dict[str, Any]:
    """Return the devices in the form that `smi_table` draws."""
    processes: dict[int, dict[str, Any]] = {}
    for place, device in enumerate(devices):
        for process in device.processes:
            shown = processes.setdefault(
                process.pid,
                {
                    "pid": process.pid,
                    "name": process.name,
                    "has_exited": False,
                    "bytes": [0] * len(devices),
                },
            )
            shown["bytes"][place] = process.used_bytes
    return {
        "devices": [
            {
                "device": device.index,
                "name": device.name,
                "numa_node": None,
                "cpuset": None,
                "total_bytes": device.total_bytes,
                "used_bytes": device.used_bytes,
                "busy_percent": device.busy,
            }
            for device in devices
        ],
        "processes": list(processes.values()),
    }


def _draw(library: Library, devices: list[Device]) -> list[str]:
    room = min(shutil.get_terminal_size().columns, _LARGEST_WIDTH)
    style, group, version = Style.of(sys.stdout), _snapshot(devices), library.driver_version()
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y"),
        f"NVIDIA-SMI {version}    Driver Version: {version}    "
        f"CUDA Version: {library.cuda_version()}",
        "",
        *devices_table(group["devices"], room, style),
        "",
    ]
    if group["processes"]:
        return lines + processes_table(group, room, style)
    return lines + ["  No running processes found"]


def _answer(chosen: argparse.Namespace, library: Library, form: Form | None) -> list[str]:
    devices = _choose([library.device(i) for i in range(library.count())], chosen.id)
    if chosen.list_gpus:
        return [f"GPU {device.index}: {device.name} (UUID: {device.uuid})" for device in devices]
    if chosen.query_gpu is not None and form is not None:
        return query_devices(library, devices, chosen.query_gpu, form)
    if chosen.query_compute_apps is not None and form is not None:
        return query_processes(library, devices, chosen.query_compute_apps, form)
    return _draw(library, devices)


def _form(chosen: argparse.Namespace) -> Form | None:
    queries = [
        query for query in (chosen.query_gpu, chosen.query_compute_apps) if query is not None
    ]
    if len(queries) > 1:
        raise Refusal("--query-gpu and --query-compute-apps cannot be combined")
    if not queries:
        return None
    return Form(chosen.format or "")


def _run(chosen: argparse.Namespace) -> None:
    if chosen.help_query_gpu:
        print(list_fields())
        return
    form = _form(chosen)
    with opened() as library:
        if chosen.version:
            version = library.driver_version()
            print(f"NVIDIA-SMI version  : {version}\nDRIVER version      : {version}")
            print(f"CUDA Version        : {library.cuda_version()}")
            return
        while True:
            print("\n".join(_answer(chosen, library, form)), flush=True)
            if chosen.loop is None:
                return
            form = form and form.without_header()
            time.sleep(chosen.loop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``nvidia-smi``.

    Parameters
    ----------
    arguments
        The arguments after the name of the program. The default is those of the process.

    Returns
    -------
    int
        The exit status, like nvidia-smi's.
    """
    chosen = _parser().parse_args(arguments)
    try:
        _run(chosen)
    except Refusal as refusal:
        print(f"{refusal}\n")  # nvidia-smi prints errors to stdout
        return refusal.status
    except NvmlError as error:
        print(f"NVIDIA-SMI has failed: {error}\n")
        return error.code
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
