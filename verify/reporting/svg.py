"""SVG figures that read on light and on dark pages, and come out the same every time.

Guarantees: no background, and colours whose contrast is at least 3:1 against both white and GitHub's dark page;
text stays text; no date, fixed identifiers. Does not: decide what is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Each at least 3:1 against #ffffff and #0d1117 (the test computes it).
INK = "#7d8590"
BLUE, ORANGE, GREEN, PURPLE, RED = "#2f81f7", "#d9730d", "#2a9d4a", "#a066e8", "#e5484d"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED)

_STYLE = {
    "svg.hashsalt": "attnproof",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
}


@contextmanager
def canvas(columns: int, title: str, *, height: float = 3.4) -> Iterator[tuple[list[Any], list[str]]]:
    """Panels side by side in this style; when the block ends, the second list holds the SVG text.

    title: what the figure shows, for readers who hear it.
    """
    import matplotlib
    from matplotlib.figure import Figure

    page: list[str] = []
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.4 * columns, height), layout="constrained")
        yield list(figure.subplots(1, columns, squeeze=False)[0]), page
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    page.append("\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n")
