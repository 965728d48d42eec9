"""Attention and its gradients in ball arithmetic (Arb, by python-flint): for small cases and undecided rows.

Guarantees: |exact − (mid + low)| ≤ rad, by interval arithmetic at `prec` bits; no assumption on BLAS or exp.
Does not: run fast (about 1 µs a score and channel); python-flint is the optional extra `certify`, loaded here only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compute.errors import NotInstalled
from compute.heads import F64, Head

BUDGET = 3_000_000  # scores times channels that are worth it


def available() -> bool:
    """Whether python-flint is installed."""
    return find_spec("flint") is not None


@contextmanager
def _precision(prec: int) -> Iterator[Any]:
    if not available():
        raise NotInstalled("python-flint is needed for ball arithmetic: pip install -e '.[certify]'")
    import flint

    old = flint.ctx.prec
    flint.ctx.prec = prec
    try:
        yield flint
    finally:
        flint.ctx.prec = old


@dataclass
class Balls:
    """mid + low ± rad, arrays of one shape."""

    mid: F64
    low: F64
    rad: F64


def _pack(flint: Any, entries: list[Any], shape: tuple[int, ...]) -> Balls:
    packed: list[tuple[float, float, float]] = []
    for x in entries:
        mid = float(x.mid())
        if not np.isfinite(mid):
            packed.append((0.0, 0.0, np.inf))
            continue
        rest = x - flint.arb(mid)
        low = float(rest.mid())
        left = rest - flint.arb(low)
        # What is left may be too small for a float and still not be 0: then the least float above it.
        rad = 0.0 if left.is_zero() else float(np.nextafter(float(left.abs_upper()), np.inf))
        packed.append((mid, low, rad))
    columns = np.array(packed, dtype=np.float64).reshape(-1, 3).T
    return Balls(*(column.reshape(shape) for column in columns))


def _scale(flint: Any, head: Head) -> Any:
    scale = head.part.spec.scale
    if scale is None:
        return 1 / flint.arb(max(head.q.shape[1], 1)).sqrt()
    if isinstance(scale, Fraction):
        return flint.arb(flint.fmpq(scale.numerator, scale.denominator))
    return flint.arb(float(scale))


def _biases(flint: Any, head: Head, row: int) -> list[Any]:
    """Exact additive terms of one row, or zeros."""
    problem, at = head.part.problem, (*head.part.batch, head.part.head)
    total = [flint.arb(0)] * head.m
    if head.means[row]:
        return total
    for additive in problem.additive:
        block = additive[(*at, row)]
        total = [t + (flint.arb(float(b)) if np.isfinite(b) else 0) for t, b in zip(total, block, strict=True)]
    if problem.slopes is not None:
        slope = flint.arb(float(problem.slopes[at]))
        gaps = np.arange(head.m) - (row + int(head.part.offset))
        if head.part.spec.alibi == "distance":
            gaps = -np.abs(gaps)
        total = [t + slope * int(g) for t, g in zip(total, gaps, strict=True)]
    return total


@dataclass
class _Row:
    weights: list[Any]  # normalised
    slopes: list[Any]  # of the softcap
    sink: Any
    lse: Any
    raw: list[Any]  # q·k


def _row(flint: Any, head: Head, keys: Any, tau: Any, row: int) -> _Row:
    arb, m, d = flint.arb, head.m, head.q.shape[1]
    keep = head.keep(slice(row, row + 1))
    q = flint.arb_mat(1, d, [arb(float(x)) for x in head.q[row]])
    product = q * keys if d and m else None
    biases = _biases(flint, head, row)
    scores: list[Any] = []
    slopes, raws = [], []
    for j in range(m):
        raw = product[0, j] if product is not None else arb(0)
        s, slope = raw * tau, arb(1)
        if head.softcap is not None:
            t = (s / arb(head.softcap)).tanh()
            s, slope = t * arb(head.softcap), 1 - t * t
        scores.append(s + biases[j] if keep is None or keep[0, j] else None)
        slopes.append(slope)
        raws.append(raw)
    live = [s for s in scores if s is not None] + ([] if head.sink is None else [arb(head.sink)])
    if not live:
        return _Row([arb(0)] * m, slopes, arb(0), None, raws)
    top = arb(max(float(s.mid()) for s in live))
    e = [arb(0) if s is None else (s - top).exp() for s in scores]
    own = arb(0) if head.sink is None else (arb(head.sink) - top).exp()
    total = sum(e, own)
    return _Row([x / total for x in e], slopes, own / total, top + total.log(), raws)


def outputs(head: Head, rows: NDArray[np.intp], prec: int = 128) -> tuple[Balls, Balls]:
    """Output (r, d_v) and natural log-sum-exp (r,) of some rows."""
    with _precision(prec) as flint:
        m, d_v, d = head.m, head.v.shape[1], head.q.shape[1]
        keys = flint.arb_mat(d, m, [flint.arb(float(x)) for x in head.k.T.ravel()])
        values = flint.arb_mat(m, d_v, [flint.arb(float(x)) for x in head.v.ravel()])
        tau, z, lse = _scale(flint, head), [], []
        for i in rows.tolist():
            row = _row(flint, head, keys, tau, i)
            out = flint.arb_mat(1, m, row.weights) * values if m else None
            z += [out[0, c] if out is not None else flint.arb(0) for c in range(d_v)]
            lse.append(flint.arb(0) if row.lse is None else row.lse)
        return _pack(flint, z, (len(rows), d_v)), _pack(flint, lse, (len(rows),))


def gradients(head: Head, grad: F64, prec: int = 128) -> dict[str, Balls]:
    """ "dq", "dk", "dv", "dbias", "dscale" and, with a sink, "dsink" of one head."""
    with _precision(prec) as flint:
        arb, n, m = flint.arb, head.n, head.m
        d, d_v = head.q.shape[1], head.v.shape[1]
        keys = flint.arb_mat(d, m, [arb(float(x)) for x in head.k.T.ravel()])
        values = flint.arb_mat(m, d_v, [arb(float(x)) for x in head.v.ravel()])
        tau = _scale(flint, head)
        p, ds, inner, scale_sum, sink_sum = [], [], [], arb(0), arb(0)
        go = flint.arb_mat(n, d_v, [arb(float(x)) for x in grad.ravel()])
        for i in range(n):
            row = _row(flint, head, keys, tau, i)
            g = flint.arb_mat(1, d_v, [go[i, c] for c in range(d_v)])
            dp = g * values.transpose()
            delta = sum((row.weights[j] * dp[0, j] for j in range(m)), arb(0))
            p += row.weights
            still = bool(head.means[i])
            mine = [arb(0) if still else row.weights[j] * (dp[0, j] - delta) for j in range(m)]
            ds += mine
            capped = [a * b for a, b in zip(mine, row.slopes, strict=True)]
            scale_sum += sum((a * b for a, b in zip(capped, row.raw, strict=True)), arb(0))
            inner += [x * tau for x in capped]
            sink_sum -= row.sink * delta
        weights, scaled = flint.arb_mat(n, m, p), flint.arb_mat(n, m, inner)
        dv = weights.transpose() * go
        dq = scaled * keys.transpose() if d else flint.arb_mat(n, 0)
        queries = flint.arb_mat(n, d, [arb(float(x)) for x in head.q.ravel()])
        dk = scaled.transpose() * queries if d else flint.arb_mat(m, 0)
        out = {
            "dq": _pack(flint, dq.entries(), (n, d)),
            "dk": _pack(flint, dk.entries(), (m, d)),
            "dv": _pack(flint, dv.entries(), (m, d_v)),
            "dbias": _pack(flint, ds, (n, m)),
            "dscale": _pack(flint, [scale_sum], ()),
        }
        if head.sink is not None:
            out["dsink"] = _pack(flint, [sink_sum], ())
        return out
