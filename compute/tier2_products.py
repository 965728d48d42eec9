"""Products of Tier 2's gradients, tile by tile: go·v less a centre, times the weights, times the softcap's slope.

Guarantees: what each method returns holds its bounds by the label in brackets of compute/enclosure.md: pairs whose
first words are short enough for exact products. NumPy and CuPy alike. Arrays are used again by the next tile.
Does not: normalise; p = w/Σw is taken apart by compute.tier2_backward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compute.arrays import Array
from compute.heads import F64, Head
from compute.outward import ETA, UP, U, largest, norm_up, row_dot, sum_up
from compute.slices import Columns, Pair, bits_of, grid_at, pair_tree, split_at
from compute.table_exp import two_product
from compute.tier2 import Weights


@dataclass
class Shifted:
    """(J2) ĝ = g1 + g2 of a tile, in units of the row: go·v_j minus `centre`, a pair close to go·z.

    g1 is a multiple of a power of two, so that its product with a first word of the weights is exact; |ĝ| ≤ top,
    |g2| ≤ low_top, and ĝ is within `error` of go·v_j − centre.
    """

    first: F64
    second: F64
    centre: Pair
    top: F64
    low_top: F64
    error: F64


@dataclass
class Sliced:
    """(J3) products y1 + y2 of a tile (2, r, padded), y1 of a few bits a row.

    exponent: of the row's largest |y1|; norm1, sum1: 2-norm and sum of |y1|; norm2, top2: bounds of the 2-norm and
    the largest entry of y2; error: of the error's 2-norm; entry: of each error.
    """

    y: F64
    exponent: Array
    norm1: F64
    sum1: F64
    norm2: F64
    top2: F64
    error: F64
    entry: F64
    size: F64  # |y1| (r, m)


class Products:
    """(J1) grad_output in units of the values' columns and of its own rows, in slices; what all tiles share.

    unit (n,): a row's products are in units of 2^unit. keys: the keys' columns.
    """

    def __init__(self, head: Head, grad: F64, v: Columns, r: int) -> None:
        xp, n, m, d_v = head.xp, head.n, head.m, v.scaled.shape[1]
        self.xp, self.m = xp, m
        size = xp.where(grad == 0, -(2**20), xp.frexp(grad)[1] + v.exponent)
        top = size.max(axis=1) if d_v else xp.full(n, -(2**20))
        self.unit = xp.where(top == -(2**20), 0, top)  # a row's g in units of 2^unit
        go = xp.ldexp(grad, v.exponent - self.unit[:, None])
        total = 52 - bits_of(max(d_v, 1))
        a, b = (total + 1) // 2, total // 2
        self.go, self.go1 = go, split_at(go, -a)
        go2 = go - self.go1
        v1 = split_at(v.scaled, -b)
        v2 = v.scaled - v1
        self.go_both = xp.concatenate([self.go1, go2], axis=1)
        self.first_v = xp.ascontiguousarray(v1.T)
        self.rest_v = xp.concatenate([v2.T, v.scaled.T])
        self.bits_g = a + b
        rest = norm_up(self.go1, 1) * _top(v2) + norm_up(go2, 1) * _top(v.scaled)
        self.rest_g = rest * (1 + 2.0**-20) * UP + 4 * d_v * ETA
        self.keys = Columns(head.k)
        self.bits = v.bits
        self.buffers = [xp.empty((r, m)) for _ in range(4)]
        self.y = xp.zeros((2, r, self.keys.count * self.keys.block))

    def shifted(self, v: Columns, t: Weights) -> Shifted:
        """(J2)."""
        xp, at = self.xp, t.at
        r, (m, d_v) = at.stop - at.start, v.scaled.shape
        a, b, first = (x[:r] for x in self.buffers[:3])
        xp.matmul(self.go1[at], self.first_v, out=a)  # exact
        xp.matmul(self.go_both[at], self.rest_v, out=b)
        p, pe = two_product(self.go[at], t.z[0])
        high, low = pair_tree(xp.ascontiguousarray(p.T)) if d_v else (xp.zeros(r), xp.zeros(r))
        low = low + (pe + self.go[at] * t.z[1]).sum(axis=1)
        c1 = split_at(high, 2 - self.bits_g)
        c2 = (high - c1) + low
        a -= c1[:, None]  # exact: multiples of one unit below 2^53 of them
        top = xp.maximum(a.max(axis=1), -a.min(axis=1)) if m else xp.zeros(r)
        exponent = xp.frexp(top)[1]
        own = 52 - self.bits
        grid = grid_at(xp, exponent - own)[:, None]
        xp.add(a, grid, out=first)
        first -= grid
        a -= first  # exact
        b -= c2[:, None]
        a += b
        rest = self.rest_g[at]
        low_top = (xp.ldexp(xp.ones(r), exponent - own - 1) + rest + abs(c2)) * (1 + 4 * U)
        error = ((2 * d_v + 3) * U * rest + 4 * U * (rest + abs(c2) + low_top) + 4 * (d_v + 2) * ETA) * UP
        return Shifted(first, a, (c1, c2), (top + low_top) * UP, low_top, error)

    def weighted(self, t: Weights, g: Shifted) -> Sliced:
        """(J3) (w1 + w2)(g1 + g2) in slices; w1·g1 is exact. Overwrites g1."""
        first, second = g.first, g.second
        xp, m, r, w = self.xp, self.m, len(first), t.w
        high, low = self.buffers[3][:r], self.buffers[1][:r]
        w1, w2 = w[0, :, :m], w[1, :, :m]
        xp.multiply(w1, first, out=high)
        xp.multiply(w1, second, out=low)
        first += second
        first *= w2
        low += first
        spread = t.norm1 * g.low_top + t.norm2 * g.top
        entry = (1 + 2.0**-15) * g.low_top + 2.0 ** -(self.bits + 1) * (1 + 2.0**-20) * g.top
        return self._slice(high, low, spread, entry, xp.zeros(r), xp.zeros(r))

    def _slice(self, high: F64, low: F64, spread: F64, entry: F64, error: F64, each: F64) -> Sliced:
        """(J3) high + low as y1 + y2; spread, entry: bounds of the 2-norm and of the entries of low, which holds four
        roundings of its parts; error, each: the same of the error it had before."""
        xp, m, r = self.xp, self.m, len(high)
        top = xp.maximum(high.max(axis=1), -high.min(axis=1)) if m else xp.zeros(r)
        exponent = xp.frexp(top)[1]
        bits = self.keys.bits
        grid = grid_at(xp, exponent - bits)[:, None]
        y = self.y[:, :r]
        y1, y2 = y[0, :, :m], y[1, :, :m]
        xp.add(high, grid, out=y1)
        y1 -= grid
        xp.subtract(high, y1, out=y2)
        y2 += low
        half = xp.where(top > 0, xp.ldexp(xp.ones(r), exponent - bits - 1), 0.0)
        norm2 = (math.sqrt(m) * half + spread) * (1 + 8 * U) + m * ETA
        top2 = (half + entry) * (1 + 8 * U) + ETA
        error = error + 7 * U * norm2 * UP + 4 * (m + 1) * ETA
        each = each + 7 * U * top2 * UP + 4 * ETA
        norm1 = xp.sqrt(sum_up(row_dot(y1, y1), m + 2) + 2 * m * ETA) * (1 + 4 * U)
        size = self.buffers[2][:r]
        xp.abs(y1, out=size)
        return Sliced(y, exponent, norm1, sum_up(size.sum(axis=1), m), norm2, top2, error, each, size)

    def sloped(self, y: Sliced, slope: Pair) -> Sliced:
        """(J5) times the softcap's slope, a pair of numbers of at most 1."""
        xp, r = self.xp, len(slope[0])
        own = 52 - self.keys.bits
        s1 = split_at(slope[0], -own)
        s2 = (slope[0] - s1) + slope[1]
        m = self.m
        y1, y2 = y.y[0, :, :m], y.y[1, :, :m]
        high, low = self.buffers[3][:r], self.buffers[1][:r]
        xp.multiply(y1, s2, out=low)
        low += y2 * slope[0]
        xp.multiply(y1, s1, out=high)
        tail = 2.0 ** -(own + 1) + 2.0**-50
        entry = xp.ldexp(xp.full(r, tail), y.exponent) + y.top2 * (1 + 2.0**-20)
        return self._slice(high, low, y.norm1 * tail + y.norm2 * (1 + 2.0**-20), entry, y.error, y.entry)


def _top(x: F64) -> float:
    return float(largest(norm_up(x, 1)))
