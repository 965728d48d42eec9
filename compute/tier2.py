"""Tier 2: outputs to about 1e-18 of the largest value, from + − × ÷, rint and a table alone.

Guarantees: |exact − (mid + low)| ≤ rad for each row asked for, under A2 to A4 of compute/enclosure.md (no assumption on
the library's exp or tanh), where the labels in brackets are derived. Scores are summed in two slices of about 23 bits,
or in three where they are large; a row that can't be bounded so is returned with rad = inf and a reason.
Does not: reach below 1e-16 with ALiBi slopes. Gradients: compute.tier2_backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from compute.arrays import Array, Namespace
from compute.block_sums import block_product, tree
from compute.heads import F64, Head, Mask
from compute.outward import ETA, FLOOR, UP, U, exp_up, expm1_up, row_dot, sum_up
from compute.slices import Columns, Pair, quotient
from compute.table_exp import EPS, LOW, Work, exp64, exp_pair, two_sum
from compute.tier2_scores import CAPS, Scores, exp_all, prepare, tile

TILE = 64
DEVICE_SCORES = 2**22  # scores of a tile on a device, which is slow with small ones
FAR = 2.0**-865  # e^(−599), rounded up: weights of keys that count as 0


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


@dataclass
class Weights:
    """Unnormalised weights w[0] + w[1] (2, r, padded) of rows[at], their sum as a pair, and the row's coefficients.

    The weights err by phi·w + u·|w[1]|, and keys that count as 0 by far; the sum by `sum_error`, and it is at least
    `least`. heads: sum of w[0] and the sink's. norm1, norm2: 2-norms of the two parts. outer: what 1/Σ is raised by.
    z: the output as a pair, in units of the values' columns.
    """

    at: slice
    w: F64
    sink: Pair
    heads: F64
    total: Pair
    least: F64
    sum_error: F64
    norm1: F64
    norm2: F64
    error: F64
    phi: F64
    far: F64
    lost: F64
    outer: F64
    bad: Mask
    z: Pair
    slope: Pair | None


Visit = Callable[[Scores, Columns, Weights], None]


def tight(head: Head, rows: NDArray[np.intp]) -> Tight:
    """Enclosures of the output for the given rows of one head."""
    return tight_and(head, rows, None, tile_size(head, TILE))


def tile_size(head: Head, rows: int) -> int:
    """Rows of a tile: `rows`, or more on a device."""
    return rows if head.xp is np else max(rows, DEVICE_SCORES // max(head.m, 1))


def tight_and(head: Head, rows: NDArray[np.intp], visit: Visit | None, size: int) -> Tight:
    """The same in tiles of `size` rows; `visit` is called with the operands and the weights of each tile."""
    xp, r, d_v = head.xp, len(rows), head.v.shape[1]
    out = Tight(xp.zeros((r, d_v)), xp.zeros((r, d_v)), xp.full((r, d_v), np.inf), xp.zeros(r), xp.full(r, np.inf))
    if head.softcap is not None and not CAPS[0] <= head.softcap <= CAPS[1]:
        out.refused = dict.fromkeys(range(r), "a softcap beyond 2^±900 is beyond Tier 2")
        return out
    if not r:
        return out
    where = xp.asarray(rows)
    blank = head.blank[where]
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        values, scores = _Values(head), prepare(head, where)
        buffers = _Buffers(xp, head.m, values.count * values.block, min(size, r))
        for i in range(0, r, size):
            at = slice(i, min(r, i + size))
            weights = _tile(scores, values, rows, at, buffers, out, blank[at], visit is not None)
            if visit is not None:
                visit(scores, values, weights)
    lost = ~xp.isfinite(out.rad).all(axis=1) & ~blank
    for row in np.flatnonzero(lost if xp is np else xp.asnumpy(lost)).tolist():
        out.refused.setdefault(row, "scores or values too large to be split")
    return out


class _Buffers:
    """Arrays of one tile, used again by the next."""

    def __init__(self, xp: Namespace, m: int, padded: int, rows: int) -> None:
        self.high, self.low = xp.empty((rows, m)), xp.empty((rows, m))
        self.weights = xp.zeros((2, rows, padded))
        self.work = Work((min(max(1, 32768 // max(m, 1)), rows) if xp is np else rows, m), xp)


class _Values(Columns):
    """The values' columns and their hull."""

    def __init__(self, head: Head) -> None:
        super().__init__(head.v)
        xp, v = head.xp, self.scaled
        if not head.m:
            self.low = self.high = xp.zeros(v.shape[1])
            return
        self.low, self.high = v.min(axis=0), v.max(axis=0)
        if head.sink is not None:
            self.low, self.high = xp.minimum(self.low, 0.0), xp.maximum(self.high, 0.0)


def _weights(
    o: Scores, v: Columns, rows: NDArray[np.intp], at: slice, buffers: _Buffers, graded: bool
) -> tuple[Weights, F64]:
    """Weights of a tile without z, and the rows' maxima."""
    head, r = o.head, at.stop - at.start
    xp, m = head.xp, head.m
    s = tile(o, rows, at, buffers.high[:r], buffers.low[:r], buffers.work, graded)
    w = buffers.weights[:, :r]
    grid = 1.5 * 2.0 ** (52 - v.bits)
    exp_all(s.high, s.low, w[0, :, :m], w[1, :, :m], buffers.work, grid)
    if s.keep is not None:
        w[:, :, :m] *= s.keep
    sink1 = sink2 = xp.zeros(r)
    if head.sink is not None:
        sink1, sink2 = _sink_weight(xp, head.sink, s.top, grid)
    l1 = w[0].sum(axis=1) + sink1  # (F7) exact: multiples of one unit below 2^53 of them
    l2 = tree(xp.ascontiguousarray(xp.matmul(w[1].reshape(r, v.count, v.block), xp.ones(v.block)).T)) + sink2
    dead = ~(l1 + l2 > 0)
    l1 = xp.where(dead, 1.0, l1)
    size1 = xp.sqrt(sum_up(row_dot(w[0], w[0]), m + 2)) * (1 + 4 * U)
    size2 = xp.sqrt(sum_up(row_dot(w[1], w[1]), m + 2) + 2 * m * ETA) * (1 + 4 * U)
    sum_error = path(v) * (size2 * math.sqrt(m + 1) + abs(sink2)) + 8 * U * U * (l1 + l2)
    lh, ll = two_sum(l1, l2)
    least = (lh - abs(ll) - sum_error) * (1 - 4 * U)
    edelta = exp_up(s.error)
    phi = ((expm1_up(s.error) + EPS) / (1 - EPS)) * UP  # (F10)
    lost = (m + 1) * FAR * edelta / least
    outer = edelta * (1 + EPS) / xp.maximum(1 - lost, 0.5) * UP
    bad = (s.size > LOW) | ~(lost < 0.5) | ~(least > 0)
    nothing = xp.zeros((r, 0))
    return Weights(
        at, w, (sink1, sink2), l1, (lh, ll), least, sum_error, size1, size2, s.error, phi, FAR * edelta, lost, outer,
        bad, (nothing, nothing), s.slope,
    ), s.top[:, 0]  # fmt: skip


def path(v: Columns) -> float:
    """(F8) roundings on the way of one product in the second slices, w2's own included."""
    return (v.block + v.levels + 8) * U


def _tile(
    o: Scores,
    v: _Values,
    rows: NDArray[np.intp],
    at: slice,
    buffers: _Buffers,
    out: Tight,
    blank: Mask,
    graded: bool,
) -> Weights:
    head = o.head
    xp, m = head.xp, head.m
    t, top = _weights(o, v, rows, at, buffers, graded)
    w, (lh, ll), least = t.w, t.total, t.least
    n1, n1e = v.exact(w[0])  # (F6) each block exact
    n2 = block_product(w[0], v.rest, 0, v.count) + block_product(w[1], v.whole, 0, v.count)
    # (F8) rounding of the second product, of w2, and of the error terms of the first
    first = xp.minimum(t.norm1[:, None] * v.norm, t.heads[:, None] * v.top)
    second = xp.minimum(t.norm1[:, None] * v.rest_norm, t.heads[:, None] * v.rest_top) + t.norm2[:, None] * v.norm
    e_value = path(v) * second + 8 * v.levels * U * U * first + 4 * (m + 4) * ETA
    mid, tail, e_div = quotient(two_sum(n1, n2 + n1e), (lh[:, None], ll[:, None]))
    e1 = (e_value + t.sum_error[:, None] * abs(mid) * (1 + 2.0**-40)) / least[:, None] + e_div * (1 + 2.0**-40)
    # (F10) error of the weights, by the key identity
    ratio = ((t.norm1 + t.norm2) / least)[:, None] * UP
    spread = xp.minimum(v.top, ratio * v.norm) * UP
    mean = xp.minimum(spread + abs(mid) + e1, 0.5 * (v.high - v.low) * (1 + 2 * U))
    e2 = t.outer[:, None] * (t.phi[:, None] * mean + 2 * t.lost[:, None] * (v.high - v.low))
    rad = xp.where(t.bad[:, None], np.inf, (e1 + e2) * UP + 2 * ETA)
    out.lse[at], out.lse_rad[at] = _log_sum(xp, top, t)
    t.z = mid, tail
    exponent = xp.broadcast_to(v.exponent, mid.shape)
    mid, tail, rad = xp.ldexp(mid, exponent), xp.ldexp(tail, exponent), xp.ldexp(rad, exponent) + FLOOR
    broken = ~(xp.isfinite(mid) & xp.isfinite(tail)) | xp.isnan(rad)
    for target, part, instead in ((out.mid, mid, 0.0), (out.low, tail, 0.0), (out.rad, rad, np.inf)):
        target[at] = xp.where(blank[:, None], 0.0, xp.where(broken, instead, part))
    return t


def _log_sum(xp: Namespace, top: F64, t: Weights) -> tuple[F64, F64]:
    """(F11) top + log(total); the logarithm is checked by the table exp, 1 ulp, not assumed."""
    total = t.total[0]
    guess = xp.log(total)
    back = total * exp64(-xp.maximum(guess, 0.0))
    rho = abs(back - 1.0) + 4 * U
    lse = top + guess
    rad = rho * (1 + 2 * rho) + 4 * U + t.error + 2 * EPS + 2 * t.lost + 2 * t.sum_error + U * abs(lse)
    return lse, xp.where(t.bad | (guess < 0), np.inf, rad * UP + FLOOR)


def _sink_weight(xp: Namespace, sink: float, top: Array, grid: float) -> Pair:
    """(F5) the weight of a sink, whose distance from the maximum is an exact sum of two floats."""
    high, low = two_sum(xp.full(top.shape, sink), -top)
    w1, w2 = xp.empty(top.shape), xp.empty(top.shape)
    exp_pair(xp.minimum(high, 0.0), low, w1, w2, Work((len(top), 1), xp), grid)
    return w1[:, 0], w2[:, 0]
