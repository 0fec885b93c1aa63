"""The report as one HTML page. It loads nothing, and its tables can be read without a script."""

import shlex
from collections.abc import Iterable, Sequence
from html import escape
from textwrap import shorten

from .model import Device, Group, Rank, Report, worst
from .picture import draw
from .words import final_failure, line, moment, path, place, size, verdict

_MOST_OWNERS = 12  # of a group

_STYLE = """
:root { --text: #1d2b2a; --soft: #5d6b6a; --back: #fff; --line: #d8dedd; --fill: #2a9d8f;
  --reserved: #1d3557; --limit: #c1121f; --odd: #f3f6f6; }
@media (prefers-color-scheme: dark) { :root { --text: #e6ecec; --soft: #9fb0ae; --back: #14191a;
  --line: #364141; --fill: #2a9d8f; --reserved: #a8c5f0; --limit: #ff6b6b; --odd: #1b2223; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 1000px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.35em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; margin: .6em 0; width: 100%; }
th, td { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.group td { font-weight: 600; } .soft, tr.owner td { color: var(--soft); }
.bar { background: var(--fill); height: .7em; display: inline-block; }
svg.memory { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: .6; } svg .step.even { fill: transparent; }
svg .step.odd { fill: var(--odd); } path.allocated { fill: var(--fill); fill-opacity: .55; }
path.reserved { fill: none; stroke: var(--reserved); stroke-width: 1.5; }
svg text.allocated { fill: var(--fill); } svg text.reserved { fill: var(--reserved); }
line.capacity { stroke: var(--limit); stroke-dasharray: 6 4; stroke-width: 1.5; }
svg text.capacity { fill: var(--limit); } .failure { stroke: var(--limit); fill: var(--limit); }
.cursor { stroke: var(--soft); stroke-width: 1; visibility: hidden; }
.tip { min-height: 1.5em; color: var(--soft); } code { font-size: .92em; }
"""

_SCRIPT = """
for (const svg of document.querySelectorAll("svg.memory")) {
  const find = kind => document.querySelector(kind + '[data-of="' + svg.id + '"]');
  const points = JSON.parse(find("script").textContent), tip = find(".tip");
  const cursor = svg.querySelector(".cursor");
  const size = n => { for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024 || unit === "TiB") return n.toFixed(unit === "B" ? 0 : 2) + " " + unit;
    n /= 1024; } };
  svg.addEventListener("mousemove", event => {
    const at = svg.createSVGPoint(); at.x = event.clientX; at.y = event.clientY;
    const x = at.matrixTransform(svg.getScreenCTM().inverse()).x;
    let near = points[0];
    for (const point of points) if (Math.abs(point[0] - x) < Math.abs(near[0] - x)) near = point;
    if (!near) return;
    cursor.setAttribute("x1", near[0]); cursor.setAttribute("x2", near[0]);
    cursor.style.visibility = "visible";
    tip.textContent = "event " + near[1] + ": " + size(near[2]) + " allocated, " + size(near[3])
      + " reserved";
  });
}
"""


def _row(cells: Iterable[object], kind: str = "td", numbers: Sequence[int] = ()) -> str:
    made = "".join(
        f'<{kind} class="n">{escape(str(cell))}</{kind}>'
        if index in numbers
        else f"<{kind}>{escape(str(cell))}</{kind}>"
        for index, cell in enumerate(cells)
    )
    return f"<tr>{made}</tr>"


def _table(
    head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()
) -> str:
    body = "".join(_row(row, numbers=numbers) for row in rows)
    return f"<table>{_row(head, 'th', numbers)}{body}</table>"


def _groups(groups: list[Group], total: int) -> str:
    rows = []
    for group in groups:
        if not group.bytes:
            continue
        share = 100 * group.bytes / max(1, total)
        rows.append(
            f'<tr class="group"><td>{escape(group.name)}</td><td class="n">{size(group.bytes)}</td>'
            f'<td class="n">{group.blocks}</td><td><span class="bar" style="width:{share:.1f}%">'
            "</span></td></tr>"
        )
        for owner in group.owners[:_MOST_OWNERS]:
            site = owner.site
            what = ", ".join(
                filter(
                    None,
                    (owner.name, line(site), site.operator, site.module if not owner.name else ""),
                )
            )
            rows.append(
                f'<tr class="owner"><td></td><td class="n">{size(owner.bytes)}</td>'
                f'<td class="n">{owner.blocks}</td><td>{escape(what or "unknown")}</td></tr>'
            )
        if (hidden := len(group.owners) - _MOST_OWNERS) > 0:
            rows.append(
                f'<tr class="owner"><td></td><td></td><td></td><td>and {hidden} more</td></tr>'
            )
    head = _row(("group", "bytes", "blocks", "who"), "th", (1, 2))
    return f"<table>{head}{''.join(rows)}</table>"


def _device(device: Device, rank: Rank) -> str:
    name = f"memory-{rank.rank}-{device.index}"
    parts = [
        f"<h2>Device {device.index}: {escape(device.name)}, {size(device.capacity)}</h2>",
        draw(device, name),
    ]
    peaks = (("allocated", device.peak_allocated), ("reserved", device.peak_reserved))
    rows = [(f"peak {what}", size(p.bytes), moment(p), place(p.site)) for what, p in peaks]
    parts.append(_table(("", "bytes", "when", "where"), rows, (1,)))
    found = device.fragmentation
    parts.append(
        f"<p>{size(found.reserved - found.allocated)} were reserved and not allocated when most "
        "memory was reserved.</p>"
    )
    if found.largest_request_that_did_not_fit:
        parts.append(
            f"<p>A request for {size(found.largest_request_that_did_not_fit)} needed new memory, "
            f"although {size(found.cached_then)} were cached, in smaller pieces.</p>"
        )
    failure = final_failure(rank)
    for each in device.out_of_memory:
        ends = "the program ended" if failure and failure[1] is each else "the program went on"
        parts.append(
            f"<h3>Out of memory</h3><p>Asked for {size(each.requested)}, {size(each.missing)} too "
            f"much, and {ends}: {escape(moment(each))}, {escape(place(each.site))}. "
            f"{size(each.free)} of the device were free, {size(each.cached)} cached.</p>"
        )
        parts.append(_groups(each.groups, each.allocated))
    parts.append("<h3>Allocated at the peak</h3>")
    parts.append(_groups(device.groups, device.peak_allocated.bytes))
    rows = [
        (each.name, size(each.bytes), each.source, "yes" if each.is_counted else "no")
        for each in device.estimates
    ]
    parts.append("<h3>Beside the allocator: estimates</h3>")
    parts.append(_table(("", "bytes", "source", "counted above"), rows, (1,)))
    if device.steps:
        steps = [
            (s.number, size(s.peak_allocated), size(s.peak_reserved), s.requests)
            for s in device.steps
        ]
        head = ("step", "peak allocated", "peak reserved", "requests")
        parts.append("<h3>Steps</h3>" + _table(head, steps, (0, 1, 2, 3)))
    return "".join(parts)


def _rank(rank: Rank) -> str:
    parts = [_device(device, rank) for device in rank.devices]
    if rank.error:
        parts.insert(
            0, f"<p>The program ended with <code>{escape(shorten(rank.error, 160))}</code>.</p>"
        )
    if rank.reads:
        rows = [(f"{path(r.file)}:{r.line}", r.operator, r.value, r.count) for r in rank.reads]
        parts.append("<h2>Values that a dry run does not know, and the program read</h2>")
        parts.append(_table(("line", "operator", "value", "times"), rows, (3,)))
    for title, lines in (("Not modelled", rank.not_modelled), ("Notes", rank.notes)):
        if lines:
            items = "".join(f"<li>{escape(line)}</li>" for line in lines)
            parts.append(f"<h2>{title}</h2><ul>{items}</ul>")
    return "".join(parts)


def write(report: Report) -> str:
    """Return the report as a page."""
    sentence = verdict(report)
    sentence = sentence[0].upper() + sentence[1:]
    first = worst(report)
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>openreg report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(sentence)}</h1>",
        f'<p class="soft"><code>{escape(shlex.join(report.command))}</code></p>',
    ]
    if first is not None:
        if report.world > 1:
            parts.append(f"<h2>Rank {first.rank} of {report.world}</h2>")
        parts.append(_rank(first))
    for rank in report.ranks:
        if rank is not first:
            parts.append(f"<details><summary>Rank {rank.rank}</summary>{_rank(rank)}</details>")
    parts.append(f"<script>{_SCRIPT}</script></body></html>\n")
    return "".join(parts)
