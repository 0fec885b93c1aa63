"""Sizes, places and verdicts in words, for the text and the page."""

import os

from .model import Device, OutOfMemory, Peak, Rank, Report, Site, worst


def size(count: float) -> str:
    """Return a number of bytes with a unit."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.2f} {units[0]}"


def path(file: str) -> str:
    """Return a short path of a source file: from the working folder, or from site-packages."""
    folder = os.getcwd() + os.sep
    if file.startswith(folder):
        return file[len(folder) :]
    _, packages, inside = file.rpartition(os.sep + "site-packages" + os.sep)
    return inside if packages else file


def line(site: Site) -> str:
    """Return the line that memory belongs to: in a backward, that of the forward."""
    if site.forward_file:
        return f"gradient of {path(site.forward_file)}:{site.forward_line}"
    return f"{path(site.file)}:{site.line}" if site.file else ""


def place(site: Site) -> str:
    """Return where memory was allocated, such as "train.py:12 (aten::mm, Model.layers.0)"."""
    line = f"{path(site.file)}:{site.line}" if site.file else "no line of the program"
    forward = f"gradient of {path(site.forward_file)}:{site.forward_line}"
    parts = (site.operator, forward if site.forward_file else "", site.module)
    details = [each for each in parts if each]
    return f"{line} ({', '.join(details)})" if details else line


def moment(peak: Peak | OutOfMemory) -> str:
    """Return when something happened, such as "step 2, backward"."""
    if peak.step is None:
        return "after the last step"
    return f"step {peak.step}, {peak.phase}"


def main_device(rank: Rank) -> Device | None:
    """Return the device of a rank that decides whether it fits."""
    return max(
        rank.devices,
        key=lambda each: (bool(each.out_of_memory), each.needed / max(1, each.limit)),
        default=None,
    )


def final_failure(rank: Rank) -> tuple[Device, OutOfMemory] | None:
    """Return the request that ended the program, and its device."""
    if not rank.is_out_of_memory:
        return None
    failures = [(device, each) for device in rank.devices for each in device.out_of_memory]
    return max(failures, key=lambda pair: pair[1].event, default=None)


def verdict(report: Report) -> str:
    """Return the first sentence of the report: whether the job fits, and by how much."""
    rank = worst(report)
    device = main_device(rank) if rank else None
    if rank is None or (device is None and not rank.error):
        return "no device memory was used"
    where = f" of rank {rank.rank}" if report.world > 1 else ""
    if failure := final_failure(rank):
        device, request = failure
        return (
            f"does not fit: device {device.index}{where} has {size(device.limit)} and lacks at "
            f"least {size(request.missing)}"
        )
    if device is None:
        return f"stopped by an error before device memory was used: {rank.error}"
    needs = f"device {device.index}{where} needs {size(device.peak_reserved.bytes)}"
    needs += f" of {size(device.limit)}"
    if rank.error:
        return f"stopped by an error; until then {needs}: {rank.error}"
    spare = device.limit - device.needed
    with_estimates = f", and an estimated {size(device.estimated)} beside the allocator"
    if spare >= 0:
        more = with_estimates if device.estimated else ""
        return f"fits: {needs}{more}; {size(spare)} are left"
    return f"may not fit on a GPU: {needs}{with_estimates}, {size(-spare)} too much"
