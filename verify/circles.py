"""The "three circles": proven value, tolerance band and a kernel's results in one picture (SVG, no dependencies).

Guarantees: the distance of a dot from the centre is the logarithm of |result − proven value| for one output entry,
the circles are the proven radius, the tolerance of a declared algorithm, and the largest output.
Does not: judge (verify.commands.certify does).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

SIZE, MIDDLE, REACH = 640, 320, 260
_INSIDE, _BETWEEN, _OUTSIDE = "#1b7837", "#2166ac", "#b2182b"


def three_circles(
    gap: Any, radius: Any, allowed: Any, largest: float, title: str, notes: Sequence[str] = (), most: int = 2000
) -> str:
    """SVG text. gap, radius, allowed: arrays of one shape, |result − mid|, proven radius, tolerance; largest > 0.

    At most `most` dots are drawn: the largest gaps, since those are what one wants to see.
    """
    gap, radius, allowed = (np.asarray(x, dtype=np.float64).ravel() for x in (gap, radius, allowed))
    order = np.argsort(np.where(np.isfinite(gap), gap, np.inf))[::-1][:most]
    proven = max(float(np.median(radius)), largest * 1e-20, 1e-320)
    finite = allowed[np.isfinite(allowed)]
    band = float(np.median(finite)) if finite.size else largest
    low, high = math.log10(proven) - 1, math.log10(max(largest, band, proven * 10))

    def distance(x: float) -> float:
        if not math.isfinite(x):
            return float(REACH + 24)
        return REACH * min(1.06, max(0.0, (math.log10(max(x, 1e-320)) - low) / (high - low)))

    view = f'viewBox="0 0 {SIZE} {SIZE + 60}" font-family="sans-serif" font-size="13"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view}>',
        f'<rect width="{SIZE}" height="{SIZE + 60}" fill="white"/>',
        f'<text x="{MIDDLE}" y="24" text-anchor="middle" font-size="16">{escape(title)}</text>',
    ]
    circles = (
        ("largest output", largest, "#777", 90),
        ("tolerance", band, _BETWEEN, 215),
        ("proven radius", proven, _INSIDE, 325),
    )
    for name, value, colour, degrees in circles:
        r, angle = distance(value), math.radians(degrees)
        stroke = f'fill="{colour}" fill-opacity="0.06" stroke="{colour}"'
        lines.append(f'<circle cx="{MIDDLE}" cy="{MIDDLE}" r="{r:.1f}" {stroke}/>')
        x, y = MIDDLE + (r + 12) * math.cos(angle), MIDDLE - (r + 12) * math.sin(angle)
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{colour}">{name} {value:.2g}</text>')
    golden = math.pi * (3 - math.sqrt(5))
    for turn, i in enumerate(order.tolist()):
        inside = gap[i] <= radius[i]
        colour = _INSIDE if inside else (_BETWEEN if gap[i] <= allowed[i] + radius[i] else _OUTSIDE)
        r, angle = distance(float(gap[i])), turn * golden
        x, y = MIDDLE + r * math.cos(angle), MIDDLE + r * math.sin(angle)
        lines.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.6" fill="{colour}"><title>entry {i}: {gap[i]:.3g}</title></circle>'
        )
    for row, note in enumerate(notes):
        lines.append(f'<text x="{MIDDLE}" y="{SIZE + 10 + 18 * row}" text-anchor="middle">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
