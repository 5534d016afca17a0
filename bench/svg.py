"""Line charts as small SVG files for the docs: no script, no font, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 680, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 36, 44, 56
#: Where names of lines stand: to the right, below lines that rise.
KEY = WIDTH - RIGHT - 140
COLOURS = ("#3b6fd4", "#d9822b", "#2e9e6b", "#b5489a", "#7a7a7a")


@dataclass(frozen=True)
class Line:
    """One line of a chart: its points, in order."""

    name: str
    points: Sequence[tuple[float, float]]
    #: A published figure or a model of something else, not ours.
    dashed: bool = False


def chart(
    title: str, x_name: str, y_name: str, lines: Sequence[Line], y_range: tuple[float, float], y_ticks: Sequence[float],
    y_format: str = "{:g}",
) -> str:  # fmt: skip
    """Draw lines over a logarithmic x axis whose ticks are the x values of all points."""
    xs = sorted({x for line in lines for x, _ in line.points})
    low, high = math.log(xs[0]), math.log(xs[-1])

    def across(x: float) -> float:
        return LEFT + (math.log(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_range[0]) / (y_range[1] - y_range[0]) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" font-size="13" fill="#7a7a7a">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="18" font-size="15">{escape(title)}</text>',
    ]
    for y in y_ticks:
        parts.append(f'<path d="M{LEFT} {up(y):.1f}H{WIDTH - RIGHT}" stroke="#7a7a7a" stroke-opacity=".25"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(y) + 4:.1f}" text-anchor="end">{y_format.format(y)}</text>')
    taken = -math.inf
    for x in xs:
        if across(x) - taken < 46:
            continue
        taken = across(x)
        parts.append(f'<text x="{taken:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:,g}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 18}" text-anchor="middle">{escape(x_name)}</text>'
    )
    parts.append(f'<text x="{LEFT - 60}" y="{TOP - 10}">{escape(y_name)}</text>')
    bottom = up(y_range[0])
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across(x), min(up(y), bottom)) for x, y in line.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 5"' if line.dashed else ""
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places)
        y = bottom - 14 - 18 * (len(lines) - 1 - number)
        parts.append(f'<path d="M{KEY} {y - 4}h22" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{KEY + 28}" y="{y}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
