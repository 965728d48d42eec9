"""How far softmax saturates against d_k, at scale 1/√d_k, 1 and 1/d_k: the mean, the median, and their laws.

Guarantees: every mean is compared with derive's exact value at that n, d_k and scale (quadrature, not a limit), with
the standard error of independent rows; mean and median are shown side by side, since they decay differently, with
quantiles and the share of saturated rows.
Does not: test the median against its law, which is asymptotic; that line is drawn, not judged.

Rows have the law of scale·q·k for standard normal q and k (`compute.sampling.gaussian_rows`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compute.accumulate import LogHistogram, Moments
from compute.errors import InputError
from compute.observables import entropy, jacobian_norm, participation
from compute.sampling import gaussian_rows
from compute.streams import Stream
from verify.studies.statistics import AGREES_BELOW, DIFFERS_BELOW, Measured, holm
from verify.studies.study import Cell, Phrase, Point, StudyResult, Table, Test

SCALES: dict[str, Callable[[int], float]] = {
    "1/√d_k": lambda d: d**-0.5,
    "1": lambda d: 1.0,
    "1/d_k": lambda d: 1.0 / d,
}
SIZES = (4, 16, 64, 256, 1024)
MARGIN = 0.1
# Rows count as saturated when ‖J‖_F is below this.
SATURATED = 0.01
# name on the page -> (observable of rows, name of the exact expectation in derive)
OBSERVED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "‖J‖_F²": (lambda s: jacobian_norm(s) ** 2, "jacobian"),
    "Σα²": (participation, "p2"),
    "entropy": (entropy, "entropy"),
}
CLAIMS = ("saturation.jacobian_unscaled", "saturation.median_jacobian", "saturation.jacobian_norm")
_BLOCK = 4096


@dataclass(frozen=True)
class _Cell:
    """Everything measured at one scale and d_k."""

    scale: str
    d_k: int
    sums: dict[str, Moments]
    norms: LogHistogram

    def median(self, level: float = 1.96) -> tuple[float, float, float]:
        """Median of ‖J‖_F and the order statistics of its 95 % interval."""
        half = level * 0.5 / self.norms.count**0.5
        low, middle, high = (self.norms.quantile(0.5 + shift) for shift in (-half, 0.0, half))
        return middle, low, high


def study_saturation(
    d_k: Sequence[int] = SIZES,
    *,
    n: int = 64,
    rows: int = 24_000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> StudyResult:
    """Measure ‖J‖_F², Σα² and the entropy of rows of n keys at each d_k and scale.

    Raises InputError for n < 2, d_k < 1 or fewer than 100 rows.
    """
    sizes = sorted(set(d_k))
    if n < 2 or not sizes or sizes[0] < 1 or rows < 100:
        raise InputError(f"n={n}, d_k={list(d_k)}, rows={rows}: expected n >= 2, d_k >= 1, at least 100 rows")
    cells = []
    for scale in SCALES:
        for d in sizes:
            progress(f"saturation, scale {scale}, d_k = {d}")
            cells.append(_measure(scale, d, n, rows, seed))
    points = [_point(one, name, n) for one in cells for name in OBSERVED]
    return StudyResult(
        name="saturation",
        title=Phrase("Saturation of softmax against d_k, {} keys", n),
        claims=CLAIMS,
        command=_command(sizes, n, rows, seed),
        seed=seed,
        points=tuple(points),
        tests=tuple(_judge(points)),
        tables=(_means(points), _medians(cells)),
        data={
            "n": n,
            "medians": [(c.scale, c.d_k, *c.median(), c.norms.quantile(0.05), c.norms.quantile(0.95)) for c in cells],
            "curves": _curves(n, sizes),
        },
    )


def _measure(scale: str, d: int, n: int, rows: int, seed: int) -> _Cell:
    sums = dict.fromkeys(OBSERVED, Moments())
    norms = LogHistogram(per_octave=2048)
    for block, start in enumerate(range(0, rows, _BLOCK)):
        stream = Stream(seed, f"saturation/{scale}/n={n}/d_k={d}", block)
        scores = gaussian_rows(stream, min(_BLOCK, rows - start), n, d, SCALES[scale](d))
        for name, (measure, _) in OBSERVED.items():
            sums[name] = sums[name] + Moments.of(measure(scores))
        norms.add(jacobian_norm(scores))
    return _Cell(scale, d, sums, norms)


def _point(one: _Cell, name: str, n: int) -> Point:
    from derive.oracle import expect

    moments = one.sums[name]
    exact = expect(OBSERVED[name][1], n, d_k=one.d_k, scale=SCALES[one.scale](one.d_k))
    measured = Measured(moments.mean, moments.standard_error, moments.count - 1)
    return Point({"scale": one.scale, "d_k": one.d_k, "observable": name}, measured, float(exact.value))


def _curves(n: int, sizes: Sequence[int]) -> dict[str, list[tuple[float, float]]]:
    """Lines of a picture: exact means of ‖J‖_F² between the d_k measured, and the law of the unscaled median.

    That law takes every row at σ = √d_k: 1/(1 + cosh(σ·median gap)), good where it is small.
    """
    from derive.oracle import expect, median_jacobian

    grid = _grid(sizes)
    exact = {
        scale: expect("jacobian", n, d_k=grid, scale=[factor(d) for d in grid]).value
        for scale, factor in SCALES.items()
    }
    found: dict[str, list[tuple[float, float]]] = {
        scale: [(d, float(v)) for d, v in zip(grid, values, strict=True)] for scale, values in exact.items()
    }
    return {**found, "median": [(d, float(median_jacobian(n, d**0.5).value)) for d in grid]}


def _grid(sizes: Sequence[int]) -> list[int]:
    """The sizes and four whole numbers between neighbours, evenly spaced in ratio."""
    between = {round(a * (b / a) ** (k / 5)) for a, b in itertools.pairwise(sizes) for k in range(1, 5)}
    return sorted(between | set(sizes))


def _judge(points: Sequence[Point]) -> list[Test]:
    worst = min(holm([p.measured.p_equal(p.law) for p in points]))
    outside = [p.measured.p_outside(p.law, MARGIN * p.law) for p in points]
    return [
        Test(
            "every mean is the exact one",
            Phrase("smallest Holm-adjusted p {:.2g} over {} means", worst, len(points)),
            worst,
            worst >= DIFFERS_BELOW,
        ),
        Test(
            Phrase("every mean is within {:.0%} of the exact one", MARGIN),
            Phrase("largest p of the two one-sided tests {:.2g}", max(outside)),
            max(outside),
            True if max(outside) < AGREES_BELOW else None,
        ),
    ]


def _means(points: Sequence[Point]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for p in points:
        low, high = p.measured.interval()
        named = (p.factors[f] for f in ("observable", "scale", "d_k"))
        rows.append((*named, p.law, p.measured.value, low, high, p.score))
    rows.sort(key=lambda r: list(OBSERVED).index(str(r[0])))
    return Table("Means", ("mean of", "scale", "d_k", "exact", "measured", "95 % low", "95 % high", "z"), tuple(rows))


def _medians(cells: Sequence[_Cell]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in cells:
        middle, low, high = one.median()
        tails = (one.norms.quantile(0.05), one.norms.quantile(0.95))
        mean = one.sums["‖J‖_F²"].mean ** 0.5
        rows.append((one.scale, one.d_k, mean, middle, low, high, *tails, one.norms.share_below(SATURATED)))
    header = (
        "scale",
        "d_k",
        "root mean square",
        "median",
        "95 % low",
        "95 % high",
        "5 % quantile",
        "95 % quantile",
        Phrase("share of rows below {}", SATURATED),
    )
    return Table("‖J‖_F of a row: root mean square beside the median", header, tuple(rows))


def _command(sizes: Sequence[int], n: int, rows: int, seed: int) -> str:
    words = ["attnproof study saturation --d-k", ",".join(map(str, sizes)), f"--n {n}"]
    words += [f"--rows {rows}"] if rows != 24_000 else []
    return " ".join(words + ([f"--seed {seed}"] if seed else []))
