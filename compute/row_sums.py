"""Sums over rows of products of a matrix in two slices with a pair, tile by tile: what dK and dV of Tier 2 are.

Guarantees: high + low is within `radius` of Σ_i a_ij·x_ic for every j and c, by (J6) of compute/enclosure.md. NumPy
and CuPy alike.
Does not: know what a and x stand for; their own errors are the caller's `sizes`.
"""

from __future__ import annotations

import numpy as np

from compute.arrays import Array, Namespace
from compute.heads import F64
from compute.outward import ETA, UP, U, sum_up
from compute.slices import Pair, bits_of, split_at
from compute.table_exp import two_sum


class RowSums:
    """(J6) Σ_i a_ij·x_ic over tiles of rows, a in two slices: exact products joined as a pair, the rest in float64.

    count: tiles. Column sums and row maxima bound the errors (see `radius`).
    """

    def __init__(self, xp: Namespace, m: int, width: int, bits: int, count: int) -> None:
        self.xp, self.m, self.bits, self.count, self.longest = xp, m, bits, count, 1
        self.high, self.low = xp.zeros((m, width)), xp.zeros((m, width))
        self.cut = xp.zeros(m)  # Σ|a1| in the units that the cuts of x are made in
        self.cut_top = xp.zeros(width)
        self.second = xp.zeros(width)  # Σ_i |a2|·|x|
        self.lost = xp.zeros(width)  # further errors, column by column

    def add(self, a: F64, x: Pair, exponent: Array | None, top2: F64, columns: F64) -> None:
        """a (2, r, padded), x a pair (r, c); exponent (r,): row i of a[0] is a multiple of 2^(exponent − bits) and at
        most 2^exponent (None: 0). top2 (r,): bound of |a[1]|. columns (m,): Σ_i |a1|·2^(−exponent), raised."""
        xp, r, m = self.xp, a.shape[1], self.m
        where = xp.zeros((r, 1), dtype=np.int32) if exponent is None else exponent[:, None]
        own = 52 - self.bits - bits_of(r)
        head, tail = x
        sized = xp.where(head == 0, -(2**20), xp.frexp(head)[1] + where)
        top = xp.clip(sized.max(axis=0), -1100, None)
        first = split_at(head, top - own - where)
        rest = (head - first) + tail
        a1, a2 = a[0, :, :m].T, a[1, :, :m].T
        self.high, e = two_sum(self.high, a1 @ first)
        self.low += (a1 @ rest + a2 @ head) + e
        self.cut += columns
        self.cut_top = xp.maximum(self.cut_top, xp.ldexp(xp.ones(top.shape), top - own - 1) * (1 + 2.0**-20))
        self.second += sum_up((top2[:, None] * abs(head)).sum(axis=0), r + 2)
        self.longest = max(self.longest, r)

    def radius(self, sizes: list[tuple[F64, F64]], first: tuple[F64, F64]) -> F64:
        """(m, c). sizes: pairs (Σ_i a_ij (m,), max_i t_ic (c,)) whose products bound errors; first: one that bounds
        Σ|a1||x|."""
        n = self.count * self.longest
        way = (self.longest + self.count + 12) * U
        rad = way * (self.cut[:, None] * self.cut_top + self.second * UP) + self.lost
        # the rounded-off parts of the heads, and x's own error
        rad = rad + (4 * self.count * self.count * U * U + 2.0**-97) * first[0][:, None] * first[1]
        for total, top in sizes:
            rad = rad + total[:, None] * top
        return rad * (1 + 4 * (n + 16) * U) * UP + 8 * (n + 4) * ETA
