"""A picture of a device's memory over a run, as inline SVG."""

import json
from html import escape

from .model import Device
from .words import size

_WIDTH, _HEIGHT = 960, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 28, 40


class _Scale:
    """Turns events and bytes into coordinates."""

    def __init__(self, events: int, most: int) -> None:
        self.most = max(1, most)
        self._events = max(1, events)

    def x(self, event: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * event / self._events, 1)

    def y(self, count: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * count / self.most, 1)


def _ticks(most: int) -> list[int]:
    """Return four to eight round numbers of bytes up to `most`."""
    step = 1
    while most / step > 8:
        step *= 2
    return list(range(0, most + 1, step))


def _curve(scale: _Scale, points: list[tuple[int, int]], end: int) -> str:
    """Return a path in steps, which begins at the bottom."""
    path = [f"M{scale.x(0)} {scale.y(0)}"]
    for event, count in points:
        path.append(f"H{scale.x(event)}V{scale.y(count)}")
    return "".join([*path, f"H{scale.x(end)}"])


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _steps(device: Device, scale: _Scale) -> list[str]:
    """Return a band for each step, with its peaks as a tooltip."""
    parts = []
    narrow = len(device.steps) > 24
    for step in device.steps:
        left, right = scale.x(step.begin), scale.x(step.end + 1)
        kind = "odd" if step.number % 2 else "even"
        tip = (
            f"step {step.number}: {size(step.peak_allocated)} allocated, "
            f"{size(step.peak_reserved)} reserved, {step.requests} requests"
        )
        parts.append(
            f'<rect x="{left}" y="{_TOP}" width="{max(0.1, round(right - left, 1))}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}" class="step {kind}">'
            f"<title>{escape(tip)}</title></rect>"
        )
        if not narrow or step.number % 10 == 0:
            middle = round((left + right) / 2, 1)
            parts.append(_text(middle, _HEIGHT - _BOTTOM + 16, str(step.number), "middle"))
    return parts


def draw(device: Device, name: str) -> str:
    """Return the picture of a device.

    Parameters
    ----------
    device
        The device.
    name
        The id of the picture in the page.
    """
    asked = [each.allocated + each.cached + each.reserving for each in device.out_of_memory]
    most = max(device.peak_reserved.bytes, *asked, 1)
    shows_capacity = most >= device.limit / 4
    scale = _Scale(
        (device.series[-1].event if device.series else 0) + 1,
        int(max(most, device.limit if shows_capacity else 0) * 1.08),
    )
    end = device.series[-1].event + 1 if device.series else 1
    allocated = [(each.event, each.allocated) for each in device.series]
    reserved = [(each.event, each.reserved) for each in device.series]
    parts = [
        f'<svg id="{name}" class="memory" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="Memory of device {device.index}">',
        *_steps(device, scale),
    ]
    for tick in _ticks(scale.most):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{scale.y(tick)}" '
            f'y2="{scale.y(tick)}" class="grid"/>'
        )
        parts.append(_text(_LEFT - 6, scale.y(tick) + 4, size(tick), "end"))
    curve = _curve(scale, allocated, end)
    parts.append(f'<path d="{curve}V{scale.y(0)}Z" class="allocated"/>')
    parts.append(f'<path d="{_curve(scale, reserved, end)}" class="reserved"/>')
    limit = f"capacity {size(device.limit)}"
    if shows_capacity:
        y = scale.y(device.limit)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" class="capacity"/>'
        )
        parts.append(_text(_WIDTH - _RIGHT - 4, y - 5, limit, "end", "capacity"))
    else:
        parts.append(
            _text(_WIDTH - _RIGHT - 4, _TOP - 8, f"{limit}, above the picture", "end", "capacity")
        )
    for each, count in zip(device.out_of_memory, asked, strict=True):
        x, y, base = scale.x(each.event), scale.y(count), scale.y(each.allocated + each.cached)
        parts.append(
            f'<g class="failure"><line x1="{x}" x2="{x}" y1="{base}" y2="{y}"/>'
            f'<circle cx="{x}" cy="{y}" r="4"/><title>{escape(f"asked for {size(each.requested)}")}'
            "</title></g>"
        )
    parts.append(_text(_LEFT, _TOP - 8, "■ allocated", kind="allocated"))
    parts.append(_text(_LEFT + 90, _TOP - 8, "— reserved", kind="reserved"))
    parts.append(
        _text(
            (_LEFT + _WIDTH - _RIGHT) / 2,
            _HEIGHT - 6,
            "steps; allocations and frees in order",
            "middle",
        )
    )
    parts.append(f'<line class="cursor" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
    points = [[scale.x(e.event), e.event, e.allocated, e.reserved] for e in device.series]
    parts.append(f'</svg><div class="tip" data-of="{name}"></div>')
    parts.append(f'<script type="application/json" data-of="{name}">{json.dumps(points)}</script>')
    return "".join(parts)
