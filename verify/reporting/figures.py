"""The pictures of the studies and of the cross-checks.

Guarantees: a law is a line, a measurement a point with its 95 % interval; nothing is smoothed or joined that was not
measured together. Does not: compute.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verify.errors import UsageError
from verify.reporting.svg import BLUE, GREEN, INK, ORANGE, canvas
from verify.studies.study import Point, StudyResult


def figure(result: StudyResult) -> str:
    """The picture of a study, as SVG text. Raises UsageError for a study without one."""
    known = {"variance": variance, "saturation": saturation, "path": path, "weights": weights}
    if result.name not in known:
        raise UsageError(f"the study {result.name} has no picture")
    return known[result.name](result)


def variance(result: StudyResult) -> str:
    """Left: levels against d_k with the claim as lines. Right: measured over claim, with the margin of agreement."""
    with canvas(2, "Variance of scores against d_k, measured and claimed") as ((levels, ratios), page):
        series = {scale: [p for p in result.points if p.factors["scale"] == scale] for scale in ("1", "1/√d_k")}
        looks = {"1": (BLUE, "o", "q·k"), "1/√d_k": (ORANGE, "s", "q·k/√d_k")}
        for scale, points in series.items():
            colour, marker, name = looks[scale]
            x = np.array([_d(p) for p in points], dtype=float)
            levels.plot(x, [p.law for p in points], color=colour, label=f"claim for {name}")
            _intervals(levels, points, x, colour, marker, f"measured {name}", over=False)
            offset = 1.06 if scale == "1" else 1 / 1.06
            _intervals(ratios, points, x * offset, colour, marker, name, over=True)
        for axes in (levels, ratios):
            axes.set_xscale("log", base=2)
            axes.set_xlabel("d_k")
            axes.minorticks_off()
            ticks = [_d(p) for p in series["1"]]
            axes.set_xticks(ticks[:: max(1, -(-len(ticks) // 6))])
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        levels.set_yscale("log", base=2)
        levels.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        levels.set_ylabel("variance of a score")
        levels.set_title("Only unscaled scores spread with d_k")
        levels.legend(loc="upper left")
        ratios.axhline(1.0, color=INK, linewidth=1)
        ratios.axhspan(0.99, 1.01, color=INK, alpha=0.15, linewidth=0)
        ratios.set_ylim(0.985, 1.015)
        ratios.set_ylabel("measured / claim")
        ratios.set_title("95 % intervals of independent blocks; band ±1 %")
        ratios.legend(loc="upper right", ncols=2)
    return page[0]


def _d(point: Point) -> int:
    return int(point.factors["d_k"])  # type: ignore[arg-type]


def _intervals(
    axes: object, points: list[Point], x: np.ndarray, colour: str, marker: str, label: str, *, over: bool
) -> None:
    scale = np.array([p.law if over else 1.0 for p in points])
    value = np.array([p.measured.value for p in points]) / scale
    half = np.array([p.measured.interval()[1] - p.measured.value for p in points]) / scale
    axes.errorbar(x, value, yerr=half, fmt=marker, color=colour, markersize=4, capsize=2, label=label)  # type: ignore[attr-defined]


def saturation(result: StudyResult) -> str:
    """Left: mean of ‖J‖_F² with the exact values as lines. Right: the median, with 5 and 95 % quantiles."""
    title = "Mean and median of the norm of the softmax Jacobian against d_k, at three scales"
    looks = {"1/√d_k": (BLUE, "o", 1.0), "1": (ORANGE, "s", 1.08), "1/d_k": (GREEN, "^", 1 / 1.08)}
    with canvas(2, title) as ((means, medians), page):
        for scale, (colour, marker, shift) in looks.items():
            told = [p for p in result.points if p.factors["scale"] == scale and p.factors["observable"] == "‖J‖_F²"]
            x = np.array([_d(p) for p in told], dtype=float)
            exact = np.array(result.data["curves"][scale], dtype=float)
            means.plot(exact[:, 0], exact[:, 1], color=colour, label=f"exact, scale {scale}")
            _intervals(means, told, x, colour, marker, "measured" if scale == "1" else "_", over=False)
            rows = [r for r in result.data["medians"] if r[0] == scale]
            middle = np.array([r[2] for r in rows])
            tails = np.array([[r[2] - r[5] for r in rows], [r[6] - r[2] for r in rows]])
            medians.errorbar(
                x * shift, middle, yerr=tails, fmt=marker, color=colour, markersize=4, capsize=2, label=scale
            )
        law = np.array(result.data["curves"]["median"], dtype=float)
        medians.plot(
            law[:, 0], law[:, 1], color=ORANGE, linewidth=1, linestyle="--", label="law of the median, scale 1"
        )
        for axes in (means, medians):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel("d_k")
            axes.set_xticks(sorted({_d(p) for p in result.points}))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
        means.set_ylim(0.004, 0.2)
        means.set_ylabel("mean of ‖J‖_F²")
        means.set_title("The mean: without scaling larger, then a slow fall")
        means.legend(loc="lower left")
        medians.set_ylabel("‖J‖_F of a row")
        medians.set_ylim(1e-8, 2)
        medians.set_title("The median (bars 5 to 95 %): dies out without scaling")
        medians.legend(loc="lower left")
    return page[0]


def path(result: StudyResult) -> str:
    """Left: the two ways from one token to another, drawn. Right: medians against distance: attention is diluted by
    the number of keys, products of factors die out."""
    typical = np.array(result.data["typical"], dtype=float)
    title = "Attention reaches any token in one step; an RNN passes through every position between and fades"
    with canvas(2, title) as ((ways, axes), page):
        _ways(ways)
        looks = (("attention weight", BLUE, "o"), ("linear RNN, ‖J u‖", ORANGE, "s"), ("LSTM cell, Π f", GREEN, "^"))
        for column, (name, colour, marker) in enumerate(looks, 1):
            axes.plot(typical[:, 0], typical[:, column], marker, color=colour, label=name)
        axes.plot(
            typical[:, 0], 1 / (typical[:, 0] + 1), color=INK, linewidth=1, label="mean attention weight, 1/(L+1)"
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_xticks(typical[:, 0])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("distance L (positions)")
        lowest = min(10 * math.floor(math.log10(max(typical[:, 1:].min(), 1e-300)) / 10), -10)
        axes.set_yticks([10.0**power for power in range(lowest, 1, 10)])
        axes.set_ylim(10.0**lowest, 10)
        axes.set_ylabel("median strength (1: unchanged)")
        axes.set_title("Attention dilutes, products die out")
        axes.legend(loc="lower left")
    return page[0]


def _ways(axes: Any) -> None:
    """Two rows of tokens: one arc over all between, and a chain through each, paler with every step."""
    count = 8
    for height, colour, name in (
        (1.0, BLUE, "self-attention: one step, weight α_ij"),
        (0.0, ORANGE, "RNN, LSTM: a product of i − j factors"),
    ):
        axes.plot(range(1, count + 1), [height] * count, "o", color=colour, markersize=9)
        axes.text(1, height - 0.28, "j", ha="center", va="top")
        axes.text(count, height - 0.28, "i", ha="center", va="top")
        axes.text((1 + count) / 2, height - 0.28, name, ha="center", va="top")
    reach = {"arrowstyle": "-|>", "shrinkA": 7, "shrinkB": 7, "color": BLUE, "linewidth": 1.8}
    axes.annotate("", (count, 1), (1, 1), arrowprops={**reach, "connectionstyle": "arc3,rad=-0.25"})
    for k in range(1, count):
        fading = {**reach, "color": ORANGE, "alpha": 1 - 0.11 * (k - 1)}
        axes.annotate("", (k + 1, 0), (k, 0), arrowprops=fading)
    axes.set_xlim(0.4, count + 0.6)
    axes.set_ylim(-0.6, 2.1)
    axes.axis("off")
    axes.set_title("From token j to token i")


# Strengths in tens: the least strength of a mark, how opaque it is, and its name in the legend.
_STRENGTHS = (
    (1e-1, 1.0, "above 0.1"),
    (1e-2, 0.65, "0.01 to 0.1"),
    (1e-3, 0.4, "0.001 to 0.01"),
    (1e-6, 0.22, "1e-6 to 0.001"),
)


def between(result: StudyResult) -> str:
    """How strongly each token (column) reaches each other (row), in one drawn example of each kind of path."""
    tokens = np.array(result.data["tokens"]) + 1
    kinds = (("attention", "Attention: α_ij", BLUE), ("rnn", "RNN: ‖J u‖", ORANGE), ("lstm", "LSTM: Π f", GREEN))
    title = "How strongly token j reaches token i: attention thinly everywhere, RNN and LSTM only nearby tokens"
    with canvas(3, title, height=4.0) as (panels, page):
        for axes, (name, heading, colour) in zip(panels, kinds, strict=True):
            strength = np.array(result.data["between"][name], dtype=float)
            above = math.inf
            for least, alpha, words in _STRENGTHS:
                rows, columns = np.nonzero((strength >= least) & (strength < above))
                axes.plot(
                    tokens[columns], tokens[rows], "s", color=colour, alpha=alpha, markersize=6.5, label=words,
                    markeredgewidth=0,
                )  # fmt: skip
                above = least
            axes.set_xlim(tokens[0] - 3, tokens[-1] + 3)
            axes.set_ylim(tokens[-1] + 3, tokens[0] - 3)
            axes.set_aspect("equal")
            axes.set_xticks(tokens[::5])
            axes.set_yticks(tokens[::5])
            axes.grid(False)
            axes.set_xlabel("from token j (position)")
            axes.set_ylabel("to token i (position)")
            axes.set_title(heading)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return page[0]


def weights(result: StudyResult) -> str:
    """Left: row variance of each head beside the exact identity and the isotropic law. Right: where rows saturate."""
    cube = np.asarray(result.data["cube"])
    names = list(result.data["measures"])
    mean = cube.mean(axis=0).reshape(-1, len(names))

    def column(name: str) -> np.ndarray:
        return mean[:, names.index(name)]

    title = "Row variance of each head of a real model, and the size of its softmax Jacobian"
    with canvas(2, title) as ((laws, rows), page):
        measured = column("variance")
        order = np.argsort(measured)
        x = np.arange(1, len(order) + 1)
        laws.plot(x, column("identity")[order], color=BLUE, linewidth=1.2, label="exact identity s² tr(M_q Σ_k)")
        laws.plot(x, measured[order], "o", color=BLUE, markersize=3.5, label="measured")
        laws.plot(
            x, column("isotropic")[order], "v", color=ORANGE, markersize=3.5, label="isotropic law s² d_k σ_q² σ_k²"
        )
        laws.set_yscale("log")
        laws.set_xlabel("head, in order of row variance")
        laws.set_ylabel("row variance of the scores")
        laws.set_title("Real heads: the identity holds, isotropy doesn't")
        laws.legend(loc="upper left")
        layers = np.repeat(np.arange(result.data["layers"]), result.data["heads"])
        for layer in range(result.data["layers"]):
            here = layers == layer
            shade = 0.4 + 0.6 * layer / max(1, result.data["layers"] - 1)
            rows.plot(
                np.sqrt(measured[here]),
                column("jacobian")[here],
                "o",
                color=BLUE,
                alpha=shade,
                markersize=4,
                label=f"layers 0 (pale) to {result.data['layers'] - 1} (dark)" if here[-1] else None,
            )
        rows.set_xscale("log")
        rows.set_xlabel("row standard deviation of the scores")
        rows.set_ylabel("median ‖J‖_F of a row")
        rows.set_title("Sensitivity of softmax on each head")
        rows.legend(loc="lower left")
    return page[0]
