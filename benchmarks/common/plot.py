"""A small line plot as SVG, for light and dark pages alike: no background, and text in the page's kind of colour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 236, 16, 44
COLOURS = ("#e4572e", "#2e86ab", "#3fa34d", "#9a6fd0", "#c9961a")

STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #57606a }
.grid { stroke: #8c959f; stroke-opacity: .3 }
polyline { fill: none; stroke-width: 2 }
.first { stroke-width: 3.5 }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4 } }
</style>"""


def svg(lines: Mapping[str, Mapping[int, float]], x: str, y: str, *, linear: bool = False) -> str:
    """Lines over powers of two, named at their right ends; the first is drawn thicker.

    Args:
        lines: name -> x (the same for all) -> value.
        x: what the horizontal axis counts.
        y: what the vertical axis shows.
        linear: over equal distances from 0 instead, as for time.
    """
    marks = sorted(next(iter(lines.values())))
    step = _step(max(value for line in lines.values() for value in line.values()))
    top = step * math.ceil(max(value for line in lines.values() for value in line.values()) / step)

    def across(mark: int) -> float:
        if linear:
            return LEFT + (WIDTH - LEFT - RIGHT) * mark / (marks[-1] or 1)
        spread = math.log2(marks[-1] / marks[0]) or 1
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(mark / marks[0]) / spread

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{y} against {x}</title>",
        STYLE,
    ]
    for i in range(round(top / step) + 1):
        level = up(i * step)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    for mark in range(0, marks[-1] + 1, max(1, round(_step(marks[-1])))) if linear else marks:
        parts.append(f'<text x="{across(mark):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{mark}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{x}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle">{y}</text>')
    heights = _apart({name: up(line[marks[-1]]) for name, line in lines.items()})
    for i, (name, line) in enumerate(lines.items()):
        points = " ".join(f"{across(mark):.1f},{up(line[mark]):.1f}" for mark in marks)
        weight = ' class="first"' if i == 0 else ""
        parts.append(f'<polyline{weight} stroke="{COLOURS[i]}" points="{points}"/>')
        label = f'<text x="{WIDTH - RIGHT + 10}" y="{heights[name] + 4:.1f}" style="fill:{COLOURS[i]}">{name}</text>'
        parts.append(label)
    return "\n".join([*parts, "</svg>", ""])


def _step(most: float) -> float:
    """A round distance between the levels, four to eight of them."""
    return next(step for step in _round_numbers(most / 100) if most / step <= 6)


def _round_numbers(least: float) -> Iterator[float]:
    power = 10.0 ** math.floor(math.log10(least))
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """The same heights, those of labels that would touch moved down."""
    placed: dict[str, float] = {}
    lowest = -math.inf
    for name, height in sorted(heights.items(), key=lambda each: each[1]):
        lowest = max(height, lowest + 16)
        placed[name] = lowest
    return placed
