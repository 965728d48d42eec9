"""Tier 2 for gradients: dQ, dK, dV, of bias, scale and sink, to about 1e-17 of the largest, tile by tile.

Guarantees: |exact − (mid + low)| ≤ rad entry by entry, the exact gradients being those of Σ grad_output·output, under
A2 to A4 of compute/enclosure.md (no library's exp), where the labels in brackets are derived. NumPy and CuPy alike.
Does not: bound dK, dV, dscale and dsink of a head in which one row can't be bounded: they are sums over all rows, and
have rad = inf then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from compute.arb import Balls
from compute.arrays import Array, Namespace
from compute.heads import F64, Head
from compute.outward import ETA, FLOOR, UP, U, largest, norm_up, row_dot, sum_up
from compute.row_sums import RowSums
from compute.slices import Columns, Pair, bits_of, grid_at, pair_tree, quotient, split_at
from compute.table_exp import two_product, two_sum
from compute.tier1 import block_product, tree
from compute.tier2 import Tight, Weights, path, tight_and, tile_size
from compute.tier2_scores import Scores, scale_pair

TILE = 128


@dataclass
class TightGradients:
    """Gradients of one head in the shapes of q, k and v; dbias (n, m) only where asked for; dscale and dsink ().

    rad is inf, with mid and low 0, where nothing could be bounded.
    """

    dq: Balls
    dk: Balls
    dv: Balls
    dbias: Balls | None
    dscale: Balls
    dsink: Balls | None


def tight_backward(head: Head, grad: F64, *, want_bias: bool = False) -> tuple[Tight, TightGradients]:
    """Enclosures of output, log-sum-exp and all gradients of one head; grad (n, d_v) is exact as given."""
    xp = head.xp
    sums = _Sums(head, xp.where(head.blank[:, None], 0.0, grad), want_bias)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        out = tight_and(head, np.arange(head.n), sums.add, tile_size(head, TILE))
        return out, sums.finish()


@dataclass
class _Shifted:
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
class _Sliced:
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


class _Sums:
    """What the tiles add up, and what they share."""

    def __init__(self, head: Head, grad: F64, want_bias: bool) -> None:
        self.head, self.grad = head, grad
        xp = self.xp = head.xp
        (n, d), m = head.q.shape, head.m
        self.ready = False
        zero = xp.zeros
        self.dq = Balls(zero((n, d)), zero((n, d)), xp.full((n, d), np.inf))
        self.dbias = Balls(zero((n, m)), zero((n, m)), xp.full((n, m), np.inf)) if want_bias else None
        self.refused = False
        self.scale_parts: list[tuple[F64, F64, F64]] = []
        self.sink_parts: list[tuple[F64, F64, F64]] = []

    def _prepare(self, o: Scores, v: Columns) -> None:
        """(J1) grad_output in units of the values' columns and of its own rows, in slices; what all tiles share."""
        head, xp, grad = self.head, self.xp, self.grad
        n, d_v, d = head.n, v.scaled.shape[1], head.q.shape[1]
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
        high, low = scale_pair(head, max(d, 1))
        self.scale_exponent = math.frexp(high)[1]
        self.scale = math.ldexp(high, -self.scale_exponent), math.ldexp(low, -self.scale_exponent)
        # units of dk, of dv, of the sum for dscale and of dsink: one power of two each, from the largest
        self.unit_k = int((o.exponent[:, 0] + self.unit).max())
        self.unit_v = int(xp.frexp(largest(abs(grad)))[1])
        q_size = xp.where(head.q == 0, -(2**20), xp.frexp(head.q)[1] + self.keys.exponent) + self.unit[:, None]
        most = int(q_size.max()) if q_size.size else 0
        self.unit_scale = most if most > -(2**19) else 0
        self.unit_sink = int(self.unit.max())
        self.ready = True

    def _start(self, o: Scores, v: Columns, r: int) -> None:
        self._prepare(o, v)
        xp, head = self.xp, self.head
        m, count = head.m, -(-head.n // r)
        self.dk = RowSums(xp, m, head.q.shape[1], self.keys.bits, count)
        self.dv = RowSums(xp, m, head.v.shape[1], self.bits, count)
        self.weight, self.score = xp.zeros(m), xp.zeros(m)
        self.tops = [xp.zeros(head.q.shape[1]) for _ in range(3)] + [xp.zeros(head.v.shape[1]) for _ in range(2)]
        self.buffers = [xp.empty((r, m)) for _ in range(4)]
        self.y = xp.zeros((2, r, self.keys.count * self.keys.block))

    # -- one tile ---------------------------------------------------------------------------------------------------

    def add(self, o: Scores, v: Columns, t: Weights) -> None:
        """One tile: from its weights to all gradients."""
        if not self.ready:
            self._start(o, v, t.at.stop - t.at.start)
        head, xp, at = self.head, self.xp, t.at
        # (J4) p = p̂(1 + π) + ν, p̂ the weight before its last roundings over the computed sum
        kappa = t.phi * (1 + t.sum_error / t.least) + t.lost + t.sum_error / t.least
        small = kappa < 0.25
        kappa = xp.where(small, kappa, 0.0)
        pi = (t.phi + kappa) / (1 - kappa) * UP
        nu = t.far / t.least / (1 - kappa) * UP
        inverse = (1 + 4 * U) / t.least
        g = self._shifted(v, t)
        y = self._product(t, g)
        shift, sink = self._shift(v, t, g, y)
        e_g = (g.error + shift) * UP
        c2 = (1 + pi) * e_g
        if self.dbias is not None:
            self._bias(t, y, pi, c2, nu * (g.top + e_g), inverse)
        if t.slope is not None:
            assert head.softcap is not None
            y = self._sloped(y, t.slope)
            e_slope = 2 * t.error / head.softcap * UP + 2.0**-98
            small = small & (e_slope < 2.0**-20)
            c2 = c2 + (1 + pi) * g.top * e_slope * (1 + 2.0**-20)
        c2 = c2 * UP
        lost = nu * (g.top + e_g) * UP
        self._queries(t, y, pi, c2, lost)
        self._keys(o, t, y, pi, c2, lost, inverse)
        self._values(t, pi, nu, inverse)
        if head.sink is not None:
            self._sinks(t, g, sink, pi, shift, nu)
        bad = t.bad | ~small | ~xp.isfinite(e_g) | ~xp.isfinite(pi)
        bad = bad & ~head.blank[at]
        self.refused = self.refused or bool(bad.any())
        self.dq.rad[at] = xp.where(bad[:, None], np.inf, self.dq.rad[at])
        if self.dbias is not None:
            self.dbias.rad[at] = xp.where(bad[:, None], np.inf, self.dbias.rad[at])

    def _shifted(self, v: Columns, t: Weights) -> _Shifted:
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
        return _Shifted(first, a, (c1, c2), (top + low_top) * UP, low_top, error)

    def _product(self, t: Weights, g: _Shifted) -> _Sliced:
        """(J3) (w1 + w2)(g1 + g2) in slices; w1·g1 is exact. Overwrites g1."""
        first, second = g.first, g.second
        xp, m, r, w = self.xp, self.head.m, len(first), t.w
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

    def _slice(self, high: F64, low: F64, spread: F64, entry: F64, error: F64, each: F64) -> _Sliced:
        """(J3) high + low as y1 + y2; spread, entry: bounds of the 2-norm and of the entries of low, which holds four
        roundings of its parts; error, each: the same of the error it had before."""
        xp, m, r = self.xp, self.head.m, len(high)
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
        return _Sliced(y, exponent, norm1, sum_up(size.sum(axis=1), m), norm2, top2, error, each)

    def _sloped(self, y: _Sliced, slope: Pair) -> _Sliced:
        """(J5) times the softcap's slope, a pair of numbers of at most 1."""
        xp, r = self.xp, len(slope[0])
        own = 52 - self.keys.bits
        s1 = split_at(slope[0], -own)
        s2 = (slope[0] - s1) + slope[1]
        m = self.head.m
        y1, y2 = y.y[0, :, :m], y.y[1, :, :m]
        high, low = self.buffers[3][:r], self.buffers[1][:r]
        xp.multiply(y1, s2, out=low)
        low += y2 * slope[0]
        xp.multiply(y1, s1, out=high)
        tail = 2.0 ** -(own + 1) + 2.0**-50
        entry = xp.ldexp(xp.full(r, tail), y.exponent) + y.top2 * (1 + 2.0**-20)
        return self._slice(high, low, y.norm1 * tail + y.norm2 * (1 + 2.0**-20), entry, y.error, y.entry)

    def _shift(self, v: Columns, t: Weights, g: _Shifted, y: _Sliced) -> tuple[F64, tuple[F64, F64, F64]]:
        """(J7) bound of δ = Σp(go·v − centre), what the centre differs from go·z; and the sink's product with it."""
        xp, m = self.xp, self.head.m
        r = t.at.stop - t.at.start
        c1, c2 = g.centre
        s1, s2 = t.sink
        p, pe = two_product(s1, c1)
        small = s1 * c2 + s2 * c1
        own = pe + small
        sink_error = 8 * U * (abs(s1 * c2) + abs(s2 * c1) + abs(s2 * c2) + abs(pe)) + 4 * ETA + abs(s2 * c2)
        blocks = y.y[1].reshape(r, self.keys.count, self.keys.block)
        rest = tree(xp.ascontiguousarray(xp.matmul(blocks, xp.ones(self.keys.block)).T))
        total, e = two_sum(y.y[0].sum(axis=1), -p)  # the sum is exact: multiples of one unit
        left = total + ((e + rest) - own)
        root = math.sqrt(m) * (1 + 4 * U)
        summed = path(self.keys) * root * y.norm2 + 8 * U * (abs(rest) + abs(own) + abs(e)) + sink_error
        weights = t.total[0] * (1 + 2.0**-20)
        size = y.sum1 + root * (y.norm2 + y.error) + weights * g.error + abs(p) * (1 + 2.0**-20) + abs(own)
        inner = abs(left) * (1 + 4 * U) + summed + root * y.error + weights * g.error + t.phi * size
        inner = inner + (m + 1) * t.far * (g.top + g.error + abs(c1) + abs(c2))
        return t.outer / t.least * inner * UP, (p, own, sink_error)

    def _bias(self, t: Weights, y: _Sliced, pi: F64, c2: F64, lost: F64, inverse: F64) -> None:
        """(J8) dS itself."""
        assert self.dbias is not None
        xp, at, m = self.xp, t.at, self.head.m
        total = t.total[0][:, None], t.total[1][:, None]
        y1, y2 = y.y[0, :, :m], y.y[1, :, :m]
        mid, low, e_div = quotient(two_sum(y1, y2), total)
        weight = t.w[0, :, :m] + abs(t.w[1, :, :m])
        rad = pi[:, None] * (abs(y1) + abs(y2)) + (c2 * UP)[:, None] * weight * (1 + 4 * U) + 2 * y.entry[:, None]
        rad = (rad * inverse[:, None] + lost[:, None] * UP + e_div * (1 + 2.0**-40)) * UP
        unit = xp.broadcast_to(self.unit[at][:, None], mid.shape)
        for target, part in ((self.dbias.mid, mid), (self.dbias.low, low), (self.dbias.rad, rad)):
            target[at] = xp.ldexp(part, unit)

    def _queries(self, t: Weights, y: _Sliced, pi: F64, c2: F64, lost: F64) -> None:
        """(J9) Σ_j dS k, times the scale; and with q for the scale's gradient."""
        head, xp, at, k, m = self.head, self.xp, t.at, self.keys, self.head.m
        n1, n1e = k.exact(y.y[0])
        n2 = block_product(y.y[0], k.rest, 0, k.count) + block_product(y.y[1], k.whole, 0, k.count)
        norm1, sum1 = y.norm1[:, None], y.sum1[:, None]
        first = xp.minimum(norm1 * k.norm, sum1 * k.top)
        second = xp.minimum(norm1 * k.rest_norm, sum1 * k.rest_top) + y.norm2[:, None] * k.norm
        e_dot = path(k) * second + 8 * k.levels * U * U * first + 4 * (m + 4) * ETA * (1 + sum1)
        mid, low, e_div = quotient(two_sum(n1, n2 + n1e), (t.total[0][:, None], t.total[1][:, None]))
        whole = xp.minimum((t.norm1 + t.norm2)[:, None] * k.norm, (t.total[0] * (1 + 2.0**-20))[:, None] * k.top)
        rad = pi[:, None] * (first + (y.norm2 + y.error)[:, None] * k.norm) + c2[:, None] * whole
        rad = (rad + y.error[:, None] * k.norm + e_dot) / t.least[:, None] * UP + e_div * (1 + 2.0**-40)
        rad = (rad + (m * lost)[:, None] * k.top) * UP
        # the scale's gradient: q times this, in one unit
        q = xp.ldexp(head.q[at], k.exponent + (self.unit[at] - self.unit_scale)[:, None])
        p, pe = two_product(q, mid)
        self.scale_parts.append(
            self._added(p, pe + q * low, abs(q) * (rad + 8 * U * abs(low) + 4 * U * U * abs(mid)) + 8 * ETA)
        )
        # (F1) the scale itself
        high, tail = self.scale
        p, pe = two_product(mid, high)
        rest = pe + (mid * tail + low * high)
        rad = rad * (abs(high) * (1 + 4 * U)) + 2.0**-100 * abs(mid) + 8 * ETA
        mid, low = two_sum(p, rest)
        still = (head.means[at] | head.blank[at])[:, None]
        unit = k.exponent + (self.unit[at] + self.scale_exponent)[:, None]
        for target, part in ((self.dq.mid, mid), (self.dq.low, low), (self.dq.rad, rad * UP)):
            target[at] = xp.where(still, 0.0, xp.ldexp(part, unit))

    def _added(self, high: F64, low: F64, rad: F64) -> tuple[F64, F64, F64]:
        """Sum of all entries as a pair, and of their radii and low parts' roundings."""
        high, low, rad = (x.reshape(-1) for x in (high, low, rad))
        if not high.size:
            zero = self.xp.zeros(())
            return zero, zero, zero
        total, lost = pair_tree(high)
        count = high.size
        size = abs(low).sum() + 2 * bits_of(count) * U * abs(high).sum()
        return total, lost + low.sum(), (rad.sum() + (count + 8) * U * size) * (1 + 4 * (count + 8) * U)

    def _keys(self, o: Scores, t: Weights, y: _Sliced, pi: F64, c2: F64, lost: F64, inverse: F64) -> None:
        """(J10) Σ_i dS τq."""
        xp, at = self.xp, t.at
        r = at.stop - at.start
        q1, q2 = o.queries[0][at], o.queries[1][at]
        unit = xp.broadcast_to((o.exponent[at, 0] + self.unit[at] - self.unit_k)[:, None], q1.shape)
        mid, low, _ = quotient((q1, q2), (t.total[0][:, None], t.total[1][:, None]))
        size = xp.ldexp(abs(q1) * (1 + 4 * U), unit) + ETA  # |τq|
        shares = xp.stack([inverse, xp.ldexp(xp.ones(r), -y.exponent)]) @ self.buffers[2][:r]
        shares = sum_up(shares, r + 2)
        self.score += shares[0] + sum_up((inverse * (y.top2 + y.entry)).sum(), r)
        x = xp.ldexp(mid, unit), xp.ldexp(low, unit)
        self.dk.add(y.y, x, y.exponent, y.top2, shares[1])
        top = self.tops
        top[0] = xp.maximum(top[0], largest(pi[:, None] * size, 0))
        top[1] = xp.maximum(top[1], largest(c2[:, None] * size, 0))
        top[2] = xp.maximum(top[2], largest(size, 0))
        each = (2 * y.entry * inverse + lost)[:, None] * size + 8 * ETA * (1 + xp.ldexp(xp.ones(r), y.exponent))[
            :, None
        ]
        self.dk.lost += sum_up(each.sum(axis=0), r + 2)

    def _values(self, t: Weights, pi: F64, nu: F64, inverse: F64) -> None:
        """(J11) Σ_i p go."""
        xp, at, m = self.xp, t.at, self.head.m
        r = at.stop - at.start
        grad = self.grad[at]
        go = xp.ldexp(grad, xp.full(grad.shape, -self.unit_v))
        mid, low, _ = quotient((go, 0.0), (t.total[0][:, None], t.total[1][:, None]))
        tail = 2.0 ** -(self.bits + 1) * (1 + 2.0**-20)
        shares = sum_up(xp.stack([inverse, xp.ones(r)]) @ t.w[0, :, :m], r + 2)
        self.weight += shares[0] + sum_up((inverse * tail).sum(), r)
        self.dv.add(t.w, (mid, low), None, xp.full(r, tail), shares[1])
        size = abs(go) + ETA
        self.tops[3] = xp.maximum(self.tops[3], largest(pi[:, None] * size, 0))
        self.tops[4] = xp.maximum(self.tops[4], largest(size, 0))
        self.dv.lost += sum_up((nu[:, None] * size + 8 * ETA).sum(axis=0), r + 2)

    def _sinks(self, t: Weights, g: _Shifted, product: tuple[F64, F64, F64], pi: F64, shift: F64, nu: F64) -> None:
        """(J12) −Σ_i p_sink·D, D the centre plus δ."""
        xp, at = self.xp, t.at
        p, own, e = product
        mid, low, e_div = quotient(two_sum(-p, -own), t.total)
        weight = (t.sink[0] + abs(t.sink[1])) / t.least * UP
        size = abs(g.centre[0]) + abs(g.centre[1])
        rad = (pi * weight + nu) * size + ((1 + pi) * weight + nu) * shift + e / t.least + e_div * (1 + 2.0**-40)
        rad = rad + 2 * U * abs(t.sink[1]) / t.least * size
        unit = self.unit[at] - self.unit_sink
        mid, low, rad = (xp.ldexp(x, unit) for x in (mid, low, rad * UP))
        self.sink_parts.append(self._added(mid, low, rad + 4 * ETA))

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> TightGradients:
        """All gradients of the head."""
        head, xp = self.head, self.xp
        (n, d), m, d_v = head.q.shape, head.m, head.v.shape[1]
        if not self.ready:
            lost = np.inf if n else 0.0
            shapes = ((m, d), (m, d_v), ())
            dk, dv, one = (Balls(xp.zeros(shape), xp.zeros(shape), xp.full(shape, lost)) for shape in shapes)
            return TightGradients(self.dq, dk, dv, self.dbias, one, None if head.sink is None else one)
        top = self.tops
        pairs = [(self.score, top[0]), (self.weight, top[1])]
        dk = self._scaled(self.dk, self.dk.radius(pairs, (self.score, top[2])), self.unit_k)
        dv = self._scaled(self.dv, self.dv.radius([(self.weight, top[3])], (self.weight, top[4])), self.unit_v)
        dscale = self._total(self.scale_parts, self.unit_scale)
        dsink = None if head.sink is None else self._total(self.sink_parts, self.unit_sink)
        for part in (self.dq, self.dbias):
            if part is not None:
                part.rad += FLOOR
        if self.dbias is not None:
            for x in (self.dbias.mid, self.dbias.low, self.dbias.rad):
                x[head.empty] = 0.0
        for part in (self.dq, dk, dv, self.dbias, dscale, dsink):
            _tame(xp, part)
        return TightGradients(self.dq, dk, dv, self.dbias, dscale, dsink)

    def _scaled(self, rows: RowSums, rad: F64, exponent: int) -> Balls:
        xp = self.xp
        mid, low = two_sum(rows.high, rows.low)
        unit = xp.full(mid.shape, exponent)
        rad = xp.ldexp(rad, unit) + FLOOR
        return Balls(xp.ldexp(mid, unit), xp.ldexp(low, unit), xp.full(rad.shape, np.inf) if self.refused else rad)

    def _total(self, parts: list[tuple[F64, F64, F64]], exponent: int) -> Balls:
        """Sum over tiles as a pair."""
        xp = self.xp
        high, low, rad = (xp.stack([p[i] for p in parts]) for i in range(3))
        total, rest, error = self._added(high, low, rad)
        mid, low = two_sum(total, rest)
        unit = xp.full((), exponent)
        rad = xp.ldexp((error + 2 * U * abs(rest)) * UP, unit) + FLOOR
        return Balls(xp.ldexp(mid, unit), xp.ldexp(low, unit), xp.full((), np.inf) if self.refused else rad)


def _top(x: F64) -> float:
    return float(largest(norm_up(x, 1)))


def _tame(xp: Namespace, part: Balls | None) -> None:
    """An overflow on the way leaves no bound."""
    if part is None:
        return
    bad = ~(xp.isfinite(part.mid) & xp.isfinite(part.low) & xp.isfinite(part.rad))
    part.mid, part.low = xp.where(bad, 0.0, part.mid), xp.where(bad, 0.0, part.low)
    part.rad = xp.where(bad, np.inf, part.rad)
