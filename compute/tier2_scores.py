"""Scores of Tier 2: scaled q·k, softcap and bias as pairs of floats, less their maximum, with a proven error.

Guarantees: what `tile` returns encloses every score of the rows asked for, under A2 to A4 of
compute/enclosure.md, where the labels in brackets are derived. NumPy and CuPy alike, with no library function.
Does not: reach below 1e-16 with ALiBi slopes or several biases, whose sum is formed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from compute.arrays import Array, namespace
from compute.heads import F64, Head, Mask
from compute.outward import ETA, UP, U, largest, norm_up
from compute.slices import Pair, bits_of, split_at
from compute.table_exp import EPS, LOW, Work, exp_pair, two_product, two_sum

CAPS = (2.0**-900, 2.0**900)  # softcaps that are taken
_SERIES = 128.0  # largest score below cap/_SERIES: tanh by its series
_CLIP = 400.0  # scores beyond _CLIP·cap are brought there


@dataclass
class Scores:
    """Slices of scaled queries and of keys of one head, all brought to size 1 by powers of two."""

    head: Head
    first: F64  # (r, d)
    first_k: F64  # (d, m)
    pieces: list[tuple[F64, F64]]  # products whose sum is the rest; all but the last are exact
    power: F64 | None  # (r, 1): what the scores are multiplied by; None where the slices hold it already
    rest: F64  # (r,): bound of |low part of the scores|
    error: F64  # (r,): absolute error of the sum of products, in scores
    size: F64  # (r,): bound of |scores|
    queries: Pair  # (r, d): τq as a pair, row by row of size 1
    exponent: Array  # (r, 1): the power of two of each row of `queries`


@dataclass
class TileScores:
    """Scores minus `top`, their row's maximum, are high + low ± error, with |low| ≤ size; slope: of the softcap."""

    high: F64
    low: F64
    error: F64
    keep: Mask | None
    top: F64
    size: F64
    slope: Pair | None


def scale_pair(head: Head, d: int) -> tuple[float, float]:
    """(F1) the scale as an unevaluated sum of two floats, relative error at most 2⁻¹⁰⁴."""
    scale = head.part.spec.scale
    if scale is None:
        high = 1.0 / math.sqrt(d)
        # one Newton step on 1/√d in exact rationals: the error of `high`, 2⁻⁵², is squared
        x = Fraction(high)
        return high, float(x * (1 - x * x * d) / 2)
    high = float(scale)
    return high, float(Fraction(scale) - Fraction(high)) if isinstance(scale, Fraction) else 0.0


def prepare(head: Head, rows: Array) -> Scores:
    """(F1) … (F3) for some rows of a head."""
    xp, d = head.xp, head.q.shape[1]
    high, low = scale_pair(head, max(d, 1))
    q, k = head.q[rows], head.k
    eq = xp.frexp(largest(abs(q), 1))[1][:, None]
    ek = int(xp.frexp(largest(abs(k)))[1])
    et = math.frexp(high)[1]
    q, k = xp.ldexp(q, -eq), xp.ldexp(k, xp.full(k.shape, -ek))
    if low == 0.0 and abs(math.frexp(high)[0]) == 0.5:
        qh, ql = q * math.ldexp(high, -et), xp.zeros(q.shape)
    else:
        qh, ql = two_product(q, math.ldexp(high, -et))
        ql = ql + q * math.ldexp(low, -et)
    exponent = eq + (ek + et)
    power = xp.ldexp(xp.ones(exponent.shape), xp.clip(exponent, -1022, 1023))
    size = norm_up(qh, 1) * _top(k) * power[:, 0] * UP
    slices = 2 if float(largest(size * 2.0**-20)) <= LOW else 3
    total = 52 - bits_of(d) - (slices == 3)
    bq, bk = (total + 1) // 2, total // 2
    q1, k1, kt = split_at(qh, -bq), split_at(k, -bk), k.T
    if slices == 2:
        q2, k2 = (qh - q1) + ql, k - k1
        pieces = [(xp.concatenate([q1, q2], axis=1), xp.concatenate([k2.T, kt]))]
        rest = norm_up(q1, 1) * _top(k2) + norm_up(q2, 1) * _top(k)
    else:
        q2, k2 = split_at(qh - q1, -2 * bq), split_at(k - k1, -2 * bk)
        q3, k3 = ((qh - q1) - q2) + ql, (k - k1) - k2
        pieces = [
            (xp.concatenate([q1, q2], axis=1), xp.concatenate([k2.T, k1.T])),
            (xp.concatenate([q1, q2, q3], axis=1), xp.concatenate([k3.T, (k2 + k3).T, kt])),
        ]
        rest = norm_up(q1, 1) * _top(k3) + norm_up(q2, 1) * _top(k2 + k3) + norm_up(q3, 1) * _top(k)
    # (F3) the last product in float64, the rounding of its slice, the scale's own error, and underflow
    error = (slices * d + 3) * U * rest + 2.0**-102 * norm_up(qh, 1) * _top(k) + 8 * (d + 1) * ETA
    error = error * power[:, 0] * UP + ETA * 8
    # a power that isn't a float: the scores are nothing, or unknown
    error = xp.where(exponent[:, 0] > 1023, np.inf, xp.where(exponent[:, 0] < -1022, error + 2 * size, error))
    low_size = rest * power[:, 0] * UP
    k1t = xp.ascontiguousarray(k1.T)
    queries, exponent = (qh, ql), eq + et
    if int(largest(abs(xp.frexp(power)[1]), least=0)) < 400:  # exact: the slices are powers of two away from size 1
        pieces = [(a * power, b) for a, b in pieces]
        return Scores(head, q1 * power, k1t, pieces, None, low_size, error, size, queries, exponent)
    return Scores(head, q1, k1t, pieces, power, low_size, error, size, queries, exponent)


def _top(x: F64) -> float:
    return float(largest(norm_up(x, 1)))


def runs(rows: NDArray[np.intp]) -> Iterator[slice]:
    """Slices of consecutive rows that make up `rows`, in their order."""
    if not len(rows):
        return
    cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    for a, b in pairwise(cuts):
        yield slice(int(rows[a]), int(rows[b - 1]) + 1)


def tile(o: Scores, rows: NDArray[np.intp], at: slice, high: F64, low: F64, work: Work, slope: bool) -> TileScores:
    """(F5) the scores of rows[at], minus their maximum; `high` and `low` are overwritten. slope: whether the softcap's
    is wanted."""
    head = o.head
    xp, m = head.xp, head.m
    xp.matmul(o.first[at], o.first_k, out=high)
    xp.matmul(o.pieces[-1][0][at], o.pieces[-1][1], out=low)
    error = o.error[at].copy()
    exact = len(o.pieces) == 1  # on one grid: subtracting the maximum is exact too
    middle = None if exact else xp.matmul(o.pieces[0][0][at], o.pieces[0][1])
    if o.power is not None:
        high *= o.power[at]
        low *= o.power[at]
        middle = None if middle is None else middle * o.power[at]
    if middle is not None:
        high, rest = two_sum(high, middle)
        low = rest + low
        error = error + 4 * U * U * o.size[at]
    slopes = None
    if head.softcap is not None:
        exact = False
        high, low, own, t = softcap(high, low, head.softcap, float(largest(o.size)), work)
        error = xp.minimum(error, 2 * head.softcap) + own
        slopes = slope_of(t) if slope else None
    keep = _keep(head, rows[at])
    if head.part.problem.additive or head.part.problem.slopes is not None:
        bias, bias_error = _bias(head, rows[at])
        high, rest = two_sum(high, bias)
        low = low + rest
        exact = False
        error = error + 4 * U * U * (largest(abs(bias), 1) + o.size[at])
        if bias_error is not None:
            error = error + largest(bias_error, 1)
    if keep is not None:
        high = xp.where(keep, high, -np.inf)
    top = largest(high, 1, -np.inf if head.sink is None else head.sink)
    exact = exact and head.sink is None
    top = xp.where(xp.isfinite(top), top, 0.0)[:, None]
    if keep is not None:
        high, low = xp.where(keep, high, top - 800.0), xp.where(keep, low, 0.0)
    if exact:
        high -= top
        return TileScores(high, low, error, keep, top, o.rest[at], slopes)
    high, rest = two_sum(high, -top)
    low = low + rest
    size = largest(abs(low), 1) if m else xp.zeros(len(high))
    return TileScores(high, low, error + 4 * U * size * UP, keep, top, size, slopes)


def _keep(head: Head, rows: NDArray[np.intp]) -> Mask | None:
    problem, spec = head.part.problem, head.part.spec
    bounded = spec.causal != "none" or spec.window is not None or problem.lengths is not None
    if problem.mask is None and not problem.additive and not bounded:
        return None
    xp, found = head.xp, [(run, head.keep(run)) for run in runs(rows)]
    if all(mask is None for _, mask in found):
        return None
    full = [xp.ones((run.stop - run.start, head.m), dtype=bool) if mask is None else mask for run, mask in found]
    return xp.concatenate(full) if len(full) > 1 else full[0]


def _bias(head: Head, rows: NDArray[np.intp]) -> tuple[F64, F64 | None]:
    xp, parts = head.xp, [head.bias(run) for run in runs(rows)]
    errors = [e for _, e in parts if e is not None]
    return xp.concatenate([b for b, _ in parts]), xp.concatenate(errors) if errors else None


def exp_all(high: F64, low: F64, w1: F64, w2: F64, work: Work, grid: float | None) -> None:
    """exp_pair over all rows, as many at once as `work` holds."""
    step = len(work.index)
    for j in range(0, len(high), step):
        some = slice(j, j + step)
        exp_pair(high[some], low[some], w1[some], w2[some], work, grid)


def softcap(high: F64, low: F64, cap: float, size: float, work: Work) -> tuple[F64, F64, float, Pair]:
    """c·tanh(s/c) of pairs: (high, low, error, tanh as a pair). size: bound of |s|."""
    xp = namespace(x=high)
    high, low = two_sum(high, low)
    if size * _SERIES <= cap:
        # (F13) s − s·x²(1/3 − 2x²/15 + 17x⁴/315 − 62x⁶/2835), x = s/c at most 2⁻⁷
        y = high / cap
        y = y * y
        change = high * (y * (1 / 3 - y * (2 / 15 - y * (17 / 315 - y * (62 / 2835)))))
        high, rest = two_sum(high, -change)
        low = rest + low
        return high, low, size * 2.0**-65 + 4 * ETA, _over(high, low, cap)
    # (F12) (1 − y)/(1 + y), y = e^(−2|s|/c): the argument and the quotient as pairs
    sign = xp.where(high < 0, -1.0, 1.0)
    far = abs(high) > _CLIP * cap
    low = xp.where(far, 0.0, sign * low)
    t, t_low = _over(xp.where(far, _CLIP * cap, abs(high)), low, cap / 2)
    y1, y2 = xp.empty(t.shape), xp.empty(t.shape)
    exp_all(-t, -t_low, y1, y2, work, None)
    n, n_low = two_sum(1.0, -y1)
    d, d_low = two_sum(1.0, y1)
    n_low, d_low = n_low - y2, d_low + y2
    q = n / d
    p, pe = two_product(q, d)
    q_low = (((n - p) - pe) + (n_low - q * d_low)) / d
    p, pe = two_product(q, cap)
    return sign * p, sign * (pe + cap * q_low), cap * (EPS / 2) * (1 + 2.0**-20) + 16 * ETA, (q, q_low)


def _over(high: F64, low: F64, by: float) -> Pair:
    """(F12) (high + low)/by as a pair, relative error 4u²."""
    q = high / by
    p, pe = two_product(q, by)
    return q, (((high - p) - pe) + low) / by


def slope_of(t: Pair) -> Pair:
    """(F14) 1 − t² of a pair."""
    square, rest = two_product(t[0], t[0])
    high, low = two_sum(1.0, -square)
    return high, (low - rest) - 2 * t[0] * t[1]
