"""The spread of q·k against d_k, unscaled and scaled, beside the claims variance.scores and variance.scaled.

Guarantees: levels, local slopes and the fitted slope are compared with the claim's own values; standard errors are
between independent blocks; levels and slopes are two Holm families, and agreement within 1 % is a test of its own.
Does not: assume normal components: the claim holds for any law with a second moment, and each can be asked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from compute.sampling import LAWS, Components, replicates_for, score_variance
from verify.studies.laws import Law, law
from verify.studies.statistics import (
    AGREES_BELOW,
    DIFFERS_BELOW,
    Measured,
    fitted_slope,
    global_p,
    holm,
    log_slope,
)
from verify.studies.study import Phrase, Point, StudyResult, Table, Test

MARGIN = 0.01
SCALES = ("1", "1/√d_k")
CLAIM = "variance.scores"
POWERS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def study_variance(
    d_k: Sequence[int] = POWERS,
    *,
    components: str = "normal",
    q_mean: float = 0.0,
    k_mean: float = 0.0,
    q_sd: float = 1.0,
    k_sd: float = 1.0,
    seed: int = 0,
    precision: float = 0.0015,
    block: int = 256,
    progress: Callable[[str], None] = lambda text: None,
) -> StudyResult:
    """Measure Var(q·k) and Var(q·k/√d_k) at each d_k and judge them against the claim.

    precision: the relative standard error aimed at. Raises InputError for parameters out of range.
    """
    q, k = Components(components, q_mean, q_sd), Components(components, k_mean, k_sd)
    rule = law(CLAIM)
    points: list[Point] = []
    for scale in SCALES:
        for d in sorted(set(d_k)):
            progress(f"Var of scores, scale {scale}, d_k = {d}")
            points.append(_measure(d, scale, q, k, rule, seed, precision, block))
    return StudyResult(
        name="variance",
        title="Variance of q·k against d_k",
        claims=(CLAIM,),
        command=_command(d_k, q, k, seed),
        seed=seed,
        points=tuple(points),
        tests=tuple(_judge(points)),
        tables=(_levels(points), _slopes(points)),
        data={"law": components, "q": _words(q), "k": _words(k)},
    )


def _words(one: Components) -> str:
    return Phrase("{}, mean {:g}, standard deviation {:g}", LAWS[one.law].text, one.mean, one.sd)


def _measure(
    d: int, scale: str, q: Components, k: Components, rule: Law, seed: int, precision: float, block: int
) -> Point:
    factor = 1.0 if scale == "1" else 1.0 / math.sqrt(d)
    count = replicates_for(d, q, k, precision, block=block, seed=seed)
    found = score_variance(d, q, k, scale=factor, block=block, replicates=count, seed=seed, experiment=f"var/{scale}")
    values = {"d_k": d, "sigma_q": q.sd, "sigma_k": k.sd, "mu_q": q.mean, "mu_k": k.mean}
    # Var(s/√d_k) = Var(s)/d_k: the square of the factor, exactly.
    expected = rule(values) / (1 if scale == "1" else d)
    return Point({"scale": scale, "d_k": d, "blocks": count}, Measured.of(found), expected)


def _of(points: Sequence[Point], scale: str) -> list[Point]:
    return [p for p in points if p.factors["scale"] == scale]


def _x(point: Point) -> int:
    return int(point.factors["d_k"])  # type: ignore[arg-type]


def _local(points: Sequence[Point]) -> list[tuple[Point, Point, Measured, float]]:
    found = []
    for scale in SCALES:
        series = _of(points, scale)
        for a, b in itertools.pairwise(series):
            expected = math.log(b.law / a.law) / math.log(_x(b) / _x(a))
            found.append((a, b, log_slope(a.measured, b.measured, _x(a), _x(b)), expected))
    return found


def _judge(points: Sequence[Point]) -> list[Test]:
    levels = [p.measured.p_equal(p.law) for p in points]
    worst = min(holm(levels))
    chi, p_all = global_p(levels)
    outside = [p.measured.p_outside(p.law, MARGIN * p.law) for p in points]
    tests = [
        Test(
            "every level is the claim's",
            Phrase(
                "smallest Holm-adjusted p {:.2g} over {} levels; χ² = {:.1f}, p = {:.2g}",
                worst,
                len(levels),
                chi,
                p_all,
            ),
            worst,
            worst >= DIFFERS_BELOW and p_all >= DIFFERS_BELOW,
        ),
        Test(
            Phrase("every level is within {:.0%} of the claim's", MARGIN),
            Phrase("largest p of the two one-sided tests {:.2g}", max(outside)),
            max(outside),
            True if max(outside) < AGREES_BELOW else None,
        ),
    ]
    local = _local(points)
    if local:
        adjusted = min(holm([slope.p_equal(expected) for _, _, slope, expected in local]))
        detail = Phrase("smallest Holm-adjusted p {:.2g} over {} slopes", adjusted, len(local))
        tests.append(Test("every local slope is the claim's", detail, adjusted, adjusted >= DIFFERS_BELOW))
    return tests


def _levels(points: Sequence[Point]) -> Table:
    rows = []
    for p in points:
        low, high = p.measured.interval()
        ratio = p.measured.value / p.law
        rows.append(
            (*(p.factors[f] for f in ("scale", "d_k", "blocks")), p.law, p.measured.value, low, high, ratio, p.score)
        )
    header = ("scale", "d_k", "blocks", "claim", "measured", "95 % low", "95 % high", "ratio", "z")
    return Table("Levels", header, tuple(rows))


def _slopes(points: Sequence[Point]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for a, b, slope, expected in _local(points):
        low, high = slope.interval()
        rows.append((str(a.factors["scale"]), f"{_x(a)} → {_x(b)}", expected, slope.value, low, high))
    for scale in SCALES:
        series = _of(points, scale)
        if len(series) > 2:
            fit = fitted_slope([p.measured for p in series], [_x(p) for p in series])
            low, high = fit.interval()
            expected = math.log(series[-1].law / series[0].law) / math.log(_x(series[-1]) / _x(series[0]))
            rows.append((scale, "all, weighted fit", expected, fit.value, low, high))
    header = ("scale", "d_k", "claim's slope", "measured", "95 % low", "95 % high")
    return Table("Slopes of ln Var against ln d_k", header, tuple(rows))


def _command(d_k: Sequence[int], q: Components, k: Components, seed: int) -> str:
    sizes = sorted(set(d_k))
    doubling = len(sizes) > 1 and all(b == 2 * a for a, b in itertools.pairwise(sizes))
    text = f"{sizes[0]}:{sizes[-1]}" if doubling else ",".join(map(str, sizes))
    parts = ["attnproof study variance --d-k", text]
    defaults = {"--law": (q.law, "normal"), "--q-mean": (q.mean, 0.0), "--k-mean": (k.mean, 0.0)}
    defaults |= {"--q-sd": (q.sd, 1.0), "--k-sd": (k.sd, 1.0), "--seed": (seed, 0)}
    parts += [f"{flag} {value}" for flag, (value, usual) in defaults.items() if value != usual]
    return " ".join(parts)
