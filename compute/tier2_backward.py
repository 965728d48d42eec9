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
from compute.arrays import Namespace
from compute.block_sums import block_product, tree
from compute.heads import F64, Head
from compute.outward import ETA, FLOOR, UP, U, largest, sum_up
from compute.row_sums import RowSums
from compute.slices import Columns, bits_of, pair_tree, quotient
from compute.table_exp import two_product, two_sum
from compute.tier2 import Tight, Weights, path, tight_and, tile_size
from compute.tier2_products import Products, Shifted, Sliced
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


def tight_backward(
    head: Head, grad: F64, *, want_bias: bool = False, tile: int | None = None
) -> tuple[Tight, TightGradients]:
    """Enclosures of output, log-sum-exp and all gradients of one head; grad (n, d_v) is exact as given. tile: rows that
    are worked on at once."""
    xp = head.xp
    sums = _Sums(head, xp.where(head.blank[:, None], 0.0, grad), want_bias)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        out = tight_and(head, np.arange(head.n), sums.add, tile or tile_size(head, TILE))
        return out, sums.finish()


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

    def _start(self, o: Scores, v: Columns, r: int) -> None:
        """What all tiles share; r: rows of the first one, the largest."""
        head, xp, grad, m = self.head, self.xp, self.grad, self.head.m
        n, d = head.q.shape
        self.products = Products(head, grad, v, r)
        self.unit, self.keys, self.bits = self.products.unit, self.products.keys, v.bits
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
        count = -(-n // r)
        self.dk = RowSums(xp, m, head.q.shape[1], self.keys.bits, count)
        self.dv = RowSums(xp, m, head.v.shape[1], self.bits, count)
        self.weight, self.score = xp.zeros(m), xp.zeros(m)
        self.tops = [xp.zeros(head.q.shape[1]) for _ in range(3)] + [xp.zeros(head.v.shape[1]) for _ in range(2)]

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
        g = self.products.shifted(v, t)
        y = self.products.weighted(t, g)
        shift, sink = self._shift(v, t, g, y)
        e_g = (g.error + shift) * UP
        c2 = (1 + pi) * e_g
        if self.dbias is not None:
            self._bias(t, y, pi, c2, nu * (g.top + e_g), inverse)
        if t.slope is not None:
            assert head.softcap is not None
            y = self.products.sloped(y, t.slope)
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

    def _shift(self, v: Columns, t: Weights, g: Shifted, y: Sliced) -> tuple[F64, tuple[F64, F64, F64]]:
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

    def _bias(self, t: Weights, y: Sliced, pi: F64, c2: F64, lost: F64, inverse: F64) -> None:
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

    def _queries(self, t: Weights, y: Sliced, pi: F64, c2: F64, lost: F64) -> None:
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
        own = 8 * U * abs(low) + 4 * U * U * abs(mid)
        self.scale_parts.append(self._added(p, pe + q * low, abs(q) * (rad + own) + 8 * ETA * (1 + abs(mid))))
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

    def _keys(self, o: Scores, t: Weights, y: Sliced, pi: F64, c2: F64, lost: F64, inverse: F64) -> None:
        """(J10) Σ_i dS τq."""
        xp, at = self.xp, t.at
        r = at.stop - at.start
        q1, q2 = o.queries[0][at], o.queries[1][at]
        unit = xp.broadcast_to((o.exponent[at, 0] + self.unit[at] - self.unit_k)[:, None], q1.shape)
        mid, low, _ = quotient((q1, q2), (t.total[0][:, None], t.total[1][:, None]))
        size = xp.ldexp(abs(q1) * (1 + 4 * U), unit) + ETA  # |τq|
        shares = xp.stack([inverse, xp.ldexp(xp.ones(r), -y.exponent)]) @ y.size
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

    def _sinks(self, t: Weights, g: Shifted, product: tuple[F64, F64, F64], pi: F64, shift: F64, nu: F64) -> None:
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


def _tame(xp: Namespace, part: Balls | None) -> None:
    """An overflow on the way leaves no bound."""
    if part is None:
        return
    bad = ~(xp.isfinite(part.mid) & xp.isfinite(part.low) & xp.isfinite(part.rad))
    part.mid, part.low = xp.where(bad, 0.0, part.mid), xp.where(bad, 0.0, part.low)
    part.rad = xp.where(bad, np.inf, part.rad)
