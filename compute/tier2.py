"""Tier 2: outputs to about 1e-18 of the largest value, from + − × ÷, rint and a table alone.

Guarantees: |exact − (mid + low)| ≤ rad for each row asked for, under A2 to A4 of compute/enclosure.md (no assumption on
the library's exp), where the labels in brackets are derived. Scores are summed in two slices of about 23 bits, or in
three where they are large; a row that can't be bounded so is returned with rad = inf and a reason.
Does not: take a softcap, or reach below 1e-16 with ALiBi slopes; gradients are Tier 1's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compute.heads import F64, Head, Mask
from compute.outward import ETA, FLOOR, UP, U, exp_up, expm1_up, norm_up, sum_up
from compute.table_exp import EPS, LOW, Work, exp64, exp_pair, two_product, two_sum
from compute.tier1 import block_product, tree

BLOCK = 128
TILE = 64
FAR = 2.0**-865  # e^(−599), rounded up


@dataclass
class Tight:
    """Rows of one head: mid + low with a radius (r, d_v), natural log-sum-exp (r,) with its own; `refused` says why a
    row has none."""

    mid: F64
    low: F64
    rad: F64
    lse: F64
    lse_rad: F64
    refused: dict[int, str] = field(default_factory=dict)


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


def split_at(x: F64, exponent: Any) -> F64:
    """(F2) x rounded to multiples of 2^exponent; x minus it is exact."""
    shift = 1.5 * np.exp2(np.asarray(exponent, dtype=np.float64) + 52)
    return np.asarray((x + shift) - shift)


@dataclass
class _Operands:
    """Slices of scaled queries and of keys, all brought to size 1 by powers of two."""

    first: F64  # (r, d)
    first_k: F64  # (d, m)
    pieces: list[tuple[F64, F64]]  # products whose sum is the rest; all but the last are exact
    power: F64 | None  # (r, 1): what the scores are multiplied by; None where the slices hold it already
    rest: F64  # (r,): bound of |low part of the scores|
    error: F64  # (r,): absolute error of the sum of products, in scores
    size: F64  # (r,): bound of |scores|


def _operands(head: Head, rows: NDArray[np.intp]) -> _Operands:
    d = head.q.shape[1]
    high, low = scale_pair(head, max(d, 1))
    q, k = head.q[rows], head.k
    eq = np.frexp(np.abs(q).max(axis=1, initial=0.0))[1][:, None]
    ek = int(np.frexp(np.abs(k).max(initial=0.0))[1])
    et = math.frexp(high)[1]
    q, k = np.ldexp(q, -eq), np.ldexp(k, -ek)
    if low == 0.0 and abs(math.frexp(high)[0]) == 0.5:
        qh, ql = q * math.ldexp(high, -et), np.zeros_like(q)
    else:
        qh, ql = two_product(q, math.ldexp(high, -et))
        ql = ql + q * math.ldexp(low, -et)
    power = np.ldexp(1.0, np.clip(eq + ek + et, -1022, 1023)).astype(np.float64)
    bits = math.ceil(math.log2(d)) if d > 1 else 0
    size = norm_up(qh, 1) * float(norm_up(k, 1).max(initial=0.0)) * power[:, 0] * UP
    slices = 2 if float((size * 2.0**-20).max(initial=0.0)) <= LOW else 3
    total = 52 - bits - (slices == 3)
    bq, bk = (total + 1) // 2, total // 2
    q1 = split_at(qh, -bq)
    k1 = split_at(k, -bk)
    kt = k.T
    if slices == 2:
        q2, k2 = (qh - q1) + ql, k - k1
        pieces = [(np.hstack([q1, q2]), np.vstack([k2.T, kt]))]
        rest = norm_up(q1, 1) * _top(k2) + norm_up(q2, 1) * _top(k)
        length = 2 * d
    else:
        q2, k2 = split_at(qh - q1, -2 * bq), split_at(k - k1, -2 * bk)
        q3, k3 = ((qh - q1) - q2) + ql, (k - k1) - k2
        pieces = [
            (np.hstack([q1, q2]), np.vstack([k2.T, k1.T])),
            (np.hstack([q1, q2, q3]), np.vstack([k3.T, (k2 + k3).T, kt])),
        ]
        rest = norm_up(q1, 1) * _top(k3) + norm_up(q2, 1) * _top(k2 + k3) + norm_up(q3, 1) * _top(k)
        length = 3 * d
    # (F3) the last product in float64, the rounding of its slice, the scale's own error, and underflow
    error = (length + 3) * U * rest + 2.0**-102 * norm_up(qh, 1) * _top(k) + 8 * (d + 1) * ETA
    error = error * power[:, 0] * UP + ETA * 8
    low_size = rest * power[:, 0] * UP
    k1t = np.ascontiguousarray(k1.T)
    if np.abs(np.frexp(power)[1]).max(initial=0) < 400:  # exact: the slices are powers of two away from size 1
        pieces = [(a * power, b) for a, b in pieces]
        return _Operands(q1 * power, k1t, pieces, None, low_size, error, size)
    return _Operands(q1, k1t, pieces, power, low_size, error, size)


def _top(x: F64) -> float:
    return float(norm_up(x, 1).max(initial=0.0))


def tight(head: Head, rows: NDArray[np.intp]) -> Tight:
    """Enclosures of the output for the given rows of one head."""
    r, d_v = len(rows), head.v.shape[1]
    out = Tight(np.zeros((r, d_v)), np.zeros((r, d_v)), np.full((r, d_v), np.inf), np.zeros(r), np.full(r, np.inf))
    if head.softcap is not None:
        out.refused = dict.fromkeys(range(r), "a softcap is beyond Tier 2")
        return out
    if not r:
        return out
    values = _Values(head)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        operands = _operands(head, rows)
        buffers = _Buffers(head.m, values.count * values.block, min(TILE, r))
        for i in range(0, r, TILE):
            chosen = slice(i, min(r, i + TILE))
            _tile(head, values, operands, rows, chosen, buffers, out)
    for row in np.flatnonzero(~np.isfinite(out.rad).all(axis=1) & ~head.blank[rows]):
        out.refused.setdefault(int(row), "scores or values too large to be split")
    return out


class _Buffers:
    """Arrays of one tile, used again by the next."""

    def __init__(self, m: int, padded: int, rows: int) -> None:
        self.high, self.low = np.empty((rows, m)), np.empty((rows, m))
        self.weights = np.zeros((2, rows, padded))
        self.work = Work((min(max(1, 32768 // max(m, 1)), rows), m))


class _Values:
    """Values in two slices, blocks of keys; columns brought to size 1 by powers of two."""

    def __init__(self, head: Head) -> None:
        v, m = head.v, head.m
        top = np.abs(v).max(axis=0, initial=0.0)
        self.exponent = np.frexp(top)[1]
        v = np.ldexp(v, -self.exponent)  # (F4) what underflows here is below ETA of a column of size 1
        self.block = min(BLOCK, max(m, 1))
        self.count = -(-max(m, 1) // self.block)
        bits = math.ceil(math.log2(self.block)) if self.block > 1 else 0
        total = 52 - bits
        self.bits_w, bits_v = (total + 1) // 2, total // 2
        v1 = split_at(v, -bits_v)
        v2 = v - v1
        self.grid = 1.5 * 2.0 ** (52 - self.bits_w)
        self.v1, self.whole, self.rest = (self._pad(x) for x in (v1, v, v2))
        self.norm, self.rest_norm = norm_up(v, 0), norm_up(v2, 0)
        self.top, self.rest_top = np.abs(v).max(axis=0, initial=0.0), np.abs(v2).max(axis=0, initial=0.0)
        self.low, self.high = v.min(axis=0, initial=np.inf), v.max(axis=0, initial=-np.inf)
        if head.sink is not None or not m:
            self.low, self.high = np.minimum(self.low, 0.0), np.maximum(self.high, 0.0)
        self.levels = math.ceil(math.log2(2 * self.count)) + 1

    def _pad(self, x: F64) -> F64:
        missing = self.count * self.block - len(x)
        return np.vstack([x, np.zeros((missing, x.shape[1]))]).reshape(self.count, self.block, x.shape[1])


def _scores(
    head: Head, o: _Operands, rows: NDArray[np.intp], at: slice, buffers: _Buffers
) -> tuple[F64, F64, F64, Mask | None, F64, F64]:
    """(high, low, error, keep, top, size): scores minus top, their row's maximum, as exact high + low ± error, with
    |low| ≤ size; (F5)."""
    high, low = buffers.high[: at.stop - at.start], buffers.low[: at.stop - at.start]
    np.matmul(o.first[at], o.first_k, out=high)
    np.matmul(o.pieces[-1][0][at], o.pieces[-1][1], out=low)
    error = o.error[at].copy()
    exact = len(o.pieces) == 1  # on one grid: subtracting the maximum is exact too
    middle = None if exact else np.matmul(o.pieces[0][0][at], o.pieces[0][1])
    if o.power is not None:
        high *= o.power[at]
        low *= o.power[at]
        middle = None if middle is None else middle * o.power[at]
    if middle is not None:
        high, rest = two_sum(high, middle)
        low = rest + low
        error = error + 4 * U * U * o.size[at]
    masks = [head.keep(slice(int(i), int(i) + 1)) for i in rows[at]] if _masked(head) else []
    keep = None
    if any(x is not None for x in masks):
        keep = np.vstack([np.ones((1, head.m), bool) if x is None else x for x in masks])
    if head.part.problem.additive or head.part.problem.slopes is not None:
        pairs = [head.bias(slice(int(i), int(i) + 1)) for i in rows[at]]
        bias = np.vstack([b for b, _ in pairs if b is not None])
        high, rest = two_sum(high, bias)
        low = low + rest
        exact = False
        error = error + 4 * U * U * (np.abs(bias).max(axis=1, initial=0.0) + o.size[at])
        if pairs[0][1] is not None:
            error = error + np.vstack([e for _, e in pairs if e is not None]).max(axis=1)
    if keep is not None:
        high = np.where(keep, high, -np.inf)
    top = high.max(axis=1, initial=-np.inf)
    if head.sink is not None:
        top = np.maximum(top, head.sink)
        exact = False
    top = np.where(np.isfinite(top), top, 0.0)[:, None]
    if keep is not None:
        high, low = np.where(keep, high, top - 800.0), np.where(keep, low, 0.0)
    if exact:
        high -= top
        return high, low, error, keep, top, o.rest[at]
    high, rest = two_sum(high, -top)
    low = low + rest
    size = np.abs(low).max(axis=1, initial=0.0)
    return high, low, error + 4 * U * size * UP, keep, top, size


def _masked(head: Head) -> bool:
    problem, spec = head.part.problem, head.part.spec
    return bool(
        problem.mask is not None
        or problem.additive
        or problem.lengths is not None
        or spec.causal != "none"
        or spec.window is not None
    )


def _tile(
    head: Head, v: _Values, o: _Operands, rows: NDArray[np.intp], at: slice, buffers: _Buffers, out: Tight
) -> None:
    m, r, block, count, work = head.m, at.stop - at.start, v.block, v.count, buffers.work
    high, low, error, keep, top, size_low = _scores(head, o, rows, at, buffers)
    w = buffers.weights[:, :r]
    step = len(work.index)
    for j in range(0, r, step):
        some = slice(j, min(r, j + step))
        exp_pair(high[some], low[some], w[0, some, :m], w[1, some, :m], work, v.grid)
    if keep is not None:
        w[:, :, :m] *= keep
    sink1 = sink2 = np.zeros(r)
    if head.sink is not None:
        sink1, sink2 = _sink_weight(head.sink, top, v.grid)
    n1, n1e = _pair_tree(np.matmul(w[0].reshape(r, count, block).transpose(1, 0, 2), v.v1))  # (F6) each block exact
    n2 = block_product(w[0], v.rest, 0, count) + block_product(w[1], v.whole, 0, count)
    n2 = n2 + n1e
    l1 = w[0].sum(axis=1) + sink1  # (F7) exact: multiples of one unit below 2^53 of them
    l2 = tree(np.ascontiguousarray(np.matmul(w[1].reshape(r, count, block), np.ones(block)).T)) + sink2
    total = l1 + l2
    dead = ~(total > 0)
    total = np.where(dead, 1.0, total)
    size1 = np.sqrt(sum_up(np.vecdot(w[0], w[0]), m + 2)) * (1 + 4 * U)
    size2 = np.sqrt(sum_up(np.vecdot(w[1], w[1]), m + 2) + 2 * m * ETA) * (1 + 4 * U)
    # (F8) rounding of the second product, of w2, and of the error terms of the first
    path = (block + v.levels + 8) * U
    first = np.minimum(size1[:, None] * v.norm, l1[:, None] * v.top)
    second = np.minimum(size1[:, None] * v.rest_norm, l1[:, None] * v.rest_top) + size2[:, None] * v.norm
    e_value = path * second + 8 * v.levels * U * U * first + 4 * (m + 4) * ETA
    e_norm = path * size2 * math.sqrt(m + 1) + 8 * U * U * total
    # (F9) quotient of two unevaluated sums
    nh, nl = two_sum(n1, n2)
    lh, ll = two_sum(l1, l2)
    lh, ll = np.where(dead, 1.0, lh)[:, None], ll[:, None]
    q = nh / lh
    p, pe = two_product(q, lh)
    rest = ((nh - p) - pe) + (nl - q * ll)
    mid, tail = two_sum(q, rest / lh)
    sized = np.abs(nh - p) + np.abs(pe) + np.abs(nl) + np.abs(q * ll)
    e_div = (8 * U * sized + 4 * U * np.abs(rest)) / lh + 4 * ETA
    lowest = (lh - np.abs(ll) - e_norm[:, None]) * (1 - 4 * U)
    e1 = (e_value + e_norm[:, None] * np.abs(mid) * (1 + 2.0**-40)) / lowest + e_div * (1 + 2.0**-40)
    # (F10) error of the weights, by the key identity
    ratio = ((size1 + size2) / lowest[:, 0])[:, None] * UP
    spread = np.minimum(v.top, ratio * v.norm) * UP
    with np.errstate(invalid="ignore"):
        mean = np.minimum(spread + np.abs(mid) + e1, 0.5 * (v.high - v.low) * (1 + 2 * U))
    edelta = exp_up(error)
    phi = ((expm1_up(error) + EPS) / (1 - EPS)) * UP
    lost = m * FAR * edelta / lowest[:, 0]
    outer = edelta * (1 + EPS) / np.maximum(1 - lost, 0.5) * UP
    e2 = outer[:, None] * (phi[:, None] * mean + 2 * lost[:, None] * (v.high - v.low))
    bad = (size_low > LOW) | ~(lost < 0.5) | ~(lowest[:, 0] > 0)
    rad = np.where(bad[:, None], np.inf, (e1 + e2) * UP + 2 * ETA)
    out.lse[at], out.lse_rad[at] = _log_sum(top[:, 0], lh[:, 0], error, lost, e_norm, bad)
    exponent = v.exponent
    out.mid[at], out.low[at] = np.ldexp(mid, exponent), np.ldexp(tail, exponent)
    out.rad[at] = np.ldexp(rad, exponent) + FLOOR
    blank = head.blank[rows[at]]
    for part in (out.mid, out.low, out.rad):
        part[at][blank] = 0.0
    broken = ~(np.isfinite(out.mid[at]) & np.isfinite(out.low[at])) | np.isnan(out.rad[at])
    out.rad[at] = np.where(broken, np.inf, out.rad[at])
    out.mid[at] = np.where(broken, 0.0, out.mid[at])
    out.low[at] = np.where(broken, 0.0, out.low[at])


def _log_sum(top: F64, total: F64, error: F64, lost: F64, e_norm: F64, bad: Mask) -> tuple[F64, F64]:
    """(F11) top + log(total); the logarithm is checked by the table exp, 1 ulp, not assumed."""
    guess = np.log(total)
    back = total * exp64(-np.maximum(guess, 0.0))
    rho = np.abs(back - 1.0) + 4 * U
    lse = top + guess
    rad = rho * (1 + 2 * rho) + 4 * U + error + 2 * EPS + 2 * lost + 2 * e_norm + U * np.abs(lse)
    return lse, np.where(bad | (guess < 0), np.inf, rad * UP + FLOOR)


def _sink_weight(sink: float, top: F64, grid: float) -> tuple[F64, F64]:
    """(F5) the weight of a sink, whose distance from the maximum is an exact sum of two floats."""
    high, low = two_sum(np.full_like(top, sink), -top)
    w1, w2 = np.empty_like(top), np.empty_like(top)
    exp_pair(np.minimum(high, 0.0), low, w1, w2, Work((len(top), 1)), grid)
    return w1[:, 0], w2[:, 0]


def _pair_tree(x: F64) -> tuple[F64, F64]:
    """Sum over the first axis: heads in a tree without error, and the sum of what was rounded off."""
    lost = np.zeros_like(x[0])
    while x.shape[0] > 1:
        half = (x.shape[0] + 1) // 2
        pairs = x.shape[0] - half
        s, e = two_sum(x[:pairs], x[half:])
        lost += e.sum(axis=0)
        x = np.concatenate([s, x[pairs:half]], axis=0) if half > pairs else s
    return x[0], lost
