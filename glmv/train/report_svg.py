"""Small charts as SVG text: lines and stacked areas over steps, with a legend in HTML above them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from glmv.train.report_data import Points

WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 8, 22
MAX_POINTS = 300
# Mostly the Okabe-Ito palette, darkened where a thin line on white needs it.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#aa3377", "#c79100", "#56a3d9", "#5b5b5b", "#8c564b", "#6a8d00")


@dataclass(frozen=True)
class Series:
    name: str
    points: Points
    faint: Points = field(default_factory=list)  # drawn thin behind: the values before smoothing
    color: str = ""  # the next of COLORS if empty


def line_chart(title: str, series: Sequence[Series], percent: bool = False, note: str = "") -> str:
    """A figure with one line a series; "" if no series has two points."""
    series = [s for s in series if len(s.points) > 1]
    if not series:
        return ""
    every = [point for s in series for point in (*s.points, *s.faint)]
    frame = _Frame.around(every, percent)
    lines = [
        frame.path(s.faint, color, 1, 0.25)
        for s, color in zip(series, _colors(series), strict=True)
        if s.faint
    ]
    lines += [frame.path(s.points, color, 1.8, 1) for s, color in zip(series, _colors(series), strict=True)]
    legend = (
        [(s.name, color) for s, color in zip(series, _colors(series), strict=True)] if len(series) > 1 else []
    )
    return _figure(title, legend, frame.axes() + "".join(lines), note)


def area_chart(
    title: str,
    steps: Sequence[float],
    layers: Mapping[str, Sequence[float]],
    colors: Sequence[str] = COLORS,
    note: str = "",
) -> str:
    """Stacked shares of a whole: at every step the layers are scaled to a sum of 100 %."""
    if len(steps) < 2 or not layers:
        return ""
    keep = range(0, len(steps), math.ceil(len(steps) / MAX_POINTS))
    totals = [sum(values[i] for values in layers.values()) or 1.0 for i in keep]
    frame = _Frame(min(steps), max(steps), 0.0, 1.0, percent=True)
    below, areas, legend = [0.0] * len(totals), [], []
    for (name, values), color in zip(layers.items(), _cycle(colors, len(layers)), strict=True):
        above = [b + values[i] / total for b, i, total in zip(below, keep, totals, strict=True)]
        xs = [steps[i] for i in keep]
        areas.append(frame.area(xs, below, above, color))
        legend.append((name, color))
        below = above
    return _figure(title, legend, "".join(areas) + frame.axes(grid=False), note)


def smooth(values: Points, window: int = 9) -> Points:
    """The mean over a centred window, of which only a part is there at both ends."""
    half = window // 2
    result = []
    for i, (step, _) in enumerate(values):
        near = values[max(0, i - half) : i + half + 1]
        result.append((step, sum(value for _, value in near) / len(near)))
    return result


@dataclass(frozen=True)
class _Frame:
    """Data coordinates to pixels."""

    left: float
    right: float
    bottom: float
    top: float
    percent: bool

    @classmethod
    def around(cls, values: Sequence[tuple[float, float]], percent: bool) -> "_Frame":
        xs, ys = [x for x, _ in values], [y for _, y in values]
        low, high = min(ys), max(ys)
        if percent or 0 < low < 0.35 * high:
            low = min(low, 0.0)
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        step = _step(low, high)
        return cls(
            min(xs),
            max(xs),
            step * math.floor(low / step + 1e-9),
            step * math.ceil(high / step - 1e-9),
            percent,
        )

    def x(self, value: float) -> float:
        return LEFT + (value - self.left) / ((self.right - self.left) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.bottom) / (self.top - self.bottom) * (HEIGHT - TOP - BOTTOM)

    def path(self, values: Points, color: str, width: float, opacity: float) -> str:
        values = values[:: math.ceil(len(values) / MAX_POINTS)]
        d = "M" + "L".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in values)
        return (
            f'<path d="{d}" fill="none" stroke="{color}" stroke-width="{width}" stroke-opacity="{opacity}" '
            'stroke-linejoin="round"/>'
        )

    def area(self, xs: Sequence[float], below: Sequence[float], above: Sequence[float], color: str) -> str:
        edge = [(x, y) for x, y in zip(xs, above, strict=True)]
        edge += [(x, y) for x, y in zip(reversed(xs), reversed(below), strict=True)]
        d = "M" + "L".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in edge) + "Z"
        return f'<path d="{d}" fill="{color}" stroke="#fff" stroke-width="0.4"/>'

    def axes(self, grid: bool = True) -> str:
        parts = []
        for tick in _ticks(self.bottom, self.top):
            y = self.y(tick)
            label = f"{100 * tick:g}%" if self.percent else _short(tick)
            if grid:
                parts.append(
                    f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
                )
            parts.append(f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>')
        for tick in _ticks(self.left, self.right):
            anchor = "end" if self.x(tick) > WIDTH - RIGHT - 10 else "middle"
            parts.append(
                f'<text x="{self.x(tick):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{_short(tick)}</text>'
            )
        return "".join(parts)


def _figure(title: str, legend: Sequence[tuple[str, str]], content: str, note: str) -> str:
    keys = "".join(f'<span><i style="background:{color}"></i>{escape(name)}</span>' for name, color in legend)
    return (
        f"<figure><figcaption><b>{escape(title)}</b><small>{escape(note)}</small></figcaption>"
        f"<div class='legend'>{keys}</div>"
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(title)}'>{content}</svg>"
        "</figure>"
    )


def _step(low: float, high: float) -> float:
    """A round distance of ticks that puts about four between low and high."""
    raw = (high - low) / 4 or 1.0
    scale = 10.0 ** math.floor(math.log10(raw))
    return next(scale * m for m in (1, 2, 2.5, 5, 10) if scale * m >= raw * 0.999)


def _ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:.4g}"


def _cycle(colors: Sequence[str], n: int) -> list[str]:
    return [colors[i % len(colors)] for i in range(n)]


def _colors(series: Sequence[Series]) -> list[str]:
    return [s.color or COLORS[i % len(COLORS)] for i, s in enumerate(series)]
