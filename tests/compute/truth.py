"""Attention and its gradients in Arb's interval arithmetic, by the definition: what every proof here is held to.

Guarantees: each returned ball contains the exact real value (python-flint, at `prec` bits); nothing of `compute` is
imported, so that it shares no mistake with what it judges.
Does not: run fast; use it for a few thousand entries.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpq


def _matrix(x: np.ndarray) -> arb_mat:
    return arb_mat(x.shape[0], x.shape[1], [arb(float(e)) for e in x.ravel()])


def _scale(scale: float | Fraction | None, d: int) -> arb:
    if scale is None:
        return 1 / arb(d).sqrt()
    if isinstance(scale, Fraction):
        return arb(fmpq(scale.numerator, scale.denominator))
    return arb(float(scale))


def truth(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    scale: float | Fraction | None = None,
    keep: np.ndarray | None = None,
    biases: tuple[np.ndarray, ...] = (),
    softcap: float | None = None,
    sink: float | None = None,
    grad_output: np.ndarray | None = None,
    prec: int = 200,
) -> dict[str, Any]:
    """{"z", "lse", "rows"} and with grad_output also "dq", "dk", "dv", "dbias", "dscale", "dsink", as balls.

    keep: bool (n, m). biases: matrices that are added exactly. Rows without a key and without a sink are left out of
    "rows"; their z is 0 and they give nothing to a gradient.
    """
    old, ctx.prec = ctx.prec, prec
    try:
        return _truth(q, k, v, scale, keep, biases, softcap, sink, grad_output)
    finally:
        ctx.prec = old


def _truth(q, k, v, scale, keep, biases, softcap, sink, grad_output):
    n, d = q.shape
    m, d_v = v.shape
    tau, zero = _scale(scale, d), arb(0)
    kt = _matrix(np.ascontiguousarray(k.T))
    raw = _matrix(q) * kt if d else arb_mat(n, m)
    weights, slopes, sinks, lse, rows = [], [], [], [], []
    for i in range(n):
        scores: list[arb | None] = []
        for j in range(m):
            slope = arb(1)
            if keep is not None and not keep[i, j]:
                scores.append(None)
                slopes.append(zero)
                continue
            s = raw[i, j] * tau
            if softcap is not None:
                t = (s / arb(softcap)).tanh()
                s, slope = t * arb(softcap), 1 - t * t
            for bias in biases:
                s = s + arb(float(bias[i, j]))
            scores.append(s)
            slopes.append(slope)
        live = [s for s in scores if s is not None] + ([] if sink is None else [arb(sink)])
        if not live:
            weights += [zero] * m
            sinks.append(zero)
            lse.append(None)
            continue
        rows.append(i)
        shift = arb(max(float(s.mid()) for s in live))
        e = [zero if s is None else (s - shift).exp() for s in scores]
        own = zero if sink is None else (arb(sink) - shift).exp()
        total = sum(e, own)
        weights += [x / total for x in e]
        sinks.append(own / total)
        lse.append(shift + total.log())
    p = arb_mat(n, m, weights)
    z = p * _matrix(v)
    out: dict[str, Any] = {"z": z, "lse": lse, "rows": rows}
    if grad_output is None:
        return out
    go = _matrix(grad_output)
    dp = go * _matrix(np.ascontiguousarray(v.T))
    delta = [sum((go[i, c] * z[i, c] for c in range(d_v)), zero) for i in range(n)]
    ds = arb_mat(n, m, [p[i, j] * (dp[i, j] - delta[i]) for i in range(n) for j in range(m)])
    inner = arb_mat(n, m, [ds[i, j] * slopes[i * m + j] for i in range(n) for j in range(m)])
    scaled = arb_mat(n, m, [inner[i, j] * tau for i in range(n) for j in range(m)])
    out["dv"] = p.transpose() * go
    out["dq"] = scaled * _matrix(k) if d else arb_mat(n, 0)
    out["dk"] = scaled.transpose() * _matrix(q) if d else arb_mat(m, 0)
    out["dbias"] = ds
    out["dscale"] = sum((inner[i, j] * raw[i, j] for i in range(n) for j in range(m)), zero)
    out["dsink"] = sum((-sinks[i] * delta[i] for i in range(n)), zero)
    return out


def array(matrix: arb_mat) -> np.ndarray:
    """Midpoints as float64."""
    return np.array(
        [[float(matrix[i, j].mid()) for j in range(matrix.ncols())] for i in range(matrix.nrows())]
    ).reshape(matrix.nrows(), matrix.ncols())


def excess(exact: arb, mid: float, rad: float, low: float = 0.0, prec: int = 200) -> float:
    """Least |exact − (mid + low)| over the ball, divided by rad: above 1 the enclosure is proved wrong.

    0 where rad is infinite; inf where rad is 0 and the ball excludes mid.
    """
    old, ctx.prec = ctx.prec, prec
    try:
        if rad == np.inf:
            return 0.0
        if not (np.isfinite(mid) and np.isfinite(rad)):
            return np.inf
        gap = abs(exact - arb(float(mid)) - arb(float(low))).lower()
        if not gap > 0:
            return 0.0
        if rad == 0:
            return np.inf
        ratio = gap / arb(float(rad))
        return float(ratio.mid()) if ratio > 1 else min(1.0, float(ratio.mid()))
    finally:
        ctx.prec = old
