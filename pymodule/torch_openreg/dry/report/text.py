"""The report as text for a terminal, at most 60 lines."""

from collections.abc import Iterable, Sequence

from .model import Device, Group, Owner, Rank, Report, worst
from .words import final_failure, line, main_device, moment, path, place, size, verdict

_MOST_LINES = 60
_MOST_OWNERS = 3  # of a group
_MOST_STEPS = 6
_MOST_RANKS = 8
_MOST_READS = 5
_WIDTH = 110


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."


def _table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return rows with aligned columns. The first column is left-aligned, as is the last one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *middle, last = row
        cells = [f"{first:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(middle, widths[1:-1], strict=True)]
        lines.append(_cut(indent + "  ".join([*cells, last])).rstrip())
    return lines


def _owner(owner: Owner) -> str:
    site = owner.site
    parts = (owner.name, line(site)) if owner.name else (line(site), site.operator, site.module)
    return ", ".join(filter(None, parts)) or "unknown"


def _groups(groups: Iterable[Group], total: int) -> list[str]:
    rows = []
    for group in groups:
        if group.bytes:
            share = f"{100 * group.bytes / max(1, total):.0f} %"
            rows.append((group.name, size(group.bytes), share, ""))
            for owner in group.owners[:_MOST_OWNERS]:
                blocks = f"{owner.blocks} x" if owner.blocks > 1 else ""
                rows.append(("", size(owner.bytes), blocks, _owner(owner)))
    return _table(rows, "    ") if rows else []


def _steps(device: Device) -> list[str]:
    steps = device.steps
    if len(steps) < 2:
        return []
    shown = steps if len(steps) <= _MOST_STEPS else [*steps[: _MOST_STEPS - 1], steps[-1]]
    rows = [("step", "allocated", "reserved", "")]
    for step in shown:
        rows.append((str(step.number), size(step.peak_allocated), size(step.peak_reserved), ""))
    return ["  Peaks of each step:", *_table(rows, "    ")]


def _fragmentation(device: Device) -> str:
    found = device.fragmentation
    text = f"{size(found.reserved - found.allocated)} reserved and not allocated then"
    if found.largest_request_that_did_not_fit:
        text += (
            f"; a request for {size(found.largest_request_that_did_not_fit)} did not fit into "
            f"{size(found.cached_then)} of free pieces"
        )
    return text


def _device(device: Device, rank: Rank) -> list[str]:
    rows = [
        (f"peak {name}", size(peak.bytes), f"{moment(peak)}, {place(peak.site)}")
        for name, peak in (("allocated", device.peak_allocated), ("reserved", device.peak_reserved))
    ]
    lines = [f"  Device {device.index}: {device.name}, {size(device.capacity)}"]
    lines += _table(rows, "    ")
    lines.append(f"    {_fragmentation(device)}")
    failure = final_failure(rank)
    if failure and failure[0] is device:
        request = failure[1]
        lines.append(
            f"    out of memory: asked for {size(request.requested)}; {size(request.free)} of the "
            f"device were free, {size(request.cached)} cached"
        )
        lines.append(_cut(f"      {moment(request)}, {place(request.site)}"))
        lines.append("  Allocated when memory ran out:")
        lines += _groups(request.groups, request.allocated)
    else:
        if device.out_of_memory:
            count = len(device.out_of_memory)
            lines.append(f"    {count} requests ran out of memory, and the program went on")
        lines.append("  Allocated at the peak:")
        lines += _groups(device.groups, device.peak_allocated.bytes)
    lines.append("  Beside the allocator (estimates):")
    rows = [
        (each.name, size(each.bytes), f"{each.source}{', counted above' * each.is_counted}")
        for each in device.estimates
    ]
    return lines + _table(rows, "    ") + _steps(device)


def _other_ranks(report: Report, shown: Rank) -> list[str]:
    others = [each for each in report.ranks if each is not shown]
    if report.world < 2:
        return []
    rows = [("rank", "allocated", "reserved", "")]
    for rank in others[:_MOST_RANKS]:
        device = main_device(rank)
        peaks = (device.peak_allocated.bytes, device.peak_reserved.bytes) if device else (0, 0)
        rows.append((str(rank.rank), size(peaks[0]), size(peaks[1]), rank.error))
    lines = ["  Other ranks:", *_table(rows, "    ")] if others else []
    if hidden := len(others) - _MOST_RANKS:
        lines += [f"    and {hidden} more"] if hidden > 0 else []
    reported = {each.rank for each in report.ranks}
    missing = [str(each) for each in range(report.world) if each not in reported]
    if missing and not report.is_represented:
        lines.append(_cut(f"  No report from ranks {', '.join(missing)}: they were ended."))
    return lines


def _unknown(rank: Rank) -> list[str]:
    lines = []
    if rank.reads:
        lines.append("  The program read values that a dry run does not know:")
        rows = [
            (f"{path(each.file)}:{each.line}", each.operator, f"{each.count} x", each.value)
            for each in rank.reads[:_MOST_READS]
        ]
        lines += _table(rows, "    ")
        if len(rank.reads) > _MOST_READS:
            lines.append(f"    and {len(rank.reads) - _MOST_READS} more places")
    if rank.not_modelled:
        lines.append("  Not modelled:")
        lines += [_cut(f"    {each}") for each in rank.not_modelled[:_MOST_READS]]
    return lines + [_cut(f"  {note}") for note in rank.notes]


def write(report: Report) -> str:
    """Return the report as text, with a line break at its end."""
    lines = [f"openreg report: {verdict(report)}"]
    rank = worst(report)
    if rank is not None and (device := main_device(rank)):
        if failure := final_failure(rank):
            device = failure[0]
        lines += _device(device, rank)
        for other in rank.devices:
            if other is not device:
                lines.append(
                    f"  Device {other.index}: {size(other.peak_allocated.bytes)} allocated and "
                    f"{size(other.peak_reserved.bytes)} reserved at the peaks"
                )
        lines += _unknown(rank)
        lines += _other_ranks(report, rank)
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = ["  ... (the report in a file is complete)"]
    return "\n".join([lines[0], *map(_cut, lines[1:])]) + "\n"
