"""The fields of ``nvidia-smi --query-gpu`` and ``--query-compute-apps``, and their CSV output.

Names, headings, units and the format are nvidia-smi's, because scripts parse them.
"""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from ._library import Device, Library, Process

NOT_AVAILABLE = "[N/A]"
_MIB = 1 << 20


class Refusal(Exception):
    """An invalid request: a sentence for the user, and the exit status."""

    INVALID_ARGUMENT, NOT_FOUND = 2, 6  # exit statuses of nvidia-smi

    def __init__(self, sentence: str, status: int = INVALID_ARGUMENT) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class _Row:
    """The subject of a line: a device, and a process in lines about processes."""

    library: Library
    device: Device
    process: Process | None = None

    @property
    def of_process(self) -> Process:
        assert self.process is not None
        return self.process


@dataclass(frozen=True)
class _Field:
    """A column: its name, a function that returns its value in a row, and its unit or ""."""

    name: str
    value: Callable[[_Row], object]
    unit: str = ""


def _now(row: _Row) -> str:
    now = datetime.datetime.now()
    return f"{now:%Y/%m/%d %H:%M:%S}.{now.microsecond // 1000:03}"


def _by_name(fields: Iterable[_Field], **others: str) -> dict[str, _Field]:
    """Return the fields by name. `others` are more names of fields; headings do not use them."""
    found = {field.name: field for field in fields}
    return found | {other.replace("__", "."): found[name] for other, name in others.items()}


# Fields that some GPUs lack, and that simulated devices lack.
_LACKING_NAMES = """
    accounting.buffer_size accounting.mode clocks.applications.graphics clocks.applications.memory
    clocks.current.graphics clocks.current.memory clocks.current.sm clocks.current.video
    clocks.gr clocks.max.gr clocks.max.graphics clocks.max.mem clocks.max.memory clocks.max.sm
    clocks.mem clocks.sm clocks.video clocks_event_reasons.active clocks_throttle_reasons.active
    ecc.errors.corrected.volatile.total ecc.errors.uncorrected.volatile.total ecc.mode.current
    ecc.mode.pending enforced.power.limit fan.speed gom.current gom.pending inforom.ecc inforom.img
    inforom.oem mig.mode.current mig.mode.pending pcie.link.gen.current pcie.link.gen.max
    pcie.link.width.current pcie.link.width.max power.default_limit power.draw power.draw.average
    power.draw.instant power.limit power.management power.max_limit power.min_limit pstate
    retired_pages.pending serial temperature.gpu temperature.memory utilization.decoder
    utilization.encoder utilization.jpeg utilization.ofa vbios_version
"""
_LACKING = _LACKING_NAMES.split()


def _unit_of_lacking(name: str) -> str:
    if name.startswith("clocks."):
        return "MHz"
    if name in ("fan.speed",) or name.startswith("utilization."):
        return "%"
    if name == "enforced.power.limit" or (name.startswith("power.") and name != "power.management"):
        return "W"
    return ""


_DEVICE_FIELDS = _by_name(
    [
        _Field("timestamp", _now),
        _Field("driver_version", lambda row: row.library.driver_version()),
        _Field("count", lambda row: row.library.count()),
        _Field("index", lambda row: row.device.index),
        _Field("name", lambda row: row.device.name),
        _Field("uuid", lambda row: row.device.uuid),
        _Field("pci.bus_id", lambda row: row.device.bus_id),
        _Field("pci.domain", lambda row: f"0x{row.device.domain:04X}"),
        _Field("pci.bus", lambda row: f"0x{row.device.bus:02X}"),
        _Field("pci.device", lambda row: f"0x{row.device.device:02X}"),
        _Field("pci.device_id", lambda row: f"0x{row.device.device_id:08X}"),
        _Field("pci.sub_device_id", lambda row: f"0x{row.device.sub_system_id:08X}"),
        _Field("compute_cap", lambda row: "{}.{}".format(*row.device.capability)),
        _Field("compute_mode", lambda row: "Default"),
        _Field("persistence_mode", lambda row: "Disabled"),
        _Field("display_active", lambda row: "Disabled"),
        _Field("display_mode", lambda row: "Disabled"),
        _Field("memory.total", lambda row: row.device.total_bytes // _MIB, "MiB"),
        _Field("memory.reserved", lambda row: 0, "MiB"),
        _Field("memory.used", lambda row: row.device.used_bytes // _MIB, "MiB"),
        _Field("memory.free", lambda row: row.device.free_bytes // _MIB, "MiB"),
        _Field("utilization.gpu", lambda row: row.device.busy, "%"),
        _Field("utilization.memory", lambda row: row.device.busy_memory, "%"),
        *(_Field(name, lambda row: NOT_AVAILABLE, _unit_of_lacking(name)) for name in _LACKING),
    ],
    gpu_name="name",
    gpu_uuid="uuid",
    gpu_bus_id="pci.bus_id",
    gpu_serial="serial",
)

_PROCESS_FIELDS = _by_name(
    [
        _Field("timestamp", _now),
        _Field("gpu_name", lambda row: row.device.name),
        _Field("gpu_bus_id", lambda row: row.device.bus_id),
        _Field("gpu_serial", lambda row: NOT_AVAILABLE),
        _Field("gpu_uuid", lambda row: row.device.uuid),
        _Field("pid", lambda row: row.of_process.pid),
        _Field("process_name", lambda row: row.of_process.name),
        _Field("used_gpu_memory", lambda row: row.of_process.used_bytes // _MIB, "MiB"),
    ],
    name="process_name",
    used_memory="used_gpu_memory",
)


class Form:
    """The value of ``--format``: csv, and what to omit.

    Parameters
    ----------
    text
        The value of the option.
    """

    def __init__(self, text: str) -> None:
        words = [word.strip() for word in text.split(",")]
        for word in words:
            if word not in ("csv", "noheader", "nounits"):
                raise Refusal(f'"{word}" is not a valid format: expected csv[,noheader][,nounits]')
        if "csv" not in words:
            raise Refusal("the format of a query must be csv[,noheader][,nounits]")
        self._header, self._units = "noheader" not in words, "nounits" not in words

    def without_header(self) -> "Form":
        """Return the same format without headings, for repeated output."""
        form = Form("csv" if self._units else "csv,nounits")
        form._header = False
        return form

    def _heading(self, field: _Field) -> str:
        return f"{field.name} [{field.unit}]" if field.unit and self._units else field.name

    def _cell(self, field: _Field, row: _Row) -> str:
        text = str(field.value(row))
        return f"{text} {field.unit}" if self._units and field.unit and text[0] != "[" else text

    def lines(self, fields: list[_Field], rows: list[_Row]) -> list[str]:
        """Return the lines of the CSV output."""
        table = [[self._cell(field, row) for field in fields] for row in rows]
        if self._header:
            table.insert(0, [self._heading(field) for field in fields])
        return [", ".join(cells) for cells in table]


def _refuse(name: str) -> NoReturn:
    raise Refusal(f'Field "{name}" is not a valid field to query.')


def _chosen(names: str, known: dict[str, _Field]) -> list[_Field]:
    return [known.get(name.strip()) or _refuse(name.strip()) for name in names.split(",")]


def query_devices(library: Library, devices: list[Device], names: str, form: Form) -> list[str]:
    """Return one line for each device."""
    fields = _chosen(names, _DEVICE_FIELDS)
    return form.lines(fields, [_Row(library, device) for device in devices])


def query_processes(library: Library, devices: list[Device], names: str, form: Form) -> list[str]:
    """Return one line for each process on each device."""
    fields = _chosen(names, _PROCESS_FIELDS)
    rows = [_Row(library, device, process) for device in devices for process in device.processes]
    return form.lines(fields, rows)


def list_fields() -> str:
    """Return the text of ``--help-query-gpu``."""
    lacking = ", ".join(sorted(_LACKING))
    known = ", ".join(sorted(name for name in _DEVICE_FIELDS if name not in _LACKING))
    return f"Fields of --query-gpu: {known}\n\nFields that are always {NOT_AVAILABLE}: {lacking}"
